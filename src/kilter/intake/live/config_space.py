"""PCI configuration space, decoded: what ``lspci -vvv`` shows of a function, from the 64, 256 or 4096 bytes of its ``config``
file.

Register layouts: PCI Express Base Specification 6.0 chapter 7 and Linux ``include/uapi/linux/pci_regs.h``; the names of bits are
those that lspci prints (pciutils ``ls-caps.c``, ``ls-ecaps.c``), so that facts from both sources compare.
"""

from __future__ import annotations

import msgspec

from kilter.facts.base import Missing, Reason, Ref
from kilter.facts.pci import GENERATION_GTS, PciDevice

PORT_TYPES = {
    0: "endpoint",
    1: "legacy endpoint",
    4: "root port",
    5: "upstream port",
    6: "downstream port",
    7: "pcie-to-pci bridge",
    8: "pci-to-pcie bridge",
    9: "root complex endpoint",
    10: "root complex event collector",
}
ASPM_CONTROL = ("Disabled", "L0s Enabled", "L1 Enabled", "L0s L1 Enabled")
DEVICE_ERRORS = ("CorrErr", "NonFatalErr", "FatalErr", "UnsupReq")
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
AER_UNCORRECTABLE = {
    4: "DLP",
    5: "SDES",
    12: "TLP",
    13: "FCP",
    14: "CmpltTO",
    15: "CmpltAbrt",
    16: "UnxCmplt",
    17: "RxOF",
    18: "MalfTLP",
    19: "ECRC",
    20: "UnsupReq",
    21: "ACSViol",
    22: "UncorrIntErr",
    23: "BlockedTLP",
    24: "AtomicOpBlocked",
    25: "TLPBlockedErr",
    26: "PoisonTLPBlocked",
    27: "DMWrReqBlocked",
    28: "IDECheck",
    29: "MisIDETLP",
    30: "PCRC_CHECK",
    31: "TLPXlatBlocked",
}
AER_CORRECTABLE = {
    0: "RxErr",
    6: "BadTLP",
    7: "BadDLLP",
    8: "Rollover",
    12: "Timeout",
    13: "AdvNonFatalErr",
    14: "CorrIntErr",
    15: "HeaderOF",
}

EXPRESS_FIELDS = (
    "port_type",
    "max_payload_bytes",
    "max_payload_supported_bytes",
    "mrrs_bytes",
    "relaxed_ordering",
    "extended_tag",
    "no_snoop",
    "device_errors",
)
LINK_FIELDS = ("link_speed_gts", "link_width", "link_speed_max_gts", "link_width_max", "link_speed_target_gts", "aspm")
EXTENDED_FIELDS = (
    "has_acs",
    "acs_capable",
    "acs_enabled",
    "has_ats",
    "ats_enabled",
    "aer_correctable",
    "aer_uncorrectable",
    "lane_errors",
    "rebar_bytes",
    "vfs",
)

_HEADER = 64
_EXPRESS, _SUBSYSTEM = 0x10, 0x0D
_AER, _ACS, _ATS, _SRIOV, _REBAR, _SECONDARY = 0x01, 0x0D, 0x0F, 0x10, 0x15, 0x19


class Decoded(msgspec.Struct):
    """Fields of :class:`PciDevice` by name, and why others have no value."""

    fields: dict[str, object]
    missing: dict[str, Missing]


