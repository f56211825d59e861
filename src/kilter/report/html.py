"""A diagnosis as one self-contained HTML file: styles and the few lines of script are inline, nothing is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import resources

from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Check, Diagnosis, Evidence, Finding, Outcome, Severity
from kilter.report.html_devices import accelerators, conflicts
from kilter.report.html_parts import badge, details, linked, table, time_text
from kilter.report.topology import build
from kilter.report.topology_svg import escape, render_svg
from kilter.report.topology_text import render_text
from kilter.report.writer import count

#: Pictures are large; a report on more nodes than this shows the first ones and says so.
MAX_PICTURES = 64
#: Subjects whose evidence is open at once in one card; the others are one click away.
OPEN_SUBJECTS = 2

_ROLES = (("supports", "Evidence"), ("contradicts", "Speaks against it"), ("missing", "Missing"))
_KNOWN_ROLES = {name for name, _ in _ROLES}
_SEVERITIES = sorted(Severity, key=lambda one: -one.rank)


def render_html(case: Case, diagnosis: Diagnosis, *, title: str, version: str) -> str:
    """One HTML document. All texts of ``case`` and ``diagnosis`` are escaped; addresses become links only if they start with http(s)://."""
    parts = resources.files("kilter.report").joinpath("templates")
    style = parts.joinpath("report.css").read_text(encoding="utf-8")
    script = parts.joinpath("report.js").read_text(encoding="utf-8")
    body = [
        _header(case, diagnosis, title),
        "<main>",
        _looked_at(case),
        _findings(diagnosis),
        _coverage(diagnosis),
        *_nodes(case),
        "</main>",
        f"<footer>kilter {escape(version)}. Distances between devices are spelt as nvidia-smi topo -m spells them."
        " A value that is not known is shown as ?, never as zero.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>\n{style}</style></head><body>\n{''.join(body)}<script>\n{script}</script></body></html>\n"
    )


# -- header and inputs -------------------------------------------------------------------------------------------------


def _header(case: Case, diagnosis: Diagnosis, title: str) -> str:
    counts = Counter(finding.severity for finding in diagnosis.findings)
    worst = max(counts, key=lambda one: one.rank, default=None)
    unchecked = sum(1 for check in diagnosis.checks if check.not_checked)
    fine = sum(1 for check in diagnosis.checks if check.outcome is Outcome.OK)
    if worst is not None:
        verdict = (
            f"{badge(worst)} <strong>{escape(count(len(diagnosis.findings), 'finding'))}, the worst is {worst.value}</strong>"
        )
        tone = worst.value
    elif not fine:
        verdict, tone = f"{badge('none', 'not judged')} <strong>Nothing could be checked</strong>", "none"
    else:
        verdict, tone = f"{badge('ok', 'no finding')} <strong>Nothing found in what could be checked</strong>", "ok"
    chips = " ".join(badge(one, f"{counts[one]} {one.value}") for one in _SEVERITIES if counts[one])
    rest = f"{count(fine, 'check')} fine"
    if unchecked:
        rest += f', <a href="#not-checked">{unchecked} not checked or only in part</a>'
    return (
        f'<header><h1>{escape(title)}</h1><p class="dim">{escape(_about(case))}</p>'
        f'<div class="verdict {tone}"><div class="row">{verdict}</div><div class="row" style="margin-top:6px">{chips}'
        f'<span class="dim">{rest}</span></div></div></header>'
    )


def _about(case: Case) -> str:
    parts = []
    if len(case.snapshots) > 1:
        parts.append(count(len(case.snapshots), "node"))
    for snapshot in case.snapshots[:1]:
        names = Counter(one.name for one in snapshot.accelerators or [] if one.name)
        software = snapshot.software
        parts += [
            snapshot.node or snapshot.host.hostname or "",
            " ".join(part for part in (snapshot.host.dmi_vendor, snapshot.host.dmi_product) if part),
            ", ".join(f"{number} x {name}" for name, number in names.most_common(3)),
            f"driver {software.driver_version}" if software.driver_version else "",
            f"CUDA {software.cuda_driver_version}" if software.cuda_driver_version else "",
            snapshot.host.os_name or "",
            f"kernel {snapshot.kernel.release}" if snapshot.kernel.release else "",
        ]
        if snapshot.host.virtualization and snapshot.host.virtualization != "none":
            parts.append(f"virtual machine ({snapshot.host.virtualization})")
    return " · ".join(part for part in parts if part)


