"""Rules over a case: how a check asks for facts, what becomes of it, and how findings get their evidence.

A rule is a function of one subject (a GPU, a port, a log, ...). It asks for facts with :meth:`Context.need`; a missing one ends the rule for
that subject and becomes a line of the coverage report, so that nothing unknown passes for healthy. Every fact it asked for is evidence of
what it finds. ``@rule`` registers it; its docstring is what ``kilter explain <id>`` prints.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from kilter.diagnose.fabric_links import fabric_of, whole_node
from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Entity, Missing, Reason
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Clock, Event
from kilter.facts.finding import Cause, Check, Diagnosis, Evidence, Finding, Severity, Subject
from kilter.facts.nccl import NcclJob

T = TypeVar("T")
builtin_id = id  # rules name their keyword ``id`` after what it is

MAX_EVIDENCE = 12
MAX_REASONS = 8


class FactMissing(Exception):
    """A rule needs a fact that is not known."""

    def __init__(self, subject: str, field: str, missing: Missing) -> None:
        super().__init__(f"{subject}: {field} {missing.reason.value}")
        self.subject, self.field, self.missing = subject, field, missing


class NotApplicable(Exception):
    """The check has no meaning for this subject."""


class Rule(NamedTuple):
    id: str  # of its findings; "gpu.xid.*" where the last part depends on the case
    title: str
    family: str
    scope: str
    check: Callable[..., object]
    sop: str
    sources: tuple[str, ...]
    action: str
    hint: str  # command that shows the facts it needs
    doc: str
    also: tuple[str, ...]  # further ids of its findings; a last "*" stands for a code or field

    def gives(self, finding_id: str) -> bool:
        """Whether a finding of this id can come from this rule."""
        return any(finding_id == one or (one.endswith("*") and finding_id.startswith(one[:-1])) for one in (self.id, *self.also))


RULES: dict[str, Rule] = {}
#: Where rules live; a new file is named here.
MODULES = (
    *("gpu", "memory", "xid", "pcie", "nvlink", "thermal", "kernel", "rdma", "net", "nccl", "host", "siblings", "incident"),
    *("fabric", "fabric_state", "ib_switch", "roce", "slurm", "slurm_jobs", "kubernetes", "container", "bmc", "dcgm", "metrics"),
    *("nccl_topology", "imex"),
    *("job", "job_errors", "job_process", "bench_sanity", "fleet"),
)
#: Kinds of events that are not from a node's own kernel log or BMC.
JOB_KINDS = ("nccl.", "torch.", "cuda.", "job.", "container.", "k8s.", "slurm.")


def rule(
    id: str,
    title: str,
    *,
    scope: str,
    family: str,
    sop: str = "",
    sources: tuple[str, ...] = (),
    action: str = "",
    hint: str = "",
    also: tuple[str, ...] = (),
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register a check. ``scope`` is one of :data:`SCOPES`; ``also`` names every further id that its findings may have."""

    def register(check: Callable[..., object]) -> Callable[..., object]:
        if id in RULES:
            raise ValueError(f"two rules named {id}")
        RULES[id] = Rule(id, title, family, scope, check, sop, sources, action, hint, inspect.cleandoc(check.__doc__ or ""), also)
        return check

    return register


def load_rules() -> dict[str, Rule]:
    """All rules by id."""
    for name in MODULES:
        importlib.import_module(f"kilter.diagnose.rules.{name}")
    return RULES


