"""A benchmark on many nodes: one slow node, or a test that is set up wrongly on it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import Sample

#: Peaks of bus bandwidth of like nodes differ by some percent; this is more.
BELOW = 0.9
LEAST_NODES = 4
_SETTINGS = ("NCCL_TOPO_FILE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_PROTO")


def _peaks(case: Case) -> dict[tuple[str, str, str], dict[str, tuple[Snapshot, Sample]]]:
    """(operation, type, ranks) -> node -> its best bus bandwidth."""
    found: dict[tuple[str, str, str], dict[str, tuple[Snapshot, Sample]]] = {}
    for snapshot in case.snapshots:
        for sample in snapshot.samples:
            if sample.metric != "busbw" or sample.tool != "nccl-tests" or not snapshot.node:
                continue
            key = (sample.conditions.get("operation", ""), sample.conditions.get("dtype", ""), sample.conditions.get("ranks", ""))
            nodes = found.setdefault(key, {})
            if snapshot.node not in nodes or sample.value > nodes[snapshot.node][1].value:
                nodes[snapshot.node] = (snapshot, sample)
    return found


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
    groups = {key: nodes for key, nodes in _peaks(case).items() if len(nodes) >= LEAST_NODES}
    if not groups:
        raise ctx.missing(f"results of one benchmark on {LEAST_NODES} nodes")
    for key, nodes in groups.items():
        for node, (snapshot, sample) in nodes.items():
            others = [s.value for n, (_, s) in nodes.items() if n != node]
            usual = statistics.median(others)
            spread = statistics.median([abs(o - usual) for o in others])
            if sample.value >= min(BELOW * usual, usual - 5 * spread):
                continue
            differ = _different(snapshot, [s for n, (s, _) in nodes.items() if n != node])
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
                f"{key[0] or 'collective'}: {sample.value:.0f} GB/s busbw, {len(others)} peers {usual:.0f}",
                subject=Subject("node", "", node),
                evidence=[
                    Evidence(
                        f"{node}: busbw {sample.value:g} at {sample.conditions.get('size_bytes', '?')} bytes",
                        snapshot.where(sample.ref("")),
                    )
                ],
                causes=[test, sick] if differ else [sick, test],
                missing=[] if snapshot.environment.variables is not None else ["environment of the test (env | grep NCCL)"],
                confidence="medium",
            )


def _different(snapshot: Snapshot, others: list[Snapshot]) -> list[str]:
    """Settings of the test that no peer has like this node."""
    mine = snapshot.environment.variables
    theirs = [o.environment.variables for o in others if o.environment.variables is not None]
    if mine is None or not theirs:
        return []
    return [name for name in _SETTINGS if all(mine.get(name) != other.get(name) for other in theirs)]
