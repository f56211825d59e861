"""Facts and a workload become advice: for every parameter one of recommend, already, not applicable, ask, refuse or conflict.

The decisions stand in ``knowledge/tables/decisions.yaml``. A parameter that is not there follows the policy of its class: what exists for
diagnosis only, or exists no more, is to be taken away where it is set; everything else is left at its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Evidence
from kilter.facts.plan import Advice, Change, Cost, Plan, Verdict
from kilter.facts.workload import Workload
from kilter.knowledge import tunables
from kilter.knowledge.decisions import Decision, Rule, Write, classes, decisions
from kilter.tune.expression import Use, condition
from kilter.tune.view import ABSENT, FACTS, View, devices, job, vocabulary
from kilter.tune.view.asked import TOLD

#: What "needs" of tunables.yaml costs; the first word that is found decides.
_COSTS: tuple[tuple[str, Cost], ...] = (
    (r"firmware|BIOS|service visit|redeploy", Cost.FIRMWARE),
    (r"reboot|kernel change|GPU reset", Cost.REBOOT),
    (r"driver|module load", Cost.DRIVER),
    (r"process restart|engine restart|container restart", Cost.JOB),
    (r"service|re-login|logind|runtime restart|kubelet|remount|reset|flap|reconfig|trigger", Cost.SERVICE),
    (r"none", Cost.RUNTIME),
)
#: What a mechanism costs at least, whatever the entry says.
_MECHANISM_COST = {
    "cmdline": Cost.REBOOT,
    "modprobe": Cost.DRIVER,
    "env": Cost.JOB,
    "nccl_conf": Cost.JOB,
    "sysctl": Cost.RUNTIME,
    "sysfs": Cost.RUNTIME,
    "pci": Cost.RUNTIME,
    "irq": Cost.RUNTIME,
    "ethtool": Cost.RUNTIME,
    "nvidia": Cost.RUNTIME,
    "unit": Cost.SERVICE,
    "dropin": Cost.SERVICE,
    "limits": Cost.SERVICE,
    "udev": Cost.SERVICE,
}
#: Lists that ``each`` of a decision may name.
_LISTS: dict[str, Callable[[View], list[str]]] = {"acs_bridges": devices.acs_bridges, "low_mrrs_nics": devices.low_mrrs_nics}

#: Class -> (refuse it?, why) for parameters without a decision of their own, where they are set.
POLICY: dict[str, tuple[bool, int, str]] = {
    "removed": (True, 1, "NCCL does not read it any more."),
    "unknown": (True, 1, "NCCL has no such variable."),
    "renamed": (True, 1, "The name has changed."),
    "dangerous": (True, 3, "It can spoil results."),
    "deprecated": (False, 1, "It is deprecated."),
    "debug": (False, 1, "A setting for diagnosis."),
    "debug_in_practice": (False, 1, "A setting for diagnosis: it forces one choice on all sizes and operations."),
}


def title(id_: str) -> str:
    """A parameter's name as people say it: the last part, or both for short ones."""
    decision = decisions().get(id_)
    if decision is not None and decision.title:
        return decision.title
    head, _, rest = id_.partition(".")
    return rest if head in ("nccl", "net", "fw") else id_


def cost(needs: str) -> Cost:
    return next((found for pattern, found in _COSTS if re.search(pattern, needs)), Cost.SERVICE)


def plan(case: Case, snapshot: Snapshot, workload: Workload | None = None) -> Plan:
    """Advice about every parameter for one node, what matters most first."""
    view = View(case, snapshot, workload)
    advice = [advise(id_, view) for id_ in tunables.names()]
    advice = _after_what_comes_first(sorted(advice, key=_order))
    said = {a.id: a for a in advice if a.verdict is Verdict.RECOMMEND}
    for one in said.values():
        one.conflicts_with = [other for other in one.conflicts_with if other in said]
    return Plan(node=snapshot.node, workload=_in_words(view.workload), advice=advice)


_VERDICTS = {verdict: n for n, verdict in enumerate(Verdict)}


def _order(advice: Advice) -> tuple[int, int, int, str]:
    urgent = 0 if advice.verdict in (Verdict.RECOMMEND, Verdict.CONFLICT, Verdict.REFUSE) else 1 + _VERDICTS[advice.verdict]
    return urgent, -advice.gain, advice.cost.rank, advice.id


def _after_what_comes_first(advice: list[Advice]) -> list[Advice]:
    """The same order, but nothing before what has to be done first, as far as that is to be done at all."""
    waiting = {one.id for one in advice if one.verdict in (Verdict.RECOMMEND, Verdict.CONFLICT, Verdict.REFUSE)}
    ordered: list[Advice] = []
    left = list(advice)
    while left:
        index = next((n for n, one in enumerate(left) if not waiting.intersection(one.after)), 0)
        one = left.pop(index)
        waiting.discard(one.id)
        ordered.append(one)
    return ordered


