"""Rare events by group: are the nodes with XID 119 those with one driver version?

Exact tests over nodes (a node with ten repeats is one witness, since repeats on one machine are not independent), corrected for the number of
tests by Benjamini and Hochberg (1995). What comes out is a statement about where events were seen, never a cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from kilter.facts.case import Snapshot

MIN_EVENTS = 3
MIN_NODES = 8
FALSE_DISCOVERY_RATE = 0.05


def fisher_greater(hit: int, group: int, affected: int, total: int) -> float:
    """Chance of ``hit`` or more affected nodes in a group of ``group``, when ``affected`` of ``total`` fall anywhere alike
    (hypergeometric; the one-sided test of Fisher). Exact for small and stable for large numbers."""
    if not 0 <= hit <= min(group, affected) or max(group, affected) > total:
        raise ValueError("counts do not fit each other")

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    if total <= 1000:
        ways = sum(math.comb(group, k) * math.comb(total - group, affected - k) for k in range(hit, min(group, affected) + 1))
        return ways / math.comb(total, affected)
    base = log_choose(total, affected)
    terms = [
        math.exp(log_choose(group, k) + log_choose(total - group, affected - k) - base)
        for k in range(max(hit, affected - (total - group)), min(group, affected) + 1)
    ]
    return min(1.0, math.fsum(terms))


def poisson_greater(count: int, expected: float) -> float:
    """Chance of ``count`` or more events where ``expected`` are expected (Poisson)."""
    if count <= 0:
        return 1.0
    if expected <= 0:
        return 0.0
    if count > expected:  # sum the upper tail itself: 1 - lower loses all digits there
        total, term, k = 0.0, math.exp(count * math.log(expected) - expected - math.lgamma(count + 1)), count
        while term > total * 1e-17:
            total += term
            k += 1
            term *= expected / k
        return min(1.0, total)
    lower = math.fsum(math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(count))
    return max(0.0, 1.0 - lower)


def benjamini_hochberg(p_values: list[float]) -> list[float]:
    """Adjusted p-values (q), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i], reverse=True)
    adjusted = [1.0] * len(p_values)
    least = 1.0
    for position, index in enumerate(order):
        least = min(least, p_values[index] * len(p_values) / (len(p_values) - position))
        adjusted[index] = least
    return adjusted


class RareEvent(msgspec.Struct, kw_only=True):
    """Events of one kind that gather in one group of nodes."""

    event: str  # "XID 119"
    events: int
    events_in_group: int
    nodes: int  # affected nodes of known group
    nodes_in_group: int  # affected ones
    group: list[str]  # "driver 535.104.05"; several when the same nodes share several values
    group_size: int
    total: int  # nodes of known group
    p: float
    q: float  # after correction

    @property
    def text(self) -> str:
        share = "all" if self.events_in_group == self.events else f"{self.events_in_group} of"
        return (
            f"{share} {self.events} {self.event} are on {' and '.join(self.group)} "
            f"({self.group_size} of {self.total} nodes; affected nodes: {self.nodes_in_group} of {self.nodes}), "
            f"p={self.p:.2g}, {self.q:.2g} after correction for all tests"
        )


def attributes(snapshot: Snapshot, rack: Callable[[str], str | None] | None = None) -> dict[str, str]:
    """What nodes are grouped by. Values of several devices count when they are one."""
    found = {
        "driver": snapshot.software.driver_version,
        "driver flavour": snapshot.software.driver_flavour,
        "kernel": snapshot.kernel.release,
        "BIOS": snapshot.host.bios_version,
        "product": snapshot.host.dmi_product,
        "rack": rack(snapshot.node) if rack and snapshot.node else None,
    }
    lists: tuple[tuple[str, list[str | None]], ...] = (
        ("GPU model", [a.name for a in snapshot.accelerators or []]),
        ("VBIOS", [a.firmware for a in snapshot.accelerators or []]),
        ("GSP firmware", [a.gsp_firmware for a in snapshot.accelerators or []]),
        ("NIC firmware", [d.firmware for d in snapshot.rdma or []]),
    )
    for name, values in lists:
        kinds = set(values)
        if len(kinds) == 1:
            found[name] = kinds.pop()
    return {name: value for name, value in found.items() if value}


def rare_events(
    events: Iterable[tuple[str, str, int]],
    nodes: Mapping[str, Mapping[str, str]],
    *,
    rate: float = FALSE_DISCOVERY_RATE,
) -> list[RareEvent]:
    """Events ``(name, node, count)`` against the groups of ``nodes`` (node -> attribute -> value). Significant ones, the clearest first.

    Nodes without a value of an attribute take no part in its test. Needs three events and eight nodes.
    """
    if len(nodes) < MIN_NODES:
        return []
    counts: dict[str, Counter[str]] = {}
    for name, node, count in events:
        if node in nodes:
            counts.setdefault(name, Counter())[node] += count
    groups: dict[str, dict[str, set[str]]] = {}
    for node, values in nodes.items():
        for attribute, value in values.items():
            groups.setdefault(attribute, {}).setdefault(value, set()).add(node)
    tested: list[RareEvent] = []
    for event, by_node in sorted(counts.items()):
        if sum(by_node.values()) < MIN_EVENTS:
            continue
        same: dict[frozenset[str], RareEvent] = {}
        for attribute, by_value in sorted(groups.items()):
            known = sum(map(len, by_value.values()))
            if known < MIN_NODES or len(by_value) < 2:
                continue
            affected = [n for n in by_node if attribute in nodes[n]]
            for value in sorted({nodes[n][attribute] for n in affected}):
                members = by_value[value]
                hit = [n for n in affected if n in members]
                key = frozenset(members)
                # Groups of the same nodes are one test: nothing in them can tell driver from kernel.
                if key in same and same[key].total == known:
                    same[key].group.append(f"{attribute} {value}")
                    continue
                same[key] = RareEvent(
                    event=event,
                    events=sum(by_node[n] for n in affected),
                    events_in_group=sum(by_node[n] for n in hit),
                    nodes=len(affected),
                    nodes_in_group=len(hit),
                    group=[f"{attribute} {value}"],
                    group_size=len(members),
                    total=known,
                    p=fisher_greater(len(hit), len(members), len(affected), known),
                    q=1.0,
                )
        tested += same.values()
    for one, q in zip(tested, benjamini_hochberg([t.p for t in tested]), strict=True):
        one.q = q
    return sorted((t for t in tested if t.q <= rate and t.events >= MIN_EVENTS), key=lambda t: (t.q, t.event, t.group))