def _looked_at(case: Case) -> str:
    inputs = case.inputs
    if not inputs:
        sources = [source for snapshot in case.snapshots for source in snapshot.sources]
        if not sources:
            return "<h2>What was looked at</h2><p>No input.</p>"
        listed = [(f"<code>{escape(one.name)}</code>", escape(one.tool), escape(one.node)) for one in sources[:2000]]
        inner = table((("Source", False), ("Read as", False), ("Node", False)), listed)
        return "<h2>What was looked at</h2>" + details(escape(count(len(sources), "source")), inner)
    tools = sorted({tool for one in inputs for tool in one.tools})
    lost = sum(one.unrecognised_lines for one in inputs)
    unread = sum(1 for one in inputs if not one.tools)
    summary = f"{count(len(inputs), 'input')}, {count(len(tools), 'tool')} recognised, {count(lost, 'line')} not recognised"
    if unread:
        summary += f", {count(unread, 'input')} in which nothing was recognised"
    rows = []
    for one in inputs:
        notes = "".join(f"<div>{escape(note)}</div>" for note in one.notes)
        if one.unrecognised_sample:
            sample = "\n".join(one.unrecognised_sample)
            notes += details("lines not recognised", f"<pre>{escape(sample)}</pre>")
        tool = escape(", ".join(one.tools)) or '<span class="dim">nothing recognised</span>'
        rows.append((f"<code>{escape(one.name)}</code>", tool, str(one.lines), str(one.unrecognised_lines), notes))
    heads = (("Input", False), ("Recognised", False), ("Lines", True), ("Not recognised", True), ("Notes", False))
    open_ = bool(unread) and len(inputs) <= 20
    named = f'<p class="dim">{escape(", ".join(tools))}</p>' if tools else ""
    return f"<h2>What was looked at</h2>{details(escape(summary), table(heads, rows), open_=open_)}{named}"


# -- findings ----------------------------------------------------------------------------------------------------------


