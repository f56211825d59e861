"""Rules over a case: how a check asks for facts, what becomes of it, and how findings get their evidence.

A rule is a function of one subject (a GPU, a port, a log, ...). It asks for facts with :meth:`Context.need`; a missing one ends the rule for
that subject and becomes a line of the coverage report, so that nothing unknown passes for healthy. Every fact it asked for is evidence of
what it finds. ``@rule`` registers it; its docstring is what ``kilter explain <id>`` prints.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from kilter.diagnose.fabric_links import fabric_of, whole_node
from kilter.diagnose.fleet.profile import Profile, Profiler, latest
from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Entity, Missing, Reason
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Clock, Event, count_of
from kilter.facts.finding import Cause, Check, Diagnosis, Evidence, Finding, Severity, Subject
from kilter.facts.nccl import NcclJob
from kilter.intake.stored import node_names

T = TypeVar("T")
C = TypeVar("C", bound="Callable[..., Finding | Iterable[Finding] | None]")
builtin_id = id  # rules name their keyword ``id`` after what it is

MAX_EVIDENCE = 12
MAX_REASONS = 8


class FactMissing(Exception):
    """A rule needs a fact that is not known."""

    def __init__(self, subject: Subject, field: str, missing: Missing) -> None:
        self.subject, self.field, self.missing = subject, field, missing

    def __str__(self) -> str:
        detail = f" ({self.missing.detail})" if self.missing.detail else ""
        return f"{self.subject}: {self.field} {self.missing.reason.value}{detail}"


class NotApplicable(Exception):
    """The check has no meaning for this subject."""


class Rule(NamedTuple):
    id: str  # of its findings; "gpu.xid.*" where the last part depends on the case
    title: str
    family: str
    scope: str
    check: Callable[..., Finding | Iterable[Finding] | None]
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
    *(
        "gpu",
        "memory",
        "xid",
        "pcie",
        "nvlink",
        "thermal",
        "kernel",
        "host_log",
        "rdma",
        "net",
        "nccl",
        "host",
        "siblings",
        "incident",
    ),
    *("fabric", "fabric_state", "ib_switch", "roce", "slurm", "slurm_jobs", "kubernetes", "container", "bmc", "dcgm", "metrics"),
    *("nccl_topology", "gpudirect", "imex", "job", "job_errors", "job_process", "bench_sanity", "bench_peers", "steps", "fleet"),
    *("congestion", "facility", "host_cpus", "host_state", "power_cap", "serving"),
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
) -> Callable[[C], C]:
    """Register a check. ``scope`` is one of :data:`SCOPES`; ``also`` names every further id that its findings may have."""

    def register(check: C) -> C:
        if id in RULES:
            raise ValueError(f"two rules named {id}")
        RULES[id] = Rule(id, title, family, scope, check, sop, sources, action, hint, inspect.cleandoc(check.__doc__ or ""), also)
        return check

    return register


#: Functions whose results rules over many nodes want; each is called once a snapshot, so that nobody has to read all of them again.
_GATHERERS: list[Callable[[Snapshot], object]] = []


def gather(function: Callable[[Snapshot], T | None]) -> Callable[[Snapshot], T | None]:
    """Keep what ``function`` says of each snapshot, None excepted, for :meth:`Context.gathered`. It should be little."""
    _GATHERERS.append(function)
    return function


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


@functools.lru_cache(maxsize=1024)
def _not_collected(hint: str) -> Missing:
    return Missing(Reason.NOT_COLLECTED, "", hint)


class Context:
    """What a rule sees beside its subject."""

    __slots__ = ("_reads", "_run", "_snapshot", "case", "rule", "subject")

    def __init__(self, rule: Rule, run: Run, snapshot: Snapshot | None, subject: Subject) -> None:
        self.rule, self.case, self._run, self._snapshot, self.subject = rule, run.case, run, snapshot, subject
        self._reads: list[tuple[Entity, str]] = []

    @property
    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            raise FactMissing(self.subject, "snapshot of the node", Missing(Reason.NOT_COLLECTED))
        return self._snapshot

    @property
    def node(self) -> str:
        return self.subject.node

    @property
    def nodes(self) -> frozenset[str]:
        """Names of the nodes that have a snapshot."""
        return self._run.nodes

    def gathered(self, function: Callable[[Snapshot], T | None]) -> list[tuple[Profile, T]]:
        """What a function marked with :func:`gather` said of the latest snapshot of every node; for rules of scope "case"."""
        latest_ = {profile.position for profile in latest(self._run.profiles)}
        found = self._run.gathered.get(function, [])
        return [(profile, value) for profile, value in found if profile.position in latest_]  # type: ignore[misc]  # of that function

    @property
    def profiles(self) -> list[Profile]:
        """What every snapshot of the case brings to a comparison; whole for rules of scope "case"."""
        return self._run.profiles

    def need(self, entity: Entity, field: T | None) -> T:
        """The value of ``Class.field`` on ``entity``; without one the rule ends here.

        Called as ``ctx.need(gpu, Accelerator.remap_failure)``: on the class, a field is its descriptor, which carries the name, while
        type checkers see the field's type.
        """
        name: str = field.__name__  # type: ignore[union-attr]  # a msgspec member descriptor at run time
        value: T | None = getattr(entity, name)
        if value is None:
            missing = entity.missing.get(name) or _not_collected(self.rule.hint)
            raise FactMissing(self.subject, name, missing)
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
        return FactMissing(self.subject, what, _not_collected(hint or self.rule.hint))

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
            causes=_ranked([cause if isinstance(cause, Cause) else Cause(cause) for cause in causes]),
            action=action or self.rule.action,
            sop=self.rule.sop if sop is None else sop,
            next_test=next_test,
            sources=[*self.rule.sources, *sources],
            disagreement=disagreement,
            count=max(1, count_of(events)),
            first_time=min(times, default=None),
            last_time=max(times, default=None),
            time_note=_time_note(events),
        )


def times(events: Iterable[Event]) -> str:
    """`` (12 times)`` behind what happened more than once, else nothing."""
    count = count_of(events)
    return f" ({count} times)" if count > 1 else ""


_LIKELIHOODS = ("likely", "possible", "unlikely")


def _ranked(causes: list[Cause]) -> list[Cause]:
    """The likeliest first; the rule's own order where likelihoods are equal, or not told of all."""
    if any(cause.likelihood not in _LIKELIHOODS for cause in causes):
        return causes
    return sorted(causes, key=lambda cause: _LIKELIHOODS.index(cause.likelihood))


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
    drivers: Mapping[str, str] = {}  # of all nodes of the case

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


