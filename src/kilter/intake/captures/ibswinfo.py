"""``ibswinfo``: inventory, power supplies, fans and temperature of an unmanaged InfiniBand switch.

Keys differ a little between versions and output types (``-o status``, ``-o vitals``): they are matched by their words. Source of the format:
stanford-rc/ibswinfo, README and ibswinfo.sh.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.fabric import FabricNode
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import guid
from kilter.intake.fragment import Block, Fragment

_RULE = re.compile(r"[=-]{10,}$")
_PSU = re.compile(r"psu ?(\d{1,2})(?:[. ](.+))?$", re.IGNORECASE)
_FAN = re.compile(r"fan ?#?(\d{1,3})(?:\.speed)?(?: \(rpm\))?$", re.IGNORECASE)
_ABSENT = {"", "n/a", "na", "unknown", "-", "not available", "not supported"}
_PSU_PARTS = {
    "status": "",
    "dc power": " DC power",
    "dc": " DC power",
    "fan status": " fan status",
    "fan": " fan status",
}
_ID_KEYS = {"guid", "node guid", "psid", "firmware version", "fw version", "fw_ver", "product name", "part number"}


def _number(text: str) -> int | None:
    match = re.match(r"(-?\d{1,4})(?:\.\d{1,6})?(?: ?C)?$", text)
    return int(match[1]) if match else None


class _Switch:
    """The switch that is being read. Its GUID may come late or, with ``-o status``, never."""

    def __init__(self, fragment: Fragment, line: int, title: str) -> None:
        self.fragment = fragment
        self.node = FabricNode(guid="", kind="switch", origin={"": fragment.ref(line)})
        self.node.put("name", title or None, fragment.ref(line))
        self.unit = ""  # power supply whose lines follow
        fragment.fabric.append(self.node)

    def take(self, key: str, text: str, line: int) -> None:
        node, ref, word = self.node, self.fragment.ref(line), key.lower()
        absent = text.strip("[]").lower() in _ABSENT
        if word in ("guid", "node guid"):
            full = guid(text)
            if full is not None:
                node.put("guid", full, ref)
        elif word in ("firmware version", "fw version", "fw_ver") and not absent:
            node.put("firmware", text, ref)
        elif word == "psid" and not absent:
            node.put("psid", text, ref)
        elif word in ("product name", "part number") and not absent:
            if node.name is None or word == "product name":
                node.put("name", text, ref)
        elif word in ("temperature (c)", "cur.temp (c)", "temperature", "temp (c)"):
            self.unit = ""
            value = _number(text)
            if value is None:
                node.lacks("temperature_c", Reason.NOT_SUPPORTED, f"ibswinfo prints {text[:40]}")
            else:
                node.put("temperature_c", value, ref)
        elif match := _PSU.match(key):
            self.unit = f"PSU{match[1]}"
            self._psu((match[2] or "status").lower(), text, ref)
        elif self.unit and word in _PSU_PARTS:
            self._psu(word, text, ref)
        elif word in ("fan status", "fans", "fan.status", "fans status"):
            self._fan("fan status", text, ref)
        elif match := _FAN.match(key):
            self._fan(f"fan#{match[1]}", text, ref)

    def _psu(self, part: str, text: str, ref: tuple[int, int]) -> None:
        suffix = _PSU_PARTS.get(part)
        if suffix is not None and text:
            self.node.power_supplies[self.unit + suffix] = text
            self.node.origin[f"power_supplies/{self.unit}{suffix}"] = ref

    def _fan(self, name: str, text: str, ref: tuple[int, int]) -> None:
        if text:
            self.node.fans[name] = text
            self.node.origin[f"fans/{name}"] = ref

    def close(self, count: int) -> None:
        if not self.node.guid:
            self.node.guid = self.node.name or f"switch {count} (not named)"


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: one switch a report, with ``fans``, ``power_supplies`` and ``temperature_c``."""
    switch: _Switch | None = None
    title, after_rule, count = "", False, 0
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if _RULE.match(text):
            after_rule = text.startswith("=")
            if switch is not None and not after_rule:
                switch.unit = ""
            continue
        key, separator, value = text.partition("|")
        if not separator:
            key, separator, value = text.partition(" : ")
        key, value = " ".join(key.split()), value.strip()
        if not separator or not key:
            if after_rule and len(text) <= 120:
                if switch is not None:
                    switch.close(count)
                title, switch = text, None
            else:
                fragment.unparsed(line, raw)
            after_rule = False
            continue
        after_rule = False
        if switch is None:
            count += 1
            switch = _Switch(fragment, line, title)
            title = ""
        switch.take(key, value, line)
    if switch is not None:
        switch.close(count)
        if not switch.node.fans:
            fragment.note("ibswinfo: no fan is shown: cut short?")
