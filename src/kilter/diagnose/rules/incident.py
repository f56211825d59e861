"""The first cause over all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.first_cause import Incident, find
from kilter.facts.case import Case
from kilter.facts.finding import Cause, Finding, Subject

_SOP = {
    "gpu or bus": "SOP-BUS",
    "gpu": "SOP-GSP",
    "nvswitch": "SOP-NVL",
    "nic": "SOP-IB",
    "link": "SOP-IB",
    "link or dead peer": "SOP-IB",
    "power": "SOP-PWR",
    "application": "SOP-APP",
    "desync": "SOP-NCCL",
    "straggler or hang": "SOP-SLOW",
}


def _severity(incident: Incident) -> str:
    if incident.node or incident.kind in ("desync", "straggler or hang"):
        return "error"
    return "warning" if incident.kind != "unknown" else "info"


@rule(
    "incident.first_cause",
    "First cause over all nodes",
    scope="case",
    family="incident",
    sop="SOP-NCCL",
    hint="kernel logs of all nodes and the job's log with NCCL_DEBUG=INFO",
    sources=("research: section 3 (how an expert tells them apart), SOP-NCCL", "kilter: diagnose/first_cause.py"),
    action="Look at the node named first; the others are mostly its victims.",
)
def first_cause(case: Case, ctx: Context) -> Iterator[Finding]:
    """Which node or rank failed first, and who are its victims: roots (hardware, firmware, kernel, process) before complaints of peers.

    Clocks of nodes are brought together by moments that they share; where the order lies inside the uncertainty, no node is accused.
    "Cannot be known from these inputs" is an answer, with what would tell.
    """
    if not case.events and not case.collectives:
        raise ctx.missing("logs of a job or of several nodes")
    incident = find(case)
    if incident is None:
        raise ctx.skip("no complaint of a peer and no fault on several nodes")
    reasons = "; ".join(incident.why)
    causes = [Cause(f"{incident.kind}: {reasons}" if reasons else incident.kind, incident.confidence)]
    victims = incident.victims
    tail = f"; {len(victims)} other node(s) complain" if victims and incident.node else ""
    yield ctx.finding(
        _severity(incident),
        incident.verdict + tail,
        subject=Subject("case", "", incident.node),
        evidence=incident.evidence,
        causes=causes,
        contradicts=incident.against,
        missing=incident.missing,
        confidence=incident.confidence,
        sop=_SOP.get(incident.kind, "SOP-NCCL"),
        reads=False,
    )