#: Subject of a rule's check, and what findings call it.
Subjects = Iterator[tuple[object, Subject]]


def _node(snapshot: Snapshot) -> Subjects:
    yield snapshot, Subject("node", "", snapshot.node)


def _gpus(snapshot: Snapshot) -> Subjects:
    for accelerator in snapshot.accelerators or []:
        yield accelerator, Subject("gpu", accelerator.label, snapshot.node)


def _pci(snapshot: Snapshot) -> Subjects:
    for device in (snapshot.pci or {}).values():
        yield device, Subject("pci", device.address, snapshot.node)


def _ports(snapshot: Snapshot) -> Subjects:
    for device in snapshot.rdma or []:
        for port in device.ports:
            name = device.name if len(device.ports) == 1 else f"{device.name}/{port.number}"
            yield (device, port), Subject("port", name, snapshot.node)


def _interfaces(snapshot: Snapshot) -> Subjects:
    for interface in snapshot.nics or []:
        yield interface, Subject("interface", interface.name or "interface (not named)", snapshot.node)


def _diagnostics(snapshot: Snapshot) -> Subjects:
    for test in snapshot.diagnostics or []:
        yield test, Subject("diagnostic", f"{test.name} {test.device}".strip(), snapshot.node)


#: Kinds of events that are in no kernel log: they do not show that one was given.
NOT_KERNEL_KINDS = ("bmc", "fabric_manager.")


def _log_scopes(log: NodeEvents, case: Case) -> Iterator[str]:
    """What the logs of a node are. The BMC's word or Fabric Manager's log alone says nothing of XIDs; both tell of NVSwitches."""
    yield "bmc"
    is_kernel = log.node in case.kernel_logs or any(not e.kind.startswith(NOT_KERNEL_KINDS) for e in log.events)
    if is_kernel:
        yield "log"
    tools = {source.tool for source in log.snapshot.sources} if log.snapshot is not None else set()
    if is_kernel or "Fabric Manager log" in tools or any(e.kind.startswith("fabric_manager.") for e in log.events):
        yield "switch_log"


def _logs(case: Case) -> Iterator[tuple[str, list[Event]]]:
    """(node, its events) of every node with a log of its own."""
    by_node: dict[str, list[Event]] = {node: [] for node in case.kernel_logs}
    for event in case.events:
        if not event.kind.startswith(JOB_KINDS):
            by_node.setdefault(event.node, [])
    for event in case.events:
        if event.node in by_node:
            by_node[event.node].append(event)
    yield from sorted(by_node.items())


def _jobs(case: Case) -> Subjects:
    for job in case.jobs:
        yield job, Subject("job", job.source, "")


