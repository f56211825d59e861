"""InfiniBand beyond the host: ports and cables of switches, as ibnetdiscover and perfquery show them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.fabric_links import Node, Port, Usual, fabric_of, ports_of
from kilter.facts.case import Case
from kilter.facts.fabric import FabricNode
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_PERFQUERY = "perfquery -x <lid> <port>, twice, an hour apart; ibqueryerrors"
_DISCOVER = "ibnetdiscover"
_AGAIN = "the time over which they were counted: a second reading"
_TABLE = "knowledge: ib_counters.yaml"
_PMA = "InfiniBand Architecture Specification: PortCounters (performance management)"
#: where the 16-bit and 8-bit counters of PortCounters stop
_FULL = {
    "port_xmit_discards": 65535,
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "link_downed": 255,
    "link_error_recovery": 255,
}


def fabric_nodes(case: Case, ctx: Context) -> list[Node]:
    """The joined nodes; ends the rule when nothing was given of a fabric."""
    if case.fabric is None:
        raise ctx.missing("listing or counters of the fabric")
    if not case.fabric:
        raise ctx.skip("no fabric")
    return fabric_of(case)


def _counted(case: Case, ctx: Context, name: str) -> tuple[list[Port], Usual]:
    """The ports with that counter and what is usual for it, or the reason why there are none."""
    ports = [port for port in ports_of(fabric_nodes(case, ctx)) if name in port.counters]
    if not ports:
        raise ctx.missing(f"{name} of the fabric's ports")
    return ports, Usual(ports)


def _evidence(ctx: Context, port: Port, name: str, *, role: str = "supports") -> Evidence:
    where = ctx.where(port.counted, f"counters/{name}") if port.counted is not None else ""
    return Evidence(f"{port.label}: {name} = {_shown(port, name)}", where, role)


def _shown(port: Port, name: str) -> str:
    value = port.counters[name]
    return f"{value} (the most that it can hold)" if value == _FULL.get(name) else str(value)


def _subject(port: Port) -> Subject:
    return Subject("fabric_port", port.label)


def _far(port: Port) -> str:
    return f" (to {port.peer_label})" if port.peer_label else ""


@rule(
    "ib.port_xmit_discards",
    "Fabric ports do not drop what they should send",
    scope="case",
    family="rdma",
    sop="SOP-CONG",
    hint=_PERFQUERY,
    sources=(_PMA, _TABLE, "NVIDIA/NVSentinel: 100/s"),
    action="Read it twice and judge the rate; look at what hangs on the far end. No cable swap on this alone.",
)
def discards(case: Case, ctx: Context) -> Iterator[Finding]:
    """A port threw away packets that it could not send: the far end took none for too long, went away, or the port was down.

    Totals have no time: judged by the count of the other ports of the switch and by the share of packets sent. Below 1000 and a
    millionth of the packets nothing is said. All ports alike are congestion and information.
    """
    ports, usual = _counted(case, ctx, "port_xmit_discards")
    together: dict[int, list[tuple[Port, bool]]] = {}
    for port in ports:
        dropped = port.counters["port_xmit_discards"]
        share = _share(port)
        heavy = share is not None and share >= 1e-6 and dropped >= 100
        if dropped < 1000 and not heavy:
            continue
        others = usual(port, "port_xmit_discards")
        if others is not None and dropped <= 20 * (others + 1):
            together.setdefault(id(port.node), []).append((port, heavy))
            continue
        faces_host = port.peer is not None and port.peer.node.kind == "ca"
        missing = [_AGAIN]
        if others is None:
            missing.append("the same counter of the other ports of this switch")
        if not port.peer_label:
            missing.append("what hangs on the port: ibnetdiscover")
        yield ctx.finding(
            "warning",
            f"{dropped} packets dropped instead of sent"
            + (f", {share:.2g} of the packets it had to send" if share is not None else "")
            + _far(port)
            + (f"; other ports {others:g}" if others is not None else ""),
            subject=_subject(port),
            evidence=[_evidence(ctx, port, n) for n in ("port_xmit_discards", "port_xmit_packets") if n in port.counters],
            causes=[
                Cause(
                    "the host on this port stopped taking data", "likely" if faces_host else "possible", "its log at that time"
                ),
                Cause("the neighbour went away or was rebooted", "possible", "link_downed of both ends"),
                Cause("congestion", "possible", "port_xmit_wait of this port against the others"),
            ],
            missing=missing,
            confidence="medium" if heavy or others is not None else "low",
        )
    for alike in together.values():
        counts = [port.counters["port_xmit_discards"] for port, _ in alike]
        yield ctx.finding(
            "warning" if any(heavy for _, heavy in alike) else "info",
            f"{len(alike)} ports dropped {min(counts)} to {max(counts)} packets instead of sending them, as many as their siblings",
            subject=Subject("fabric", alike[0][0].node.label),
            evidence=[_evidence(ctx, port, "port_xmit_discards") for port, _ in alike[:6]],
            causes=[Cause("congestion", "likely", "port_xmit_wait; which hosts receive most")],
            missing=[_AGAIN],
            confidence="medium",
        )


def _share(port: Port) -> float | None:
    """Packets dropped of those to be sent; None without the counter, or when it stopped at 32 bits."""
    dropped, sent = port.counters["port_xmit_discards"], port.counters.get("port_xmit_packets", 0)
    return dropped / (sent + dropped) if sent and sent != 0xFFFFFFFF else None


_ERRORS = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")


def _high(port: Port, name: str, usual: Usual) -> bool:
    mine = port.counters.get(name)
    if mine is None or mine < 100:
        return False
    others = usual(port, name)
    if others is None:
        return mine >= 1000 or mine == _FULL.get(name)
    return mine > 20 * (others + 1)


@rule(
    "ib.symbol_errors",
    "Fabric links are free of bit errors",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_PERFQUERY,
    sources=(_PMA, _TABLE, "research: failure mode 36"),
    action="Clear the counters (perfquery -R), read the rate after an hour; then clean, reseat or swap the cable.",
    also=("ib.port_errors",),
)
def symbol_errors(case: Case, ctx: Context) -> Iterator[Finding]:
    """Symbol errors, receive errors or retrainings of a fabric port far above those of its siblings.

    The receiver counts: the bad part is the cable towards it, or the far end's transmitter. When both ends complain it is one cable, and
    reported once. Totals without a time are judged by comparison only.
    """
    nodes = fabric_nodes(case, ctx)
    everyone = [port for port in ports_of(nodes) if any(name in port.counters for name in _ERRORS)]
    if not everyone:
        raise ctx.missing("error counters of the fabric's ports")
    usual = Usual(everyone)
    high = {id(port): names for port in everyone if (names := [name for name in _ERRORS if _high(port, name, usual)])}
    told: set[int] = set()
    for port in everyone:
        if id(port) not in high or id(port) in told:
            continue
        ends = [port] + ([port.peer] if port.peer is not None and id(port.peer) in high else [])
        told |= {id(end) for end in ends}
        names = sorted({name for end in ends for name in high[id(end)]})
        both = len(ends) > 1
        yield ctx.finding(
            "warning",
            f"{', '.join(names)} far above the siblings"
            + (f" at both ends of the link {port.link}" if both else f"{_far(port)}: what it receives is damaged"),
            id="ib.symbol_errors" if "symbol_error" in names else "ib.port_errors",
            subject=Subject("fabric_port", port.link) if both else _subject(port),
            evidence=[_evidence(ctx, end, name) for end in ends for name in high[id(end)]],
            causes=[
                Cause("cable or transceivers", "likely", "swap with a sibling; both ends count" if both else "swap the cable"),
                Cause("far end's transmitter" if not both else "one of the two ports", "possible", "stays with the port"),
            ],
            missing=[_AGAIN] + ([] if port.peer is not None and port.peer.counters else ["the far end's counters"]),
            confidence="medium",
        )


@rule(
    "ib.link_downed",
    "Fabric links stay up",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_PERFQUERY,
    sources=(_PMA, _TABLE, "Azure/azurehpc-health-checks: 5 flaps in 24 h", "research: failure mode 34"),
    action="Inspect or swap that cable; clear the counters and watch for a day. Take a flapping uplink out of routing first.",
)
def link_downed(case: Case, ctx: Context) -> Iterator[Finding]:
    """A link went down five times more than its siblings did. Both ends count, so both ends complaining names the cable, once.

    One end alone: the other's counter was cleared or not read, or the port was reset by itself; then it is a warning. A reboot of the
    host behind a port counts as well.
    """
    ports, usual = _counted(case, ctx, "link_downed")
    high = {id(port) for port in ports if port.counters["link_downed"] >= 5 + (usual(port, "link_downed") or 0)}
    told: set[int] = set()
    for port in ports:
        if id(port) not in high or id(port) in told:
            continue
        peer = port.peer if port.peer is not None and "link_downed" in port.peer.counters else None
        both = peer is not None and id(peer) in high
        ends = [port] + ([peer] if both and peer is not None else [])
        told |= {id(end) for end in ends}
        others = usual(port, "link_downed")
        counts = " and ".join(f"{_shown(end, 'link_downed')}" for end in ends)
        yield ctx.finding(
            "error" if both else "warning",
            (
                f"the link {port.link} went down {counts} times by its two ends"
                if both
                else f"went down {counts} times{_far(port)}"
            )
            + (f", other ports {others:g}" if others is not None else ""),
            subject=Subject("fabric_port", port.link) if both else _subject(port),
            evidence=[_evidence(ctx, end, "link_downed") for end in ends],
            causes=[
                Cause("cable or transceiver", "likely", "swap with a sibling"),
                Cause("the host behind it was rebooted that often", "possible", "its boot times"),
            ],
            contradicts=[f"{peer.label}: link_downed = {peer.counters['link_downed']}"] if peer is not None and not both else [],
            missing=[_AGAIN] + (["the far end's counter"] if peer is None else []),
            confidence="high" if both else "medium",
        )


@rule(
    "ib.port_no_link",
    "Adapters of the fabric have a link",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_DISCOVER,
    sources=("linux-rdma/rdma-core infiniband-diags/ibnetdiscover.c", "NVIDIA/topograph: discovery from a node without a link"),
    action="Run it from an adapter with an active port (ibstat; ibnetdiscover -C <adapter> -P <port>), or repair the link of this one.",
    also=("discovery.incomplete",),
)
def no_link(case: Case, ctx: Context) -> Iterator[Finding]:
    """An adapter is listed without any link: the search began there and got nowhere. Nothing can be said of the rest of the fabric then.

    A listing that ends at such a node can be cut off and is not judged.
    """
    fabric_nodes(case, ctx)
    by_source: dict[int, list[FabricNode]] = {}
    for node in case.fabric or []:
        if node.kind is not None and not node.fans and not node.power_supplies and (ref := node.ref("")) is not None:
            by_source.setdefault(ref[0], []).append(node)
    judged = False
    for nodes in by_source.values():
        bare = [n for n in nodes if n.kind == "ca" and "ports" not in n.missing and not any(p.remote_guid for p in n.ports)]
        linked = any(p.remote_guid for n in nodes for p in n.ports)
        judged = judged or linked or bool(bare)
        for node in bare:
            yield ctx.finding(
                "error",
                "the adapter is listed without a link" + ("" if linked else ": the discovery that began here found nothing else"),
                subject=Subject("fabric", node.name or node.guid),
                evidence=[Evidence(f'adapter {node.guid} "{node.name or ""}" has no port line', ctx.where(node))],
                causes=[
                    Cause("the port is down or not part of this fabric", "likely", "ibstat on that node"),
                    Cause(
                        "several ports, and the tool took one without a link", "possible", "ibnetdiscover -C <adapter> -P <port>"
                    ),
                ],
                missing=[] if linked else ["the state of the port: ibstat"],
            )
        if bare and not linked:
            yield ctx.finding(
                "warning",
                "the fabric was not discovered: the listing holds no link, so nothing is known of switches and other nodes",
                id="discovery.incomplete",
                subject=Subject("fabric", f"discovery from {bare[0].name or bare[0].guid}"),
                evidence=[Evidence(f"{len(nodes)} node(s), no link", ctx.where(bare[0]))],
            )
    if not judged:
        raise ctx.missing("links of the fabric")


SPEEDS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")


def _rank(port: Port) -> tuple[int, int] | None:
    """(lanes, place of the speed) of a cabled port; None for words that are not known."""
    if port.cable is None or port.cable.width is None or port.cable.speed is None:
        return None
    lanes = re.fullmatch(r"(\d{1,2})x", port.cable.width)
    if lanes is None or port.cable.speed not in SPEEDS:
        return None
    return int(lanes[1]), SPEEDS.index(port.cable.speed)


@rule(
    "ib.link_below_siblings",
    "Links of a switch run alike",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_DISCOVER,
    sources=("InfiniBand Architecture Specification: link width and speed", "research: failure mode 37"),
    action="Reseat or swap the cable; check the speed setting of both ports.",
)
def below_siblings(case: Case, ctx: Context) -> Iterator[Finding]:
    """A cable runs with fewer lanes or a lower speed than three quarters of the same switch's cables to the same kind of node.

    Between switches that is a fault. To an adapter it can be an older card or a split cable and is information, unless one lane is
    left. Ports without a far end idle at any speed and are not looked at.
    """
    nodes = fabric_nodes(case, ctx)
    cabled = [port for port in ports_of(nodes) if port.cable is not None and not port.to_aggregation]
    if not any(_rank(port) for port in cabled):
        raise ctx.missing("width and speed of links")
    for port, node, far, usual_rank, count in below_usual(nodes):
        assert port.cable is not None
        lost = port.cable.width == "1x" and usual_rank[0] >= 4
        yield ctx.finding(
            "error" if lost else "warning" if far == "switch" else "info",
            f"{port.cable.width} {port.cable.speed}{_far(port)}, {count} siblings on {node.label} run at "
            f"{usual_rank[0]}x {SPEEDS[usual_rank[1]]}",
            subject=Subject("fabric_port", port.link),
            evidence=[Evidence(f"{port.label}: {port.cable.width} {port.cable.speed}", ctx.where(port.cable, "speed"))],
            causes=[Cause("lanes lost: cable or transceiver", "likely")]
            if lost or far == "switch"
            else [Cause("an older adapter or a split cable", "likely"), Cause("cable or transceiver", "possible")],
            confidence="high" if lost else "medium",
        )


def below_usual(nodes: list[Node]) -> Iterator[tuple[Port, Node, str, tuple[int, int], int]]:
    """Each link, once, that is below three quarters of its switch's links to the same kind of node.

    With it: the switch, "switch" or "ca", what is usual (lanes, place of the speed in SPEEDS), and of how many.
    """
    told: set[str] = set()
    for node in nodes:
        if node.kind != "switch":
            continue
        for far in ("switch", "ca"):
            ranked = [(port, rank) for port in node.ports.values() if _far_kind(port) == far and (rank := _rank(port))]
            if len(ranked) < 4:
                continue
            usual_rank, count = Counter(rank for _, rank in ranked).most_common(1)[0]
            if count < 0.75 * len(ranked):
                continue
            for port, rank in ranked:
                lower = rank[0] < usual_rank[0] or (rank[0] == usual_rank[0] and rank[1] < usual_rank[1])
                if lower and port.link not in told:
                    told.add(port.link)
                    yield port, node, far, usual_rank, count


def _far_kind(port: Port) -> str | None:
    """switch or ca, by the far end or by the neighbour's listing; None without a cable or for a switch's own SHARP node."""
    if port.cable is None or port.to_aggregation or port.number in (0, 255):
        return None
    return port.peer.node.kind if port.peer is not None else None


@rule(
    "ib.uplinks_unbalanced",
    "Leaf switches have as many links to each spine",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_DISCOVER,
    sources=("opensm: fat-tree routing wants equal numbers of links",),
    action="Compare with the cabling plan: a missing cable, or one that is down and so not listed.",
)
def unbalanced(case: Case, ctx: Context) -> Iterator[Finding]:
    """A leaf has fewer links to one spine than to the others: a cable that is down does not show up in a listing but by its absence."""
    nodes = fabric_nodes(case, ctx)
    judged = False
    for node in nodes:
        kinds = [_far_kind(port) for port in node.ports.values()]
        if node.kind != "switch" or not node.whole or "ca" not in kinds:
            continue
        counts: Counter[str] = Counter()
        for port in node.ports.values():
            if port.peer is not None and _far_kind(port) == "switch":
                counts[port.peer.node.label] += 1
        if len(counts) < 2:
            continue
        judged = True
        most = max(counts.values())
        fewer = {name: number for name, number in counts.items() if number < most}
        if fewer:
            yield ctx.finding(
                "info",
                f"{node.label} has {', '.join(f'{number} to {name}' for name, number in sorted(fewer.items()))}; {most} to the most linked",
                subject=Subject("fabric", node.label),
                evidence=[
                    Evidence(f"{node.label} -> {name}: {number} link(s)", ctx.where(node.views[0]))
                    for name, number in sorted(counts.items())
                ],
                causes=[
                    Cause("a cable is missing or its link is down", "likely", "the cabling plan"),
                    Cause("planned so", "possible"),
                ],
                confidence="medium",
            )
    if not judged:
        raise ctx.missing("links between switches")
