"""The configuration space decoder against register layouts, and against the real lspci on the same bytes."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from kilter.facts.pci import PciDevice, generation
from kilter.intake.live.config_space import apply, decode

LSPCI = shutil.which("lspci")
needs_lspci = pytest.mark.skipif(LSPCI is None, reason="lspci (pciutils) is not installed")


class Space:
    """Lays out a configuration space: header, then capabilities one after another."""

    def __init__(
        self, *, vendor: int, device: int, class_code: int, kind: int = 0, size: int = 4096, revision: int = 0xA1
    ) -> None:
        self.data = bytearray(size)
        self.kind = kind
        self.put(0x00, "<HH", vendor, device)
        self.put(0x08, "<BBH", revision, 0, class_code)
        self.data[0x0E] = kind
        self._last = 0x34
        self._next = 0x40
        self._last_extended = 0
        self._next_extended = 0x100

    def put(self, offset: int, layout: str, *values: int) -> None:
        struct.pack_into(layout, self.data, offset, *values)

    def subsystem(self, vendor: int, device: int) -> None:
        if self.kind == 0:
            self.put(0x2C, "<HH", vendor, device)
        else:
            self.put(self.capability(0x0D, 8) + 4, "<HH", vendor, device)

    def buses(self, primary: int, secondary: int, subordinate: int) -> None:
        self.put(0x18, "<BBB", primary, secondary, subordinate)

    def capability(self, number: int, size: int) -> int:
        at = self._next
        self.data[6] |= 0x10
        self.data[self._last] = at
        self.data[at] = number
        self._last, self._next = at + 1, at + (size + 3 & ~3)
        return at

    def extended(self, number: int, size: int, version: int = 1) -> int:
        at = self._next_extended
        if self._last_extended:
            head = struct.unpack_from("<I", self.data, self._last_extended)[0]
            self.put(self._last_extended, "<I", head | at << 20)
        self.put(at, "<I", number | version << 16)
        self._last_extended, self._next_extended = at, at + (size + 3 & ~3)
        return at

    def express(
        self,
        *,
        port: int,
        devcap: int = 0x8002,
        devctl: int = 0x2810,
        devsta: int = 0,
        lnkcap: int = 0x00437D05,
        lnkctl: int = 0x40,
        lnksta: int = 0x1105,
        lnkctl2: int = 5,
        slot: int | None = None,
        version: int = 2,
    ) -> None:
        at = self.capability(0x10, 0x3C)
        self.put(at + 2, "<H", version | port << 4 | (0x100 if slot is not None else 0))
        self.put(at + 4, "<IHH", devcap, devctl, devsta)
        self.put(at + 12, "<IHH", lnkcap, lnkctl, lnksta)
        if slot is not None:
            self.put(at + 0x14, "<I", slot << 19)
        self.put(at + 0x2C, "<IH", 0x3E, lnkctl2)

    def aer(self, uncorrectable: int, correctable: int) -> None:
        at = self.extended(0x01, 0x48, version=2)
        self.put(at + 4, "<III", uncorrectable, 0, 0x00462030)
        self.put(at + 16, "<I", correctable)

    def acs(self, capability: int, control: int) -> None:
        self.put(self.extended(0x0D, 8) + 4, "<HH", capability, control)

    def ats(self, control: int) -> None:
        self.put(self.extended(0x0F, 8) + 4, "<HH", 0x20, control)

    def sriov(self, control: int, count: int, total: int) -> None:
        at = self.extended(0x10, 0x40)
        self.put(at + 8, "<HHHHH", control, 0, total, total, count)

    def rebar(self, sizes: list[tuple[int, int]]) -> None:
        at = self.extended(0x15, 4 + 8 * len(sizes))
        for entry, (bar, code) in enumerate(sizes):
            self.put(at + 4 + 8 * entry, "<II", 1 << code + 4 if code < 28 else 0x10, bar | len(sizes) << 5 | code << 8)

    def secondary(self, lanes: int) -> None:
        self.put(self.extended(0x19, 0x2C) + 8, "<H", lanes)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __repr__(self) -> str:
        return f"<Space {bytes(self.data).rstrip(bytes(1)).hex()}>"


def root_port() -> Space:
    space = Space(vendor=0x8086, device=0x352A, class_code=0x0604, kind=1)
    space.buses(0x15, 0x16, 0x18)
    space.subsystem(0x1028, 0x0B17)
    space.express(port=4, slot=3)
    space.aer(0, 0x1000)
    space.acs(0x5F, 0x1D)
    space.secondary(0)
    return space


def switch_port(port: int) -> Space:
    space = Space(vendor=0x1000, device=0xC030, class_code=0x0604, kind=1)
    space.buses(0x16, 0x17, 0x18)
    space.express(port=port, slot=7 if port == 6 else None, devctl=0x5030)
    space.acs(0x5F, 0)
    return space


def gpu() -> Space:
    space = Space(vendor=0x10DE, device=0x2330, class_code=0x0302)
    space.subsystem(0x10DE, 0x16C1)
    space.express(port=0, devcap=0x8022, devctl=0x2930, devsta=0x0009, lnksta=0x1103, lnkctl=0x42)
    space.aer(1 << 20 | 1 << 14, 1 | 1 << 13)
    space.ats(0x8000)
    space.sriov(0, 0, 32)
    space.rebar([(2, 17)])
    space.secondary(0b1000_0000_0000_0101)
    return space


def nic() -> Space:
    space = Space(vendor=0x15B3, device=0x1021, class_code=0x0207)
    space.subsystem(0x15B3, 0x0041)
    space.express(port=0, devctl=0x5936)
    space.aer(0, 0)
    space.ats(0)
    space.sriov(1, 4, 16)
    return space


def test_gpu_registers_become_facts() -> None:
    device = PciDevice(address="0000:17:00.0")
    apply(device, bytes(gpu()), (3, 0))
    assert device.config_readable is True
    assert (device.vendor_id, device.device_id, device.class_code, device.revision) == (0x10DE, 0x2330, 0x0302, 0xA1)
    assert (device.subsystem_vendor_id, device.subsystem_device_id) == (0x10DE, 0x16C1)
    assert device.port_type == "endpoint"
    assert (device.link_speed_gts, device.link_width) == (8.0, 16)
    assert (device.link_speed_max_gts, device.link_width_max) == (32.0, 16)
    assert device.link_speed_target_gts == 32.0
    assert device.aspm == "L1 Enabled"
    assert (device.max_payload_supported_bytes, device.max_payload_bytes, device.mrrs_bytes) == (512, 256, 512)
    assert (device.relaxed_ordering, device.extended_tag, device.no_snoop) == (True, True, True)
    assert device.device_errors == ["CorrErr", "UnsupReq"]
    assert device.aer_uncorrectable == ["CmpltTO", "UnsupReq"]
    assert device.aer_correctable == ["RxErr", "AdvNonFatalErr"]
    assert (device.has_ats, device.ats_enabled) == (True, True)
    assert (device.has_acs, device.acs_enabled) == (False, None)
    assert device.missing["acs_enabled"].reason is Reason.NOT_SUPPORTED
    assert device.rebar_bytes == 128 << 30
    assert device.lane_errors == [0, 2, 15]
    assert device.vfs == 0
    assert device.ref("mrrs_bytes") == (3, 0)


def test_bridge_registers_become_facts() -> None:
    fields = decode(bytes(root_port())).fields
    assert fields["port_type"] == "root port"
    assert (fields["secondary_bus"], fields["subordinate_bus"]) == (0x16, 0x18)
    assert (fields["subsystem_vendor_id"], fields["subsystem_device_id"]) == (0x1028, 0x0B17)
    assert fields["slot"] == "3"
    assert fields["acs_enabled"] == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    assert fields["acs_capable"] == ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"]
    assert fields["aer_correctable"] == ["Timeout"]
    assert fields["lane_errors"] == []
    assert decode(bytes(switch_port(5))).fields["port_type"] == "upstream port"
    assert decode(bytes(switch_port(6))).fields["port_type"] == "downstream port"
    assert decode(bytes(switch_port(6))).fields["acs_enabled"] == []


def test_enabled_vfs_are_counted() -> None:
    assert decode(bytes(nic())).fields["vfs"] == 4


@pytest.mark.parametrize("size", [64, 256, 4096])
def test_ff_config_space_is_a_device_that_does_not_answer(size: int) -> None:
    decoded = decode(b"\xff" * size)
    assert decoded.fields == {"config_readable": False}
    assert not decoded.missing


def test_virtual_function_with_ffff_ids_is_not_taken_for_a_dead_device() -> None:
    space = Space(vendor=0xFFFF, device=0xFFFF, class_code=0x0207)
    space.express(port=0, lnksta=0)
    decoded = decode(bytes(space))
    assert decoded.fields["config_readable"] is True
    assert "vendor_id" not in decoded.fields
    assert "link_speed_gts" not in decoded.fields
    assert decoded.missing["link_speed_gts"].reason is Reason.NOT_SUPPORTED


def test_unprivileged_64_bytes_say_run_as_root() -> None:
    decoded = decode(bytes(gpu())[:64])
    assert decoded.fields["device_id"] == 0x2330
    for field in ("mrrs_bytes", "link_speed_gts", "acs_enabled", "rebar_bytes"):
        assert field not in decoded.fields
        assert decoded.missing[field].reason is Reason.NOT_READABLE
        assert decoded.missing[field].hint == "run as root"


def test_256_bytes_tell_the_link_but_not_acs() -> None:
    decoded = decode(bytes(root_port())[:256])
    assert decoded.fields["link_width"] == 16
    assert "has_acs" not in decoded.fields
    assert decoded.missing["has_acs"].reason is Reason.NOT_READABLE


def test_conventional_function_has_no_link() -> None:
    decoded = decode(bytes(Space(vendor=0x1AF4, device=0x1041, class_code=0x0200, size=256)))
    assert decoded.missing["link_width"].reason is Reason.NOT_SUPPORTED
    assert "has_acs" not in decoded.fields


def test_loop_in_the_capability_lists_ends() -> None:
    space = gpu()
    space.data[0x41] = 0x40
    space.put(0x100, "<I", 0x00010001 | 0x100 << 20)
    assert decode(bytes(space)).fields["config_readable"] is True


@given(st.binary(max_size=4096))
@settings(max_examples=300)
def test_any_bytes_decode(data: bytes) -> None:
    apply(PciDevice(address="0000:00:00.0"), data, None)


@given(st.integers(0, 4096), st.sampled_from([root_port, gpu, nic]))
def test_any_truncation_decodes(cut: int, make: object) -> None:
    decode(bytes(make())[:cut])  # type: ignore[operator]  # sampled_from loses the callable's type


# --- against lspci ---


def lspci(directory: Path, spaces: list[bytes]) -> list[str]:
    """Blocks of ``lspci -vvv`` for spaces written as ``lspci -xxxx`` prints them."""
    lines = []
    for number, data in enumerate(spaces):
        lines.append(f"{number:02x}:00.0 Device")
        lines += [f"{at:02x}: {data[at : at + 16].hex(' ')}" for at in range(0, len(data), 16)]
        lines.append("")
    path = directory / "dump"
    path.write_text("\n".join(lines) + "\n")
    assert LSPCI is not None
    done = subprocess.run([LSPCI, "-F", str(path), "-vvv", "-n"], capture_output=True, text=True, timeout=20, check=True)
    return [block for block in done.stdout.split("\n\n") if block.strip()]


def flags(block: str, label: str) -> list[str] | None:
    match = re.search(rf"\t{label}:\s*(.*)", block)
    return None if match is None else [word[:-1] for word in match[1].split() if word.endswith("+")]


def same_speed(ours: object, printed: str) -> bool:
    """lspci before 3.8 does not know 64 GT/s, nor any so far 128 GT/s."""
    return ours in (None, 64.0, 128.0) if printed.lower() == "unknown" else ours == float(printed)


def compare(block: str, data: bytes) -> None:
    fields = decode(data).fields

    def number(pattern: str) -> int | None:
        match = re.search(pattern, block)
        return int(match[1]) if match else None

    assert fields.get("max_payload_supported_bytes") in (number(r"DevCap:\sMaxPayload (\d+) bytes"), None)
    assert fields.get("max_payload_bytes") in (number(r"\t\t\tMaxPayload (\d+) bytes"), None)
    assert fields.get("mrrs_bytes") in (number(r"MaxReadReq (\d+) bytes"), None)
    if control := re.search(r"RlxdOrd([+-]) ExtTag([+-]) PhantFunc. AuxPwr. NoSnoop([+-])", block):
        values = [value == "+" for value in control.groups() if value]
        assert [fields["relaxed_ordering"], fields["extended_tag"], fields["no_snoop"]] == values
    status = flags(block, "DevSta")
    if status is not None:
        assert fields["device_errors"] == [name for name in status if name not in ("AuxPwr", "TransPend")]
    if link := re.search(r"LnkCap:\tPort #\d+, Speed ([\d.]+|unknown)(?:GT/s)?, Width x(\d+), ASPM", block):
        assert same_speed(fields.get("link_speed_max_gts"), link[1])
        assert fields.get("link_width_max") == (int(link[2]) or None)
    if link := re.search(r"LnkSta:\tSpeed ([\d.]+|unknown)(?:GT/s)?(?: \(\w+\))?, Width x(\d+)", block):
        assert same_speed(fields.get("link_speed_gts"), link[1])
        assert fields.get("link_width") == (int(link[2]) or None)
    if link := re.search(r"LnkCtl2: Target Link Speed: ([\d.]+|Unknown)", block):
        # lspci prints 2.5 for code 0 too, which only says that the register is hardwired (as in a virtual function).
        ours = fields.get("link_speed_target_gts")
        assert same_speed(ours, link[1]) or (ours is None and link[1] == "2.5")
    if aspm := re.search(r"LnkCtl:\tASPM ([^;]+);", block):
        assert fields["aspm"] == aspm[1].strip()
    if buses := re.search(r"secondary=(\w+), subordinate=(\w+)", block):
        assert (fields["secondary_bus"], fields["subordinate_bus"]) == (int(buses[1], 16), int(buses[2], 16))
    if slot := re.search(r"\tSltCap:[\s\S]*?Slot #(\d+)", block):
        assert fields["slot"] == slot[1]
    assert fields["has_acs"] == ("Access Control Services" in block)
    assert fields.get("acs_capable") == flags(block, "ACSCap")
    assert fields.get("acs_enabled") == flags(block, "ACSCtl")
    ats = flags(block, "ATSCtl")
    assert fields.get("ats_enabled") == (None if ats is None else re.search(r"ATSCtl:\tEnable\+", block) is not None)
    known = set(re.findall(r"(\w+)[+-]", "".join(re.findall(r"\t(?:UESta|CESta):.*", block))))
    for label, field in (("UESta", "aer_uncorrectable"), ("CESta", "aer_correctable")):
        printed = flags(block, label)
        ours = fields.get(field)
        assert printed is None or ours is None or isinstance(ours, list)
        assert (None if ours is None else [name for name in ours if name in known]) == printed
    if lanes := re.search(r"LaneErrStat: (?:LaneErr at lane:)?([ \d]*)", block):
        ours = fields["lane_errors"]
        assert ours == (
            [] if lanes[0].endswith(": 0") and "at lane" not in lanes[0] else [int(lane) for lane in lanes[1].split()]
        )
    if (count := number(r"Number of VFs: (\d+)")) is not None:
        enabled = re.search(r"IOVCtl:\tEnable\+", block) is not None
        assert fields["vfs"] == (count if enabled else 0)
    sizes = [(int(size), unit) for size, unit in re.findall(r"BAR \d+: current size: (\d+)([KMGTPE])B", block)]
    if sizes:
        assert fields["rebar_bytes"] == max(
            size << {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}[unit] for size, unit in sizes
        )


@needs_lspci
def test_lspci_reads_the_same_from_ports_gpu_and_nic(tmp_path: Path) -> None:
    spaces = [bytes(space) for space in (root_port(), switch_port(5), switch_port(6), gpu(), nic())]
    blocks = lspci(tmp_path, spaces)
    assert len(blocks) == len(spaces)
    assert "Root Port (Slot+)" in blocks[0]
    for block, data in zip(blocks, spaces, strict=True):
        compare(block, data)


word = st.integers(0, 0xFFFF)
long = st.integers(0, 0xFFFFFFFF)


@st.composite
def any_registers(draw: st.DrawFn) -> Space:
    kind = draw(st.sampled_from([0, 1]))
    space = Space(vendor=0x10DE, device=draw(st.integers(0, 0xFFFE)), class_code=0x0604 if kind else 0x0302, kind=kind)
    if kind:
        space.buses(draw(st.integers(0, 255)), draw(st.integers(0, 255)), draw(st.integers(0, 255)))
    port = draw(st.sampled_from([4, 5, 6] if kind else [0, 1]))
    space.express(
        port=port,
        devcap=draw(long),
        devctl=draw(word),
        devsta=draw(word),
        lnkcap=draw(long),
        lnkctl=draw(word),
        lnksta=draw(word),
        lnkctl2=draw(word),
        slot=draw(st.integers(0, 0x1FFF)) if port in (4, 6) and draw(st.booleans()) else None,
        version=draw(st.sampled_from([1, 2])),
    )
    capabilities = {
        "aer": lambda: space.aer(draw(long), draw(long)),
        "acs": lambda: space.acs(draw(word), draw(word)),
        "ats": lambda: space.ats(draw(word)),
        "sriov": lambda: space.sriov(draw(word), draw(word), draw(word)),
        "rebar": lambda: space.rebar([(bar, draw(st.integers(0, 20))) for bar in range(draw(st.integers(1, 3)))]),
        "secondary": lambda: space.secondary(draw(word)),
    }
    for name in draw(st.permutations(sorted(capabilities))):
        if draw(st.booleans()):
            capabilities[name]()
    return space


@needs_lspci
@given(st.lists(any_registers(), min_size=4, max_size=4))
@settings(
    max_examples=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_lspci_reads_the_same_from_any_register_values(tmp_path: Path, spaces: list[Space]) -> None:
    blocks = lspci(tmp_path, [bytes(space) for space in spaces])
    assert len(blocks) == len(spaces)
    for block, space in zip(blocks, spaces, strict=True):
        compare(block, bytes(space))


def test_generations_of_all_link_speeds() -> None:
    assert [generation(gts) for gts in (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)] == [1, 2, 3, 4, 5, 6]
