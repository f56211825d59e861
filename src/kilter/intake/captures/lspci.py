"""``lspci`` in all its verbosities, filtered or whole, of pciutils 2.2 to 3.14.

Plain, ``-n``, ``-nn``, ``-D``, ``-k``, ``-v`` to ``-vvv``, ``-mm``, ``-vmm``, ``-PP`` and ``-x`` to ``-xxxx``. Lines are known
by their keyword, not by indentation, since pastes lose tabs. What a register line prints but no fact wants is passed over; a line
that lspci does not print goes to ``fragment.unparsed``.
Source of the format: pciutils/pciutils, lspci.c, ls-caps.c, ls-ecaps.c, ls-kernel.c at v3.5.6, v3.7.0, v3.13.0 and v3.14.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kilter.facts.base import Reason, Ref
from kilter.facts.pci import Bar, PciDevice
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.lspci_names import put_identity, put_machine_field, put_quoted, put_subsystem
from kilter.intake.captures.pci_relations import link_virtual_functions, list_nvswitches, place_in_tree
from kilter.intake.fragment import Block, Fragment

_SLOT = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HEADER = re.compile(rf"({_SLOT})((?:/[0-9a-f]{{2}}(?::[0-9a-f]{{2}})?\.[0-7])*)\s+(\S.*)$")
_CLASS_START = re.compile(r'["A-Z]|\d[A-Z]|[0-9a-f]{4}: ')
_HEX = re.compile(r"([0-9a-f]{2,3}): ((?:[0-9a-f]{2} ){0,15}[0-9a-f]{2})$")
_SUFFIX = re.compile(r"\((?:rev ([0-9a-f]{2})|prog-if ([0-9a-f]{2})[^()]*(?:\([^()]*\)[^()]*)?)\)$")
_FLAG = re.compile(r"(?<![\w-])([A-Za-z][\w-]*)([+-])(?![\w-])")
_SPEED = re.compile(r"Speed <?(\d{1,6}(?:\.\d{1,6})?|[A-Za-z]+)(?:GT/s)?>?")
_WIDTH = re.compile(r"Width x(\d+)")
_ASPM = re.compile(r"ASPM ([^;,]+)")
_PAYLOAD = re.compile(r"MaxPayload (\d+) bytes")
_READ_REQUEST = re.compile(r"MaxReadReq (\d+) bytes")
_TARGET = re.compile(r"Target Link Speed: (\d{1,6}(?:\.\d{1,6})?)GT/s")
_BUSES = re.compile(r"primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_EXPRESS = re.compile(r"Express (?:\(v\d+\) )?([^,(]+?)(?: \(Slot[+-]\))?(?:,| IRQ| MSI|$)")
_CAPABILITY = re.compile(r"\[([0-9a-f]+)(?: v\d+)?\] ?(.*)")
_BAR = re.compile(r"(?:\[virtual\] )?(?:Memory|I/O ports) at (\S+)(?: \(([^)]*)\))?(.*)")
_SIZE = re.compile(r"size[=:] ?(\d+) ?([KMGTPE]?)")
_VFS = re.compile(r"Number of VFs: (\d+)")
_VF_OFFSET = re.compile(r"VF offset: (\d+), stride: (\d+)")
_NUMA_FLAG = re.compile(r"NUMA node (\d+)")
_IOMMU_FLAG = re.compile(r"IOMMU group (\d+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_COMMAND_SLOT = re.compile(rf"lspci\b.*?-s\s*({_SLOT})\b")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}

#: older spelling -> today's
_DEVSTA = {"CorrErr": "CorrErr", "NonFatalErr": "NonFatalErr", "UncorrErr": "NonFatalErr", "FatalErr": "FatalErr"}
_DEVSTA |= {"UnsupReq": "UnsupReq", "UnsuppReq": "UnsupReq"}
_CESTA = {"NonFatalErr": "AdvNonFatalErr"}
_DEVCTL = {"RlxdOrd": "relaxed_ordering", "ExtTag": "extended_tag", "NoSnoop": "no_snoop"}
_PORT_TYPES = {
    "root complex integrated endpoint": "root complex endpoint",
    "pci-express to pci/pci-x bridge": "pcie-to-pci bridge",
    "pci/pci-x to pci-express bridge": "pci-to-pcie bridge",
}

#: Register names of lspci's details from which no fact is read.
_PASSED_OVER = re.compile(
    r"Latency|Interrupt|(?:I/O|Memory|Prefetchable memory|Unknown resource) behind bridge|(?:Memory|I/O) window \d"
    r"|Secondary status|BridgeCtl|BIST result|DeviceName|Device tree node|DTNode|ProgIf|Expansion ROM|Address|Data|Masking"
    r"|Vector table|PBA|UEMsk|UESvrt|CEMsk|AERCap|HeaderLog|RootCmd|RootSta|RootCap|RootCtl|ErrorSrc|SltCap|SltCtl|SltSta"
    r"|Changed|DevCap2|DevCtl2|LnkCap2|LnkSta2|LnkCtl3|Caps|Arb|Ctrl|Source|Dpc(?:Cap|Ctl|Sta)|ARI(?:Cap|Ctl)|ATSCap"
    r"|PRI(?:Ctl|Sta)|PASID(?:Cap|Ctl)|IOV(?:Cap|Sta)|VF Migration|Supported Page Size|PTM\w+|L1Sub\w+|Desc|Link\d+"
    r"|Max (?:no )?snoop latency|AtomicOps(?:Cap|Ctl)|Transmit Margin|Compliance (?:Preset/)?De-emphasis|Product Name"
    r"|Read-only fields|Read/write fields|End"
)


def _size(text: str) -> int | None:
    match = _SIZE.search(text)
    return int(match[1]) * _UNITS[match[2]] if match else None


class _Reader:
    """Walks over the lines of one block; holds the device and the capability it is in."""

    def __init__(self, block: Block, fragment: Fragment) -> None:
        self.fragment = fragment
        self.device: PciDevice | None = None
        self.sections: list[tuple[PciDevice, dict[str, bool]]] = []
        self.seen: dict[str, bool] = {}
        self.capability = ""
        self.register = ""
        self.next_bar = 0
        self.iov_enabled = False
        self.data = bytearray()
        self.data_line = 0
        self.vf_layout: dict[str, tuple[int, int, int]] = {}  # physical function -> VFs, offset, stride
        self.paths: dict[str, str] = {}
        self.notes: set[str] = set()
        slot = _COMMAND_SLOT.search(block.source.command)
        self.command_slot = slot[1] if slot else None

    # --- sections

    def _open(self, address: str, number: int) -> PciDevice:
        self._close(closed=True)
        self.device = device = self.fragment.device(address, number)
        self.seen = {}
        self.sections.append((device, self.seen))
        self.capability = self.register = ""
        self.next_bar = 0
        self.iov_enabled = False
        return device

    def _close(self, *, closed: bool) -> None:
        device = self.device
        if device is None:
            return
        self.seen["closed"] = closed
        if self.data:
            self._apply_config(device)
        self.device = None

    def _apply_config(self, device: PciDevice) -> None:
        ref = self.fragment.ref(self.data_line)
        data = bytes(self.data)
        self.data = bytearray()
        if data.count(0xFF) == len(data):
            device.put("config_readable", False, ref)
            return
        from kilter.intake.live import config_space  # only listings with -x need it

        slot, slot_ref = device.slot, device.origin.get("slot")
        config_space.apply(device, data, ref)
        device.put("slot", slot, slot_ref)  # "Physical Slot" is the platform's name; the register holds a number only
        self.seen["dumped"] = True

    # --- lines

    def line(self, number: int, raw: str) -> None:
        text = (_ANSI.sub("", raw) if "\x1b" in raw else raw).strip()
        if not text:
            self._close(closed=True)
            return
        if text[0] in "0123456789abcdef" and self._header_or_hex(number, text):
            return
        key, colon, value = text.partition(":")
        if key in ("Slot", "Device") and colon and re.fullmatch(_SLOT, value.strip()):
            self._open(value.strip(), number)
            return
        if self.device is None and self.command_slot and (key in _HANDLERS or _PASSED_OVER.fullmatch(key)):
            self._open(self.command_slot, number)
        device = self.device
        if device is None:
            self._outside(number, raw)
            return
        ref = self.fragment.ref(number)
        handler = _HANDLERS.get(key) if colon else None
        if handler is not None:
            self.register = key
            handler(self, device, value.strip(), ref)
        elif key.startswith(("Region ", "BAR ")) and colon:
            self.register = ""
            self._numbered(device, key, value.strip(), ref)
        elif text.startswith(("Memory at ", "I/O ports at ", "[virtual] Memory at ")):
            self._bar(device, self.next_bar, text, ref)
        elif _PASSED_OVER.fullmatch(key):
            self.register = ""
        elif text.startswith("!!! Unknown header type"):
            if text.endswith("7f"):
                device.put("config_readable", False, ref)
            else:
                self.fragment.unparsed(number, raw)
        elif self.register and (continued := _CONTINUED.get(self.register)):
            continued(self, device, text, ref)
        elif not self._is_detail(raw, text):
            self._outside(number, raw)

    def _is_detail(self, raw: str, text: str) -> bool:
        """Whether a line looks like a detail of a capability, of which there are hundreds."""
        if _FLAG.search(text) or text.startswith(("Expansion ROM at", "16-bit legacy interface", "<")):
            return True
        deep = raw.startswith(("\t\t", "        \t", "                ", "    " * 3))
        return bool(self.capability) and (deep or text.endswith("<?>"))

    def _outside(self, number: int, raw: str) -> None:
        text = raw.strip()
        if text.startswith(("pcilib:", "lspci:")):
            if text not in self.notes and len(self.notes) < 5:
                self.fragment.note(f"lspci said: {text[:200]}")
            self.notes.add(text)
        elif text != "--":  # grep's separator
            self.fragment.unparsed(number, raw)

    def _header_or_hex(self, number: int, text: str) -> bool:
        match = _HEADER.match(text)
        if match:
            return self._header(number, *match.groups())
        match = _HEX.match(text)
        if match is None:
            return False
        if self.device is None:
            return False
        offset = int(match[1], 16)
        if offset == 0:
            self.data = bytearray()
            self.data_line = number
        if offset == len(self.data):
            self.data += bytes.fromhex(match[2])
        else:
            self.fragment.unparsed(number, text)
        return True

    def _header(self, number: int, slot: str, path: str, rest: str) -> bool:
        if not _CLASS_START.match(rest):
            return False
        quoted = rest.startswith('"')
        class_text, sep, description = rest.partition(": ")
        if not quoted and not sep:
            return False
        if path:
            hops = [slot, *path[1:].split("/")]
            if any(":" not in hop for hop in hops):  # -P leaves the bus numbers out
                return False
            domain = slot[:-7]
            slot = domain + hops[-1]
            parent = domain + hops[-2] if hops[-2] is not hops[0] else hops[-2]
        device = self._open(slot, number)
        ref = self.fragment.ref(number)
        if path:
            self.paths[device.address] = self.fragment.device(parent, number).address
        if quoted:
            put_quoted(device, rest, ref)
            return True
        revision = ""
        for _ in range(2):  # (rev a1) (prog-if 00 [VGA controller])
            if suffix := _SUFFIX.search(description):
                revision = suffix[1] or revision
                description = description[: suffix.start()].rstrip()
        put_identity(device, class_text, description, revision, ref)
        return True

    # --- registers

    def _numbered(self, device: PciDevice, key: str, value: str, ref: Ref) -> None:
        index = key.split()[1]
        if not index.isdecimal():
            return
        if key.startswith("Region "):
            self._bar(device, int(index), value, ref)
        elif "Resizable" in self.capability and not self.capability.startswith("Virtual"):
            match = re.search(r"current size: ?(\d+)([KMGTPE]?)B", value)
            if match:
                size = int(match[1]) * _UNITS[match[2]]
                device.put("rebar_bytes", max(size, device.rebar_bytes or 0), ref)

    def _bar(self, device: PciDevice, index: int, text: str, ref: Ref) -> None:
        match = _BAR.match(text)
        if match is None or self.capability or index > 5:  # inside a capability: the BARs of virtual functions
            return
        attributes = match[2] or ""
        bar = Bar(index=index, origin={"": ref})
        bar.put("size_bytes", _size(match[3]))
        if "I/O ports" not in text:
            bar.put("prefetchable", "prefetchable" in attributes and "non-prefetchable" not in attributes)
            bar.put("is_64bit", "64-bit" in attributes)
        if match[1].startswith("<") or "[virtual]" in text:
            word = match[1] if match[1].startswith("<") else "[virtual]"
            bar.lacks("address", Reason.ABSENT, f"lspci prints {word}")
        if "bars" not in self.seen:
            self.seen["bars"] = True
            device.put("bars", [], ref)
        assert device.bars is not None
        device.bars.append(bar)
        self.next_bar = index + (2 if bar.is_64bit else 1)

    def _capabilities(self, device: PciDevice, value: str, ref: Ref) -> None:
        if value.startswith("<access denied"):
            self.seen["denied"] = True
            from kilter.intake.live.config_space import EXPRESS_FIELDS, EXTENDED_FIELDS, LINK_FIELDS

            for field in (*EXPRESS_FIELDS, *LINK_FIELDS, *EXTENDED_FIELDS):
                device.lacks(field, Reason.NOT_READABLE, "lspci: Capabilities: <access denied>", "run lspci as root")
            return
        match = _CAPABILITY.match(value)
        if match is None:
            self.capability = value
            return
        title = self.capability = match[2]
        if int(match[1], 16) >= 0x100:
            self.seen["extended"] = True
        express = _EXPRESS.match(title)
        if express:
            self.seen["express"] = True
            word = express[1].lower()
            device.put("port_type", _PORT_TYPES.get(word, word), ref)
        elif title.startswith("Access Control Services"):
            self.seen["acs"] = True
            device.put("has_acs", True, ref)
        elif title.startswith("Address Translation Service"):
            self.seen["ats"] = True
            device.put("has_ats", True, ref)
        elif title.startswith("Subsystem: "):
            put_subsystem(device, title[11:], ref)

    def _control(self, device: PciDevice, value: str, ref: Ref) -> None:
        if not self.capability and value.startswith("I/O"):
            self.seen["verbose"] = True
            device.put("config_readable", device.config_readable is not False, ref)

    def _flags(self, device: PciDevice, value: str, ref: Ref) -> None:
        if self.capability or "devsel" not in value:
            return
        self.seen["verbose"] = True
        device.put("config_readable", device.config_readable is not False, ref)
        for pattern, field in ((_NUMA_FLAG, "numa_node"), (_IOMMU_FLAG, "iommu_group")):
            if match := pattern.search(value):
                device.put(field, int(match[1]), ref)

    def _status(self, device: PciDevice, value: str, ref: Ref) -> None:
        if self.capability.startswith("Power Management"):
            device.put("power_state", value.split(" ", 1)[0] or None, ref)

    def _number(self, field: str, device: PciDevice, value: str, ref: Ref) -> None:
        if re.fullmatch(r"-?\d+", value):
            device.put(field, int(value), ref)

    def _bus(self, device: PciDevice, value: str, ref: Ref) -> None:
        match = _BUSES.search(value)
        if match and match[2] != "ff" and match[2] != "00":  # 00: not set up; ff: reads all ones
            device.put("secondary_bus", int(match[2], 16), ref)
            device.put("subordinate_bus", int(match[3], 16), ref)
        self.seen["bridge"] = True

    def _devcap(self, device: PciDevice, value: str, ref: Ref) -> None:
        if match := _PAYLOAD.search(value):
            device.put("max_payload_supported_bytes", int(match[1]), ref)

    def _devctl(self, device: PciDevice, value: str, ref: Ref) -> None:
        for name, sign in _FLAG.findall(value):
            if field := _DEVCTL.get(name):
                device.put(field, sign == "+", ref)
        if match := _PAYLOAD.search(value):
            device.put("max_payload_bytes", int(match[1]), ref)
        if match := _READ_REQUEST.search(value):
            device.put("mrrs_bytes", int(match[1]), ref)

    def _devsta(self, device: PciDevice, value: str, ref: Ref) -> None:
        bits = [_DEVSTA[name] for name, sign in _FLAG.findall(value) if sign == "+" and name in _DEVSTA]
        device.put("device_errors", bits, ref)

    def _link(self, device: PciDevice, value: str, ref: Ref, speed_field: str, width_field: str) -> None:
        speed, width = _SPEED.search(value), _WIDTH.search(value)
        lanes = int(width[1]) if width else None
        known = speed is not None and speed[1][0].isdecimal()
        if not known and speed is not None and lanes == 63 and speed_field == "link_speed_gts":
            # LnkSta of all ones: speed code 15, width 63. The function stopped answering after its header was read.
            device.put("config_readable", False, ref)
            lanes = None
        elif lanes == 0:
            detail = f"lspci prints {value[:60]!r}: no link (empty slot, virtual function or integrated endpoint)"
            device.lacks(width_field, Reason.NOT_SUPPORTED, detail)
            lanes = None
        if known:
            assert speed is not None
            device.put(speed_field, float(speed[1]), ref)
        elif speed is not None:
            # A speed code that lspci does not know: it is older than the link (32GT/s is known since pciutils 3.7).
            detail = f"lspci prints {speed[0]!r}"
            device.lacks(speed_field, Reason.NOT_READABLE, detail, "use a newer lspci, or read current_link_speed in sysfs")
        device.put(width_field, lanes, ref)

    def _lnkcap(self, device: PciDevice, value: str, ref: Ref) -> None:
        self._link(device, value, ref, "link_speed_max_gts", "link_width_max")

    def _lnksta(self, device: PciDevice, value: str, ref: Ref) -> None:
        self._link(device, value, ref, "link_speed_gts", "link_width")

    def _lnkctl(self, device: PciDevice, value: str, ref: Ref) -> None:
        if match := _ASPM.match(value):
            device.put("aspm", match[1].strip(), ref)

    def _lnkctl2(self, device: PciDevice, value: str, ref: Ref) -> None:
        if match := _TARGET.search(value):
            device.put("link_speed_target_gts", float(match[1]), ref)

    def _acs(self, field: str, device: PciDevice, value: str, ref: Ref) -> None:
        device.put("has_acs", True, ref)
        self.seen["acs"] = True
        device.put(field, [name for name, sign in _FLAG.findall(value) if sign == "+"], ref)

    def _atsctl(self, device: PciDevice, value: str, ref: Ref) -> None:
        device.put("has_ats", True, ref)
        self.seen["ats"] = True
        if match := re.match(r"Enable([+-])", value):
            device.put("ats_enabled", match[1] == "+", ref)

    def _aer(self, field: str, device: PciDevice, value: str, ref: Ref) -> None:
        bits = [_CESTA.get(name, name) for name, sign in _FLAG.findall(value) if sign == "+"]
        device.put(field, bits, ref)

    def _uesta_more(self, device: PciDevice, value: str, ref: Ref) -> None:
        """pciutils 3.14 spreads UESta over three lines."""
        more = [name for name, sign in _FLAG.findall(value) if sign == "+"]
        if more:
            device.put("aer_uncorrectable", [*(device.aer_uncorrectable or []), *more], ref)

    def _lanes(self, device: PciDevice, value: str, ref: Ref) -> None:
        text = value.removeprefix("LaneErr at lane:").replace(",", " ").split()
        if value == "0":
            device.put("lane_errors", [], ref)
        elif text and all(lane.isdecimal() for lane in text):
            device.put("lane_errors", [int(lane) for lane in text], ref)

    def _iovctl(self, device: PciDevice, value: str, ref: Ref) -> None:
        self.iov_enabled = value.startswith("Enable+")

    def _vfs(self, device: PciDevice, value: str, ref: Ref) -> None:
        if match := _VFS.search(value):
            device.put("vfs", int(match[1]) if self.iov_enabled else 0, ref)

    def _vf_offset(self, device: PciDevice, value: str, ref: Ref) -> None:
        if (match := _VF_OFFSET.search(f"VF offset: {value}")) and device.vfs:
            self.vf_layout[device.address] = (device.vfs, int(match[1]), int(match[2]))

    def _driver(self, device: PciDevice, value: str, ref: Ref) -> None:
        self.seen["driver"] = True
        device.put("driver", value or None, ref)

    def _modules(self, device: PciDevice, value: str, ref: Ref) -> None:
        self.seen["modules"] = True

    # --- the end

    def finish(self) -> None:
        self._close(closed=False)
        with_driver = any(seen.get("driver") or seen.get("modules") for _, seen in self.sections)
        with_numa = any(device.numa_node is not None for device, seen in self.sections if seen.get("verbose"))
        for device, seen in self.sections:
            self._conclude(device, seen, with_driver=with_driver, with_numa=with_numa)
        last, seen = self.sections[-1] if self.sections else (None, {})
        if (
            last
            and seen.get("verbose")
            and not seen["closed"]
            and with_driver
            and not (seen.get("driver") or seen.get("modules"))
        ):
            self.fragment.note(f"lspci: the details of {last.address} end without a blank line, they may be cut short")
        link_virtual_functions(self.fragment, self.vf_layout)
        bridges_printed = any(seen.get("bridge") or device.secondary_bus is not None for device, seen in self.sections)
        verbose = {device.address for device, seen in self.sections if seen.get("verbose") or seen.get("dumped")}
        if bridges_printed or self.paths:
            place_in_tree(self.fragment, self.paths, complete=verbose)
        list_nvswitches(self.fragment, [device for device, _ in self.sections])

    def _conclude(self, device: PciDevice, seen: dict[str, bool], *, with_driver: bool, with_numa: bool) -> None:
        """What the absence of a line says, for a device whose details were printed to the end."""
        if not seen.get("verbose") or not (seen["closed"] or seen.get("driver")) or device.config_readable is False:
            return
        ref = device.ref("")
        if with_driver and not seen.get("driver") and seen["closed"]:
            device.put("driver", "", ref)
        if device.link_speed_target_gts == 2.5 and (device.link_speed_gts or 0) > 2.5:
            # lspci prints the reserved code 0 (register not implemented) as 2.5GT/s.
            device.link_speed_target_gts = None
            device.lacks("link_speed_target_gts", Reason.NOT_SUPPORTED, "LnkCtl2 names 2.5GT/s for a link that is faster")
        if with_numa and device.numa_node is None:
            device.put("numa_node", -1, ref)
        # Extended capabilities were readable: those not listed do not exist.
        if seen.get("express") and seen.get("extended"):
            for name, field in (("acs", "has_acs"), ("ats", "has_ats")):
                if not seen.get(name) and getattr(device, field) is None:
                    device.put(field, False, ref)


def _machine_line(key: str, reader: _Reader, device: PciDevice, value: str, ref: Ref) -> None:
    put_machine_field(key, device, value, ref)


Handler = Callable[[_Reader, PciDevice, str, Ref], None]

_HANDLERS: dict[str, Handler] = {
    "Subsystem": lambda reader, device, value, ref: put_subsystem(device, value, ref),
    "Capabilities": _Reader._capabilities,
    "Control": _Reader._control,
    "Flags": _Reader._flags,
    "Status": _Reader._status,
    "Bus": _Reader._bus,
    "NUMA node": lambda reader, device, value, ref: reader._number("numa_node", device, value, ref),
    "NUMANode": lambda reader, device, value, ref: reader._number("numa_node", device, value, ref),
    "IOMMU group": lambda reader, device, value, ref: reader._number("iommu_group", device, value, ref),
    "IOMMUGroup": lambda reader, device, value, ref: reader._number("iommu_group", device, value, ref),
    "Physical Slot": lambda reader, device, value, ref: device.put("slot", value or None, ref),
    "PhySlot": lambda reader, device, value, ref: device.put("slot", value or None, ref),
    "DevCap": _Reader._devcap,
    "DevCtl": _Reader._devctl,
    "DevSta": _Reader._devsta,
    "LnkCap": _Reader._lnkcap,
    "LnkCtl": _Reader._lnkctl,
    "LnkSta": _Reader._lnksta,
    "LnkCtl2": _Reader._lnkctl2,
    "ACSCap": lambda reader, device, value, ref: reader._acs("acs_capable", device, value, ref),
    "ACSCtl": lambda reader, device, value, ref: reader._acs("acs_enabled", device, value, ref),
    "ATSCtl": _Reader._atsctl,
    "UESta": lambda reader, device, value, ref: reader._aer("aer_uncorrectable", device, value, ref),
    "CESta": lambda reader, device, value, ref: reader._aer("aer_correctable", device, value, ref),
    "LaneErrStat": _Reader._lanes,
    "IOVCtl": _Reader._iovctl,
    "Initial VFs": _Reader._vfs,
    "VF offset": _Reader._vf_offset,
    "Kernel driver in use": _Reader._driver,
    "Driver in use": _Reader._driver,
    "Driver": _Reader._driver,
    "Kernel modules": _Reader._modules,
    "Module": _Reader._modules,
}
for _key in ("Class", "Vendor", "Device", "SVendor", "SDevice", "Rev"):
    _HANDLERS[_key] = partial(_machine_line, _key)


#: registers whose further lines carry facts
_CONTINUED: dict[str, Handler] = {"DevCtl": _Reader._devctl, "UESta": _Reader._uesta_more, "LnkCtl2": _Reader._lnkctl2}


def parse(block: Block, fragment: Fragment) -> None:
    """PCI functions (and NVSwitches among them) of any lspci output, in ``fragment.snapshot.pci``.

    ``parent`` is "" for a function on a root bus and stays None where the bridge above was not printed.
    """
    reader = _Reader(block, fragment)
    for number, line in lines(block, fragment):
        reader.line(number, line)
    reader.finish()
