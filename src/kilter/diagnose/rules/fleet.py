"""Nodes of one case against each other: configuration drift, outliers, counter rates, rare events by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.fleet.compare import Outlier, outliers
from kilter.diagnose.fleet.drift import Drift, OddNode, compare_config
from kilter.diagnose.fleet.numbers import METRICS
from kilter.diagnose.fleet.profile import Profile, latest
from kilter.diagnose.fleet.rare import MIN_NODES, rare_events
from kilter.diagnose.fleet.rates import MIN_INTERVAL_S, Rate, counter_rates, pairs
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject

#: More odd nodes than this make one finding about the fleet.
MAX_NODES = 16
#: As many single findings a metric; the rest is told as a number.
MAX_OUTLIERS = 32


def _nodes(ctx: Context, least: int) -> list[Profile]:
    """The nodes of a case; fewer than ``least`` end the rule."""
    nodes = latest(ctx.profiles)
    if not nodes:
        raise ctx.missing(f"facts of {least} nodes")
    if len(nodes) < least:
        raise ctx.skip(f"{len(nodes)} node(s): fewer than the {least} that a comparison needs")
    return nodes


def _words(drift: Drift) -> str:
    return f"{drift.common} on {drift.common_count} of {drift.known} nodes"


def _lines(items: Iterable[tuple[Drift, OddNode]]) -> list[Evidence]:
    return [Evidence(f"{odd.node}: {drift.fact} = {odd.value}; {_words(drift)}", odd.where) for drift, odd in items]


def _camps(drift: Drift) -> str:
    shown = "; ".join(
        f"{c.value} on {', '.join(c.nodes[:4])}{f' and {c.count - 4} more' if c.count > 4 else ''}" for c in drift.camps[:4]
    )
    return shown + (f"; {len(drift.camps) - 4} more values" if len(drift.camps) > 4 else "")


@rule(
    "fleet.config_drift",
    "Nodes of one kind are configured alike",
    scope="case",
    family="fleet",
    sop="SOP-SW",
    hint="kilter snapshot on every node; then kilter diagnose on all of them",
    sources=("research: SOP-SW, difference to the fleet's mode", "NVIDIA/nccl#897 (peermem loaded on one of two nodes)"),
    action="Bring the odd nodes in line by the configuration tool, or note why they differ. kilter compare-nodes shows the whole table.",
    also=("fleet.config_drift.*",),
)
def config_drift(case: Case, ctx: Context) -> Iterator[Finding]:
    """Settings, versions and sizes that differ between nodes with the same GPU models.

    Two thirds of the nodes make the common value; without that, all camps are told, and confidence is medium. A warning where the fact is known to
    cost speed or to break jobs (driver, kernel, NIC firmware, peermem, ACS, MTU, PFC, ECC, power limit, sizes and numbers), information elsewhere.
    """
    nodes = _nodes(ctx, 2)
    compared = compare_config(nodes)
    if not compared.facts:
        raise ctx.missing("facts that two nodes of one kind have in common")
    areas: dict[tuple[str, str], list[Drift]] = {}
    for drift in compared.drifts:
        areas.setdefault((drift.area, drift.kind), []).append(drift)
    for (area, kind), drifts in areas.items():
        severity, id_ = drifts[0].severity, f"fleet.config_drift.{area}"
        whole = Subject("case", f"{drifts[0].known + len(drifts[0].missing)} nodes" + (f" with {kind}" if kind else ""))
        split = [d for d in drifts if d.common is None]
        by_node: dict[str, list[tuple[Drift, OddNode]]] = {}
        for drift in drifts:
            for odd in drift.odd:
                by_node.setdefault(odd.node, []).append((drift, odd))
        if split:
            yield ctx.finding(
                severity,
                "no common value: " + "; ".join(f"{d.fact}: {_camps(d)}" for d in split[:3]) + (" ..." if len(split) > 3 else ""),
                id=id_,
                subject=whole,
                evidence=[Evidence(f"{d.fact}: {_camps(d)}") for d in split],
                confidence="medium",
                next_test="Ask which value is meant; a node that is known to be good decides.",
            )
        if len(by_node) > MAX_NODES:
            what = "; ".join(f"{d.fact}: {_words(d)}, {len(d.odd)} differ" for d in drifts[:3] if d.odd)
            yield ctx.finding(
                severity, what, id=id_, subject=whole, evidence=_lines(item for items in by_node.values() for item in items)
            )
            continue
        for node, items in by_node.items():
            told = "; ".join(f"{d.fact} is {o.value}, {_words(d)}" for d, o in items[:3])
            more = f"; {len(items) - 3} more facts of this area" if len(items) > 3 else ""
            yield ctx.finding(severity, told + more, id=id_, subject=Subject("node", "", node), evidence=_lines(items))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def outlier_text(one: Outlier) -> str:
    """``PCIe replays 9,120, median 3 of 31 peers``."""
    metric = METRICS[one.metric]
    unit = f" {metric.unit}" if metric.unit else ""
    return f"{metric.text} {_number(one.value)}{unit}, median {_number(one.median)} (MAD {_number(one.mad)}) of {one.peers} peers"


@rule(
    "fleet.outlier",
    "No device is far from its peers on other nodes",
    scope="case",
    family="fleet",
    sop="SOP-SLOW",
    hint="kilter snapshot on every node, at the same time",
    sources=("research: median/MAD over siblings of one role", "Minder and SuperBench: machines against the fleet's median"),
    action="Look at this device first; a swap with a good node's tells device from slot, cable and switch.",
    also=("fleet.outlier.*",),
)
def outlier(case: Case, ctx: Context) -> Iterator[Finding]:
    """A number with a bad direction is five robust deviations and a fixed least difference from the median of five or more peers.

    Peers are devices of the same kind and role (same GPU index, same port name) on the other nodes. Temperatures are compared at like power, clocks
    and link speed under load. Counters count since boot or driver load, which the snapshots of the peers may not share.
    """
    nodes = _nodes(ctx, 2)
    told: dict[str, int] = {}
    found = outliers(nodes)
    for one in found:
        told[one.metric] = told.get(one.metric, 0) + 1
        if told[one.metric] > MAX_OUTLIERS:
            continue
        metric = METRICS[one.metric]
        missing = ["time over which it was counted; two snapshots give a rate"] if metric.counter else []
        missing += [metric.depends] if metric.depends else []
        yield ctx.finding(
            metric.severity,
            outlier_text(one),
            id=f"fleet.outlier.{one.metric}",
            subject=Subject(one.subject_kind, one.subject, one.node),
            evidence=[Evidence(f"{outlier_text(one)}; compared with {one.role}; robust z {one.z:.0f}", one.where)],
            missing=missing,
            confidence="medium" if missing else "high",
        )
    for name, number in told.items():
        if number > MAX_OUTLIERS:
            yield ctx.finding(
                METRICS[name].severity,
                f"{METRICS[name].text}: {number - MAX_OUTLIERS} more outliers",
                id=f"fleet.outlier.{name}",
                subject=Subject("case", f"{len(nodes)} nodes"),
            )


def _rate_id(rate: Rate) -> str:
    name = rate.counter.lower()
    if rate.subject_kind == "gpu" and name == "pcie_replays":
        return "pcie.replay_rate"
    if rate.subject_kind == "port" and name == "symbol_error":
        return "ib.symbol_error_rate"
    if "discard" in name:
        return "net.discard_rate"
    return "fleet.counter_rate"


@rule(
    "fleet.counter_rate",
    "Error counters rise no faster than their limits",
    scope="case",
    family="fleet",
    sop="SOP-IB",
    hint="two kilter snapshots of the node, some minutes apart",
    sources=("NVIDIA/NVSentinel NIC monitor defaults", "NVIDIA/DCGM 4.6.0 health watch"),
    action="Check both ends of this link: cable, transceiver, seat; then count again.",
    also=("ib.symbol_error_rate", "pcie.replay_rate", "net.discard_rate"),
)
def counter_rate(case: Case, ctx: Context) -> Iterator[Finding]:
    """Rate of a counter between two snapshots of a node, against the limit that a source names. Wraps at 32 and 64 bits, counters that stop at
    their end and counters that started again at 0 (boot, driver load, clearing) are told apart; the latter two give lower bounds."""
    found = pairs(ctx.profiles)
    if not found:
        raise ctx.missing("two snapshots of one node with their times")
    if all((b.time or 0) - (a.time or 0) < MIN_INTERVAL_S for a, b in found):
        raise ctx.missing(f"two snapshots of one node {MIN_INTERVAL_S:.0f} s or more apart")
    for first, last in found:
        before, after = case.snapshots[first.position], case.snapshots[last.position]
        over = sorted((r for r in counter_rates(before, after) if r.is_over), key=lambda r: (r.subject, -r.per_hour))
        groups: dict[tuple[str, str, str], list[Rate]] = {}
        for rate in over:
            groups.setdefault((_rate_id(rate), rate.subject_kind, rate.subject), []).append(rate)
        for (id_, kind, subject), rates in groups.items():
            yield ctx.finding(
                "warning",
                "; ".join(_rate_text(r) for r in rates[:3]) + (f"; {len(rates) - 3} more counters" if len(rates) > 3 else ""),
                id=id_,
                subject=Subject(kind, subject, after.node),
                evidence=[Evidence(f"{r.counter}: {r.before} -> {r.after} ({r.how})", r.where) for r in rates],
                causes=[Cause(r.note) for r in rates[:1] if r.note],
                sources=sorted({r.source for r in rates}),
                confidence="medium" if all(r.limit_per_hour == 0 for r in rates) else "high",
                sop="SOP-BUS" if id_ == "pcie.replay_rate" else "SOP-CONG" if id_ == "net.discard_rate" else None,
            )


def _rate_text(rate: Rate) -> str:
    least = "at least " if rate.how in ("restarted", "saturated") else ""
    limit = f", limit {_number(rate.limit_per_hour)} an hour" if rate.limit_per_hour else ""
    return (
        f"{rate.counter} rose by {least}{rate.delta:,} in {rate.interval_s / 60:.0f} min: {_number(rate.per_hour)} an hour{limit}"
    )


def event_name(event: Event) -> str | None:
    """What events are counted as; None for those that say nothing of a machine."""
    if event.kind in ("xid", "sxid") and event.code is not None:
        return f"{'XID' if event.kind == 'xid' else 'SXid'} {event.code}"
    return None if event.kind.startswith("nccl.") or event.kind in ("xid", "sxid") else f"{event.kind} events"


@rule(
    "fleet.rare_event",
    "Events are spread over versions and racks as chance would spread them",
    scope="case",
    family="fleet",
    hint="kilter snapshot and kernel log of every node, also of those without events",
    sources=("Fisher's exact test over nodes", "Benjamini and Hochberg 1995: false discovery rate"),
    action="A statement, no cause: look for what else these nodes share before changing the version everywhere.",
)
def rare_event(case: Case, ctx: Context) -> Iterator[Finding]:
    """Events of one kind (an XID, an SXid, AER, ...) that gather on the nodes of one driver, firmware, kernel or model. Three events and eight nodes
    at least; nodes are counted, not repeats; p-values are exact and corrected for the number of tests."""
    nodes = _nodes(ctx, MIN_NODES)
    listed = [(name, event.node, event.count) for event in case.events if (name := event_name(event))]
    # A node whose log nobody read is not a node without events.
    looked_at = set(case.kernel_logs) | {event.node for event in case.events}
    known = {p.node: dict(p.attributes) for p in nodes if p.node and p.node in looked_at}
    if len(known) < MIN_NODES:
        raise ctx.missing(
            f"kernel logs of {MIN_NODES} nodes that have facts", "dmesg -T, or journalctl -k -o short-iso, of every node"
        )
    by_event: dict[str, list[str]] = {}
    for one in rare_events(listed, known):
        by_event.setdefault(one.event, []).append(one.text)
    for name, texts in by_event.items():
        yield ctx.finding(
            "info",
            texts[0],
            subject=Subject("case", name),
            evidence=[Evidence(text) for text in texts],
            contradicts=["events may come from a few jobs or racks that also share this version"],
        )
