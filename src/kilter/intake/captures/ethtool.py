"""``ethtool``: statistics (``-S``), driver (``-i``), settings, ring sizes (``-g``) and pause frames (``-a``) of one interface.

``-S`` and ``-i`` do not print the interface's name: it is taken from the command at the prompt, else it is "".
Source of the format: the ethtool project (ethtool.c, netlink/settings.c, netlink/rings.c, netlink/pause.c).
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason, Ref
from kilter.facts.network import NetInterface
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_COMMAND = re.compile(r"\bethtool\b([^|;&>]*)")
_STATISTIC = re.compile(r"(.+?)\s{0,64}: {0,64}(-?\d{1,20})$")
_TEXT_STATISTIC = re.compile(r"[^:]+:.*\S")
_TITLE = re.compile(r"(Settings|Ring parameters|Pause parameters) for (\S+?):$")
_DRIVER_KEYS = {"driver": "driver", "version": "driver_version", "firmware-version": "firmware"}
_DRIVER_IGNORED = re.compile(r"expansion-rom-version|supports-[a-z-]+")
_SPEED = re.compile(r"(\d+)Mb/s$")
_NOTHING = {"", "n/a", "unknown", "unknown!"}


def interface_of(command: str) -> str:
    """``sudo ethtool -S ens5 | grep err`` -> ``ens5``; "" if the command names none."""
    match = _COMMAND.search(command)
    if match is None:
        return ""
    names = [word for word in match[1].split() if not word.startswith("-")]
    return names[0] if names else ""


def _driver_line(nic: NetInterface, key: str, value: str, ref: Ref) -> bool:
    if field := _DRIVER_KEYS.get(key):
        if value.lower() in _NOTHING:
            nic.lacks(field, Reason.NOT_SUPPORTED, f"ethtool -i prints {key}: {value}".rstrip())
        else:
            nic.put(field, value, ref)
        return True
    if key == "bus-info":
        nic.put("pci_address", pci_address(value), ref)
        return True
    return _DRIVER_IGNORED.fullmatch(key) is not None


def _setting(nic: NetInterface, key: str, value: str, ref: Ref) -> None:
    if key == "Speed":
        match = _SPEED.match(value)
        if match:
            nic.put("speed_mbps", int(match[1]), ref)
        else:  # "Unknown!": no link, or a driver that does not tell
            nic.lacks("speed_mbps", Reason.NOT_SUPPORTED, f"ethtool prints Speed: {value}")
    elif key == "Link detected":
        nic.put("carrier", value.startswith("yes"), ref)


def _pair(nic: NetInterface, section: str, key: str, value: str, ref: Ref) -> None:
    if section == "Ring parameters" and key in ("RX", "TX"):
        field = f"{key.lower()}_ring"
        if value.isdecimal():
            nic.put(field, int(value), ref)
        else:
            nic.lacks(field, Reason.NOT_SUPPORTED, f"ethtool -g prints {key}: {value}")
    elif section == "Pause parameters" and key in ("RX", "TX"):
        nic.put(f"pause_{key.lower()}", value == "on", ref)


def parse(block: Block, fragment: Fragment) -> None:
    """One interface with its counters, driver, speed, rings or pause settings."""
    name = interface_of(block.source.command)
    nic: NetInterface | None = None
    section, current = "", False
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        key, colon, value = text.partition(":")
        value = value.strip()
        if match := _TITLE.match(text):
            section, name, current = match[1], match[2], False
            nic = fragment.interface(name, line)
        elif text == "NIC statistics:":
            section, nic = "statistics", fragment.interface(name, line)
            nic.origin.setdefault("statistics", ref)
        elif key == "driver" and colon and section != "statistics":
            section, nic = "driver", fragment.interface(name, line)
            _driver_line(nic, key, value, ref)
        elif text.startswith(("Cannot get ", "netlink error:")) or text in ("no stats available", "No data available"):
            fragment.note(f"ethtool: {text[:200]}")
        elif nic is None:
            fragment.unparsed(line, raw)
        elif section == "statistics":
            if statistic := _STATISTIC.match(text):
                nic.statistics[statistic[1]] = int(statistic[2])
            elif not (raw[:1].isspace() and _TEXT_STATISTIC.match(text)):  # firmware names and the like are no counters
                fragment.unparsed(line, raw)
        elif section == "driver":
            if not (colon and _driver_line(nic, key, value, ref)):
                fragment.unparsed(line, raw)
        elif section == "Settings":
            if colon:
                _setting(nic, key, value, ref)
            if not raw[:1].isspace():
                fragment.unparsed(line, raw)
        elif text.startswith(("Current hardware settings", "Pre-set maximums")):
            current = text.startswith("Current")
        elif colon and (current or section == "Pause parameters"):
            _pair(nic, section, key, value, ref)
        elif not colon:
            fragment.unparsed(line, raw)
