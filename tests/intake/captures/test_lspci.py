from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
VERSIONS = DATA / "lspci-versions"
VVV = (DATA / "s016-h100-xe9680-lspci-acs-harmless/lspci-vvv.txt").read_text()
NN = (DATA / "s014-a100-azure-lspci-nvlink/lspci-nn.txt").read_text()
LOST = (DATA / "s059-xid79-rtx4090-fell-off-bus/lspci-nvidia.txt").read_text()
MADE = {name: (VERSIONS / f"vvv-{name}.txt").read_text() for name in ("3.5.6", "3.7.0", "3.9.0", "3.14.0")}


def devices(text, **more):
    return parse_text("lspci", text, **more).snapshot.pci


def facts(device):
    skip = {"origin", "missing", "bars"}
    return {
        name: getattr(device, name)
        for name in device.__struct_fields__
        if name not in skip and getattr(device, name) not in (None, {})
    }


@pytest.fixture(scope="module")
def xe9680():
    return parse_text("lspci", VVV)


def test_a_whole_vvv_listing_of_an_h100_server_leaves_no_line_unplaced(xe9680):
    assert xe9680.unplaced == []
    assert xe9680.notes == []
    assert len(xe9680.snapshot.pci) == 30


def test_an_h100_tells_all_that_lspci_prints_about_it(xe9680):
    gpu = xe9680.snapshot.pci["0000:19:00.0"]
    assert gpu.is_accelerator
    assert (gpu.vendor_id, gpu.device_id, gpu.class_code, gpu.revision) == (0x10DE, 0x2330, 0x0302, 0xA1)
    assert (gpu.subsystem_vendor_id, gpu.subsystem_device_id) == (0x10DE, 0x16C1)
    assert (gpu.link_speed_gts, gpu.link_width, gpu.link_speed_max_gts, gpu.link_width_max, gpu.link_speed_target_gts) == (
        32,
        16,
        32,
        16,
        32,
    )
    assert (gpu.max_payload_bytes, gpu.max_payload_supported_bytes, gpu.mrrs_bytes) == (256, 256, 4096)
    assert (gpu.relaxed_ordering, gpu.extended_tag, gpu.no_snoop, gpu.aspm) == (True, True, False, "Disabled")
    assert (gpu.driver, gpu.numa_node, gpu.power_state, gpu.config_readable) == ("nvidia", 0, "D0", True)
    assert gpu.aer_correctable == ["RxErr", "BadTLP", "Timeout"]
    assert gpu.aer_uncorrectable == []
    assert (gpu.has_acs, gpu.has_ats, gpu.vfs, gpu.rebar_bytes) == (False, False, 0, 128 << 30)
    assert [(bar.index, bar.size_bytes) for bar in gpu.bars] == [(0, 16 << 20), (2, 128 << 30), (4, 32 << 20)]


def test_each_fact_names_the_line_it_came_from(xe9680):
    gpu = xe9680.snapshot.pci["0000:9b:00.0"]
    lines = VVV.splitlines()
    assert lines[gpu.origin["link_speed_gts"][1] - 1].strip().startswith("LnkSta:")
    assert "MaxReadReq" in lines[gpu.origin["mrrs_bytes"][1] - 1]
    assert lines[gpu.origin["driver"][1] - 1].strip() == "Kernel driver in use: nvidia"


def test_acs_redirection_sits_on_four_ports_above_the_nvswitches_only(xe9680):
    pci = xe9680.snapshot.pci
    redirecting = sorted(address for address, device in pci.items() if "ReqRedir" in (device.acs_enabled or []))
    assert redirecting == [f"0000:82:0{n}.0" for n in range(4)]
    below = {device.address for device in pci.values() if device.parent in redirecting}
    assert below == {switch.pci_address for switch in xe9680.snapshot.nvswitches}


def test_a_gpu_reaches_its_root_port_through_parents(xe9680):
    pci = xe9680.snapshot.pci
    path, at = [], "0000:19:00.0"
    while at:
        path.append(at)
        at = pci[at].parent
    assert path == ["0000:19:00.0", "0000:17:01.0", "0000:16:00.0", "0000:15:01.0"]
    assert pci["0000:15:01.0"].parent == ""