def _in_words(workload: Workload) -> str:
    parts = [workload.kind, workload.framework, workload.model.name if workload.model else None]
    layout = workload.layout
    parts += [f"{name.upper()}={value}" for name in ("tp", "pp", "cp", "ep", "dp") if (value := getattr(layout, name))]
    return ", ".join(str(p) for p in parts if p)


def advise(id_: str, view: View) -> Advice:
    """What to do about one parameter. ``id_`` is one of :func:`kilter.knowledge.tunables.names`."""
    decision = decisions().get(id_)
    if decision is None:
        return _by_class(id_, view)
    falsified: list[Use] = []
    open_: tuple[Rule, tuple[Use, ...]] | None = None
    for rule in decision.rules:
        answer = condition(rule.when, vocabulary()).answer(view)
        if answer.truth is False:
            if (right := _right_already(decision, rule, answer.uses, view)) is not None:
                return right
            falsified += [use for use in answer.uses if use not in falsified]
        elif answer.truth is None:
            if not rule.leave and open_ is None:
                open_ = rule, answer.uses
        elif open_ is None or (rule.set, rule.unset) == (open_[0].set, open_[0].unset) != (None, False):
            return _decided(decision, rule, answer.uses, view)
        else:
            break
    if open_ is not None:
        return _asked(decision, *open_, view)
    return _not_applicable(id_, _reason(falsified, view) or _only_when(id_))


def _base(id_: str, verdict: Verdict) -> Advice:
    return Advice(id=id_, verdict=verdict, title=title(id_))


def _only_when(id_: str) -> str:
    entry = tunables.lookup(id_)
    return f"leave the default; of use only where: {entry.recommended_when}" if entry is not None else ""


def _reason(uses: Iterable[Use], view: View) -> str:
    """Why no rule applies, in facts: the first few that said no, and what would have to be seen."""
    said, told = [], []
    for use in uses:
        if use.name.startswith(TOLD):
            told.append(FACTS[use.name].doc)
            continue
        value = view.value(use.name, use.key)
        if value is not None:
            said.append(f"{use} is {_shown(value)}")
    parts = []
    if said:
        parts.append(", ".join(dict.fromkeys(said[:3])))
    if told:
        parts.append(f"of use only with {' or '.join(dict.fromkeys(told[:3]))}")
    return "; ".join(parts)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(value)[:4]) + "}"
    return "not set" if value == ABSENT else str(value)


def _right_already(decision: Decision, rule: Rule, uses: tuple[Use, ...], view: View) -> Advice | None:
    """Where nothing but the value in force made a rule untrue, and it is the value to be."""
    reads = rule.reads or decision.reads
    mechanism, _, key = reads.partition(":")
    if rule.set is None or set(uses) != {Use(key) if mechanism == "fact" else Use(mechanism, key)}:
        return None
    return _already(decision, rule, reads, view) if _current(reads, view) in (rule.set, *rule.ok) else None


def _already(decision: Decision, rule: Rule, reads: str, view: View) -> Advice:
    advice = _base(decision.id, Verdict.ALREADY)
    advice.current, advice.value = _current(reads, view), rule.set
    advice.why, advice.evidence = rule.why, _reads_evidence(reads, view)
    return advice


def _not_applicable(id_: str, why: str) -> Advice:
    advice = _base(id_, Verdict.NOT_APPLICABLE)
    advice.why = why
    return advice


def _asked(decision: Decision, rule: Rule, uses: tuple[Use, ...], view: View) -> Advice:
    # What can be read is read before anybody is asked.
    use = next((one for one in uses if not view.missing(one.name, one.key).question), uses[0])
    missing = view.missing(use.name, use.key)
    advice = _base(decision.id, Verdict.ASK)
    advice.gain, advice.why = rule.gain, rule.why
    advice.answer_key = use.name if use.key is None else ""
    advice.question = missing.question or f"{missing.doc if use.key is None else f'{use.name} {use.key}'}: {missing.how}"
    advice.value = rule.set
    _explain(advice, rule)
    return advice


