"""``ethtool -m`` (module readings), ``-k`` (features), ``-c`` (coalescing), ``-l`` (channels): what ``captures/ethtool.py`` does not read.

Readings of a module become samples (tool "ethtool -m"; conditions say device and lane), alarm flags that are on become samples of the metric
"module_alarm" with the value 1. Features, coalescing and channels have no fact yet: their lines are recognised and read over.
``-m`` does not print the interface's name: it is taken from the command at the prompt, else it is "".
Source of the format: the ethtool project (qsfp.c, sff-common.c, cmis.c, ethtool.c).
"""

from __future__ import annotations

import re

from kilter.facts.measure import Sample
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ethtool import interface_of
from kilter.intake.fragment import Block, Fragment

_TITLE = re.compile(r"(Features|Coalesce parameters|Channel parameters|FEC parameters) for (\S{1,32}?):$")
_MODULE = re.compile(r"Identifier\s*: 0x[0-9a-f]{2}")
_FIELD = re.compile(r"([^:]{1,80}?)\s*:\s*(.*)$")
_FLAG = re.compile(r"(.{1,80}?) (alarm|warning)$")
_FLAG_OF_LANE = re.compile(r"\((?:Chan(?:nel)?|Lane) (\d{1,2})\)|\bLane (\d{1,2})\b", re.IGNORECASE)
_DBM = re.compile(r"/ (-?\d{1,3}(?:\.\d{1,6})?) dBm")
_VALUE = re.compile(r"(-?\d{1,6}(?:\.\d{1,6})?) (degrees C|V|mA|mW)\b")

#: start of the name in lower case -> metric; thresholds of the same name end in "threshold"
_METRICS = (
    (("module temperature",), "module_temperature"),
    (("module voltage",), "module_voltage"),
    (("laser bias current", "laser tx bias current"), "laser_bias"),
    (("transmit avg optical power", "laser output power", "laser tx power"), "tx_power"),
    (("rcvr signal avg optical power", "receiver signal average optical power", "rx power", "receiver signal oma"), "rx_power"),
)


def _reading(name: str, text: str) -> tuple[str, float, str] | None:
    """(metric, value, unit) of one reading; optical powers in dBm."""
    folded = name.lower()
    if "threshold" in folded:
        return None
    for starts, metric in _METRICS:
        if folded.startswith(starts):
            if metric.endswith("_power"):
                match = _DBM.search(text)
                return (metric, float(match[1]), "dBm") if match else None
            value = _VALUE.match(text)
            if value is None:
                return None
            return metric, float(value[1]), "C" if value[2] == "degrees C" else value[2]
    return None


def _module_line(fragment: Fragment, device: str, name: str, text: str, line: int) -> None:
    conditions = {"device": device} if device else {}
    ref = fragment.ref(line)
    flag = _FLAG.match(name)
    lane = _FLAG_OF_LANE.search(name)
    if lane is not None:
        conditions["lane"] = lane[1] or lane[2]
    if flag is not None or "alarm" in name.lower() or "warning" in name.lower():
        if text == "On":
            conditions["name"] = name
            fragment.snapshot.samples.append(
                Sample(metric="module_alarm", value=1.0, unit="flag", tool="ethtool -m", conditions=conditions, origin={"": ref})
            )
        return
    reading = _reading(name, text)
    if reading is None:
        return
    metric, value, unit = reading
    fragment.snapshot.samples.append(
        Sample(metric=metric, value=value, unit=unit, tool="ethtool -m", conditions=conditions, origin={"": ref})
    )


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.samples``: temperature (C), voltage (V), bias (mA) and optical powers (dBm) of a module, and its alarms."""
    device = interface_of(block.source.command)
    section = ""
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if match := _TITLE.match(text):
            section = match[1]
        elif _MODULE.match(text):
            section = "module"
        elif text.startswith(("Cannot get ", "netlink error:")):
            fragment.note(f"ethtool: {text[:200]}")
        elif not section:
            fragment.unparsed(line, raw)
        elif section == "module":
            field = _FIELD.match(text)
            if field is None:
                fragment.unparsed(line, raw)
            else:
                _module_line(fragment, device, field[1].strip(), field[2].strip(), line)
        elif ":" not in text:
            fragment.unparsed(line, raw)
