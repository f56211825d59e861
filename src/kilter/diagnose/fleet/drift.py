"""Configuration drift: which nodes differ from the common value of a fact.

Nodes are compared with nodes of one kind (same GPU models). A value is common when two thirds of the nodes that say it have it; without such
a majority all camps are reported, since nobody can tell which is the odd one. Source of the method: research section 7, SOP-SW ("diff the
configuration against the fleet mode").
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec

from kilter.diagnose.fleet.profile import Profile, kinds, latest
from kilter.diagnose.fleet.values import ABSENT, SERIOUS, ConfigFact
from kilter.facts.base import Ref

MAJORITY = 2 / 3
#: Sizes of memory that differ by less than this part are one size (the firmware reserves a little more or less).
SIZE_TOLERANCE = 0.01


class OddNode(msgspec.Struct, frozen=True):
    node: str
    value: str
    where: str = ""  # file:line


class Camp(msgspec.Struct, frozen=True):
    value: str
    count: int
    nodes: list[str]  # the first few


class Drift(msgspec.Struct, kw_only=True):
    """One fact that is not equal on all nodes of a kind."""

    area: str
    fact: str
    kind: str  # GPU models of the nodes compared; "" = not known
    severity: str  # warning, info
    common: str | None  # None: no majority
    common_count: int
    known: int  # nodes that say it
    odd: list[OddNode]  # without a majority: empty
    camps: list[Camp]  # all values, most common first
    missing: list[str]  # nodes of the kind that do not say it


class Gap(msgspec.Struct, kw_only=True):
    """An area of which some nodes say nothing while others do."""

    area: str
    kind: str
    nodes: list[str]
    facts: int  # facts of the area that other nodes have


class Comparison(msgspec.Struct, kw_only=True):
    nodes: int
    facts: int  # facts known on two nodes or more
    drifts: list[Drift]
    gaps: list[Gap]


class _Fact:
    """Nodes by value, as indices: four bytes a node and fact."""

    __slots__ = ("area", "group", "refs", "values")

    def __init__(self, fact: ConfigFact) -> None:
        self.area, self.group = fact.area, fact.group
        self.values: dict[str | float, array[int]] = {}
        self.refs: dict[int, Ref] = {}  # only of the first nodes of each value: the common one needs no line

    def add(self, having: array[int], fact: ConfigFact) -> None:
        nodes = self.values.setdefault(fact.value, array("l"))
        if fact.ref is not None:
            for node in having[: max(0, 32 - len(nodes))]:
                self.refs[node] = fact.ref
        nodes.extend(having)


def _merge_sizes(values: dict[str | float, array[int]]) -> dict[str | float, array[int]]:
    """Numbers within a tolerance of their neighbour are one value, named after the most common of them."""
    runs: list[list[float]] = []
    for number in sorted(v for v in values if isinstance(v, float)):
        if runs and number <= runs[-1][-1] * (1 + SIZE_TOLERANCE):
            runs[-1].append(number)
        else:
            runs.append([number])
    merged: dict[str | float, array[int]] = {v: nodes for v, nodes in values.items() if isinstance(v, str)}
    for run in runs:
        nodes: array[int] = array("l")
        for number in run:
            nodes.extend(values[number])
        merged[f"{max(run, key=lambda n: len(values[n])):g}"] = nodes
    return merged


def _judge(
    name: str, fact: _Fact, kind: str, members: list[int], profiles: Sequence[Profile], complete: set[int]
) -> Drift | None:
    values = _merge_sizes(fact.values)
    told = {node for nodes in values.values() for node in nodes}
    if fact.group and (absent := complete - told):
        values[ABSENT] = array("l", sorted(absent))
        told |= absent
    if len(values) < 2 or len(told) < 2:
        return None
    ranked = sorted(values.items(), key=lambda item: (-len(item[1]), str(item[0])))
    common, nodes = ranked[0]
    severity = "warning" if fact.area in SERIOUS else "info"
    camps = [Camp(str(v), len(n), [profiles[i].node for i in n[:8]]) for v, n in ranked[:16]]
    has_majority = len(nodes) >= MAJORITY * len(told) and len(told) > 2
    odd = [
        OddNode(profiles[i].node, str(v), profiles[i].where(fact.refs.get(i))) for v, n in ranked[1:] for i in n if has_majority
    ]
    return Drift(
        area=fact.area,
        fact=name,
        kind=kind,
        severity=severity,
        common=str(common) if has_majority else None,
        common_count=len(nodes),
        known=len(told),
        odd=odd,
        camps=camps,
        missing=[profiles[i].node for i in members if i not in told],
    )


def compare_config(profiles: Iterable[Profile]) -> Comparison:
    """Drift over the nodes of a case. Needs two nodes; with fewer there is nothing to compare and the result is empty."""
    nodes = latest(profiles)
    result = Comparison(nodes=len(nodes), facts=0, drifts=[], gaps=[])
    for kind, members in sorted(kinds(nodes).items()):
        if len(members) < 2:
            continue
        told: dict[int, tuple[ConfigFact, array[int]]] = {}
        facts: dict[tuple[str, str], _Fact] = {}
        areas: dict[str, set[int]] = {}
        listed: dict[str, set[int]] = {}
        for index in members:
            for group in nodes[index].complete:
                listed.setdefault(group, set()).add(index)
            for one in nodes[index].facts:
                # Profiles share equal facts: one look a node, the rest of the work once a different fact.
                entry = told.get(id(one))
                if entry is None:
                    entry = told[id(one)] = (one, array("l"))
                entry[1].append(index)
        for one, having in told.values():
            fact = facts.setdefault((one.area, one.name), _Fact(one))
            fact.add(having, one)
            if not one.group:
                areas.setdefault(one.area, set()).update(having)
        for (_, name), fact in facts.items():
            if sum(map(len, fact.values.values())) >= 2:
                result.facts += 1
            drift = _judge(name, fact, kind, members, nodes, listed.get(fact.group, set()))
            if drift is not None:
                result.drifts.append(drift)
        whole = {area: sum(f.area == area and not f.group for f in facts.values()) for area in areas}
        whole |= {group: sum(f.group == group for f in facts.values()) for group in listed}
        for area, known in sorted([*areas.items(), *listed.items()]):
            lacking = [nodes[i].node for i in members if i not in known]
            if lacking:
                result.gaps.append(Gap(area=area, kind=kind, nodes=lacking, facts=whole[area]))
    result.drifts.sort(key=lambda d: (d.severity != "warning", d.area, d.fact, d.kind))
    return result
