"""The fault analysis that an engineer on call hands over, as Markdown or as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import NamedTuple

from kilter.facts.case import Case, NodeSummary, summarize
from kilter.facts.finding import Diagnosis, Finding, Outcome, Severity
from kilter.knowledge import sops
from kilter.report.plain import plain
from kilter.report.text import group, hints_by_tool, subjects, when
from kilter.report.timeline_html import Mark
from kilter.report.timeline_text import line
from kilter.report.topology_svg import escape

MAX_MOMENTS = 60
MAX_EVIDENCE = 12
MAX_PROCEDURES = 3


class Block(NamedTuple):
    """A piece of the document. ``kind``: h1, h2, h3, p, ul, ol, pre, or table (first row is the head)."""

    kind: str
    text: str = ""
    items: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def _loud(diagnosis: Diagnosis) -> list[list[Finding]]:
    return group(f for f in diagnosis.findings if f.severity is not Severity.INFO)


def _summary(diagnosis: Diagnosis, groups: list[list[Finding]], verdict: str) -> list[Block]:
    if not groups:
        return [Block("p", "Nothing was found in what could be checked. What was not checked stands at the end.")]
    roots = [findings for findings in groups if not findings[0].explained_by]
    main = next(
        (f for f in roots if f[0].id.startswith("incident.") and f[0].confidence != "low"), roots[0] if roots else groups[0]
    )
    first = main[0]
    cause = first.causes[0].text if first.causes else "not known from these inputs"
    rows = [
        ("Question", "Answer"),
        ("What", first.what),
        ("Where", subjects(main, diagnosis.nodes)),
        ("When", when(first) or "not known"),
        ("Severity", first.severity.value),
        ("Most likely cause", cause),
        ("Confidence", first.confidence),
    ]
    if verdict:
        rows.append(("First cause over all logs", verdict))
    rows.append(("Findings", ", ".join(f"{n} {s.value}" for s in reversed(Severity) if (n := _count(diagnosis, s)))))
    return [Block("table", rows=rows)]


def _count(diagnosis: Diagnosis, severity: Severity) -> int:
    return sum(1 for finding in diagnosis.findings if finding.severity is severity)


def _systems(case: Case) -> list[Block]:
    rows: list[tuple[str, ...]] = [("Node", "Machine", "Accelerators", "Driver", "Kernel")]
    for snapshot in case.snapshots[:32]:
        summary = summarize(snapshot)
        rows.append(
            (
                summary.node or "not named",
                snapshot.host.dmi_product or "?",
                ", ".join(f"{n}x {name}" for name, n in summary.accelerators.items()) or "?",
                summary.driver_version or "?",
                snapshot.kernel.release or "?",
            )
        )
    blocks = [Block("table", rows=rows)] if len(rows) > 1 else []
    if len(case.snapshots) > 32:
        blocks.append(Block("p", f"... and {len(case.snapshots) - 32} more nodes."))
    return blocks


def _time_line(marks: Sequence[Mark], notes: Sequence[str]) -> list[Block]:
    if not marks:
        return [Block("p", "No log with events was given.")]
    chosen = list(marks)
    if len(chosen) > MAX_MOMENTS:  # roots and victims say more than the rest
        keep = [m for m in chosen if m.role != "other"][:MAX_MOMENTS]
        chosen = keep or chosen[:MAX_MOMENTS]
    width = min(max((len(m.event.node) for m in chosen), default=4), 16)
    lines = [line(m.time, m.uncertainty_s, m.event, width=140, node_width=width) for m in chosen]
    if len(chosen) < len(marks):
        lines.append(f"... {len(marks) - len(chosen)} more events (kilter timeline shows all)")
    return [Block("pre", "\n".join(lines)), *([Block("ul", items=list(notes))] if notes else [])]


def _finding(findings: list[Finding], nodes: Sequence[NodeSummary]) -> list[Block]:
    first = findings[0]
    blocks = [
        Block("h3", f"{first.severity.value}: {first.id}"),
        Block("p", f"{first.what}. Where: {subjects(findings, nodes)}." + (f" When: {when(first)}." if when(first) else "")),
    ]
    seen = [e for f in findings for e in f.evidence if e.role == "supports"]
    if seen:
        text = [f"{e.text}  [{e.where}]" if e.where else e.text for e in seen[:MAX_EVIDENCE]]
        if len(seen) > MAX_EVIDENCE:
            text.append(f"... {len(seen) - MAX_EVIDENCE} more lines")
        blocks.append(Block("pre", "\n".join(text)))
    points = [f"Speaks against it: {e.text}" for e in first.evidence if e.role == "contradicts"]
    points += [f"Missing: {e.text}" for e in first.evidence if e.role == "missing"]
    points += [
        f"Cause {n}: {c.text}"
        + (f" ({c.likelihood})" if c.likelihood else "")
        + (f". What would tell: {c.decider}" if c.decider else "")
        for n, c in enumerate(first.causes, 1)
    ]
    points.append(f"Confidence: {first.confidence}")
    if first.disagreement:
        points.append(f"Sources disagree: {first.disagreement}")
    if first.explained_by:
        points.append(f"A sign of {first.explained_by}")
    if first.sources:
        points.append("Sources: " + "; ".join(first.sources[:4]))
    return [*blocks, Block("ul", items=points)]


def _impact(case: Case, known: Sequence[NodeSummary], groups: list[list[Finding]]) -> list[Block]:
    points = []
    bad = {f.subject.node for findings in groups for f in findings if f.severity.rank >= Severity.ERROR.rank}
    nodes = {one.node for one in known} | set(case.kernel_logs)
    if bad:
        points.append(
            f"{len(bad)} of {max(len(nodes), len(bad))} node(s) with an error or worse: {', '.join(sorted(bad - {''})) or 'not named'}"
        )
    gpus = {
        (f.subject.node, f.subject.name)
        for findings in groups
        for f in findings
        if f.subject.kind == "gpu" and f.severity is Severity.CRITICAL
    }
    if gpus:
        points.append(f"{len(gpus)} GPU(s) that no work should be placed on")
    points += [
        f"a job of {job.n_ranks} ranks on {len(job.nodes) or 'an unknown number of'} node(s)" for job in case.jobs if job.n_ranks
    ]
    points.append("Lost work (time since the last checkpoint) is not known from these inputs: to be filled in.")
    return [Block("ul", items=points)]


def _actions(groups: list[list[Finding]], nodes: Sequence[NodeSummary]) -> list[Block]:
    needed: dict[str, str] = {}
    for findings in groups:
        first = findings[0]
        if first.action and not first.explained_by:
            needed.setdefault(first.action, f"{first.action} ({first.id}, {subjects(findings, nodes)})")
    tests = dict.fromkeys(f.next_test for findings in groups for f in findings if f.next_test)
    blocks = [
        Block("p", "Taken so far: to be filled in (kilter changes nothing when it diagnoses)."),
        Block("p", "Needed, most severe first:"),
    ]
    blocks.append(Block("ol", items=list(needed.values())) if needed else Block("p", "None."))
    if tests:
        blocks += [Block("p", "Tests that would decide:"), Block("ul", items=list(tests))]
    return blocks


def _procedures(groups: list[list[Finding]]) -> list[Block]:
    blocks: list[Block] = []
    done: set[str] = set()
    for findings in groups:
        first = findings[0]
        if not first.sop or first.sop in done or first.explained_by or len(done) == MAX_PROCEDURES:
            continue
        if first.sop not in sops.all_ids():
            continue
        done.add(first.sop)
        known: dict[str, str | int] = {}
        if first.subject.node:
            known["node"] = first.subject.node
        if match := re.search(
            r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\b", first.subject.name
        ):
            known["address"] = match.group()
        if match := re.match(r"GPU ?(\d+)$", first.subject.name):
            known["gpu"] = match.group(1)
        sop = sops.load(first.sop)
        blocks += [Block("h3", f"{sop.id}: {sop.title} (for {first.id})")]
        for name in ("Save first", "Steps"):
            if text := sop.section(name):
                blocks += [Block("p", f"{name}:"), Block("pre", sops.fill(text, **known))]
    return blocks or [Block("p", "No procedure is needed.")]


def _unchecked(diagnosis: Diagnosis) -> list[Block]:
    by_tool = hints_by_tool(diagnosis.checks)
    if not by_tool:
        return [Block("p", "Everything that kilter knows was checked.")]
    rows = [("This would show it", "Checks"), *((tool, what) for tool, what in by_tool)]
    fine = sum(1 for c in diagnosis.checks if c.outcome is Outcome.OK)
    return [Block("p", f"{fine} checks were made and found nothing."), Block("table", rows=rows)]


def _inputs(case: Case) -> list[Block]:
    rows = [("Input", "Lines", "Not understood", "Read as")]
    rows += [
        (one.name, str(one.lines), str(one.unrecognised_lines), ", ".join(sorted(set(one.tools))) or "-")
        for one in case.inputs[:200]
    ]
    blocks = [Block("table", rows=rows)]
    if len(case.inputs) > 200:
        blocks.append(Block("p", f"... and {len(case.inputs) - 200} more."))
    return blocks


def document(
    case: Case, diagnosis: Diagnosis, marks: Sequence[Mark], notes: Sequence[str], *, title: str, verdict: str
) -> list[Block]:
    """The analysis as blocks. ``marks`` is the merged time line, ``verdict`` the first cause over all logs or ""."""
    groups = _loud(diagnosis)
    return [
        Block("h1", f"Fault analysis: {title}"),
        Block("h2", "Summary"),
        *_summary(diagnosis, groups, verdict),
        Block("h2", "Systems"),
        *(_systems(case) or [Block("p", "No node was described by the inputs.")]),
        Block("h2", "Time line"),
        *_time_line(marks, notes),
        Block("h2", "Evidence and causes"),
        *([b for findings in groups for b in _finding(findings, diagnosis.nodes)] or [Block("p", "None.")]),
        Block("h2", "Impact"),
        *_impact(case, diagnosis.nodes, groups),
        Block("h2", "Actions"),
        *_actions(groups, diagnosis.nodes),
        Block("h2", "Procedures"),
        *_procedures(groups),
        Block("h2", "Not checked"),
        *_unchecked(diagnosis),
        Block("h2", "Inputs"),
        *_inputs(case),
    ]


# -- writers -----------------------------------------------------------------------------------------------------------


def _md(text: str) -> str:
    """Text of a log as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(plain(text).split()))


