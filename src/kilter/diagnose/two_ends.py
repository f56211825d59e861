"""Whose end of an RDMA connection failed: the one that complains, or the one that it names."""

from __future__ import annotations

import re
from typing import NamedTuple

from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Evidence

_PEER = re.compile(r"(?:peer|remote peer|to) ([\w.:-]{1,255}?)<\d{1,5}>")
#: Link losses beyond what a reboot of the switch leaves.
DOWNS = 5
_LINK_EVENTS = ("mlx5.link_down", "mlx5.health", "mlx5.module", "mlx5.timeout")


class Ends(NamedTuple):
    """Who complains of whom, and which nodes' own counters and logs show a fault."""

    pairs: set[tuple[str, str]]  # (complaining node, named node or address)
    sick: dict[str, list[Evidence]]  # node -> what its own port or log shows

    def many_to_one(self) -> str:
        """The peer that two and more nodes name, when nobody else is named as often; "" if none."""
        named: dict[str, set[str]] = {}
        for who, whom in self.pairs:
            named.setdefault(whom, set()).add(who)
        ranked = sorted(named, key=lambda n: -len(named[n]))
        if not ranked or len(named[ranked[0]]) < 2:
            return ""
        return ranked[0] if len(ranked) == 1 or len(named[ranked[0]]) > len(named[ranked[1]]) else ""

    def one_to_many(self) -> str:
        """The only node that complains, when it names two and more peers; "" if none."""
        who = {a for a, _ in self.pairs}
        return next(iter(who)) if len(who) == 1 and len({b for _, b in self.pairs}) >= 2 else ""


def hosts_by_address(case: Case) -> dict[str, str]:
    """Network address -> node, from the NCCL logs' own lines and the nodes' interfaces."""
    known: dict[str, str] = {}
    for snapshot in case.snapshots:
        for interface in snapshot.nics or []:
            for address in interface.addresses or []:
                known.setdefault(address.split("/")[0], snapshot.node)
    for job in case.jobs:
        known.update(job.addresses)
    return known


def _signs(snapshot: Snapshot) -> list[Evidence]:
    """Ports that are down or went down often. Time-outs (local_ack_timeout_err) are counted by those who wait, so they accuse nobody here."""
    found = []
    for device in snapshot.rdma or []:
        for port in device.ports:
            downs = port.counters.get("link_downed", 0)
            where = snapshot.where(port.ref("counters"))
            if port.state == "DOWN":
                found.append(Evidence(f"{snapshot.node}: {device.name} is down", where))
            if downs >= DOWNS:
                found.append(Evidence(f"{snapshot.node}: {device.name} link_downed = {downs}", where))
    return found


def look(case: Case, events: list[Event]) -> Ends:
    """The two ends of completion errors."""
    addresses = hosts_by_address(case)
    pairs = set()
    for event in events:
        if match := _PEER.search(event.text):
            pairs.add((event.node, addresses.get(match[1], match[1])))
    sick: dict[str, list[Evidence]] = {}
    for snapshot in case.snapshots:
        if signs := _signs(snapshot):
            sick.setdefault(snapshot.node, []).extend(signs)
    for event in case.events:
        if event.kind in _LINK_EVENTS:
            sick.setdefault(event.node, []).append(Evidence(f"{event.node}: {event.text}", event.where))
    return Ends(pairs, sick)
