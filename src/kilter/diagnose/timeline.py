"""One time line of all logs: clocks of the nodes brought together, every order with its uncertainty.

Logs tell time in four ways: with a zone, without one, since boot, or not at all. Nodes' clocks differ. Events that several nodes
tell of at one true moment (all ranks see a peer vanish, all watchdogs fire for one collective) give each node's offset; without
any, offsets are unknown and the order between nodes holds only beyond :data:`UNKNOWN_OFFSET_S`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import NamedTuple

import msgspec

from kilter.facts.case import Case
from kilter.facts.event import Clock, Event

#: How far clocks of nodes may be apart when nothing tells: what NTP-less or badly synchronised fleets show (research: health.md).
UNKNOWN_OFFSET_S = 5.0
#: Repeats of one moment that lie further apart are two moments.
SAME_MOMENT_S = 30.0
#: Zones differ by quarters of an hour.
ZONE_STEP_S = 900.0


class NodeClock(msgspec.Struct, kw_only=True):
    """A node's clock against the common one: true = printed - ``offset_s``, give or take ``uncertainty_s``."""

    node: str
    offset_s: float = 0.0
    uncertainty_s: float = UNKNOWN_OFFSET_S
    anchors: int = 0  # moments that it shares with other nodes


class Moment(NamedTuple):
    """An event on the common time line. ``time`` None: the event has no time that compares with others."""

    event: Event
    time: float | None
    uncertainty_s: float

    def before(self, other: Moment) -> bool | None:
        """Whether this one was surely first; None when the uncertainties overlap or a time is missing."""
        if self.time is None or other.time is None:
            return None
        if self.event.node == other.event.node and self.event.clock == other.event.clock:
            # One clock told both: only the stamps' own width counts.
            width = self.event.uncertainty_s + other.event.uncertainty_s
        else:
            width = self.uncertainty_s + other.uncertainty_s
        if abs(self.time - other.time) <= width:
            return None
        return self.time < other.time


class Timeline(msgspec.Struct, kw_only=True):
    """Events in order; those without a comparable time come last, in the order of their logs."""

    moments: list[Moment]
    clocks: dict[str, NodeClock]
    notes: list[str] = []


def _shared_moment(event: Event) -> tuple[str, ...] | None:
    """A key that events of different nodes have in common when they tell of one true moment."""
    if event.kind == "torch.watchdog" and event.fields.get("seq"):
        return ("watchdog", event.fields["seq"], event.fields.get("op", ""))
    if event.kind == "nccl.timeout":
        return ("nccl.timeout",)
    return None


def node_clocks(events: list[Event]) -> tuple[dict[str, NodeClock], list[str]]:
    """Each node's clock offset, from moments that nodes share. Zones that differ by whole quarters of an hour are told apart first."""
    nodes = sorted({e.node for e in events})
    clocks = {node: NodeClock(node=node, uncertainty_s=0.0 if len(nodes) < 2 else UNKNOWN_OFFSET_S) for node in nodes}
    notes: list[str] = []
    firsts: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for event in events:
        key = _shared_moment(event)
        if key is None or event.time is None or event.clock not in (Clock.UTC, Clock.LOCAL):
            continue
        known = firsts[key].get(event.node)
        firsts[key][event.node] = event.time if known is None else min(known, event.time)
    differences: dict[str, list[float]] = defaultdict(list)
    for times in firsts.values():
        if len(times) < 2:
            continue
        middle = statistics.median(times.values())
        for node, time in times.items():
            differences[node].append(time - middle)
    for node, values in differences.items():
        offset = statistics.median(values)
        zone = round(offset / ZONE_STEP_S) * ZONE_STEP_S
        spread = max((abs(v - offset) for v in values), default=0.0)
        if abs(offset - zone) > SAME_MOMENT_S:
            notes.append(
                f"{node}: its clock is {offset:.0f} s off by shared moments, which is no time zone; its order is not used"
            )
            continue
        if zone:
            notes.append(f"{node}: its log runs {zone / 3600:+.2g} h against the others: another time zone")
        # Watchdogs of one collective fire within their polling interval of a second or so.
        clocks[node] = NodeClock(node=node, offset_s=offset, uncertainty_s=max(1.0, spread), anchors=len(values))
    return clocks, notes


def build(case: Case) -> Timeline:
    """The time line of a case."""
    events = case.events
    clocks, notes = node_clocks(events)
    moments: list[Moment] = []
    for event in events:
        clock = clocks[event.node]
        if event.time is None or event.clock is Clock.NONE:
            moments.append(Moment(event, None, 0.0))
        elif event.clock is Clock.BOOT:
            # Comparable within its node only; nothing says when the node booted.
            moments.append(Moment(event, None, 0.0))
        else:
            moments.append(Moment(event, event.time - clock.offset_s, event.uncertainty_s + clock.uncertainty_s))
    boot = sum(1 for e in events if e.clock is Clock.BOOT)
    if boot:
        notes.append(f"{boot} event(s) tell only seconds since boot: they have an order on their node, none against other nodes")
    if len(clocks) > 1 and not any(c.anchors for c in clocks.values()):
        notes.append(f"no moment is shared by two nodes: clock offsets are unknown, taken as up to {UNKNOWN_OFFSET_S:.0f} s")
    moments.sort(key=lambda m: (m.time is None, m.time if m.time is not None else (m.event.time or 0.0)))
    return Timeline(moments=moments, clocks=clocks, notes=notes)