def test_a_terse_listing_names_devices_but_no_parents():
    fragment = parse_text("lspci", NN)
    assert fragment.unplaced == []
    pci = fragment.snapshot.pci
    assert sum(device.is_accelerator for device in pci.values()) == 8
    assert len(fragment.snapshot.nvswitches) == 6
    assert {device.parent for device in pci.values()} == {None}
    assert pci["0001:00:00.0"].description == "NVIDIA Corporation GA100 [A100 SXM4 80GB]"
    assert pci["0001:00:00.0"].driver is None
    assert fragment.snapshot.accelerators is None


def test_rev_ff_is_a_function_that_does_not_answer():
    pci = devices(LOST)
    assert [address for address, device in pci.items() if device.config_readable is False] == ["0000:c2:00.0", "0000:c2:00.1"]
    dead = pci["0000:c2:00.0"]
    assert (dead.vendor_id, dead.device_id, dead.class_code, dead.revision) == (0x10DE, 0x2684, 0x0300, None)
    assert pci["0000:01:00.0"].config_readable is None


def test_ff_config_space_is_not_a_device_without_links():
    text = "0a:00.0 3D controller: NVIDIA Corporation GA100 [A100] (rev ff) (prog-if ff)\n"
    text += "\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia\n\n"
    dead = devices(text)["0000:0a:00.0"]
    assert dead.config_readable is False
    assert dead.has_acs is None
    assert dead.link_width is None
    assert dead.driver == "nvidia"


@pytest.mark.parametrize("version", ["3.7.0", "3.9.0"])
def test_all_versions_of_lspci_tell_the_same_facts(version):
    ours, newest = devices(MADE[version]), devices(MADE["3.14.0"])
    assert {address: facts(device) for address, device in ours.items()} == {
        address: facts(device) for address, device in newest.items()
    }


def test_the_old_lspci_of_rhel7_lacks_only_what_it_does_not_know():
    fragment = parse_text("lspci", MADE["3.5.6"])
    assert fragment.unplaced == []
    ours, newest = fragment.snapshot.pci, devices(MADE["3.14.0"])
    newer = {"link_speed_gts", "link_speed_max_gts", "link_speed_target_gts", "lane_errors", "rebar_bytes"}
    for address, device in ours.items():
        for name, value in facts(newest[address]).items():
            if getattr(device, name) != value:
                assert name in newer
                assert getattr(device, name) is None
    missing = ours["0000:00:01.0"].missing["link_speed_gts"]
    assert missing.reason is Reason.NOT_READABLE
    assert "newer lspci" in missing.hint


def test_the_made_machine_is_read_as_it_was_made():
    pci = devices(MADE["3.14.0"])
    port, below, empty, gpu = (pci[f"0000:{slot}"] for slot in ("00:01.0", "02:00.0", "02:01.0", "03:00.0"))
    assert port.acs_enabled == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    assert (port.port_type, pci["0000:01:00.0"].port_type, below.port_type) == ("root port", "upstream port", "downstream port")
    assert (below.link_speed_gts, below.link_width, below.link_speed_max_gts, below.link_width_max) == (8, 8, 32, 16)
    assert (below.link_speed_target_gts, below.aspm) == (8, "L1 Enabled")
    assert below.acs_enabled == []
    assert empty.link_width is None
    assert empty.missing["link_width"].reason is Reason.NOT_SUPPORTED
    assert gpu.aer_uncorrectable == ["CmpltTO", "UnsupReq"]
    assert gpu.aer_correctable == ["RxErr", "BadTLP"]
    assert gpu.device_errors == ["NonFatalErr", "UnsupReq"]
    assert gpu.lane_errors == [0, 15]
    assert (gpu.ats_enabled, gpu.vfs, gpu.rebar_bytes) == (True, 2, 128 << 30)
    assert pci["0000:03:00.4"].physical_function == "0000:03:00.0"
    assert pci["0000:04:00.0"].config_readable is False
    assert pci["0000:04:00.0"].vendor_id is None


def test_a_virtual_function_reports_no_link_rather_than_width_zero():
    virtual = devices(MADE["3.14.0"])["0000:03:00.4"]
    assert (virtual.link_speed_gts, virtual.link_width) == (None, None)
    assert virtual.missing["link_width"].reason is Reason.NOT_SUPPORTED


