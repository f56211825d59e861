"""PCI configuration space: ACS of bridges and the read request size (MRRS), now and by a script at every boot.

Registers: PCI Express Base Specification 5.0, 7.5.3.4 (Device Control, MRRS in bits 14:12) and 7.7.8 (ACS Control at offset 6).
"""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip, at_boot, boot_line
from kilter.tune.apply.steps import Bytes, Step

_KEY = re.compile(r"(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(?P<what>acs|mrrs)$")
_SIZES = (128, 256, 512, 1024, 2048, 4096)


def _config(address: str) -> str:
    return f"/sys/bus/pci/devices/{address}/config"


def _word(host: Host, path: str, offset: int) -> int | None:
    data = host.read_at(path, offset, 2)
    return None if data is None else int.from_bytes(data, "little")


def express_capability(host: Host, path: str) -> int | None:
    """Offset of the PCI Express capability (id 0x10) in the list that begins at 0x34."""
    pointer = host.read_at(path, 0x34, 1)
    offset = pointer[0] & 0xFC if pointer else 0
    for _ in range(48):
        if offset < 0x40:
            return None
        head = _word(host, path, offset)
        if head is None:
            return None
        if head & 0xFF == 0x10:
            return offset
        offset = head >> 8 & 0xFC
    return None


def acs_capability(host: Host, path: str) -> int | None:
    """Offset of the ACS extended capability (id 0x000d) in the list that begins at 0x100."""
    offset = 0x100
    for _ in range(96):
        data = host.read_at(path, offset, 4)
        if data is None:
            return None
        head = int.from_bytes(data, "little")
        if head & 0xFFFF == 0x000D:
            return offset
        offset = head >> 20 & 0xFFC
        if offset < 0x100:
            return None
    return None


class Pci(Base):
    def _split(self, change: Change) -> tuple[str, str]:
        match = _KEY.match(change.key)
        if match is None:
            raise Refuse(f"{change.key!r} is no address/acs or address/mrrs such as 0000:3b:00.0/mrrs")
        return match["address"], match["what"]

    def _register(self, host: Host, address: str, what: str) -> tuple[int | None, str]:
        """(offset of the control register, why there is none)."""
        path = _config(address)
        if not host.exists(path):
            return None, f"there is no PCI device {address}"
        if what == "mrrs":
            base = express_capability(host, path)
            return (None, f"{address} shows no PCI Express capability; reading it needs root") if base is None else (base + 8, "")
        base = acs_capability(host, path)
        return (None, f"{address} shows no ACS capability; reading it needs root") if base is None else (base + 6, "")

    def _shown(self, what: str, word: int) -> str:
        return f"0x{word:04x}" if what == "acs" else str(128 << (word >> 12 & 7))

    def _wanted(self, change: Change, what: str, now: int) -> int:
        try:
            value = int(change.value or "", 0)
        except ValueError:
            raise Refuse(f"{change.key}: {change.value!r} is no number") from None
        if what == "acs":
            if not 0 <= value <= 0x7F:
                raise Refuse(f"{change.key}: ACS control has seven bits, 0x0000 to 0x007f")
            return value
        if value not in _SIZES:
            raise Refuse(f"{change.key}: expected one of {', '.join(map(str, _SIZES))} bytes")
        return now & 0x8FFF | _SIZES.index(value) << 12

    def read(self, host: Host, change: Change) -> Reading:
        address, what = self._split(change)
        offset, why = self._register(host, address, what)
        if offset is None:
            return Reading(missing=why)
        word = _word(host, _config(address), offset) or 0
        shown = self._shown(what, word)
        if change.value is not None:
            # In the words of the change where it holds: 0x0 is 0x0000.
            shown = change.value if self._wanted(change, what, word) == word else shown
        kept = boot_line(host, change.key)
        return Reading(runtime=shown, persistent=change.value if kept and kept == self._line(change) else kept)

    def _line(self, change: Change) -> str | None:
        if change.value is None:
            return None
        address, what = self._split(change)
        wanted = self._wanted(change, what, 0)
        if what == "acs":
            return f"setpci -s {address} ECAP_ACS+6.w={wanted:04x}"
        return f"setpci -s {address} CAP_EXP+8.w={wanted:04x}:7000"

    def steps(self, host: Host, change: Change) -> list[Step]:
        address, what = self._split(change)
        offset, why = self._register(host, address, what)
        if offset is None:
            raise Skip(why)
        steps: list[Step] = []
        if change.value is not None:
            if what == "acs" and (guest := self._guest(host)):
                raise Refuse(f"ACS keeps guests apart, and {guest}")
            now = _word(host, _config(address), offset) or 0
            wanted = self._wanted(change, what, now)
            if wanted != now:
                steps.append(Bytes(_config(address), offset, wanted.to_bytes(2, "little")))
        if change.persistent:
            steps += at_boot(host, change.key, self._line(change))
        return steps

    def _guest(self, host: Host) -> str:
        """What speaks against taking ACS away: devices that belong to guests now."""
        bound = [name for name in host.names("/sys/bus/pci/drivers/vfio-pci") if re.match(r"[0-9a-f]{4,8}:", name)]
        return f"{bound[0]} is bound to vfio-pci" if bound else ""


MECHANISMS: dict[str, Mechanism] = {"pci": Pci()}
