"""Cases of which only the facts are public: captures written from the facts, in the tools' formats.

Each case must give what its case.yaml expects and nothing that it forbids. Its near miss is the same input with the fault taken out of the
text: the finding must go with it. For cases that are healthy the near miss puts a fault in.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "facts_only"
CASES = sorted(path.name for path in FOLDER.iterdir())

_spec = importlib.util.spec_from_file_location("corpus", ROOT / "benchmarks" / "corpus.py")
assert _spec is not None
assert _spec.loader is not None
corpus = sys.modules.setdefault("corpus", importlib.util.module_from_spec(_spec))
if not hasattr(corpus, "score"):
    _spec.loader.exec_module(corpus)
IDS = corpus.load_ids()

Edit = tuple[str, str, str]  # file, regular expression, replacement
Diagnose = Callable[..., "Verdict"]  # noqa: F821 - the class lives in conftest


@pytest.fixture
def edited(texts: Diagnose) -> Diagnose:
    """Diagnose the inputs of a case after edits; an edit that changes nothing is an error of the test."""

    def run(case: str, *edits: Edit) -> Verdict:  # noqa: F821 - lives in conftest
        (folder,) = FOLDER.glob(f"{case}-*")
        contents = []
        for path in sorted(folder.iterdir()):
            if path.name == "case.yaml":
                continue
            text = path.read_text(encoding="utf-8")
            for name, old, new in edits:
                if name == path.name:
                    text, count = re.subn(old, new, text, flags=re.M)
                    assert count, f"{name}: {old!r} changes nothing"
            contents.append(text)
        return texts(*contents)

    return run


@pytest.mark.parametrize("case", CASES)
def test_case_gives_what_its_facts_ask_for(case: str) -> None:
    result = corpus.score(FOLDER / case, IDS)
    assert result is not None
    assert (result.missed, result.later, result.forbidden, result.alarms) == ([], [], [], [])


def test_every_expected_id_is_mapped_by_hand() -> None:
    """An id that is not in the table would be compared by its own name, and a typing error in a forbidden one would never be seen."""
    import yaml

    names = set()
    for case in CASES:
        text = yaml.safe_load((FOLDER / case / "case.yaml").read_text(encoding="utf-8"))
        names |= {corpus._split(str(one))[0] for one in [*text["expected_findings"], *text.get("must_not_report", [])]}
    assert names - set(IDS["map"]) == set()


def test_all_thirty_three_cases_are_there() -> None:
    assert [case[:3] for case in CASES] == [f"i{n:02d}" for n in range(1, 34)]


ACS_OFF = (r"ReqRedir\+ CmpltRedir\+ UpstreamFwd\+", "ReqRedir- CmpltRedir- UpstreamFwd-")
NO_WARNING = (r"^.*NCCL WARN.*\n(?:.*-> \d+.*\n)*", "")
NO_WATCHDOG = (r"^.*Watchdog caught.*\n", "")
WORK = (r"100 %, 0 %, \d+\.\d+ W", "97 %, 38 %, 236.00 W")

#: case -> edits that take the fault out, so that nothing at warning or worse is left
SILENT: dict[str, list[Edit]] = {
    "i01": [("train.log", *NO_WATCHDOG), ("lspci-vvv.txt", *ACS_OFF)],
    "i02": [("nccl-tests.err", *NO_WARNING), ("lspci.txt", *ACS_OFF)],
    "i03": [
        ("cmdline.txt", "intel_iommu=on", "intel_iommu=on iommu=pt"),
        ("smi.csv", *WORK),
        ("nccl.log", "direct shared memory", "P2P/IPC"),
    ],
    "i04": [
        ("lspci-vv.txt", *ACS_OFF),
        ("modules.txt", r"^nvidia_uvm", "nvidia_peermem         16384  0\nnvidia_uvm"),
        ("modules.txt", r"^(ib_core .*)", r"\1,nvidia_peermem"),
        ("nccl.log", r"via NET/IB/(\d)", r"via NET/IB/\1/GDRDMA"),
    ],
    "i05": [
        ("limits.txt", r"-l\) 8192", "-l) unlimited"),
        ("run.log", *NO_WARNING),
        ("run.log", r"^.*Test NCCL failure.*\n", ""),
    ],
    "i06": [
        ("nccl.log", "environment to 0", "environment to 3"),
        ("nccl.log", *NO_WARNING),
        ("nccl.log", "NET/IB/0", "NET/IB/0/GDRDMA"),
    ],
    "i07": [
        ("node-b.txt", r"^nvidia_uvm", "nvidia_peermem         16384  0\nnvidia_uvm"),
        ("node-b.txt", r"^(ib_core .*)", r"\1,nvidia_peermem"),
        ("nccl.log", r"NET/IB/0$", "NET/IB/0/GDRDMA"),
    ],
    "i08": [("rank0.log", "RDMA Disabled", "RDMA Enabled"), ("rank0.log", r"via NET/IB/(\d)", r"via NET/IB/\1/GDRDMA")],
    "i10": [("nvidia-smi-q.txt", "Insufficient Resources", "Success")],
    "i11": [
        (
            "container.txt",
            "Failed to initialize NVML: Unknown Error",
            "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-20000000-0000-4000-8000-000000000001)",
        )
    ],
    "i12": [
        ("node.txt", "530.30.02", "530.41.03"),
        ("node.txt", r"^.*don't match with driver.*\n", ""),
        ("node.txt", r"failed \(Result: exit-code\)", "active (running)"),
    ],
    "i14": [
        ("job.log", r"^.*IGNORE_NET_MISMATCH.*\n", ""),
        ("job.log", *NO_WARNING),
        ("job.log", r"\[0\]erdma_0:1/RoCE \[RO\]", "[0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]"),
        ("gpus.csv", *WORK),
    ],
    "i15": [("q.txt", r": P0$", ": P8"), ("q.txt", ": 98 %", ": 0 %")],
    "i16": [
        ("status.txt", r"failed \(Result: timeout\)", "active (running)"),
        ("status.txt", "In Progress, N/A", "Completed, Success"),
    ],
    "i17": [("versions.txt", "version: 3.3.5", "version: 4.2.3")],
    "i18": [("node.txt", r"nvidia.com/gpu:     7", "nvidia.com/gpu:     8")],
    "i19": [
        ("hypervisor-lspci.txt", "ATSCtl:\tEnable-", "ATSCtl:\tEnable+"),
        ("hypervisor-lspci.txt", r"(ACSCtl:.*)DirectTrans-", r"\1DirectTrans+"),
    ],
    "i20": [("topo.txt", r"\tPXB\tPIX\tSYS\tSYS\t0-31", "\tPIX\tPXB\tSYS\tSYS\t0-31")],
    "i21": [("lspci.txt", r"RlxdOrd-", "RlxdOrd+")],
    "i22": [("trainer.log", "Using network Socket", "Using network IB"), ("trainer.log", "NET/Socket/0", "NET/IB/0/GDRDMA")],
    "i23": [("dmesg.txt", r"^.*Xid \(PCI.*\n", "")],
    "i24": [("slurm-7713.err", *NO_WARNING), ("acs.txt", *ACS_OFF)],
    "i28": [
        (
            "smi.txt",
            r"(?s)(\|   2  NVIDIA L40S.*?\+\n)",
            r"\1|   3  NVIDIA L40S                 On  |   00000000:CA:00.0 Off |                    0 |" "\n",
        )
    ],
    "i29": [("journal.txt", r"^.*NVRM.*\n", "")],
    "i30": [
        (
            "dcgm-r3.txt",
            r"\| Fail - All                                     \|",
            "| Pass - All                                     |",
        )
    ],
    "i33": [("nv-hostengine.log", r"^.*Health.*\n", "")],
}


@pytest.mark.parametrize("case", SILENT)
def test_without_its_fault_the_case_is_silent(edited: Diagnose, case: str) -> None:
    assert edited(case).loud, "the case itself must alarm"
    assert edited(case, *SILENT[case]).loud == set()


def test_i01_acs_without_a_hang_is_no_hang(edited: Diagnose) -> None:
    assert edited("i01", ("train.log", *NO_WATCHDOG)).loud == {"pcie.acs_enabled"}
    assert edited("i01", ("lspci-vvv.txt", *ACS_OFF)).loud == {"torch.watchdog_timeout"}


def test_i01_the_hang_is_not_blamed_on_pcie_where_nvlink_carries_it(edited: Diagnose) -> None:
    from kilter.facts.accelerator import Accelerator, NvLink

    verdict = edited("i01")
    assert "nccl.hang.p2p" in verdict.ids
    verdict.case.snapshots[0].accelerators = [Accelerator(index=0, nvlinks=[NvLink(id=0, state="active")])]
    assert "nccl.hang.p2p" not in type(verdict)(verdict.case).ids


def test_i01_cards_below_root_ports_of_two_sockets_are_not_on_one_path(edited: Diagnose) -> None:
    edits = [
        ("lspci-vvv.txt", r"(?s)(^41:00\.0.*?Cache Line Size: 64 bytes\n)", r"\1\tNUMA node: 1\n"),
        ("lspci-vvv.txt", r"(?s)(^21:00\.0.*?Cache Line Size: 64 bytes\n)", r"\1\tNUMA node: 0\n"),
    ]
    assert "pcie.acs_enabled" not in edited("i01", *edits).loud


def test_i03_translation_alone_is_named_without_a_hang(edited: Diagnose) -> None:
    assert "nccl.hang.p2p" not in edited("i03", ("smi.csv", *WORK)).ids
    assert "nccl.hang.p2p" not in edited("i03", ("nccl.log", "P2P/IPC", "direct shared memory")).ids


def test_i08_peermem_not_loaded_is_another_finding(edited: Diagnose) -> None:
    ids = edited("i08", ("modules.txt", r"^nvidia_peermem.*\n", "")).ids
    assert "module.nvidia_peermem.loaded_but_unused" not in ids
    assert "nccl.net.gdr_disabled" in ids


def test_i08_old_nccl_that_looks_for_the_old_module_is_named(edited: Diagnose) -> None:  # NVIDIA/nccl#1676
    finding = edited("i08", ("rank0.log", r"2\.27\.3", "2.21.5")).one("module.nvidia_peermem.loaded_but_unused")
    assert "nv_peer_mem only" in finding.causes[0].text
    assert "nv_peer_mem only" not in edited("i08").one("module.nvidia_peermem.loaded_but_unused").causes[0].text


def test_i08_distance_that_nccl_chose_is_not_an_unused_module(edited: Diagnose) -> None:
    log = [("rank0.log", "RDMA Disabled", "RDMA Enabled")]
    assert "module.nvidia_peermem.loaded_but_unused" not in edited("i08", *log).ids
    unset = [("rank0.log", r"\Au24:", "u24:44100:44200 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to LOC\nu24:")]
    assert "module.nvidia_peermem.loaded_but_unused" not in edited("i08", *unset).ids


def test_i09_bridged_cards_with_their_links_up_are_silent(edited: Diagnose) -> None:
    up = "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(12)).rstrip("\n")
    edits = [("smi.txt", r"^NVML: Unable.*$", up), ("smi.txt", r"SYS(?=\tNODE)|(?<=GPU1\t)SYS", "NV12")]
    assert edited("i09", *edits).ids == {}


def test_i09_modules_that_always_have_nvlink_are_a_warning(edited: Diagnose) -> None:
    verdict = edited("i09", ("smi.txt", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3"))
    assert verdict.ids["topo.p2p_via_sys"] == "warning"
    assert verdict.ids["nvlink.all_inactive"] == "critical"


def test_i11_other_nvml_errors_are_the_drivers(edited: Diagnose) -> None:
    verdict = edited("i11", ("container.txt", "Unknown Error", "Driver/library version mismatch"))
    assert verdict.ids == {"driver.error": "critical"}


def test_i13_a_dead_manager_on_a_machine_with_switches_is_critical(edited: Diagnose) -> None:
    switch = "c4:00.0 Bridge [0680]: NVIDIA Corporation GA100 [A100 NVSwitch] [10de:1af1] (rev a1)\n17:00.0"
    assert edited("i13", ("fm.txt", r"^17:00\.0", switch)).ids["fabric.manager_down"] == "critical"


def test_i15_idle_at_gen1_is_never_told(edited: Diagnose) -> None:
    (finding,) = [f for f in edited("i15").diagnosis.findings if f.id == "pcie.link.gen_degraded"]
    assert finding.subject.name == "GPU1 0000:02:00.0"
    busy = ("q.txt", r"(Current +: )1\n(.*Device Current +: )1$", r"\g<1>5\n\g<2>5")
    assert edited("i15", busy).loud == set()


def test_i16_manager_in_a_container_is_not_missed_on_the_host(edited: Diagnose) -> None:
    registered = ("status.txt", "In Progress, N/A", "Completed, Success")
    gone = (
        "status.txt",
        r"(?s)× nvidia-fabricmanager\.service.*may be incomplete\.",
        "Unit nvidia-fabricmanager.service could not be found.",
    )
    assert edited("i16", registered, gone).loud == set()
    assert edited("i16", gone).ids["fabric.manager_down"] == "critical"
    stopped = ("status.txt", r"failed \(Result: timeout\)", "inactive (dead)")
    assert edited("i16", registered, stopped).ids["fabric.manager_down"] == "warning"


def test_i16_rack_scale_nodes_have_their_manager_elsewhere(edited: Diagnose) -> None:
    assert "fabric.manager_down" not in edited("i16", ("status.txt", "NVIDIA H100 80GB HBM3", "NVIDIA GB200")).ids


def test_i16_tells_since_when(edited: Diagnose) -> None:
    assert "2026-01-28" in edited("i16").one("fabric.manager_down").what


def test_i17_gpus_that_never_had_profiling_metrics_are_no_gap(edited: Diagnose) -> None:  # NVIDIA/dcgm-exporter#395
    edits = ("versions.txt", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla M60")
    assert edited("i17", edits).loud == set()


def test_i17_version_in_the_exporters_own_log(edited: Diagnose) -> None:
    started = ("exporter.log", r'"Starting dcgm-exporter"', '"Starting dcgm-exporter" Version=3.3.5-3.4.1')
    gone = ("versions.txt", r"^version.*\n", "")
    assert edited("i17", started, gone).ids == {"monitoring.dcgm_too_old_for_gpu": "warning"}
    assert edited("i17", gone).loud == set()
    assert edited("i17", gone).outcome("monitoring.dcgm_too_old_for_gpu") == "not checked"


def test_i18_all_gone_is_another_finding(edited: Diagnose) -> None:
    assert edited("i18", ("node.txt", r"nvidia.com/gpu:     7", "nvidia.com/gpu:     0")).ids == {
        "k8s.device_plugin.gone": "error"
    }


def test_i19_on_bare_metal_the_same_bits_are_acs(edited: Diagnose) -> None:
    edits = [("hypervisor-lspci.txt", r"vfio-pci", "nvidia")]
    assert edited("i19", *edits).loud == {"pcie.acs_enabled"}


def test_i19_direct_translation_without_ats_does_not_help(edited: Diagnose) -> None:
    assert "vm.p2p_via_host" in edited("i19", ("hypervisor-lspci.txt", r"(ACSCtl:.*)DirectTrans-", r"\1DirectTrans+")).loud


def test_i20_switches_in_base_mode_are_not_virtual(edited: Diagnose) -> None:
    assert "topo.virtual_pcie_bridge" not in edited("i20", ("n03-topo.xml", "0x100b", "0xa096")).ids


def test_i21_on_other_processors_it_is_information(edited: Diagnose) -> None:
    verdict = edited(
        "i21", ("lscpu.txt", r"Model:               207", "Model:               106"), ("lscpu.txt", "8568Y", "8380")
    )
    assert verdict.ids == {"pcie.relaxed_ordering_off": "info"}


def test_i21_in_a_guest_the_host_decides(edited: Diagnose) -> None:
    verdict = edited("i21", ("lscpu.txt", r"^NUMA:", "Hypervisor vendor:       KVM\nNUMA:"))
    assert "pcie.relaxed_ordering_off" not in verdict.ids


def test_i22_one_node_may_use_sockets(edited: Diagnose) -> None:
    assert "nccl.net.fallback_to_socket" not in edited("i22", ("trainer.log", "nNodes 2", "nNodes 1")).loud


@pytest.mark.parametrize("driver", ["525.105.17", "525.125.06", "535.129.03", "520.61.05"])
def test_i23_other_drivers_are_not_called_bad(edited: Diagnose, driver: str) -> None:
    assert edited("i23", ("dmesg.txt", r"525\.60\.13", driver)).loud == {"gpu.xid.119"}


def test_i23_without_the_symptom_the_version_is_no_finding(edited: Diagnose) -> None:
    assert edited("i23", ("dmesg.txt", "119, pid=41823, name=python3, Timeout.*$", "31, pid=1, name=x, Ch 00000008")).loud == {
        "gpu.xid.31"
    }


@pytest.mark.parametrize(("case", "file"), [("i25", "describe.txt"), ("i26", "describe.txt")])
def test_i25_i26_other_codes_of_the_same_watch_are_told(edited: Diagnose, case: str, file: str) -> None:
    other = (file, "DCGM_FR_IMEX_UNHEALTHY", "DCGM_FR_NVLINK_DOWN")
    assert "k8s.node_condition" in edited(case, other).loud
    both = (file, "ErrorCode:DCGM_FR_IMEX_UNHEALTHY", "ErrorCode:DCGM_FR_IMEX_UNHEALTHY ErrorCode:DCGM_FR_NVLINK_DOWN")
    assert "k8s.node_condition" in edited(case, both).loud


def test_i25_a_condition_that_should_be_true_is_told_when_it_is_false(edited: Diagnose) -> None:
    verdict = edited("i25", ("describe.txt", "DCGMHealthCode122", "DCGMHealthCode95 "))
    (finding,) = [f for f in verdict.diagnosis.findings if f.severity.value == "warning"]
    assert (finding.id, finding.subject.name) == ("k8s.node_condition", "AcceleratedHardwareReady")


def test_i26_domain_that_is_not_up_is_told(edited: Diagnose) -> None:
    edits = [
        ("imex.txt", "Domain State: UP", "Domain State: DEGRADED"),
        ("imex.txt", r"(192\.0\.2\.82 +- )READY", r"\1UNAVAILABLE"),
    ]
    finding = edited("i26", *edits).one("imex.domain_degraded")
    assert (finding.severity.value, "192.0.2.82" in finding.what) == ("warning", True)
    assert edited("i26", ("imex.txt", "Domain State: UP", "Domain State: DOWN")).ids["imex.domain_degraded"] == "error"
    versions = [
        ("imex.txt", "Domain State: UP", "Domain State: DOWN"),
        ("imex.txt", r"^       0        C   C", "       0        C   !V!"),
    ]
    assert edited("i26", *versions).one("imex.domain_degraded").causes[0].likelihood == "likely"


def test_i26_wrong_data_of_the_same_benchmark_is_told(edited: Diagnose) -> None:
    wrong = ("nvls.txt", r"843\.06      0", "843.06     17")
    assert edited("i26", wrong).loud == {"bench.data_errors"}


def test_i27_other_watches_and_the_power_brake_are_told(edited: Diagnose) -> None:
    other = [
        ("health.txt", "Power system ", "Memory system"),
        (
            "health.txt",
            "Detected clocks event due to power violation in GPU 0.  ",
            "A DBE has been detected in GPU 0.                       ",
        ),
    ]
    assert edited("i27", *other).loud == {"dcgm.health.memory"}
    assert edited("i27").ids == {"dcgm.health.power_violation": "info"}


def test_i29_pieces_of_other_devices_between_the_lines_do_not_matter(edited: Diagnose) -> None:
    finding = edited("i29").one("gpu.xid.79")
    assert finding.subject.name == "GPU 0000:9b:00.0"


def test_i30_cut_table_is_no_pass(edited: Diagnose) -> None:
    cut = ("dcgm-r3.txt", r"(?s)\+-----  Integration.*", "")
    verdict = edited("i30", cut)
    assert verdict.loud == set()
    assert any("cut short" in note for given in verdict.case.inputs for note in given.notes)


@pytest.mark.parametrize(("case", "file"), [("i31", "two-ranks.txt"), ("i32", "tree.txt")])
def test_i31_i32_failed_checks_of_the_data_are_told(edited: Diagnose, case: str, file: str) -> None:
    assert "bench.data_errors" in edited(case, (file, r"Out of bounds values : 0 OK", "Out of bounds values : 5 FAILED")).loud


def test_i33_a_hot_core_points_to_the_air_first(edited: Diagnose) -> None:
    cool = edited("i33").one("gpu.throttle.thermal")
    hot = edited("i33", ("temps.csv", ", 75, 84,", ", 91, 95,")).one("gpu.throttle.thermal")
    assert cool.causes[0].text == "memory temperature"
    assert hot.causes[0].text.startswith("air flow")


def test_i07_names_the_node_that_stages(edited: Diagnose) -> None:
    assert edited("i07").one("nccl.net.gdr_disabled").what.endswith("none on a100-2")
    both = ("nccl.log", r"(a100-1.*)/GDRDMA", r"\1")
    assert "none on" not in edited("i07", both).one("nccl.net.gdr_disabled").what


def test_i14_unequal_numbers_of_devices_are_told_without_any_warning(edited: Diagnose) -> None:
    verdict = edited("i14", ("job.log", *NO_WARNING), ("job.log", r"^.*IGNORE_NET_MISMATCH.*\n", ""), ("gpus.csv", *WORK))
    assert verdict.loud == {"nccl.net.device_count_differs"}
    assert "h20-2 has 1 RDMA device(s), other nodes 2" in verdict.one("nccl.net.device_count_differs").what


@pytest.mark.parametrize("name", ["NVIDIA B200", "NVIDIA GB200", "NVIDIA B300 SXM6 AC", "NVIDIA GeForce RTX 5090"])
def test_i17_every_blackwell_is_known_as_one(edited: Diagnose, name: str) -> None:
    assert edited("i17", ("versions.txt", "NVIDIA RTX PRO 6000 Blackwell Server Edition", name)).loud
