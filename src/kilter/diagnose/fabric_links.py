"""One picture of a fabric from what several tools said of it: ``ibnetdiscover`` knows the cables, ``perfquery`` the counters.

``iblinkinfo`` and ``ibqueryerrors`` name an adapter by the GUID of a port, ``ibswinfo`` can leave out the GUID of a switch.
``perfquery`` knows a port by LID and number only. LIDs are unique in one subnet; fabrics with a subnet a rail use the same numbers again, so
a LID joins two views only when exactly one node has it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

import msgspec

from kilter.facts.case import Case
from kilter.facts.fabric import FabricNode, FabricPort

#: perfquery's number for all ports of a node together; port 0 of a switch is its management port.
NOT_A_CABLE = (0, 255)


class Port(msgspec.Struct, eq=False):
    """One port with all that is known of it."""

    node: Node
    number: int
    facts: list[FabricPort] = []
    counters: dict[str, int] = {}
    counted: FabricPort | None = None  # where the counters come from
    cable: FabricPort | None = None  # where the far end comes from
    peer: Port | None = None

    @property
    def label(self) -> str:
        return f"{self.node.label} port {self.number}"

    @property
    def peer_label(self) -> str:
        """The far end, "" if it is not known."""
        if self.peer is not None:
            return self.peer.label
        if self.cable is None:
            return ""
        return f"{self.cable.remote_name or self.cable.remote_guid} port {self.cable.remote_port}"

    @property
    def link(self) -> str:
        """``leaf1 port 9 - spine1 port 1``, the same from both ends."""
        ends = [self.label] + ([self.peer_label] if self.peer_label else [])
        return " - ".join(sorted(ends))

    @property
    def to_aggregation(self) -> bool:
        """Whether the far end is a switch's own SHARP node, which has no cable."""
        return self.cable is not None and "Aggregation Node" in (self.cable.remote_name or "")


class Node(msgspec.Struct, eq=False):
    """One switch or adapter, joined from its views."""

    label: str
    kind: str | None
    views: list[FabricNode] = []
    ports: dict[int, Port] = {}

    @property
    def whole(self) -> bool:
        """Whether some listing shows the node's cables, and is not cut off there."""
        return any("ports" not in view.missing and any(port.remote_guid for port in view.ports) for view in self.views)


def _named(node: FabricNode) -> bool:
    return not node.guid.startswith("lid ")


_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}$")


def _by_lid(groups: dict[str, list[FabricNode]]) -> dict[str, str]:
    """Which view is which other: by LID, where that names exactly one node."""
    holders: dict[int, list[str]] = {}
    for guid, views in groups.items():
        for lid in {port.lid for view in views for port in view.ports if port.lid} if _named(views[0]) else ():
            holders.setdefault(lid, []).append(guid)
    into: dict[str, str] = {}
    for guid, views in groups.items():
        if _named(views[0]):
            continue
        lids = {port.lid for view in views for port in view.ports if port.lid}
        mine = {holder for lid in lids for holder in holders.get(lid, ())}
        if len(mine) == 1 or (mine and len({groups[holder][0].name for holder in mine}) == 1):
            into[guid] = min(mine)
    for guids in holders.values():  # an adapter by its port's GUID (ibnetdiscover -p) and by its own
        names = {groups[guid][0].name for guid in guids}
        if len(guids) > 1 and len(names) == 1 and None not in names:
            for guid in sorted(guids)[1:]:
                into.setdefault(guid, min(guids))
    return into


def _by_port(groups: dict[str, list[FabricNode]]) -> dict[str, str]:
    """An adapter that one tool names by the GUID of its port and another by its own; a switch that is given by name only."""
    into: dict[str, str] = {}
    owner: dict[str, str] = {}
    for guid in sorted(groups):
        for port_guid in {port.guid for view in groups[guid] for port in view.ports if port.guid and port.guid != guid}:
            if port_guid in groups:
                into[port_guid] = guid
            elif owner.setdefault(port_guid, guid) != guid:
                into[guid] = owner[port_guid]
    names: dict[str, list[str]] = {}
    for guid, views in groups.items():
        if _GUID.match(guid) and views[0].kind == "switch" and views[0].name:
            names.setdefault(views[0].name, []).append(guid)
    for guid, views in groups.items():
        same = names.get(views[0].name or "", [])
        if not _GUID.match(guid) and views[0].kind == "switch" and len(same) == 1:
            into[guid] = same[0]
    return into


