"""JSON output and its schema."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kilter import __version__
from kilter.facts.case import SCHEMA_VERSION, Case, Input, NodeSummary, Snapshot
from kilter.facts.finding import Check, Diagnosis, Finding
from kilter.report.plain import json_text


class DiagnosisDocument(msgspec.Struct, kw_only=True):
    """What ``kilter diagnose --json`` prints."""

    schema: int
    kilter: str
    verdict: str  # worst severity, or "ok"
    nodes: list[NodeSummary]
    findings: list[Finding]
    checks: list[Check]
    inputs: list[Input]


def verdict(diagnosis: Diagnosis) -> str:
    """The worst severity at warning or above, else "ok"."""
    worst = max((f.severity for f in diagnosis.findings), key=lambda s: s.rank, default=None)
    return worst.value if worst is not None and worst.rank >= 1 else "ok"


def diagnosis_json(case: Case, diagnosis: Diagnosis) -> str:
    return json_text(
        DiagnosisDocument(
            schema=SCHEMA_VERSION,
            kilter=__version__,
            verdict=verdict(diagnosis),
            nodes=diagnosis.nodes,
            findings=diagnosis.findings,
            checks=diagnosis.checks,
            inputs=case.inputs,
        )
    )


def snapshot_json(snapshot: Snapshot) -> str:
    """A snapshot as ``kilter diagnose`` reads it back. Its first keys say what the file is."""
    snapshot.schema = SCHEMA_VERSION
    snapshot.kilter = snapshot.kilter or __version__
    body: dict[str, Any] = msgspec.to_builtins(snapshot)
    head = {"schema": body.pop("schema"), "kilter": body.pop("kilter")}
    return json_text({**head, **body}, indent=1)


def schema(what: str) -> str:
    """JSON schema of "snapshot", "diagnosis", "topology", "plan" or "workload"."""
    from kilter.facts.plan import Plan
    from kilter.facts.workload import Workload
    from kilter.report.topology_model import Topology

    kinds: dict[str, Any] = {
        "snapshot": Snapshot,
        "diagnosis": DiagnosisDocument,
        "topology": list[Topology],
        "plan": Plan,
        "workload": Workload,
    }
    document = msgspec.json.schema(kinds[what])
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"kilter {what}", **document}, indent=2)
        + "\n"
    )
