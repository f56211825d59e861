"""``ip link``, ``ip addr``, plain, with ``-d``, ``-s``, on one line (``-o``), brief (``-br``) or as JSON (``-j``): network interfaces.

Loopback and interfaces that only exist in software (veth, bridges of containers, tunnels) are left out, as the live reader does. States are in
lower case as in /sys/class/net/<interface>/operstate. Source of the format: iproute2, ip/ipaddress.c and lib/ll_types.c.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kilter.facts.network import VIRTUAL_INTERFACE, NetInterface
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: JSON of a node with a thousand interfaces is about 1 MB.
_MAX_JSON = 8 << 20
#: ARPHRD numbers of the words after "link/"
_TYPES = {"ether": 1, "infiniband": 32, "loopback": 772}
_HEAD = re.compile(r"\d{1,6}: ([^\s:@]{1,32})(@[^\s:]{1,32})?: <([A-Z0-9_,-]*)> ?(.*)$")
_ONE_LINE = re.compile(r"\d{1,6}: ([^\s:@]{1,32})(?:@\S{1,32})?\s+(inet6? .*)$")
_BRIEF = re.compile(r"([^\s:@]{1,32})(?:@\S{1,32})?\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|NOTPRESENT|DORMANT|TESTING)(?:\s+(.*))?$")
_MTU = re.compile(r"\bmtu (\d{1,9})\b")
_STATE = re.compile(r"\bstate ([A-Z]+)\b")
_LINK = re.compile(r"link/(\w+) ?([0-9a-f:]{17,64})?")
_ADDRESS = re.compile(r"inet6? (\S{2,64})")
_PARENT = re.compile(r"\bparentdev (\S{7,16})")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}$")


class _Interfaces:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.known: dict[str, NetInterface | None] = {}

    def at(self, name: str, line: int, *, stacked: bool = False) -> NetInterface | None:
        """The interface of that name; None for one that has no hardware."""
        if name in self.known:
            return self.known[name]
        if self.fragment.snapshot.nics is None:
            self.fragment.snapshot.nics = []
        if stacked or VIRTUAL_INTERFACE.match(name):
            self.known[name] = None
            return None
        nic = NetInterface(name=name, origin={"": self.fragment.ref(line)})
        self.known[name] = nic
        self.fragment.snapshot.nics.append(nic)
        return nic


def _address(nic: NetInterface, text: str, ref: tuple[int, int]) -> None:
    if nic.addresses is None:
        nic.put("addresses", [], ref)
    assert nic.addresses is not None
    if len(nic.addresses) < 256 and text not in nic.addresses:
        nic.addresses.append(text)


def _head(nic: NetInterface, flags: str, rest: str, ref: tuple[int, int]) -> None:
    words = flags.split(",")
    if "LOWER_UP" in words:
        nic.put("carrier", True, ref)
    elif "NO-CARRIER" in words:
        nic.put("carrier", False, ref)
    if match := _MTU.search(rest):
        nic.put("mtu", int(match[1]), ref)
    if match := _STATE.search(rest):
        nic.put("operstate", match[1].lower(), ref)


def _detail(nic: NetInterface, text: str, ref: tuple[int, int]) -> bool:
    """Lines below the head; whether this one is a line of ``ip`` at all."""
    if match := _LINK.match(text):
        nic.put("link_type", _TYPES.get(match[1]), ref)
        nic.put("mac", match[2], ref)
    elif match := _ADDRESS.match(text):
        _address(nic, match[1], ref)
    if match := _PARENT.search(text):
        nic.put("pci_address", pci_address(match[1]), ref)
    return True


def _json_end(texts: list[str]) -> int:
    """How many lines the JSON text has: one, or (``-p``) up to the bracket that stands alone."""
    for number, text in enumerate(texts, 1):
        if text.rstrip().endswith("}]") or text.rstrip() in ("]", "} ]"):
            return number
    return len(texts)


def _json(text: str, interfaces: _Interfaces, first: int) -> bool:
    try:
        content: Any = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(content, list):
        return False
    for item in content:
        if not isinstance(item, dict) or not isinstance(item.get("ifname"), str):
            continue
        nic = interfaces.at(item["ifname"], first, stacked="link" in item or "link_index" in item)
        if nic is None:
            continue
        ref = interfaces.fragment.ref(first)
        flags = item.get("flags")
        if isinstance(flags, list):
            _head(nic, ",".join(str(flag) for flag in flags), "", ref)
        if isinstance(item.get("mtu"), int):
            nic.put("mtu", item["mtu"], ref)
        if isinstance(item.get("operstate"), str):
            nic.put("operstate", item["operstate"].lower(), ref)
        nic.put("link_type", _TYPES.get(str(item.get("link_type"))), ref)
        mac = item.get("address")
        if isinstance(mac, str) and _MAC.match(mac):
            nic.put("mac", mac, ref)
        if item.get("parentbus") == "pci" and isinstance(item.get("parentdev"), str):
            nic.put("pci_address", pci_address(item["parentdev"]), ref)
        addresses = item.get("addr_info")
        for entry in addresses if isinstance(addresses, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("local"), str):
                _address(nic, f"{entry['local']}/{entry.get('prefixlen', '')}".rstrip("/"), ref)
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.nics``: state, MTU, hardware address, addresses ("10.0.0.1/24") and, with ``-d``, the PCI address."""
    interfaces = _Interfaces(fragment)
    head = next((line.lstrip("\ufeff \t") for line in block.lines if line.strip()), "")
    if head.startswith(("[{", "[ {", "[")):
        end = _json_end(block.lines)
        text = "\n".join(block.lines[:end])
        if len(text) > _MAX_JSON or not _json(text, interfaces, block.first_line):
            fragment.note("ip -j: the JSON text is cut short or damaged")
            end = 0
        for number, raw in enumerate(block.lines[end:], block.first_line + end):
            fragment.unparsed(number, raw[:200])
        return
    current: NetInterface | None = None
    inside = False
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        if match := _HEAD.match(text):
            inside = True
            current = interfaces.at(match[1], line, stacked=match[2] is not None)
            if current is not None:
                _head(current, match[3], match[4], ref)
                for part in match[4].split("\\")[1:]:
                    _detail(current, part.strip(), ref)
        elif match := _ONE_LINE.match(text):
            nic = interfaces.at(match[1], line)
            if nic is not None:
                _detail(nic, match[2], ref)
        elif (not raw[:1].isspace()) and (match := _BRIEF.match(text)):
            nic = interfaces.at(match[1], line)
            if nic is None:
                continue
            nic.put("operstate", match[2].lower(), ref)
            for word in (match[3] or "").split():
                if _MAC.match(word):
                    nic.put("mac", word, ref)
                elif "/" in word:
                    _address(nic, word, ref)
                elif word.startswith("<"):
                    _head(nic, word.strip("<>"), "", ref)
        elif inside and (raw[:1].isspace() or _LINK.match(text) or _ADDRESS.match(text)):
            if current is not None:
                _detail(current, text, ref)
        else:
            fragment.unparsed(line, raw)