@pytest.mark.parametrize("name", ["nnmm.txt", "mm.txt", "vmmnn.txt", "n.txt", "v.txt", "PPnn.txt"])
def test_every_form_names_the_gpu(name):
    fragment = parse_text("lspci", (VERSIONS / name).read_text())
    assert fragment.unplaced == []
    gpu = fragment.snapshot.pci["0000:03:00.0"]
    assert (gpu.vendor_id, gpu.class_code) == (0x10DE, 0x0302)
    assert gpu.device_id == (None if name in ("mm.txt", "v.txt") else 0x2330)
    assert gpu.revision == 0xA1
    assert fragment.snapshot.pci["0000:04:00.0"].config_readable is False
    if name not in ("n.txt", "PPnn.txt"):
        assert (gpu.subsystem_vendor_id, gpu.subsystem_device_id) == (0x10DE, 0x16C1)


def test_the_machine_readable_form_keeps_the_description():
    gpu = devices((VERSIONS / "nnmm.txt").read_text())["0000:03:00.0"]
    assert gpu.description == "NVIDIA Corporation GH100[H100 SXM5 80GB]"
    assert gpu.class_name == "3D controller"


def test_paths_give_the_parent():
    pci = devices((VERSIONS / "PPnn.txt").read_text())
    assert pci["0000:03:00.0"].parent == "0000:02:00.0"
    assert pci["0000:01:00.0"].parent == "0000:00:01.0"


def test_a_hexadecimal_dump_tells_what_the_decoded_listing_tells():
    dumped = devices((VERSIONS / "nnxxxx-gpu.txt").read_text())["0000:03:00.0"]
    printed = devices(MADE["3.14.0"])["0000:03:00.0"]
    for name in (
        "link_speed_gts",
        "link_width",
        "mrrs_bytes",
        "aer_uncorrectable",
        "lane_errors",
        "ats_enabled",
        "vfs",
        "rebar_bytes",
        "port_type",
        "aspm",
    ):
        assert getattr(dumped, name) == getattr(printed, name), name


def test_a_dump_of_all_ones_is_not_decoded():
    text = "0a:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n" + "".join(
        f"{at:02x}:{' ff' * 16}\n" for at in range(0, 256, 16)
    )
    dead = devices(text)["0000:0a:00.0"]
    assert dead.config_readable is False
    assert dead.port_type is None


ORDINARY_USER = """\
17:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 1463
\tPhysical Slot: 5
\tFlags: bus master, fast devsel, latency 0, IRQ 18, NUMA node 1, IOMMU group 12
\tMemory at c5000000 (32-bit, non-prefetchable) [size=16M]
\tMemory at 52000000000 (64-bit, prefetchable) [size=128G]
\tMemory at <unassigned> (64-bit, prefetchable) [disabled]
\tCapabilities: <access denied>
\tKernel driver in use: nvidia
\tKernel modules: nouveau, nvidia

18:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\tSubsystem: Mellanox Technologies Device 0041
\tFlags: bus master, fast devsel, latency 0, IRQ 19
\tCapabilities: <access denied>
\tKernel modules: mlx5_core

"""


def test_access_denied_is_missing_with_a_hint_and_not_absent():
    gpu = devices(ORDINARY_USER)["0000:17:00.0"]
    assert gpu.has_acs is None
    assert gpu.missing["link_width"].reason is Reason.NOT_READABLE
    assert gpu.missing["acs_enabled"].hint == "run lspci as root"
    assert (gpu.numa_node, gpu.iommu_group, gpu.slot) == (1, 12, "5")
    assert [(bar.index, bar.size_bytes) for bar in gpu.bars] == [(0, 16 << 20), (1, 128 << 30), (3, None)]
    assert gpu.bars[2].missing["address"].reason is Reason.ABSENT


def test_a_function_without_driver_line_has_no_driver_when_others_show_theirs():
    nic = devices(ORDINARY_USER)["0000:18:00.0"]
    assert nic.driver == ""
    assert nic.numa_node == -1  # lspci prints the node of the other function


def test_a_cut_listing_claims_no_absence():
    cut = ORDINARY_USER[: ORDINARY_USER.index("\tKernel modules: mlx5_core")]
    fragment = parse_text("lspci", cut)
    nic = fragment.snapshot.pci["0000:18:00.0"]
    assert nic.driver is None
    assert nic.numa_node is None
    assert any("0000:18:00.0" in note for note in fragment.notes)


