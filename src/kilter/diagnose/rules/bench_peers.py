"""A benchmark on many nodes: one slow node, or a test that is set up wrongly on it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from kilter.diagnose.engine import Context, gather, rule
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject

#: Peaks of bus bandwidth of like nodes differ by some percent; this is more.
BELOW = 0.9
LEAST_NODES = 4
_SETTINGS = ("NCCL_TOPO_FILE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_PROTO")


_Key = tuple[str, str, str]  # operation, type, ranks


class _Peak(NamedTuple):
    value: float
    size: str
    where: str
    settings: dict[str, str | None] | None  # of the test; None = not known


@gather
def peaks(snapshot: Snapshot) -> dict[_Key, _Peak] | None:
    """The best bus bandwidth of each benchmark on a node."""
    if not snapshot.samples:
        return None
    found: dict[_Key, _Peak] = {}
    variables = snapshot.environment.variables
    settings = None if variables is None else {name: variables.get(name) for name in _SETTINGS}
    for sample in snapshot.samples:
        if sample.metric != "busbw" or sample.tool != "nccl-tests" or not snapshot.node:
            continue
        key = (sample.conditions.get("operation", ""), sample.conditions.get("dtype", ""), sample.conditions.get("ranks", ""))
        if key not in found or sample.value > found[key].value:
            size = sample.conditions.get("size_bytes", "?")
            found[key] = _Peak(sample.value, size, snapshot.where(sample.ref("")), settings)
    return found or None


@rule(
    "bench.below_peers",
    "Nodes reach the bandwidth of their peers",
    scope="case",
    family="bench",
    sop="SOP-SLOW",
    hint="the same nccl-tests run inside each node",
    sources=(
        "Azure/azurehpc-health-checks#142, #143 (topology file halves the bandwidth)",
        "research: section 3, bandwidth below golden",
    ),
    action="Repeat it on this node and on a good one with the same image and settings; drain only when it is slow twice.",
)
def below(case: Case, ctx: Context) -> Iterator[Finding]:
    """One node's peak bus bandwidth is 10 % below the median of three and more like runs. Settings that differ from the peers' are the first
    suspect: a missing topology file or another HCA list halves the bandwidth of a good node."""
    every: dict[_Key, dict[str, _Peak]] = {}
    for profile, found in ctx.gathered(peaks):
        for key, peak in found.items():
            every.setdefault(key, {})[profile.node] = peak
    groups = {key: nodes for key, nodes in every.items() if len(nodes) >= LEAST_NODES}
    if not groups:
        raise ctx.missing(f"results of one benchmark on {LEAST_NODES} nodes")
    for key, nodes in groups.items():
        for node, peak in nodes.items():
            others = [p.value for n, p in nodes.items() if n != node]
            usual = statistics.median(others)
            spread = statistics.median([abs(o - usual) for o in others])
            if peak.value >= min(BELOW * usual, usual - 5 * spread):
                continue
            differ = _different(peak, [p for n, p in nodes.items() if n != node])
            test = Cause(
                f"the test's set-up: {', '.join(differ)}"
                if differ
                else "the test's set-up: topology file, NUMA binding, HCA list",
                "likely" if differ else "possible",
                "the same image and settings on a good node",
            )
            sick = Cause(
                "this node: link, NIC, clocks",
                "possible" if differ else "likely",
                "slow again with a good node's settings; port counters, PCIe width",
            )
            yield ctx.finding(
                "warning",
                f"{key[0] or 'collective'}: {peak.value:.0f} GB/s busbw, {len(others)} peers {usual:.0f}",
                subject=Subject("node", "", node),
                evidence=[Evidence(f"{node}: busbw {peak.value:g} at {peak.size} bytes", peak.where)],
                causes=[test, sick] if differ else [sick, test],
                missing=[] if peak.settings is not None else ["environment of the test (env | grep NCCL)"],
                confidence="medium",
            )


def _different(mine: _Peak, others: list[_Peak]) -> list[str]:
    """Settings of the test that no peer has like this node."""
    theirs = [o.settings for o in others if o.settings is not None]
    if mine.settings is None or not theirs:
        return []
    return [name for name, value in mine.settings.items() if all(value != other[name] for other in theirs)]