def text_of(value: object) -> str | None:
    """A fact's value as a change would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _current(reads: str, view: View) -> str | None:
    """The value in force as text; None = not known; :data:`ABSENT` = known not to be set."""
    mechanism, _, key = reads.partition(":")
    if mechanism == "none":
        return None
    return text_of(view.value(key) if mechanism == "fact" else view.value(mechanism, key))


def _reads_evidence(reads: str, view: View) -> list[Evidence]:
    mechanism, _, key = reads.partition(":")
    if mechanism == "none":
        return []
    return view.evidence(key) if mechanism == "fact" else view.evidence(mechanism, key)


def _decided(decision: Decision, rule: Rule, uses: tuple[Use, ...], view: View) -> Advice:
    if rule.leave:
        advice = _not_applicable(decision.id, rule.leave)
        advice.evidence = [line for use in uses for line in view.evidence(use.name, use.key)]
        return advice
    reads = rule.reads or decision.reads
    current = _current(reads, view)
    evidence = [line for use in uses for line in view.evidence(use.name, use.key)]
    if rule.unset and current in (None, ABSENT):
        advice = _base(decision.id, Verdict.NOT_APPLICABLE if current is None else Verdict.ALREADY)
        advice.why = "not known to be set" if current is None else "not set, as it should be"
        return advice
    if rule.set is not None and current is not None and current in (rule.set, *rule.ok):
        return _already(decision, rule, reads, view)
    advice = _base(decision.id, Verdict.REFUSE if rule.verdict == "refuse" else Verdict.RECOMMEND)
    advice.current = None if current == ABSENT else current
    advice.value, advice.why, advice.gain = rule.set, rule.why, rule.gain
    advice.by_hand = rule.by_hand
    advice.evidence = list({(line.text, line.where): line for line in [*evidence, *_reads_evidence(reads, view)]}.values())
    advice.changes = _changes(decision, rule, reads, advice.current, view)
    advice.expires_with = _versions(uses, view)
    _explain(advice, rule)
    return advice


def _explain(advice: Advice, rule: Rule) -> None:
    """What tunables.yaml knows, for advice that somebody will read."""
    entry = tunables.lookup(advice.id)
    advice.benefits, advice.verify, advice.disagreement = list(rule.benefits), rule.verify, rule.disagreement
    if entry is None:
        return
    advice.effect, advice.risk, advice.confidence, advice.sources = entry.effect, entry.risk, entry.confidence, list(entry.source)
    advice.conflicts_with = list(entry.conflicts_with)
    advice.cost = cost(rule.needs or entry.needs)
    if not rule.needs:
        costs = [_MECHANISM_COST[c.mechanism] for c in advice.changes if c.mechanism in _MECHANISM_COST]
        if costs:
            advice.cost = max(costs, key=lambda c: c.rank)
    if not advice.verify:
        advice.verify = "/proc/PID/environ of a rank" if _is_variable(advice.id) else entry.how_to_read
    advice.after = list(rule.after)


def _versions(uses: Iterable[Use], view: View) -> list[str]:
    """The versions and products that the advice rests on: with another one it must be looked at again."""
    return [
        f"{use.name} {view.value(use.name)}"
        for use in uses
        if use.key is None and (FACTS[use.name].type == "version" or use.name in ("gpu.sm", "gpu.model"))
    ]


def _is_variable(id_: str) -> bool:
    """Whether a parameter is a variable of the job: ``nccl.NCCL_ALGO``, ``fw.OMP_NUM_THREADS``."""
    return bool(re.fullmatch(r"\w+\.[A-Z][A-Z0-9_]+", id_))


def _changes(decision: Decision, rule: Rule, reads: str, current: str | None, view: View) -> list[Change]:
    mechanism, _, key = reads.partition(":")
    writer = job.set_by(view, key) if mechanism == "env" else _WRITTEN.get(mechanism)
    if rule.unset:
        return [Change(mechanism=writer, key=key, value=None, was=current)] if writer else []
    if rule.set is None:
        return []
    writes = rule.write or decision.write
    if not writes:
        return [Change(mechanism=writer, key=key, value=rule.set, was=current)] if writer else []
    items = _LISTS[decision.each](view) if decision.each else [""]
    return [_filled(write, rule.set, item, current if len(writes) == 1 else None) for item in items for write in writes]


#: Keyed facts -> the mechanism that writes them.
_WRITTEN = {"sysctl": "sysctl", "cmdline": "cmdline", "param": "modprobe"}


def _filled(write: Write, value: str, item: str, was: str | None) -> Change:
    return Change(
        mechanism=write.mechanism,
        key=write.key.replace("{item}", item),
        value=write.value.replace("{value}", value).replace("{item}", item),
        was=was,
    )


def _by_class(id_: str, view: View) -> Advice:
    class_ = classes().get(id_, "")
    name = id_.partition(".")[2]
    if class_ not in POLICY or view.value("env", name) in (None, ABSENT):
        return _not_applicable(id_, _only_when(id_))
    refuse, gain, why = POLICY[class_]
    entry = tunables.lookup(id_)
    current = str(view.value("env", name))
    advice = _base(id_, Verdict.REFUSE if refuse else Verdict.RECOMMEND)
    advice.current, advice.gain, advice.why = current, gain, why
    advice.evidence = view.evidence("env", name)
    advice.changes = [Change(mechanism=job.set_by(view, name), key=name, value=None, was=current)]
    if entry is not None:
        value = str(entry.recommended_value)
        advice.why = why if value in ("unset", "-") else f"{why} Instead: {value}."
        advice.effect, advice.risk, advice.sources, advice.confidence = (
            entry.effect,
            entry.risk,
            list(entry.source),
            entry.confidence,
        )
    return advice