def show(value: object) -> str:
    """A fact as evidence prints it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)


class Context:
    """What a rule sees beside its subject."""

    def __init__(self, rule: Rule, case: Case, snapshot: Snapshot | None, subject: Subject) -> None:
        self.rule, self.case, self._snapshot, self.subject = rule, case, snapshot, subject
        self._reads: list[tuple[Entity, str]] = []

    @property
    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            raise FactMissing(str(self.subject), "snapshot of the node", Missing(Reason.NOT_COLLECTED))
        return self._snapshot

    @property
    def node(self) -> str:
        return self.subject.node

    def need(self, entity: Entity, field: T | None) -> T:
        """The value of ``Class.field`` on ``entity``; without one the rule ends here.

        Called as ``ctx.need(gpu, Accelerator.remap_failure)``: on the class, a field is its descriptor, which carries the name, while
        type checkers see the field's type.
        """
        name: str = field.__name__  # type: ignore[union-attr]  # a msgspec member descriptor at run time
        value: T | None = getattr(entity, name)
        if value is None:
            missing = entity.missing.get(name) or Missing(Reason.NOT_COLLECTED, "", self.rule.hint)
            raise FactMissing(str(self.subject), name, missing)
        self._reads.append((entity, name))
        return value

    def known(self, entity: Entity, field: T | None) -> T | None:
        """As :meth:`need`, but ``None`` is an answer."""
        name: str = field.__name__  # type: ignore[union-attr]  # a msgspec member descriptor at run time
        value: T | None = getattr(entity, name)
        if value is not None:
            self._reads.append((entity, name))
        return value

    def skip(self, why: str) -> NotApplicable:
        """``raise ctx.skip("no ECC on this card")``: the check has no meaning here."""
        return NotApplicable(why)

    def missing(self, what: str, hint: str = "") -> FactMissing:
        """``raise ctx.missing("kernel log")``: the check cannot be made for want of ``what``."""
        return FactMissing(str(self.subject), what, Missing(Reason.NOT_COLLECTED, "", hint or self.rule.hint))

    def where(self, entity: Entity, field: str = "") -> str:
        if isinstance(entity, NcclJob):
            ref = entity.ref(field)
            return f"{entity.source}:{ref[1]}" if ref else entity.source
        return self._snapshot.where(entity.ref(field)) if self._snapshot is not None else self.case.where(entity.ref(field))

    def fact(self, entity: Entity, name: str, role: str = "supports") -> Evidence:
        """A fact as a line of evidence."""
        return Evidence(f"{name} = {show(getattr(entity, name))}", self.where(entity, name), role)

    def finding(
        self,
        severity: str,
        what: str,
        *,
        id: str = "",
        subject: Subject | None = None,
        causes: Iterable[Cause | str] = (),
        evidence: Iterable[Evidence | Event] = (),
        contradicts: Iterable[str] = (),
        missing: Iterable[str] = (),
        action: str = "",
        sop: str | None = None,
        confidence: str = "high",
        next_test: str = "",
        sources: Iterable[str] = (),
        disagreement: str = "",
        reads: bool = True,
    ) -> Finding:
        """A finding of this rule. The facts that were asked for are added as evidence unless ``reads`` is false."""
        assert self.rule.gives(id or self.rule.id), f"{self.rule.id} does not declare {id}"
        lines: list[Evidence] = []
        events: list[Event] = []
        for item in evidence:
            if isinstance(item, Event):
                events.append(item)
                lines.append(_event_line(item))
            else:
                lines.append(item)
        if reads:
            seen: set[tuple[int, str]] = set()
            for entity, name in self._reads:
                if (id_ := (builtin_id(entity), name)) not in seen:
                    seen.add(id_)
                    lines.append(self.fact(entity, name))
        if len(lines) > MAX_EVIDENCE:
            lines = [*lines[:MAX_EVIDENCE], Evidence(f"... and {len(lines) - MAX_EVIDENCE} more lines")]
        lines += [Evidence(text, role="contradicts") for text in contradicts]
        lines += [Evidence(text, role="missing") for text in missing]
        times = [t for e in events for t in (e.time, e.last_time) if t is not None]
        return Finding(
            id=id or self.rule.id,
            severity=Severity(severity),
            subject=subject or self.subject,
            what=what,
            confidence=confidence,
            evidence=lines,
            causes=[cause if isinstance(cause, Cause) else Cause(cause) for cause in causes],
            action=action or self.rule.action,
            sop=self.rule.sop if sop is None else sop,
            next_test=next_test,
            sources=[*self.rule.sources, *sources],
            disagreement=disagreement,
            count=max(1, sum(e.count for e in events)),
            first_time=min(times, default=None),
            last_time=max(times, default=None),
            time_note=_time_note(events),
        )


def _time_note(events: list[Event]) -> str:
    timed = [e for e in events if e.time is not None]
    notes = []
    if any(e.clock is Clock.BOOT for e in timed):
        notes.append("seconds since boot")
    if any(e.clock is Clock.LOCAL for e in timed):
        notes.append("local time")
    if any(e.fields.get("year") == "assumed" for e in timed):
        notes.append("year assumed")
    return ", ".join(notes)


def _event_line(event: Event) -> Evidence:
    times = f" (x{event.count})" if event.count > 1 else ""
    return Evidence(f"{event.text}{times}", event.where)


class NodeEvents(NamedTuple):
    """The events of one node, and what else is known of it."""

    node: str
    events: list[Event]
    snapshot: Snapshot | None

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def gpu_name(self, address: str) -> str:
        """``GPU4 0000:9b:00.0`` when the index is known, from the snapshot or from a line that says it."""
        for accelerator in (self.snapshot.accelerators if self.snapshot else None) or []:
            if accelerator.pci_address == address:
                return accelerator.label
        for event in self.events:
            if event.device == address and "gpu_index" in event.fields:
                return f"GPU{event.fields['gpu_index']} {address}"
        return f"GPU {address}" if address else "GPU (not named)"


Subjects = Iterator[tuple[object, Snapshot | None, Subject]]


def _nodes(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        yield snapshot, snapshot, Subject("node", "", snapshot.node)


def _gpus(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        for accelerator in snapshot.accelerators or []:
            yield accelerator, snapshot, Subject("gpu", accelerator.label, snapshot.node)


def _pci(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        for device in (snapshot.pci or {}).values():
            yield device, snapshot, Subject("pci", device.address, snapshot.node)


def _ports(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        for device in snapshot.rdma or []:
            for port in device.ports:
                name = device.name if len(device.ports) == 1 else f"{device.name}/{port.number}"
                yield (device, port), snapshot, Subject("port", name, snapshot.node)


def _interfaces(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        for interface in snapshot.nics or []:
            yield interface, snapshot, Subject("interface", interface.name or "interface (not named)", snapshot.node)


def _logs(case: Case) -> Subjects:
    by_node: dict[str, list[Event]] = {node: [] for node in case.kernel_logs}
    for event in case.events:
        if not event.kind.startswith(JOB_KINDS):
            by_node.setdefault(event.node, [])
    for event in case.events:
        if event.node in by_node:
            by_node[event.node].append(event)
    snapshots: dict[str, Snapshot] = {}
    for snapshot in case.snapshots:
        snapshots.setdefault(snapshot.node, snapshot)
    for node in sorted(by_node):
        found = snapshots.get(node)
        yield NodeEvents(node, by_node[node], found), found, Subject("node", "", node)


def _jobs(case: Case) -> Subjects:
    for job in case.jobs:
        yield job, None, Subject("job", job.source, "")


def _fabric_nodes(case: Case) -> Subjects:
    for node in fabric_of(case):
        yield whole_node(node), None, Subject("fabric", node.label)


def _fabric_ports(case: Case) -> Subjects:
    for node in case.fabric or []:
        for port in node.ports:
            yield (node, port), None, Subject("fabric_port", f"{node.name or node.guid} port {port.number}")


def _cluster_nodes(case: Case) -> Subjects:
    for node in case.cluster_nodes or []:
        yield node, None, Subject("cluster_node", "", node.name)


def _cluster_jobs(case: Case) -> Subjects:
    for job in case.cluster_jobs or []:
        yield job, None, Subject("cluster_job", f"job {job.id}" if job.scheduler == "slurm" else f"pod {job.id}")


def _diagnostics(case: Case) -> Subjects:
    for snapshot in case.snapshots:
        for test in snapshot.diagnostics or []:
            yield test, snapshot, Subject("diagnostic", f"{test.name} {test.device}".strip(), snapshot.node)


def _whole(case: Case) -> Subjects:
    yield case, None, Subject("case")


#: scope -> (its subjects, why there may be none, command that would give some, whether the case says that there are none)
SCOPES: dict[str, tuple[Callable[[Case], Subjects], str, str, Callable[[Case], bool]]] = {
    "node": (_nodes, "no facts of a node were given", "kilter snapshot", lambda case: False),
    "gpu": (_gpus, "no output of the GPU driver's tool was given", "nvidia-smi -q", lambda case: _all(case, "accelerators")),
    "pci": (_pci, "no PCI listing was given", "lspci -vvv (as root)", lambda case: _all(case, "pci")),
    "port": (_ports, "no RDMA port was given", "ibstat, or grep -r . /sys/class/infiniband", lambda case: _all(case, "rdma")),
    "interface": (_interfaces, "no network interface was given", "ethtool -S <interface>", lambda case: _all(case, "nics")),
    "log": (_logs, "no kernel log was given", "dmesg -T, or journalctl -k -o short-iso", lambda case: False),
    "fabric": (_fabric_nodes, "no fabric listing was given", "ibnetdiscover; perfquery -x", lambda case: case.fabric == []),
    "fabric_port": (_fabric_ports, "no fabric listing was given", "ibnetdiscover; perfquery -x", lambda case: case.fabric == []),
    "cluster_node": (
        _cluster_nodes,
        "no scheduler output was given",
        "sinfo; scontrol show node; kubectl describe node",
        lambda case: case.cluster_nodes == [],
    ),
    "cluster_job": (
        _cluster_jobs,
        "no scheduler output was given",
        "squeue; kubectl describe pod",
        lambda case: case.cluster_jobs == [],
    ),
    "diagnostic": (_diagnostics, "no vendor diagnostic was given", "dcgmi diag -r 2", lambda case: False),
    "case": (_whole, "", "", lambda case: False),
    "job": (_jobs, "no NCCL log was given", "run the job with NCCL_DEBUG=INFO", lambda case: False),
}


def _all(case: Case, field: str) -> bool:
    """Whether every snapshot says that it has none of ``field``."""
    return bool(case.snapshots) and all(getattr(snapshot, field) in ([], {}) for snapshot in case.snapshots)


def _results(outcome: object) -> Iterator[Finding]:
    if outcome is None:
        return
    if isinstance(outcome, Finding):
        yield outcome
    elif isinstance(outcome, Iterable):
        for item in outcome:
            if isinstance(item, Finding):
                yield item


Rows = list[tuple[object, "Snapshot | None", Subject]]


def run_rule(one: Rule, case: Case, rows: Rows | None = None) -> tuple[list[Finding], Check]:
    """One rule over a case. ``rows``: the subjects of its scope, where they are known already."""
    check = Check(rule=one.id, title=one.title, family=one.family)
    subjects, why, hint, is_absent = SCOPES[one.scope]
    rows = list(subjects(case)) if rows is None else rows
    findings: list[Finding] = []
    for subject, snapshot, name in rows:
        context = Context(one, case, snapshot, name)
        found: list[Finding] = []
        try:
            found.extend(_results(one.check(subject, context)))
        except FactMissing as error:
            if not found:
                check.not_checked += 1
                _note(check, error, one.hint or hint)
                continue
        except NotApplicable:
            if not found:
                check.not_applicable += 1
                continue
        if found:
            check.findings += len(found)
            findings += found
        else:
            check.ok += 1
    if not rows:
        if is_absent(case):
            check.not_applicable += 1
        else:
            check.not_checked += 1
            check.reasons.append(why)
            check.hints.append(one.hint or hint)
    return findings, check


def _note(check: Check, error: FactMissing, hint: str) -> None:
    if len(check.reasons) < MAX_REASONS:
        text = f"{error.subject}: {error.field} {error.missing.reason.value}"
        if error.missing.detail:
            text += f" ({error.missing.detail})"
        if text not in check.reasons:
            check.reasons.append(text)
    hint = error.missing.hint or hint
    if hint and hint not in check.hints:
        check.hints.append(hint)


#: Read first, whatever else there is.
FIRST = "incident.first_cause"


def _key(finding: Finding) -> tuple[str, Subject]:
    return finding.id, finding.subject


def _join(findings: list[Finding]) -> list[Finding]:
    """One finding an id and subject; two snapshots of a node may both show it."""
    joined: dict[tuple[str, Subject], Finding] = {}
    for finding in findings:
        known = joined.get(_key(finding))
        if known is None:
            joined[_key(finding)] = finding
            continue
        if finding.severity.rank > known.severity.rank:
            known, finding = finding, known
            joined[_key(known)] = known
        texts = {(e.text, e.where) for e in known.evidence}
        room = MAX_EVIDENCE - len(known.evidence)
        known.evidence += [e for e in finding.evidence if (e.text, e.where) not in texts][: max(room, 0)]
    return sorted(joined.values(), key=lambda f: (f.id != FIRST, -f.severity.rank, f.id, f.subject.node, f.subject.name))


#: Signs of one loss: the first that is present on a device explains the others on it.
_SAME_LOSS = ("gpu.xid.79", "gpu.lost", "pcie.device_config_space_ff", "gpu.count_mismatch", "gpu.init_failed")


def _relate(findings: list[Finding]) -> None:
    """Mark findings that are signs of another one on the same device, so that one lost GPU reads as one trouble."""
    without_power = {f.subject.node for f in findings if f.id == "power.psu_failed" and f.severity is not Severity.INFO}
    for finding in findings:
        if finding.id == "gpu.throttle.power_brake" and finding.subject.node in without_power:
            finding.explained_by = "power.psu_failed"
    roots: dict[tuple[str, str], str] = {}
    for id_ in _SAME_LOSS:
        for finding in findings:
            if finding.id != id_:
                continue
            for address in re.findall(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", f"{finding.subject.name} {finding.what}"):
                root = roots.setdefault((finding.subject.node, address), id_)
                if root != id_:
                    finding.explained_by = root


def diagnose(case: Case) -> Diagnosis:
    """Run every rule over ``case``."""
    findings: list[Finding] = []
    checks: list[Check] = []
    rows: dict[str, Rows] = {}
    for one in load_rules().values():
        if one.scope not in rows:
            rows[one.scope] = list(SCOPES[one.scope][0](case))
        found, check = run_rule(one, case, rows[one.scope])
        findings += found
        checks.append(check)
    joined = _join(findings)
    _relate(joined)
    return Diagnosis(findings=joined, checks=checks)


def gpus_of(snapshot: Snapshot) -> list[Accelerator]:
    """The accelerators that answer; lost ones have an ``error``."""
    return [a for a in snapshot.accelerators or [] if a.error is None]