def test_a_filtered_listing_claims_no_missing_capability():
    text = "\n".join(
        line for line in VVV.splitlines() if not line.startswith("\t") or "LnkSta:" in line or "Capabilities" in line
    )
    pci = devices(text, command="lspci -vvv | grep -E '^[0-9a-f]|LnkSta:|Capabilities'")
    assert pci["0000:19:00.0"].link_width == 16
    assert pci["0000:19:00.0"].has_acs is None
    assert pci["0000:19:00.0"].driver is None


def test_indentation_does_not_matter():
    flat = "\n".join(line.strip() for line in VVV.splitlines())
    spaced = VVV.replace("\t", "        ")
    expected = {address: facts(device) for address, device in devices(VVV).items()}
    assert {address: facts(device) for address, device in devices(flat).items()} == expected
    assert {address: facts(device) for address, device in devices(spaced).items()} == expected


def test_lspci_s_at_the_prompt_names_the_device_of_headless_details():
    pci = devices(
        "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n", command="sudo lspci -vvv -s 3b:00.0 | grep LnkSta"
    )
    assert (pci["0000:3b:00.0"].link_speed_gts, pci["0000:3b:00.0"].link_width) == (16, 8)


def test_link_status_of_all_ones_is_a_lost_device():
    text = "3b:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
    text += "\t\tLnkSta:\tSpeed unknown (overdriven), Width x63 (overdriven)\n"
    lost = devices(text)["0000:3b:00.0"]
    assert lost.config_readable is False
    assert lost.link_width is None


def test_messages_of_lspci_are_noted_and_foreign_lines_kept():
    text = "pcilib: sysfs_read_vpd: read failed: Input/output error\n" + ORDINARY_USER + "\nls: cannot access 'x'\n"
    fragment = parse_text("lspci", text)
    assert any("sysfs_read_vpd" in note for note in fragment.notes)
    assert [content for _, content in fragment.unplaced] == ["ls: cannot access 'x'"]


def test_coloured_output_of_grep_is_read():
    pci = devices(
        "\x1b[32m\x1b[K19:00.0\x1b[m\x1b[K 3D controller: \x1b[01;31m\x1b[KNVIDIA\x1b[m\x1b[K Corporation Device 2330 (rev a1)\n"
    )
    assert pci["0000:19:00.0"].device_id == 0x2330


def test_a_vmd_domain_beyond_16_bits_is_kept():
    assert "10000:e1:00.0" in devices("10000:e1:00.0 Non-Volatile memory controller: Samsung Electronics Co Ltd Device a80a\n")


def test_red_hat_has_two_vendor_ids():
    pci = devices(
        "00:02.0 PCI bridge: Red Hat, Inc. QEMU PCIe Root port\n"
        "01:00.0 Ethernet controller: Red Hat, Inc. Virtio 1.0 network device (rev 01)\n"
    )
    assert [device.vendor_id for device in pci.values()] == [0x1B36, 0x1AF4]


@settings(max_examples=60, deadline=None)
@given(mangled(MADE["3.14.0"]) | mangled(VVV[:30000]) | mangled(NN + LOST) | mangled((VERSIONS / "vmmnn.txt").read_text()))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("lspci", text), text)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from('0123456789abcdef:. \t"[]()+-,<>!xXCLDIM\n'), max_size=400))
def test_noise_makes_no_exception(text):
    parse_text("lspci", text)
    parse_text("lspci", "00:00.0 3D controller: x\n" + text)


@pytest.mark.parametrize("size", [1, 3, 10, 57, 200, 1001, 4999, 20000])
def test_a_listing_cut_at_any_byte_is_read_up_to_there(size):
    whole, cut = devices(VVV), devices(VVV[:size]) or {}
    for address, device in list(cut.items())[:-1]:
        assert facts(device) | {"parent": None} == facts(whole[address]) | {"parent": None}


STARTS = [
    "00:00.0 3D controller: ",
    '00:00.0 "',
    "00:00.0 3D controller: x\n\tLnkSta:\tSpeed ",
    "00:00.0 3D controller: x\n\tDevCtl:\t",
    "00:00.0 3D controller: x\n\tRegion 0: Memory at ",
    "00: ",
]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("lspci", text)