def _fabric_nodes(case: Case) -> Subjects:
    for node in fabric_of(case):
        yield whole_node(node), Subject("fabric", node.label)


def _fabric_ports(case: Case) -> Subjects:
    for node in case.fabric or []:
        for port in node.ports:
            yield (node, port), Subject("fabric_port", f"{node.name or node.guid} port {port.number}")


def _cluster_nodes(case: Case) -> Subjects:
    for node in case.cluster_nodes or []:
        yield node, Subject("cluster_node", "", node.name)


def _cluster_jobs(case: Case) -> Subjects:
    for job in case.cluster_jobs or []:
        yield job, Subject("cluster_job", f"job {job.id}" if job.scheduler == "slurm" else f"pod {job.id}")


def _whole(case: Case) -> Subjects:
    yield case, Subject("case")


class Scope(NamedTuple):
    """What rules look at: why there may be none of it, the command that shows some, and the field that says there is none."""

    why: str
    hint: str
    field: str = ""


SCOPES = {
    "node": Scope("no facts of a node were given", "kilter snapshot"),
    "gpu": Scope("no output of the GPU driver's tool was given", "nvidia-smi -q", "accelerators"),
    "pci": Scope("no PCI listing was given", "lspci -vvv (as root)", "pci"),
    "port": Scope("no RDMA port was given", "ibstat, or grep -r . /sys/class/infiniband", "rdma"),
    "interface": Scope("no network interface was given", "ethtool -S <interface>", "nics"),
    "diagnostic": Scope("no vendor diagnostic was given", "dcgmi diag -r 2"),
    "log": Scope("no kernel log was given", "dmesg -T, or journalctl -k -o short-iso"),
    "bmc": Scope("no event log of a BMC was given", "ipmitool sel elist; ipmitool sdr elist"),
    "switch_log": Scope("no kernel log or log of Fabric Manager was given", "dmesg -T; /var/log/fabricmanager.log"),
    "fabric": Scope("no fabric listing was given", "ibnetdiscover; perfquery -x", "fabric"),
    "fabric_port": Scope("no fabric listing was given", "ibnetdiscover; perfquery -x", "fabric"),
    "cluster_node": Scope("no scheduler output was given", "sinfo; scontrol show node; kubectl describe node", "cluster_nodes"),
    "cluster_job": Scope("no scheduler output was given", "squeue; kubectl describe pod", "cluster_jobs"),
    "case": Scope("", ""),
    "job": Scope("no NCCL log was given", "run the job with NCCL_DEBUG=INFO"),
}
_OF_SNAPSHOT: dict[str, Callable[[Snapshot], Subjects]] = {
    "node": _node,
    "gpu": _gpus,
    "pci": _pci,
    "port": _ports,
    "interface": _interfaces,
    "diagnostic": _diagnostics,
}
_OF_CASE: dict[str, Callable[[Case], Subjects]] = {
    "job": _jobs,
    "fabric": _fabric_nodes,
    "fabric_port": _fabric_ports,
    "cluster_node": _cluster_nodes,
    "cluster_job": _cluster_jobs,
    "case": _whole,
}


class _Asked(NamedTuple):
    """A rule, and what came of it so far."""

    rule: Rule
    check: Check
    findings: list[Finding]