def _group(nodes: list[FabricNode]) -> list[list[FabricNode]]:
    """Views of one node together: by GUID, by the GUID of a port, and by LID where that names exactly one other node."""
    groups: dict[str, list[FabricNode]] = {}
    for node in nodes:
        groups.setdefault(node.guid, []).append(node)
    into = {**_by_lid(groups), **_by_port(groups)}
    joined: dict[str, list[FabricNode]] = {}
    for guid, views in groups.items():
        seen = {guid}
        while guid in into and into[guid] not in seen:
            guid = into[guid]
            seen.add(guid)
        joined.setdefault(guid, []).extend(views)
    return list(joined.values())


def whole_node(node: Node) -> FabricNode:
    """What all views together tell of the node itself, without its ports. References stay those of the views."""
    views = node.views
    whole = FabricNode(guid=next((view.guid for view in views if _GUID.match(view.guid)), views[0].guid))
    for view in views:
        for field in ("kind", "name", "device_id", "firmware", "psid", "temperature_c"):
            if getattr(whole, field) is None:
                whole.put(field, getattr(view, field), view.ref(field))
        for field, kept in (("fans", whole.fans), ("power_supplies", whole.power_supplies)):
            for key, text in getattr(view, field).items():
                if key not in kept:
                    kept[key] = text
                    if (ref := view.ref(f"{field}/{key}")) is not None:
                        whole.origin[f"{field}/{key}"] = ref
        if (ref := view.ref("")) is not None:
            whole.origin.setdefault("", ref)
        for field, missing in view.missing.items():
            whole.missing.setdefault(field, missing)
    for field in list(whole.missing):
        if getattr(whole, field, None):
            del whole.missing[field]
    return whole


#: the last fabric that was joined: every rule of a run asks for the same
_last: tuple[list[FabricNode], list[Node]] = ([], [])


def fabric_of(case: Case) -> list[Node]:
    """The nodes of the case's fabric, each once, with their ports and cables."""
    global _last
    if case.fabric is None:
        return []
    if _last[0] is not case.fabric:
        _last = (case.fabric, _join(case.fabric))
    return _last[1]


def _join(nodes: list[FabricNode]) -> list[Node]:
    found: list[Node] = []
    by_guid: dict[str, Node] = {}
    for views in _group(nodes):
        name = next((view.name for view in views if view.name), None)
        node = Node(label=name or views[0].guid, kind=next((view.kind for view in views if view.kind), None), views=views)
        found.append(node)
        for view in views:
            by_guid[view.guid] = node
            for facts in view.ports:
                port = node.ports.get(facts.number)
                if port is None:
                    port = node.ports[facts.number] = Port(node=node, number=facts.number)
                port.facts.append(facts)
                if facts.guid:
                    by_guid.setdefault(facts.guid, node)
                if facts.counters:
                    port.counters.update(facts.counters)
                    port.counted = facts
                if facts.remote_guid and (port.cable is None or facts.width):
                    port.cable = facts
    for node in found:
        for port in node.ports.values():
            if port.cable is not None and port.cable.remote_guid and port.cable.remote_port is not None:
                far = by_guid.get(port.cable.remote_guid)
                port.peer = far.ports.get(port.cable.remote_port) if far is not None else None
    return found


def ports_of(nodes: list[Node]) -> Iterator[Port]:
    """All ports that can have a cable."""
    for node in nodes:
        for port in node.ports.values():
            if port.number not in NOT_A_CABLE:
                yield port


class Usual:
    """What a counter usually is: the median over the ports of the node or, if fewer than three tell it, over those of the fabric."""

    def __init__(self, ports: list[Port]) -> None:
        self._ports = ports
        self._known: dict[tuple[int, str], float | None] = {}

    def __call__(self, port: Port, name: str) -> float | None:
        """The median, the port itself included; None with fewer than three ports."""
        own = self._median(id(port.node), name, list(port.node.ports.values()))
        return own if own is not None else self._median(0, name, self._ports)

    def _median(self, key: int, name: str, ports: list[Port]) -> float | None:
        if (key, name) not in self._known:
            values = [p.counters[name] for p in ports if name in p.counters and p.number not in NOT_A_CABLE]
            self._known[key, name] = statistics.median(values) if len(values) >= 3 else None
        return self._known[key, name]
