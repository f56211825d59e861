"""RDMA and NIC counters that tell link, congestion and remote trouble apart. Table: ``tables/ib_counters.yaml``.

Rules are on rates; a counter's absolute value says little, and counters wrap or start again at 0.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from kilter.knowledge.table import folded, table, typed

Group = Literal["port", "hw", "ethtool"]
_SECTIONS: dict[str, Group] = {"port_counters": "port", "hw_counters": "hw", "ethtool": "ethtool"}
_PATHS = {
    "port": "/sys/class/infiniband/<hca>/ports/<n>/counters/",
    "hw": "/sys/class/infiniband/<hca>/ports/<n>/hw_counters/",
    "ethtool": "ethtool -S <interface>: ",
}
_DEFAULT_SOURCE = {"port": "abi", "hw": "mlx5", "ethtool": "mlx5"}


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    name: str
    class_: str
    severity: Literal["info", "warning", "error"]
    rule: str
    aliases: list[str] = []
    source: str = ""
    note: str = ""


class Counter(msgspec.Struct, frozen=True):
    name: str  # with "{p}" for a priority, "{n}" for a lane
    group: Group
    fault_class: str  # link, congestion, dead_path_or_peer, ...
    severity: Literal["info", "warning", "error"]
    rule: str
    note: str
    source: str  # full name of the rule's source
    own_rule: bool  # no source names a threshold: the rule is kilter's reading
    aliases: list[str]
    unit: str = "events"

    @property
    def where(self) -> str:
        """Where the counter is read."""
        return _PATHS[self.group] + self.name

    @property
    def confidence(self) -> Literal["high", "medium"]:
        return "medium" if self.own_rule else "high"

    @property
    def sop(self) -> str:
        if self.severity == "info" and self.fault_class != "congestion":
            return ""
        if "congestion" in self.fault_class or self.fault_class in ("receiver_software", "host", "host_hang"):
            return "SOP-CONG"
        if self.fault_class in ("config", "routing", "management"):
            return "SOP-SW"
        if self.fault_class == "pcie":
            return "SOP-BUS"
        return "SOP-NCCL" if self.fault_class.startswith("application") else "SOP-IB"


class LinkRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rule: str
    source: str = ""


class Vote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    verdict: str


@functools.cache
def counters() -> tuple[Counter, ...]:
    """All counters, in the table's order."""
    source = table("ib_counters")
    units = typed(source.head("units"), dict[str, str])
    found = []
    for section, group in _SECTIONS.items():
        for row in typed(source.head(section), list[_Row]):
            key = row.source or _DEFAULT_SOURCE[group]
            found.append(
                Counter(
                    name=row.name,
                    group=group,
                    fault_class=row.class_,
                    severity=row.severity,
                    rule=row.rule,
                    note=row.note,
                    source=source.source_names([key])[0],
                    own_rule=not row.source or "(ours)" in row.rule,
                    aliases=row.aliases,
                    unit=units.get(row.name, "events"),
                )
            )
    return tuple(found)


@functools.cache
def _names() -> tuple[dict[str, Counter], list[tuple[re.Pattern[str], Counter]]]:
    plain, patterns = {}, []
    for counter in counters():
        for name in (counter.name, *counter.aliases):
            if "{" in name:
                parts = re.split(r"\{\w\}", name.lower())
                patterns.append((re.compile(r"(?:\d+|\{\w\})".join(re.escape(p) for p in parts)), counter))
            else:
                plain[folded(name)] = counter
    return plain, patterns


def lookup(name: str) -> Counter | None:
    """The counter of a name in sysfs, ethtool or perfquery spelling ("rx_prio3_pause", "SymbolErrorCounter")."""
    plain, patterns = _names()
    text = name.strip().lower()
    return plain.get(folded(text)) or next((c for p, c in patterns if p.fullmatch(text)), None)


@functools.cache
def link_rules() -> tuple[LinkRule, ...]:
    """Rules on link state: flaps, drops, outages, by source."""
    return tuple(typed(table("ib_counters").head("link_state"), list[LinkRule]))


@functools.cache
def votes() -> tuple[Vote, ...]:
    """Who is to blame when several nodes count errors."""
    return tuple(typed(table("ib_counters").head("votes"), list[Vote]))