class Run:
    """Rules over one case. Snapshots are looked at one after the other, and only their profiles are kept."""

    def __init__(self, case: Case, rules: Iterable[Rule]) -> None:
        self.case = case
        self.nodes = frozenset(node_names(case.snapshots))
        self.profiles: list[Profile] = []
        self.gathered: dict[Callable[[Snapshot], object], list[tuple[Profile, object]]] = {}
        self._asked = [_Asked(one, Check(rule=one.id, title=one.title, family=one.family), []) for one in rules]
        self._scopes: dict[str, list[_Asked]] = {}
        for asked in self._asked:
            self._scopes.setdefault(asked.rule.scope, []).append(asked)
        self._seen: set[str] = set()  # scopes with a subject
        self._absent = dict.fromkeys(("accelerators", "pci", "rdma", "nics"), bool(case.snapshots))
        self._snapshots()
        self._logs()
        for scope, subjects in _OF_CASE.items():
            if scope in self._scopes:
                self._judge(scope, subjects(case), None)
        self._without_subject()

    @property
    def findings(self) -> list[Finding]:
        return [finding for asked in self._asked for finding in asked.findings]

    @property
    def checks(self) -> list[Check]:
        return [asked.check for asked in self._asked]

    def _snapshots(self) -> None:
        profiler = Profiler()
        scopes = [(scope, subjects) for scope, subjects in _OF_SNAPSHOT.items() if scope in self._scopes]
        for index, snapshot in enumerate(self.case.snapshots):
            profile = profiler.of(snapshot, index)
            self.profiles.append(profile)
            for function in _GATHERERS:
                if (value := function(snapshot)) is not None:
                    self.gathered.setdefault(function, []).append((profile, value))
            for field in self._absent:
                if getattr(snapshot, field) not in ([], {}):
                    self._absent[field] = False
            for scope, subjects in scopes:
                self._judge(scope, subjects(snapshot), snapshot)

    def _logs(self) -> None:
        first: dict[str, int] = {}
        drivers: dict[str, str] = {}
        for profile in self.profiles:
            first.setdefault(profile.node, profile.position)
            if version := dict(profile.attributes).get("driver"):
                drivers[profile.node] = version
        for node, events in _logs(self.case):
            snapshot = self.case.snapshots[first[node]] if node in first else None
            log = NodeEvents(node, events, snapshot, drivers)
            for scope in _log_scopes(log, self.case):
                if scope in self._scopes:
                    self._judge(scope, iter([(log, Subject("node", "", node))]), snapshot)

    def _judge(self, scope: str, subjects: Subjects, snapshot: Snapshot | None) -> None:
        """All rules of ``scope`` on each subject."""
        rules, usual = self._scopes[scope], SCOPES[scope].hint
        for subject, name in subjects:
            self._seen.add(scope)
            for one, check, findings in rules:
                before = len(findings)
                try:
                    outcome = one.check(subject, Context(one, self, snapshot, name))
                    if outcome is None:
                        check.ok += 1
                        continue
                    if isinstance(outcome, Finding):
                        findings.append(outcome)
                    else:
                        findings.extend(outcome)
                except FactMissing as error:
                    if len(findings) == before:
                        check.not_checked += 1
                        _note(check, error, one.hint or usual)
                        continue
                except NotApplicable:
                    if len(findings) == before:
                        check.not_applicable += 1
                        continue
                except Exception as error:  # a rule's bug must cost one check of one subject, not the report
                    _failed(check, name, error)
                    if len(findings) == before:
                        check.not_checked += 1
                        continue
                if len(findings) > before:
                    check.findings += len(findings) - before
                else:
                    check.ok += 1

    def _without_subject(self) -> None:
        for scope, rules in self._scopes.items():
            if scope in self._seen:
                continue
            why, hint, field = SCOPES[scope]
            is_absent = self._absent[field] if field in self._absent else bool(field) and getattr(self.case, field) == []
            for one, check, _ in rules:
                if is_absent:
                    check.not_applicable += 1
                else:
                    check.not_checked += 1
                    check.reasons.append(why)
                    check.hints.append(one.hint or hint)


def _note(check: Check, error: FactMissing, hint: str) -> None:
    if len(check.reasons) < MAX_REASONS and (text := str(error)) not in check.reasons:
        check.reasons.append(text)
    hint = error.missing.hint or hint
    if hint and hint not in check.hints:
        check.hints.append(hint)


def _failed(check: Check, subject: Subject, error: Exception) -> None:
    if len(check.failures) < MAX_REASONS:
        text = f"{subject}: {type(error).__name__}: {error}"[:300]
        check.failures.append(text)
        check.reasons.append(f"the check failed itself, please report this: {text}")


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
_SAME_LOSS = (
    "gpu.xid.79",
    "gpu.lost",
    "pcie.device_config_space_ff",
    "gpu.count_mismatch",
    "gpu.init_failed",
    "pcie.device_inaccessible",
)


def _relate(findings: list[Finding]) -> None:
    """Mark findings that are signs of another one on the same device, so that one lost GPU reads as one trouble."""
    without_power = {f.subject.node for f in findings if f.id == "power.psu_failed" and f.severity is not Severity.INFO}
    for finding in findings:
        if finding.id == "gpu.throttle.power_brake" and finding.subject.node in without_power:
            finding.explained_by = "power.psu_failed"
        elif finding.id == "gpu.throttle.power_brake" and any(f.id == "facility.power" for f in findings):
            finding.explained_by = "facility.power"
    hot = any(f.id == "facility.cooling" for f in findings)
    for finding in findings:
        if hot and finding.id == "gpu.throttle.thermal" and finding.causes and "all GPUs of the node" in finding.causes[0].text:
            finding.explained_by = "facility.cooling"
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
    run = Run(case, load_rules().values())
    joined = _join(run.findings)
    _relate(joined)
    return Diagnosis(findings=joined, checks=run.checks, nodes=[profile.summary for profile in run.profiles])


def gpus_of(snapshot: Snapshot) -> list[Accelerator]:
    """The accelerators that answer; lost ones have an ``error``."""
    return [a for a in snapshot.accelerators or [] if a.error is None]
