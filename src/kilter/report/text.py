"""The terminal report. Fits 60 to 100 columns, reads the same without colour."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kilter.facts.case import Case, NodeSummary, Snapshot, summarize
from kilter.facts.finding import Check, Diagnosis, Finding, Outcome, Severity
from kilter.report.plain import plain, utc
from kilter.report.writer import Writer

if TYPE_CHECKING:
    from kilter.knowledge.explain import Explanation

_COLOURS = {Severity.CRITICAL: "1;37;41", Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.INFO: "36"}
MAX_SUBJECTS = 8
MAX_NODES = 8
MAX_LINES = 5


def _time(value: float) -> str:
    if value < 1e8:  # seconds since boot
        return f"{value:.0f} s after boot"
    return utc(value, "%Y-%m-%d %H:%M:%S")


def when(finding: Finding) -> str:
    """First and last time of a finding, with what is uncertain about them; "" when it has none."""
    if finding.first_time is None:
        return ""
    first = _time(finding.first_time)
    note = f" ({finding.time_note})" if finding.time_note and "boot" not in finding.time_note else ""
    if finding.last_time is None or finding.last_time - finding.first_time < 1:
        return first + note
    return f"{first} to {_time(finding.last_time)}{note}"


def group(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several subjects, together. Order is kept."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.id, finding.severity, finding.what), []).append(finding)
    return list(groups.values())


def subjects(findings: list[Finding], nodes: Sequence[NodeSummary]) -> str:
    """The subjects of findings that say the same, in few words."""
    by_node: dict[str, list[Finding]] = {}
    for finding in findings:
        by_node.setdefault(finding.subject.node, []).append(finding)
    if len(by_node) <= MAX_NODES:
        return "; ".join(_on_node(node, group, nodes) for node, group in by_node.items())
    names = list(by_node)
    kinds = Counter(f.subject.kind for f in findings if f.subject.name)
    what = "".join(f", {n} {kind}s" for kind, n in kinds.items())
    return f"{len(names)} nodes{what}: {', '.join(names[:MAX_SUBJECTS])} and {len(names) - MAX_SUBJECTS} more"


def _on_node(node: str, findings: list[Finding], nodes: Sequence[NodeSummary]) -> str:
    names = [f.subject.name for f in findings if f.subject.name]
    if not names:
        return node or "this node"
    if findings[0].subject.kind == "gpu" and len(names) > 1:
        total = sum(sum(one.accelerators.values()) for one in nodes if one.node == node)
        if len(names) == total:
            return f"{node}: all {total} GPUs" if node else f"all {total} GPUs"
    shown = ", ".join(names[:MAX_SUBJECTS]) + (f" and {len(names) - MAX_SUBJECTS} more" if len(names) > MAX_SUBJECTS else "")
    return f"{node}: {shown}" if node else shown


def _short(where: str, room: int) -> str:
    """A path cut from the left, so that file and line stay."""
    return where if len(where) <= room else "..." + where[-(room - 3) :]


def _evidence(out: Writer, finding: Finding) -> None:
    for role, label in (("supports", "seen"), ("contradicts", "but"), ("missing", "missing")):
        lines = [e for e in finding.evidence if e.role == role]
        for number, line in enumerate(lines[:MAX_LINES]):
            where = f"  [{_short(line.where, 48)}]" if line.where else ""
            out.labelled(label if number == 0 else "", line.text + where)
        if len(lines) > MAX_LINES:
            out.labelled("", f"... {len(lines) - MAX_LINES} more lines in --json")


def _id(finding: Finding) -> str:
    """The id, whose last part may be a word of the input."""
    text = plain(finding.id)
    return text if len(text) <= 60 else text[:57] + "..."


def _one(out: Writer, findings: list[Finding], nodes: Sequence[NodeSummary], signs: list[Finding]) -> None:
    finding = findings[0]
    badge = out.paint(
        f" {finding.severity.value.upper()} " if out.color else finding.severity.value.upper(), _COLOURS[finding.severity]
    )
    out.add(f"{badge}  {out.paint(_id(finding), '1')}")
    out.labelled("where", subjects(findings, nodes))
    out.labelled("what", finding.what)
    if moment := when(finding):
        out.labelled("when", moment)
    _evidence(out, finding)
    for number, sign in enumerate(signs):
        where = next((e.where for e in sign.evidence if e.where), "")
        out.labelled("signs" if number == 0 else "", f"{sign.id}: {sign.what}" + (f"  [{_short(where, 48)}]" if where else ""))
    if len(findings) > 1:
        out.labelled("", f"(evidence of the first of {len(findings)}; all of it in --json)")
    for number, cause in enumerate(finding.causes[:4], 1):
        text = f"{number}. {cause.text}" + (f" ({cause.likelihood})" if cause.likelihood else "")
        out.labelled("cause" if number == 1 else "", text + (f"; tells: {cause.decider}" if cause.decider else ""))
    if finding.confidence != "high":
        out.labelled("sure?", f"confidence is {finding.confidence}")
    if finding.disagreement:
        out.labelled("sources", f"disagree: {finding.disagreement}")
    if finding.action:
        out.labelled("do", finding.action)
    if finding.next_test:
        out.labelled("next", finding.next_test)
    if finding.sop:
        out.labelled("more", f"kilter explain {finding.id}; kilter explain {finding.sop.lower()}")
    out.add()


def _brief(out: Writer, findings: list[Finding], nodes: Sequence[NodeSummary]) -> None:
    finding = findings[0]
    prefix = f"  {_id(finding)}  "
    text = f"{finding.what} ({subjects(findings, nodes)})"
    for line in textwrap.wrap(plain(text), out.width, initial_indent=prefix, subsequent_indent="      ", break_on_hyphens=False):
        out.add(line)


def _node_line(snapshot: Snapshot) -> str:
    summary = summarize(snapshot)
    parts = [summary.node or "node (not named)"]
    if snapshot.host.dmi_product:
        parts.append(snapshot.host.dmi_product)
    parts += [f"{count}x {name}" for name, count in summary.accelerators.items()]
    if summary.driver_version:
        parts.append(f"driver {summary.driver_version}")
    return ", ".join(parts)


def _header(out: Writer, case: Case, diagnosis: Diagnosis) -> None:
    counts = Counter(f.severity for f in diagnosis.findings)
    for snapshot in case.snapshots[:10]:
        for line in textwrap.wrap(plain(_node_line(snapshot)), out.width, subsequent_indent="  "):
            out.add(line)
    if len(case.snapshots) > 10:
        out.add(f"... and {len(case.snapshots) - 10} more nodes")
    words = [f"{counts[s]} {s.value}" for s in reversed(Severity) if counts[s]]
    ok = sum(1 for c in diagnosis.checks if c.outcome is Outcome.OK)
    out.add(
        f"Findings: {', '.join(words) or 'none'}. {ok} checks fine, {_not_checked(diagnosis.checks)} not checked (see below)."
    )
    out.add()


def _not_checked(checks: list[Check]) -> int:
    return sum(1 for c in checks if c.outcome is Outcome.NOT_CHECKED)


#: Many checks want the same tool with other options; the short report names the tool once.
_TOOLS = (
    (re.compile(r"perfquery|ibnetdiscover|ibswinfo"), "fabric: perfquery and ibnetdiscover, twice; ibswinfo"),
    (re.compile(r"show_gids|mlnx_qos|ip -d link"), "RoCE: show_gids; mlnx_qos -i <interface>; ip -d link"),
    (re.compile(r"sinfo|squeue|scontrol|sacct|sdiag|slurm"), "Slurm: sinfo -R -l; squeue; scontrol show node"),
    (re.compile(r"kubectl"), "Kubernetes: kubectl describe node <node>; kubectl get pods -A -o wide"),
    (re.compile(r"ipmitool"), "BMC: ipmitool sel elist; ipmitool sdr elist"),
    (re.compile(r"dcgmi|dcgm-exporter|localhost:9400"), "DCGM: dcgmi diag -r 3; a scrape of dcgm-exporter"),
    (re.compile(r"NCCL_TOPO_DUMP_FILE"), "topology: NCCL_TOPO_DUMP_FILE=topo.xml for one run"),
    (
        re.compile(r"standard error of every rank|Flight Recorder|ncclras"),
        "job: the log of every rank; Flight Recorder dumps; ncclras",
    ),
    (
        re.compile(r"vllm bench serve|results a configuration"),
        "serving benchmarks: result files of vllm bench serve, SGLang, AIPerf, inference-perf",
    ),
    (re.compile(r"all_reduce_perf"), "benchmarks: all_reduce_perf -c 1"),
    (re.compile(r"two kilter snapshots"), "rates: two kilter snapshots, some minutes apart"),
    (re.compile(r"nvlink"), "nvidia-smi nvlink -s; nvidia-smi nvlink -e"),
    (re.compile(r"fabricmanager"), "systemctl is-active nvidia-fabricmanager; /var/log/fabricmanager.log"),
    (re.compile(r"busy|under load|while the job runs"), "nvidia-smi -q while the GPUs are busy"),
    (re.compile(r"nvidia-smi"), "nvidia-smi -q"),
    (re.compile(r"lspci"), "lspci -vvv -nn (as root)"),
    (re.compile(r"dmesg|journalctl"), "dmesg -T, or journalctl -k -o short-iso"),
    (re.compile(r"ibstat|infiniband|ip link"), "ibstat; grep -r . /sys/class/infiniband"),
    (re.compile(r"ethtool"), "ethtool -S of each NIC, twice"),
    (re.compile(r"NCCL_DEBUG"), "the job's log with NCCL_DEBUG=INFO"),
)
#: Findings with which the driver's tools may never return (research: section 0, item 9).
_HANGS = {"gpu.xid.62", "gpu.xid.79", "gpu.xid.119", "gpu.xid.120", "gpu.gsp_slow", "gpu.lost"}
#: What is not of the node that was looked at is told in one line when nothing of it was given.
_ELSEWHERE = (
    "fabric: ",
    "RoCE: ",
    "Slurm: ",
    "Kubernetes: ",
    "BMC: ",
    "DCGM: ",
    "topology: ",
    "job: ",
    "benchmarks: ",
    "serving benchmarks: ",
    "rates: ",
)
_HOST = "ulimit -a, df -k /dev/shm, lsmod, /proc/cmdline, numactl -H"


def _tool(hint: str) -> str:
    return next((label for pattern, label in _TOOLS if pattern.search(hint)), _HOST)


def hints_by_tool(checks: Iterable[Check]) -> list[tuple[str, str]]:
    """(command that would show it, "family n, family n") of the checks that were not made, the most useful command first."""
    by_tool: dict[str, Counter[str]] = defaultdict(Counter)
    for check in checks:
        if check.outcome is Outcome.NOT_CHECKED:
            by_tool[_tool(check.hints[0] if check.hints else "")][check.family] += 1
    ranked = sorted(by_tool.items(), key=lambda item: -sum(item[1].values()))
    return [(tool, ", ".join(f"{family} {n}" for family, n in sorted(families.items()))) for tool, families in ranked]


def _coverage(out: Writer, diagnosis: Diagnosis, verbose: bool) -> None:
    fine: dict[str, int] = Counter(c.family for c in diagnosis.checks if c.outcome is Outcome.OK)
    if fine:
        out.labelled(
            "", f"Checked and fine: {', '.join(f'{family} {n}' for family, n in sorted(fine.items()))}", indent=0, gutter=0
        )
    by_tool = hints_by_tool(diagnosis.checks)
    elsewhere = [tool.partition(": ")[0] for tool, _ in by_tool if tool.startswith(_ELSEWHERE)]
    by_tool = by_tool if verbose else [row for row in by_tool if not row[0].startswith(_ELSEWHERE)]
    if by_tool:
        out.add("Not checked; this would show it (kilter snapshot takes all of it at once):")
        for tool, what in by_tool:
            out.labelled("", f"{tool}: {what}", indent=2, gutter=0)
    if elsewhere and not verbose:
        out.labelled("", f"Nothing was given of: {', '.join(elsewhere)} (-v tells what would show it).", indent=0, gutter=0)
    if any(f.id in _HANGS for f in diagnosis.findings):
        out.labelled(
            "",
            "Careful: with a GPU in this state nvidia-smi can hang. kilter snapshot runs it under a time limit.",
            indent=0,
            gutter=0,
        )
    for check in diagnosis.checks:
        if check.failures:
            text = f"The check {check.rule} failed itself, please report this: {check.failures[0]}"
            out.labelled("", text, indent=0, gutter=0)
    partly = [c for c in diagnosis.checks if c.not_checked and c.outcome is not Outcome.NOT_CHECKED]
    if partly:
        out.labelled(
            "",
            f"Partly checked: {', '.join(f'{c.title} ({c.not_checked} subjects missing)' for c in partly[:6])}",
            indent=0,
            gutter=0,
        )
    if verbose:
        out.add()
        out.add("Every check:")
        for check in diagnosis.checks:
            counts = f"ok {check.ok}, findings {check.findings}, not checked {check.not_checked}, not applicable {check.not_applicable}"
            out.labelled(
                "",
                f"{check.rule}: {check.outcome.value} ({counts})" + (f"; {check.reasons[0]}" if check.reasons else ""),
                indent=2,
                gutter=0,
            )


def _inputs(out: Writer, case: Case) -> None:
    strange = [i for i in case.inputs if i.unrecognised_lines or i.notes]
    if not strange:
        return
    out.add()
    out.add("Not understood in the inputs:")
    for item in strange[:12]:
        what = f"{item.unrecognised_lines} of {item.lines} lines" if item.unrecognised_lines else ""
        sample = f", e.g. {item.unrecognised_sample[0]}" if item.unrecognised_sample else ""
        out.labelled(
            "",
            f"{_short(item.name, 50)}: {what}{sample}"
            + "".join(f"{'; ' if what or n else ''}{note}" for n, note in enumerate(item.notes)),
            indent=2,
            gutter=0,
        )
    if len(strange) > 12:
        out.add(f"  ... and {len(strange) - 12} more files (--json lists them)")


def diagnosis_text(case: Case, diagnosis: Diagnosis, *, width: int = 100, color: bool = False, verbose: bool = False) -> str:
    """The whole report."""
    out = Writer(width, color)
    _header(out, case, diagnosis)
    loud = [f for f in diagnosis.findings if f.severity is not Severity.INFO or verbose]
    signs: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in loud:
        if finding.explained_by:
            signs[finding.explained_by, finding.subject.node].append(finding)
    for findings in group(f for f in loud if not f.explained_by):
        root = findings[0]
        _one(out, findings, diagnosis.nodes, signs[root.id, root.subject.node])
    quiet = [] if verbose else [f for f in diagnosis.findings if f.severity is Severity.INFO]
    if quiet:
        out.add(f"For information ({len(quiet)}; -v shows them in full):")
        for findings in group(quiet):
            _brief(out, findings, diagnosis.nodes)
        out.add()
    _coverage(out, diagnosis, verbose)
    _inputs(out, case)
    return out.text()


def explanation_text(found: Explanation, *, width: int = 100, color: bool = False) -> str:
    """An explanation of knowledge or of a rule."""
    out = Writer(width, color)
    out.add(out.paint(found.title, "1"))
    out.add()
    for paragraph in found.paragraphs:
        for line in paragraph.split("\n"):
            if len(line) <= width:
                out.add(line)
            else:
                indent = line[: len(line) - len(line.lstrip())]
                out.lines += textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
        out.add()
    for name, value in found.facts:
        out.labelled(name, str(value), indent=0, gutter=max(len(n) for n, _ in found.facts) + 2)
    if found.facts:
        out.add()
    for label, items in (
        ("Do", found.actions),
        ("Sources disagree", found.disagreements),
        ("See also", found.see_also),
        ("Sources", found.sources),
    ):
        if items:
            out.add(out.paint(f"{label}:", "1"))
            for item in items:
                out.lines += textwrap.wrap(item, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    if found.confidence != "high":
        out.add(f"Confidence: {found.confidence}" + (f" ({found.confidence_why})" if found.confidence_why else ""))
    return out.text()