class _Space:
    """Little-endian reads that give None beyond the end of what was captured."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def get(self, offset: int, size: int) -> int | None:
        raw = self.data[offset : offset + size]
        return int.from_bytes(raw, "little") if len(raw) == size else None

    def byte(self, offset: int) -> int | None:
        return self.get(offset, 1)

    def word(self, offset: int) -> int | None:
        return self.get(offset, 2)

    def long(self, offset: int) -> int | None:
        return self.get(offset, 4)

    def capabilities(self, first: int) -> dict[int, int]:
        """Offset of the first capability of each id in the chain below 0x100. Loops and stray pointers end it."""
        found: dict[int, int] = {}
        seen: set[int] = set()
        offset = (self.byte(first) or 0) & ~3
        while offset >= 0x40 and offset not in seen:
            seen.add(offset)
            head = self.word(offset)
            if head is None or head & 0xFF == 0xFF:
                break
            found.setdefault(head & 0xFF, offset)
            offset = head >> 8 & ~3
        return found

    def extended(self) -> dict[int, int]:
        """The same for the extended capabilities, which start at 0x100."""
        found: dict[int, int] = {}
        seen: set[int] = set()
        offset = 0x100
        while offset >= 0x100 and offset not in seen:
            seen.add(offset)
            head = self.long(offset)
            if head is None or head in (0, 0xFFFFFFFF):
                break
            found.setdefault(head & 0xFFFF, offset)
            offset = head >> 20 & ~3
        return found


def _bits(value: int, names: dict[int, str] | tuple[str, ...]) -> list[str]:
    pairs = names.items() if isinstance(names, dict) else enumerate(names)
    return [name for bit, name in pairs if value >> bit & 1]


def _payload(code: int) -> int | None:
    """128 bytes << code; codes 6 and 7 are reserved."""
    return 128 << code if code <= 5 else None


def _header(space: _Space, fields: dict[str, object]) -> int:
    """Fields of the first 64 bytes; returns the header type."""
    vendor, device = space.word(0), space.word(2)
    # A virtual function answers ffff here: the kernel takes its ids from the physical function.
    if (vendor, device) != (0xFFFF, 0xFFFF):
        fields["vendor_id"], fields["device_id"] = vendor, device
    fields["revision"] = space.byte(8)
    fields["class_code"] = space.word(0x0A)
    kind = (space.byte(0x0E) or 0) & 0x7F
    if kind == 0:
        subsystem = space.word(0x2C)
        if subsystem not in (None, 0, 0xFFFF):
            fields["subsystem_vendor_id"], fields["subsystem_device_id"] = subsystem, space.word(0x2E)
    elif kind in (1, 2):
        fields["secondary_bus"], fields["subordinate_bus"] = space.byte(0x19), space.byte(0x1A)
    return kind


def _express(space: _Space, at: int, fields: dict[str, object], missing: dict[str, Missing]) -> None:
    flags = space.word(at + 2)
    if flags is None:
        return
    kind = flags >> 4 & 0xF
    fields["port_type"] = PORT_TYPES.get(kind, f"unknown type {kind}")
    capability, control, status = space.long(at + 4), space.word(at + 8), space.word(at + 0x0A)
    if capability is not None and control is not None and status is not None:
        fields["max_payload_supported_bytes"] = _payload(capability & 7)
        fields["max_payload_bytes"] = _payload(control >> 5 & 7)
        fields["mrrs_bytes"] = _payload(control >> 12 & 7)
        fields["relaxed_ordering"] = bool(control & 0x10)
        fields["extended_tag"] = bool(control & 0x100)
        fields["no_snoop"] = bool(control & 0x800)
        fields["device_errors"] = _bits(status, DEVICE_ERRORS)
    if kind in (9, 10):  # inside the root complex: no link
        for field in LINK_FIELDS:
            missing[field] = Missing(Reason.NOT_SUPPORTED, "a function inside the root complex has no link")
        return
    _link(space, at, flags, fields, missing)
    if flags & 0x100 and (slot := space.long(at + 0x14)) is not None:
        fields["slot"] = str(slot >> 19)


def _link(space: _Space, at: int, flags: int, fields: dict[str, object], missing: dict[str, Missing]) -> None:
    capability, control, status = space.long(at + 0x0C), space.word(at + 0x10), space.word(at + 0x12)
    if capability is None or control is None or status is None:
        return
    fields["link_speed_max_gts"] = GENERATION_GTS.get(capability & 0xF)
    fields["link_width_max"] = capability >> 4 & 0x3F or None
    fields["aspm"] = ASPM_CONTROL[control & 3]
    fields["link_speed_gts"] = GENERATION_GTS.get(status & 0xF)
    # Width 0 is not a width: an empty slot, or a virtual function, whose link registers read as zero.
    fields["link_width"] = status >> 4 & 0x3F or None
    for field in ("link_speed_gts", "link_width"):
        if fields[field] is None:
            missing[field] = Missing(
                Reason.NOT_SUPPORTED, f"LnkSta reads {status:#06x}: no link (empty slot or virtual function)"
            )
    if flags & 0xF >= 2 and (control2 := space.word(at + 0x30)) is not None:
        # 0 is what a component that only knows 2.5 GT/s, or a virtual function, is hardwired to: no target.
        fields["link_speed_target_gts"] = GENERATION_GTS.get(control2 & 0xF)


def _extended(space: _Space, fields: dict[str, object], missing: dict[str, Missing]) -> None:
    at = space.extended()
    fields["has_acs"] = _ACS in at
    if _ACS in at:
        capability, control = space.word(at[_ACS] + 4), space.word(at[_ACS] + 6)
        if capability is not None and control is not None:
            fields["acs_capable"], fields["acs_enabled"] = _bits(capability, ACS_BITS), _bits(control, ACS_BITS)
    fields["has_ats"] = _ATS in at
    if _ATS in at and (control := space.word(at[_ATS] + 6)) is not None:
        fields["ats_enabled"] = bool(control & 0x8000)
    if _AER in at:
        uncorrectable, correctable = space.long(at[_AER] + 4), space.long(at[_AER] + 0x10)
        if uncorrectable is not None and correctable is not None:
            fields["aer_uncorrectable"] = _bits(uncorrectable, AER_UNCORRECTABLE)
            fields["aer_correctable"] = _bits(correctable, AER_CORRECTABLE)
    if _SECONDARY in at and (lanes := space.word(at[_SECONDARY] + 8)) is not None:
        fields["lane_errors"] = [lane for lane in range(16) if lanes >> lane & 1]
    if _SRIOV in at:
        control, count = space.word(at[_SRIOV] + 8), space.word(at[_SRIOV] + 0x10)
        if control is not None and count is not None:
            fields["vfs"] = count if control & 1 else 0
    if _REBAR in at:
        fields["rebar_bytes"] = _resizable(space, at[_REBAR])
    for field, capability, name in (
        ("acs_enabled", _ACS, "Access Control Services"),
        ("acs_capable", _ACS, "Access Control Services"),
        ("ats_enabled", _ATS, "Address Translation Service"),
        ("aer_uncorrectable", _AER, "Advanced Error Reporting"),
        ("aer_correctable", _AER, "Advanced Error Reporting"),
        ("lane_errors", _SECONDARY, "Secondary PCI Express"),
        ("rebar_bytes", _REBAR, "Resizable BAR"),
    ):
        if capability not in at:
            missing[field] = Missing(Reason.NOT_SUPPORTED, f"the function has no {name} capability")


def _resizable(space: _Space, at: int) -> int | None:
    """Current size of the largest resizable BAR, bytes. The first entry says how many there are (at most 6)."""
    first = space.long(at + 8)
    if first is None:
        return None
    sizes = []
    for entry in range(min(first >> 5 & 7, 6)):
        control = space.long(at + 8 + 8 * entry)
        if control is not None and (code := control >> 8 & 0x3F) <= 43:  # 8 EB, the largest size that is defined
            sizes.append(1 << 20 + code)
    return max(sizes, default=None)


def decode(data: bytes) -> Decoded:
    """Decode the configuration space of one function.

    All ones means that the function does not answer: ``config_readable`` is False and nothing else is set. Unprivileged
    readers get 64 bytes only, conventional access 256: the fields beyond are missing as "not readable". Fewer than 64 bytes
    tell nothing.
    """
    fields: dict[str, object] = {}
    missing: dict[str, Missing] = {}
    if len(data) < _HEADER:
        return Decoded(fields, {"config_readable": Missing(Reason.NOT_READABLE, f"{len(data)} bytes of configuration space")})
    if not data[:_HEADER].strip(b"\xff"):
        return Decoded({"config_readable": False}, missing)
    space = _Space(data)
    fields["config_readable"] = True
    kind = _header(space, fields)
    has_list = bool((space.word(6) or 0) & 0x10)
    if len(data) < 256:
        cut = Missing(Reason.NOT_READABLE, f"only {len(data)} bytes of the configuration space could be read", "run as root")
        if has_list:
            missing.update(dict.fromkeys(EXPRESS_FIELDS + LINK_FIELDS + EXTENDED_FIELDS, cut))
        return Decoded({name: value for name, value in fields.items() if value is not None}, missing)
    at = space.capabilities(0x14 if kind == 2 else 0x34) if has_list else {}
    if kind == 1 and _SUBSYSTEM in at:
        fields["subsystem_vendor_id"] = space.word(at[_SUBSYSTEM] + 4)
        fields["subsystem_device_id"] = space.word(at[_SUBSYSTEM] + 6)
    if _EXPRESS in at:
        _express(space, at[_EXPRESS], fields, missing)
        if len(data) > 256:
            _extended(space, fields, missing)
        else:
            short = Missing(
                Reason.NOT_READABLE,
                "only the first 256 bytes of the configuration space are accessible",
                "run as root, or capture with lspci -xxxx; some virtual machines and firmware hide the rest",
            )
            missing.update(dict.fromkeys(EXTENDED_FIELDS, short))
    else:
        none = Missing(Reason.NOT_SUPPORTED, "the function has no PCI Express capability")
        missing.update(dict.fromkeys(EXPRESS_FIELDS + LINK_FIELDS, none))
    return Decoded({name: value for name, value in fields.items() if value is not None}, missing)


def apply(device: PciDevice, data: bytes, ref: Ref | None) -> None:
    """Put what ``data`` says into ``device``; a reason never hides a value that is already there."""
    decoded = decode(data)
    for field, value in decoded.fields.items():
        device.put(field, value, ref)
    for field, why in decoded.missing.items():
        if getattr(device, field) is None:
            device.missing[field] = why