def _findings(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return "<h2>Findings</h2><p>None.</p>"
    by_id: dict[str, list[Finding]] = {}
    # Signs of another finding come last of their severity, and say whose signs they are.
    for finding in sorted(diagnosis.findings, key=lambda one: (-one.severity.rank, bool(one.explained_by))):
        by_id.setdefault(finding.id, []).append(finding)
    present = [one for one in _SEVERITIES if any(finding.severity is one for finding in diagnosis.findings)]
    buttons = "".join(
        f'<button type="button" class="{one.value}" value="{one.value}" aria-pressed="false">{one.value}</button>'
        for one in present
    )
    tools = (
        '<div class="tools row" id="tools" hidden>'
        f'<input type="search" placeholder="Filter findings" aria-label="Filter findings">{buttons}</div>'
    )
    cards = "".join(_card(number, findings) for number, findings in enumerate(by_id.values()))
    return f"<h2>Findings</h2>{tools}{cards}"


def _explanation(finding: Finding) -> str:
    """Causes, action and the rest; findings that share it are listed together."""
    left = ""
    if finding.causes:
        items = ""
        for cause in finding.causes:
            likelihood = f' <span class="dim">({escape(cause.likelihood)})</span>' if cause.likelihood else ""
            decider = f'<div class="decider">Decided by: {escape(cause.decider)}</div>' if cause.decider else ""
            items += f"<li>{escape(cause.text)}{likelihood}{decider}</li>"
        left = f"<h4>Causes, most likely first</h4><ol>{items}</ol>"
    right = ""
    for name, text in (("What to do", finding.action), ("Next test", finding.next_test), ("Procedure", finding.sop)):
        if text:
            right += f"<h4>{name}</h4><p>{linked(text)}</p>"
    below = ""
    if finding.disagreement:
        below += f"<h4>Sources disagree</h4><p>{linked(finding.disagreement)}</p>"
    if finding.sources:
        below += "<h4>Sources</h4><ul>" + "".join(f"<li>{linked(source)}</li>" for source in finding.sources) + "</ul>"
    both = f'<div class="two"><div>{left}</div><div>{right}</div></div>' if left and right else left + right
    return both + below


def _card(number: int, findings: list[Finding]) -> str:
    worst = findings[0].severity
    whats = {finding.what for finding in findings}
    subjects = {str(finding.subject) for finding in findings}
    where = next(iter(subjects)) if len(subjects) == 1 else f"{len(subjects)} subjects"
    title = findings[0].what if len(whats) == 1 else f"{findings[0].what} (and {len(whats) - 1} similar)"
    parts: dict[str, list[Finding]] = {}
    for finding in findings:
        parts.setdefault(_explanation(finding), []).append(finding)
    body = ""
    opened = 0
    for explanation, some in parts.items():
        listed = ""
        for finding in some:
            listed += _subject(
                finding, alone=len(findings) == 1, same_what=len(whats) == 1, open_=opened < OPEN_SUBJECTS, worst=worst
            )
            opened += 1
        root = some[0].explained_by
        sign = f'<p class="dim">A sign of {escape(root)} on the same device, no trouble of its own.</p>' if root else ""
        body += f'<div class="part">{sign}{listed}{"" if root else explanation}</div>'
    return (
        f'<article class="card {worst.value}" data-severity="{worst.value}" id="finding-{number}">'
        f'<div class="row">{badge(worst)}'
        f'<span class="title">{escape(title)}</span><span class="name">{escape(where)}</span>'
        f'<span class="id">{escape(findings[0].id)}</span></div>{body}</article>\n'
    )


def _subject(finding: Finding, *, alone: bool, same_what: bool, open_: bool, worst: Severity) -> str:
    facts = []
    if finding.confidence != "high":
        facts.append(f"confidence {finding.confidence}")
    if finding.count > 1:
        facts.append(f"{finding.count} times")
    first, last = time_text(finding.first_time), time_text(finding.last_time)
    if first:
        facts.append(f"{first} to {last}" if last and last != first else first)
    said = f' <span class="dim">{escape(" · ".join(facts))}</span>' if facts else ""
    plain = not alone and all(one.role == "supports" for one in finding.evidence)  # the list speaks for itself
    evidence = ""
    for name, head in (*_ROLES, ("", "Further")):
        some = [one for one in finding.evidence if (one.role if one.role in _KNOWN_ROLES else "") == name]
        evidence += _evidence_list(name or "other", head, some, plain=plain)
    if alone:
        return f'<div class="subject">{said}{evidence}</div>'
    what = "" if same_what else f" {escape(finding.what)}"
    severity = "" if finding.severity is worst else f" {badge(finding.severity)}"
    head = f'<span class="name">{escape(str(finding.subject))}</span>{severity}{what}{said}'
    return details(head, evidence, open_=open_, css="subject") if evidence else f'<div class="subject">{head}</div>'


def _evidence_list(role: str, title: str, some: list[Evidence], *, plain: bool = False) -> str:
    if not some:
        return ""
    items = "".join(f"<li>{escape(one.text)}{f'<span>{escape(one.where)}</span>' if one.where else ''}</li>" for one in some)
    head = "" if plain else f"<h4>{title}</h4>"
    return f'{head}<ul class="ev {role}">{items}</ul>'


# -- coverage ----------------------------------------------------------------------------------------------------------


def _coverage(diagnosis: Diagnosis) -> str:
    if not diagnosis.checks:
        return ""
    fine = [check for check in diagnosis.checks if check.outcome is Outcome.OK]
    unchecked = [check for check in diagnosis.checks if check.not_checked]
    beside = sum(1 for check in diagnosis.checks if check.outcome is Outcome.NOT_APPLICABLE)
    out = ["<h2>Coverage</h2>"]
    families: dict[str, list[Check]] = {}
    for check in diagnosis.checks:
        if check.ok:
            families.setdefault(check.family, []).append(check)
    heads = (("Check", False), ("Rule", False), ("Fine", True), ("Findings", True), ("Not checked", True))
    inner = ""
    for family, checks in sorted(families.items()):
        rows = [
            (
                escape(one.title),
                f"<code>{escape(one.rule)}</code>",
                str(one.ok),
                str(one.findings or ""),
                str(one.not_checked or ""),
            )
            for one in sorted(checks, key=lambda one: one.rule)
        ]
        inner += details(f"{escape(family)} ({len(checks)})", table(heads, rows))
    text = f"{badge('ok', 'fine')} {count(len(fine), 'check')} fine on all that they apply to"
    out.append(details(text, inner) if inner else f"<p>{text}</p>")
    if beside:
        out.append(f'<p class="dim">{count(beside, "check")} about things that this machine does not have.</p>')
    out.append(_not_checked(unchecked))
    return "".join(out)


def _not_checked(checks: list[Check]) -> str:
    head = '<h3 id="not-checked">Not checked</h3>'
    if not checks:
        return head + "<p>Nothing was left out.</p>"
    by_command: dict[str, list[Check]] = {}
    for check in checks:
        for hint in check.hints or [""]:
            by_command.setdefault(hint, []).append(check)
    rows = []
    for hint, some in sorted(by_command.items(), key=lambda item: (not item[0], -len(item[1]))):
        items = ""
        for check in sorted(some, key=lambda one: one.rule):
            reasons = "".join(f"<div>{escape(reason)}</div>" for reason in check.reasons)
            number = f" on {check.not_checked}" if check.not_checked > 1 else ""
            summary = f'{escape(check.title)} <span class="id">{escape(check.rule)}{number}</span>'
            first = f' <span class="dim">{escape(check.reasons[0])}</span>' if len(check.reasons) == 1 else ""
            items += (
                details(summary, f'<div class="dim">{reasons}</div>')
                if len(check.reasons) > 1
                else f"<div>{summary}{first}</div>"
            )
        rows.append(
            (f"<code>{escape(hint)}</code>" if hint else '<span class="dim">no command known</span>', str(len(some)), items)
        )
    return head + table((("Command that would show it", False), ("Checks", True), ("What is missing", False)), rows)


# -- nodes -------------------------------------------------------------------------------------------------------------


def _nodes(case: Case) -> Iterable[str]:
    drawn = 0
    for snapshot in case.snapshots:
        name = snapshot.node or snapshot.host.hostname or "this node"
        inner = ""
        if drawn < MAX_PICTURES and (picture := _picture(snapshot)):
            inner += picture
            drawn += 1
        inner += accelerators(snapshot) + conflicts(snapshot)
        if not inner:
            continue
        if len(case.snapshots) == 1:
            yield f"<h2>{escape(name)}</h2>{inner}"
        else:
            yield details(f"<strong>{escape(name)}</strong>", inner, css="subject")
    if drawn == MAX_PICTURES < len(case.snapshots):
        yield f'<p class="dim">Pictures are shown of the first {MAX_PICTURES} nodes only (kilter topo draws any node).</p>'


def _picture(snapshot: Snapshot) -> str:
    topology = build(snapshot)
    if topology.is_empty:
        return ""
    out = f"<h3>Topology</h3><figure>{render_svg(topology)}</figure>"
    for title, items in (("The sources disagree", topology.disagreements), ("Notes", topology.notes)):
        if items:
            out += f"<h4>{title}</h4><ul>" + "".join(f"<li>{escape(item)}</li>" for item in items[:200]) + "</ul>"
    return out + details("as text", f"<pre>{escape(render_text(topology, width=120))}</pre>")
