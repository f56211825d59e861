"""Congestion: who pauses the network, who is paused, and what was lost rather than reordered."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilter.diagnose.engine import Context, gather, rule
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort

_MLX5 = "torvalds/linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"
_COUNTERS = "knowledge: ib_counters.yaml (the host with high tx pause and low rx pause is the culprit)"
_ETHTOOL = "ethtool -S <interface>, twice, ten seconds apart"
_SENT = re.compile(r"tx_prio\d_pause|tx_pause_ctrl_phy")
_RECEIVED = re.compile(r"rx_prio\d_pause|rx_pause_ctrl_phy")
#: Fewer pause frames than this since the interface came up happen on any network.
MANY = 1000
#: One pause frame in 10,000 packets: below it nothing waits long.
SHARE = 1e-4
#: So much more than all others: the one, and not one of many.
FAR = 10


def _total(statistics_: dict[str, int], pattern: re.Pattern[str]) -> int | None:
    found = [value for name, value in statistics_.items() if pattern.fullmatch(name)]
    return sum(found) if found else None


def _lines(ctx: Context | None, interface: NetInterface, snapshot: Snapshot, *patterns: re.Pattern[str]) -> list[Evidence]:
    names = [n for n in interface.statistics if any(p.fullmatch(n) for p in patterns) and interface.statistics[n]]
    where = snapshot.where(interface.ref("statistics"))
    return [Evidence(f"{interface.name or 'interface'}: {n} = {interface.statistics[n]}", where) for n in names[:4]]


@rule(
    "net.pfc_pause_sent",
    "Host does not pause its lossless classes",
    scope="interface",
    family="network",
    sop="SOP-CONG",
    hint=_ETHTOOL,
    sources=(_MLX5, _COUNTERS, "research: failure mode 38"),
    action="Find why this host is slow: PCIe link of the NIC, IOMMU, NUMA placement, CPUs of its interrupts.",
    also=("net.pause_storm",),
)
def pfc_pause(interface: NetInterface, ctx: Context) -> Iterator[Finding]:
    """This host sent many PFC pause frames: it cannot take what arrives. Pause that it received makes it a victim instead."""
    values = interface.statistics
    if not values:
        raise ctx.missing("ethtool statistics")
    sent = _total(values, re.compile(r"tx_prio\d_pause"))
    if sent is None:
        raise ctx.skip("driver has no counters of PFC")
    storm = values.get("tx_pause_storm_error_events", 0)
    if storm:
        yield ctx.finding(
            "error",
            f"the NIC stood still and its pause was cut off to save the network ({storm} times)",
            id="net.pause_storm",
            evidence=[Evidence(f"tx_pause_storm_error_events = {storm}", ctx.where(interface, "statistics"))],
            causes=[Cause("host or NIC hangs: PCIe, firmware", "likely", "kernel log of that time: mlx5 health, AER")],
        )
    received = _total(values, re.compile(r"rx_prio\d_pause")) or 0
    packets = values.get("rx_packets_phy", 0)
    if sent < MANY or (packets and sent / packets < SHARE):
        return
    stalled = max(values.get("outbound_pci_stalled_rd", 0), values.get("outbound_pci_stalled_wr", 0))
    pcie = Cause(
        "PCIe: the NIC waits for the host",
        "likely" if stalled > 30 else "possible",
        "outbound_pci_stalled_*; LnkSta of the NIC; IOMMU",
    )
    cpu = Cause("slow software: queues without buffers, far NUMA node", "possible", "rx_out_of_buffer; CPUs of the interrupts")
    extra = [
        Evidence(f"{n} = {values[n]}", ctx.where(interface, "statistics"))
        for n in ("outbound_pci_stalled_rd", "outbound_pci_stalled_wr", "rx_prio_discards")
        if values.get(n)
    ]
    yield ctx.finding(
        "warning",
        f"{sent} PFC pause frames sent: the receiver cannot keep up",
        evidence=[*_lines(ctx, interface, ctx.snapshot, _SENT, _RECEIVED), *extra],
        causes=[pcie, cpu],
        contradicts=[f"{received} pause frames were received too: the network holds this host back as well"]
        if received * FAR > sent
        else [],
        missing=["a second reading: totals have no rate"],
        confidence="medium" if received * FAR > sent else "high",
    )


class _Host(NamedTuple):
    sent: int
    received: int
    slowed: int  # congestion notifications that slowed its senders
    marked: int  # congestion notifications that it sent


@gather
def pauses(snapshot: Snapshot) -> _Host | None:
    """Pause frames and congestion notifications of a node."""
    nics = [i for i in snapshot.nics or [] if i.statistics]
    ports = [p for d in snapshot.rdma or [] for p in d.ports if p.hw_counters]
    if not nics and not ports:
        return None
    return _Host(
        sum(_total(i.statistics, _SENT) or 0 for i in nics),
        sum(_total(i.statistics, _RECEIVED) or 0 for i in nics),
        sum(p.hw_counters.get("rp_cnp_handled", 0) for p in ports),
        sum(p.hw_counters.get("np_cnp_sent", 0) for p in ports),
    )


@gather
def ack_timeouts(snapshot: Snapshot) -> int | None:
    """Time-outs of acknowledgements that all ports of a node counted."""
    name = "local_ack_timeout_err"
    counts = [p.hw_counters[name] for d in snapshot.rdma or [] for p in d.ports if name in p.hw_counters]
    return sum(counts) if counts else None


@rule(
    "net.congestion_target",
    "No host holds up the others",
    scope="case",
    family="network",
    sop="SOP-CONG",
    hint="ethtool -S and /sys/class/infiniband/*/ports/*/hw_counters of all nodes",
    sources=(_MLX5, _COUNTERS, "research: failure mode 39; section 3, rx against tx pause"),
    action="Mend the host that is named; the paused ones are its victims. With incast, spread the senders or the receivers.",
)
def target(case: Case, ctx: Context) -> Finding | None:
    """Many hosts are paused (or slowed by congestion notifications), and one alone pauses (or marks) ten times more than any other."""
    hosts = [(profile.node, host) for profile, host in ctx.gathered(pauses)]
    if len(hosts) < 4:
        raise ctx.missing("counters of pause and congestion of four nodes")
    slow = Cause(
        "slow receiver: PCIe, IOMMU, NUMA or CPU of this host", "likely", "rx_discards_phy, outbound_pci_stalled_* of this host"
    )
    incast = Cause("incast: many senders to this host at once", "likely", "gone when the senders come one by one")
    either = [msgspec.structs.replace(c, likelihood="possible") for c in (incast, slow)]
    return _alone([(n, h.sent, h.received) for n, h in hosts], "pause frames", [slow, either[0]], ctx) or _alone(
        [(n, h.marked, h.slowed) for n, h in hosts], "congestion notifications", [incast, either[1]], ctx
    )


def _alone(rows: list[tuple[str, int, int]], word: str, causes: list[Cause], ctx: Context) -> Finding | None:
    """Rows of (node, sent, received): the finding where one alone sends and three and more others receive."""
    first, *rest = sorted(rows, key=lambda row: row[1], reverse=True)
    victims = [row for row in rest if row[2] >= MANY]
    second = max(row[1] for row in rest)
    if first[1] < MANY or first[1] < FAR * second or len(victims) < 3 or first[2] * FAR > first[1]:
        return None
    return ctx.finding(
        "warning",
        f"{len(victims)} hosts are held back, and this one sends the {word}: {first[1]}, the next {second}",
        subject=Subject("node", "", first[0]),
        evidence=[
            Evidence(f"{host or 'node not named'}: {word} sent {sent}, received {received}")
            for host, sent, received in [first, *victims[:5]]
        ],
        causes=causes,
        missing=["a second reading: totals have no rate"],
        confidence="medium",
    )


@rule(
    "rdma.packet_loss",
    "No packet was lost on the way",
    scope="port",
    family="rdma",
    sop="SOP-CONG",
    hint="grep -r . /sys/class/infiniband/*/ports/*/hw_counters",
    sources=(
        "knowledge: ib_counters.yaml (out_of_sequence, packet_seq_err, local_ack_timeout_err)",
        "research: section 3, out_of_sequence",
    ),
    action="Read the rate at both ends; look for drops at the switch (PFC, buffers) and errors of the cable.",
)
def loss(pair: tuple[RdmaDevice, RdmaPort], ctx: Context) -> Finding | None:
    """Packets out of sequence together with sequence NAKs or time-outs were lost. Alone they are reordered, as adaptive routing does: nothing."""
    _, port = pair
    values = port.hw_counters
    if "out_of_sequence" not in values:
        raise ctx.missing("hardware counters of the port")
    lost = values.get("packet_seq_err", 0) + values.get("implied_nak_seq_err", 0)
    late = values.get("local_ack_timeout_err", 0)
    if values["out_of_sequence"] < MANY or (lost < MANY and late < MANY // FAR):
        return None
    others = [p.hw_counters for d in ctx.snapshot.rdma or [] for p in d.ports if p is not port and p.hw_counters]
    usual = statistics.median([o.get("packet_seq_err", 0) + o.get("local_ack_timeout_err", 0) for o in others] or [0])
    stands_out = len(others) >= 2 and lost + late > FAR * (usual + 1)
    names = ("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err")
    return ctx.finding(
        "warning" if stands_out else "info",
        f"packets were lost, not only reordered: out_of_sequence {values['out_of_sequence']}, sequence NAKs {lost}, time-outs {late}",
        evidence=[
            Evidence(f"{n} = {values[n]}", ctx.where(port, f"hw_counters.{n}") or ctx.where(port, "hw_counters"))
            for n in names
            if values.get(n)
        ],
        causes=[
            Cause("drops at a switch: no PFC, full buffers", "possible", "discards of the switch ports"),
            Cause("bit errors of a link on the way", "possible", "symbol errors, CRC errors"),
        ],
        missing=["a second reading: totals have no rate"],
        confidence="medium" if stands_out else "low",
    )


#: Time-outs beyond what a flapping peer leaves, and so few that a port counts as quiet.
LATE, QUIET = 100, 10


@rule(
    "rdma.ack_timeout_vote",
    "No peer leaves the others without answers",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint="/sys/class/infiniband/*/ports/*/hw_counters/local_ack_timeout_err of all nodes of the job",
    sources=(
        "knowledge: ib_counters.yaml (votes: all peers of a dead node count time-outs, the dead one does not)",
        "research: failure mode 41",
    ),
    action="Drain the node that is named and look at its ports, its leaf switch's port and its kernel log.",
)
def vote(case: Case, ctx: Context) -> Finding | None:
    """Many nodes count time-outs of acknowledgements and one alone does not: it is the one that did not answer. One that alone counts them has a
    bad link of its own. Totals since the driver was loaded, so the vote is a hint."""
    late = {profile.node: count for profile, count in ctx.gathered(ack_timeouts)}
    if len(late) < 4:
        raise ctx.missing("time-outs of four nodes")
    loud, quiet = [n for n, v in late.items() if v >= LATE], [n for n, v in late.items() if v < QUIET]
    if len(loud) + len(quiet) < len(late):
        return None
    evidence = [Evidence(f"{node or 'node not named'}: local_ack_timeout_err = {late[node]}") for node in [*quiet[:4], *loud[:6]]]
    missing = ["a second reading: totals have no rate", "which nodes ran one job"]
    if len(quiet) == 1 and len(loud) >= 3:
        return ctx.finding(
            "warning",
            f"{len(loud)} nodes count time-outs of acknowledgements, this one none: it did not answer them",
            subject=Subject("node", "", quiet[0]),
            evidence=evidence,
            causes=[
                Cause("this node died, or its link or leaf port did", "likely", "is it alive; port counters of its switch"),
                Cause("it takes no part in that traffic", "possible", "the job's list of nodes"),
            ],
            missing=missing,
            confidence="low",
        )
    if len(loud) == 1 and len(quiet) >= 3:
        return ctx.finding(
            "warning",
            f"this node alone counts time-outs of acknowledgements ({late[loud[0]]})",
            subject=Subject("node", "", loud[0]),
            evidence=evidence,
            causes=[
                Cause("its own link or NIC", "likely", "link_downed and symbol errors of its ports"),
                Cause("a peer outside these nodes", "possible", "counters of the other nodes of its jobs"),
            ],
            missing=missing,
            confidence="low",
        )
    return None
