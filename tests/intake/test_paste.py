"""One paste of many outputs is split by content; what nobody places is counted, and nothing raises."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.case import Case
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import mangled

DATA = Path(__file__).parents[1] / "data"


def case_of(text: str, name: str = "paste") -> Case:
    fragments, summary = read_text(name, text, year=2026)
    return assemble(fragments, [summary])


def data(name: str) -> str:
    return (DATA / name).read_text()


def test_prompts_split_a_session_and_name_the_host() -> None:
    text = (
        "[root@gpu-17 ~]# nvidia-smi -q\n"
        + data("s001-h100-sxm-590-idle-load/idle.nvidia-smi-q.txt")
        + "[root@gpu-17 ~]# lspci\n"
        "00:09.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\nroot@gpu-17:~# dmesg | tail -1\n"
        "[100.5] NVRM: Xid (PCI:0000:00:09): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    )
    case = case_of(text)
    (snap,) = case.snapshots
    assert snap.node == "gpu-17"
    assert [a.pci_address for a in snap.accelerators or []] == ["0000:00:09.0"]
    assert list(snap.pci or {}) == ["0000:00:09.0"]
    assert [(e.code, e.node) for e in case.events] == [(79, "gpu-17")]
    assert case.inputs[0].unrecognised_lines == 0


def test_outputs_without_prompts_are_split_by_their_headers() -> None:
    text = "\n".join(
        data(name)
        for name in (
            "s014-a100-azure-lspci-nvlink/lspci-nn.txt",
            "s061-8xv100-hybrid-cube-topo/nvidia-smi-topo-m.txt",
            "s059-xid79-rtx4090-fell-off-bus/nvidia-smi-after-drain.txt",
            "s062-ethtool-mlx5-rx-overload/ethtool-S.txt",
        )
    )
    case = case_of(text)
    assert case.inputs[0].tools == ["lspci", "nvidia-smi topo -m", "nvidia-smi", "ethtool -S"]
    (snap,) = case.snapshots
    assert len(snap.pci or {}) == 31
    assert snap.topology is not None
    assert len(snap.accelerators or []) == 3
    assert (snap.nics or [])[0].statistics["rx_discards_phy"] == 58591428329


def test_file_headers_of_head_and_tail_split_too() -> None:
    text = f"==> a <==\n{data('s024-a100-nvlink-good/nvidia-smi-nvlink-status.txt')}\n==> b <==\n{data('s020-libnccl-segfault/dmesg.txt')}"
    case = case_of(text)
    assert set(case.inputs[0].tools) == {"nvidia-smi list", "kernel log"}
    assert [e.kind for e in case.events] == ["segfault"]


def test_event_inside_another_output_is_found_with_its_line() -> None:
    lines = data("s001-h100-sxm-590-idle-load/idle.nvidia-smi-q.txt").splitlines()
    lines.insert(
        120, "[7.5] NVRM: Xid (PCI:0000:00:09): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
    )
    case = case_of("\n".join(lines))
    assert [(e.code, e.line) for e in case.events] == [(119, 121)]
    assert (case.snapshots[0].accelerators or [])[0].remap_failure is False


def test_windows_line_ends_change_nothing() -> None:
    text = data("s013-8xh100-vm-xml-570/nvidia-smi-qx.xml")
    plain, dos = case_of(text), case_of(text.replace("\n", "\r\n"))
    assert [a.fabric_state for a in dos.snapshots[0].accelerators or []] == [
        a.fabric_state for a in plain.snapshots[0].accelerators or []
    ]


def test_unrecognised_text_is_counted_and_sampled() -> None:
    case = case_of("hello\nworld\n\nfoo bar\n")
    (item,) = case.inputs
    assert (item.lines, item.unrecognised_lines) == (4, 3)
    assert item.unrecognised_sample[0] == "1: hello"
    assert item.tools == []


def test_yaml_that_speaks_of_kernels_is_no_kernel_log() -> None:
    assert case_of("platform:\n  kernel: 5.15\n  driver: mlx5\n").inputs[0].tools == []


def test_binary_is_named_and_left_alone() -> None:
    case = case_of("\x00\x01\x02" * 5000)
    assert case.inputs[0].notes == ["binary data; expected text"]


def test_empty_text_is_no_trouble() -> None:
    assert list(case_of("").snapshots) == []


MANY = "\n".join(
    data(n)
    for n in (
        "s001-h100-sxm-590-idle-load/load.nvidia-smi.txt",
        "s014-a100-azure-lspci-nvlink/lspci-nn.txt",
        "s018-xid119-gsp-timeout-h100/dmesg.txt",
        "s055-nccl-2xa800-shm-instead-of-p2p/nccl.log",
        "s022-fabricmanager-nvswitch-nonfatal-12028/fabricmanager.log",
    )
)


@given(mangled(MANY))
@settings(max_examples=60, deadline=None)
def test_damaged_pastes_never_raise(text: str) -> None:
    case = case_of(text)
    assert not any("please report" in note for item in case.inputs for note in item.notes)


@given(st.text(max_size=500))
@settings(max_examples=150, deadline=None)
def test_any_text_never_raises(text: str) -> None:
    case_of(text)


def test_number_of_200_000_digits_costs_its_line_only() -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000001)\nGPU " + "9" * 200_000 + ": NVIDIA H100\n"
    )
    fragments, info = read_text("a.txt", text, year=2026)
    assert len(assemble(fragments, [info]).snapshots[0].accelerators or []) == 1
    assert not any("failed" in note for note in info.notes)
    assert info.unrecognised_lines == 1


def test_speed_that_is_no_number_costs_its_line_only() -> None:
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n\t Link 0: 26.5.62 GB/s\n\t Link 1: 26.562 GB/s\n"
    fragments, info = read_text("a.txt", text, year=2026)
    assert not any("failed" in note for note in info.notes)
    assert info.unrecognised_lines == 1
    assert len(assemble(fragments, [info]).snapshots[0].accelerators or []) == 1