def _fence(text: str) -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"


def _markdown(block: Block) -> str:
    if block.kind in ("h1", "h2", "h3"):
        return "#" * int(block.kind[1]) + " " + _md(block.text)
    if block.kind == "pre":
        return _fence("\n".join(plain(line) for line in block.text.split("\n")))
    if block.kind in ("ul", "ol"):
        return "\n".join(f"{'-' if block.kind == 'ul' else f'{n}.'} {_md(item)}" for n, item in enumerate(block.items, 1))
    if block.kind == "table":
        head, *rows = ([_md(cell) for cell in row] for row in block.rows)
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
    return _md(block.text)


def to_markdown(blocks: Iterable[Block]) -> str:
    """GitHub-flavoured Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _html(block: Block) -> str:
    if block.kind in ("ul", "ol"):
        return f"<{block.kind}>" + "".join(f"<li>{escape(item)}</li>" for item in block.items) + f"</{block.kind}>"
    if block.kind == "table":
        head, *rows = block.rows
        return (
            "<table><thead><tr>"
            + "".join(f"<th>{escape(cell)}</th>" for cell in head)
            + "</tr></thead><tbody>"
            + "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            + "</tbody></table>"
        )
    return f"<{block.kind}>{escape(block.text)}</{block.kind}>"


def to_html(blocks: Sequence[Block]) -> str:
    """One self-contained HTML file that prints well."""
    style = resources.files("kilter.report").joinpath("templates").joinpath("report.css").read_text(encoding="utf-8")
    title = next((b.text for b in blocks if b.kind == "h1"), "Fault analysis")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>\n{style}\npre{{white-space:pre-wrap}}</style></head>'
        f"<body><main>\n{chr(10).join(_html(block) for block in blocks)}\n</main></body></html>\n"
    )
