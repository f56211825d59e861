"""A plan on a terminal: the three changes that matter most, then the rest by cost, then what is refused and what must be asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kilter.facts.plan import Advice, Cost, Plan, Verdict
from kilter.report.plain import plain
from kilter.report.writer import Writer, count

#: What a cost means, as a heading.
COSTS = {
    Cost.JOB: "with the next start of the job",
    Cost.RUNTIME: "at once, without disturbing anything",
    Cost.SERVICE: "with the restart of a service or a new login",
    Cost.DRIVER: "with a reload of the driver (no process on the GPUs)",
    Cost.REBOOT: "with a reboot",
    Cost.FIRMWARE: "in firmware or by hand on the machine",
}
GAINS = {3: "makes or breaks this workload", 2: "others measured much", 1: "some", 0: "hygiene: no gain has been published"}
TOP = 3
MAX_EVIDENCE = 4
MAX_QUESTIONS = 5
MAX_MISSING = 5
MAX_TITLES = 4


def what(advice: Advice) -> str:
    """The change in a few words: ``vm.swappiness: 60 -> 10``."""
    if advice.by_hand and not advice.changes:
        return f"{advice.title}: by hand"
    now = "not set" if advice.current is None else f"{advice.current}"
    to_be = "unset" if advice.value is None else advice.value
    if advice.current is None and advice.value is not None:
        return f"{advice.title}: {to_be}"
    return f"{advice.title}: {now} -> {to_be}"


def plan_text(plan: Plan, *, width: int, color: bool, verbose: bool) -> str:
    """The whole plan, at most ``width`` columns."""
    out = Writer(width, color)
    out.add(out.paint(plain(f"Plan for {plan.node or 'this node'}" + (f": {plan.workload}" if plan.workload else "")), "1"))
    for note in plan.notes:
        out.labelled("note", note)
    todo = [a for a in plan.advice if a.verdict in (Verdict.RECOMMEND, Verdict.CONFLICT)]
    refused = plan.of(Verdict.REFUSE)
    top = [a for a in [*refused, *todo] if a.gain > 0][:TOP]
    top = sorted(top, key=lambda a: -a.gain)
    out.add()
    if not todo and not refused:
        out.add("Nothing to change, as far as is known.")
    if top:
        out.add(out.paint("What matters most", "1"))
        for number, advice in enumerate(top, 1):
            _full(out, number, advice)
    rest = [a for a in todo if a not in top]
    for cost in Cost:
        group = [a for a in rest if a.cost is cost]
        if group:
            out.add()
            out.add(out.paint(f"Also, {COSTS[cost]}", "1"))
            for advice in group:
                _brief(out, advice, verbose)
    others = [a for a in refused if a not in top]
    if others:
        out.add()
        out.add(out.paint("Must not be", "1"))
        for advice in others:
            _brief(out, advice, verbose)
    _questions(out, plan.of(Verdict.ASK), verbose)
    _rest(out, plan, verbose)
    return out.text()


def _full(out: Writer, number: int, advice: Advice) -> None:
    out.add()
    mark = {Verdict.REFUSE: "REFUSED", Verdict.CONFLICT: "CONFLICT"}.get(advice.verdict, "")
    head = f"{number}. {what(advice)}"
    out.add(out.paint(plain(f"{head}{f'  {mark}' if mark else ''}")[: out.width], "1;33" if advice.gain > 1 else "1"))
    out.labelled("why", advice.why, indent=3)
    if advice.owner:
        out.labelled("owner", advice.owner, indent=3)
    for line in advice.evidence[:MAX_EVIDENCE]:
        out.labelled("seen", f"{line.text}{f'  ({line.where})' if line.where else ''}", indent=3)
    for benefit in advice.benefits:
        out.labelled("measured", f"{benefit.text}; {benefit.on} ({benefit.source})", indent=3)
    if advice.disagreement:
        out.labelled("vendors", advice.disagreement, indent=3)
    if advice.by_hand:
        out.labelled("do", advice.by_hand, indent=3)
    if advice.after:
        out.labelled("first", ", ".join(advice.after), indent=3)
    out.labelled("works", f"{COSTS[advice.cost]}; {GAINS[advice.gain]}", indent=3)
    if advice.risk:
        out.labelled("risk", advice.risk, indent=3)
    if advice.verify:
        out.labelled("verify", advice.verify, indent=3)
    if advice.expires_with:
        out.labelled("holds", f"for {', '.join(advice.expires_with)}; look again after an upgrade", indent=3)
    out.labelled("id", advice.id, indent=3)


def _brief(out: Writer, advice: Advice, verbose: bool) -> None:
    if verbose:
        out.add()
        out.labelled("", what(advice), indent=2, gutter=0)
        out.labelled("why", advice.why, indent=4)
        for line in advice.evidence[:MAX_EVIDENCE]:
            out.labelled("seen", f"{line.text}{f'  ({line.where})' if line.where else ''}", indent=4)
        for label, text in (
            ("owner", advice.owner),
            ("do", advice.by_hand),
            ("first", ", ".join(advice.after)),
            ("risk", advice.risk),
            ("verify", advice.verify),
            ("id", advice.id),
        ):
            if text:
                out.labelled(label, text, indent=4)
        return
    out.labelled("", f"{what(advice)}", indent=2, gutter=0)
    out.labelled("", advice.why, indent=6, gutter=0)
    if advice.by_hand:
        out.labelled("", f"Do: {advice.by_hand}", indent=6, gutter=0)
    if advice.owner:
        out.labelled("", f"Owner: {advice.owner}", indent=6, gutter=0)


def _questions(out: Writer, asked: list[Advice], verbose: bool) -> None:
    """What nobody can read, then what a command would show; without ``verbose`` only where something could be gained by it."""
    chosen = asked if verbose else [advice for advice in asked if advice.gain > 0]
    people, commands = _by_question(chosen)
    if people:
        out.add()
        out.add(out.paint("Questions that no command answers (--answer NAME=VALUE)", "1"))
        for (name, text), group in people[: None if verbose else MAX_QUESTIONS]:
            out.labelled("", f"{name}: {text}", indent=2, gutter=0)
            out.labelled("", f"decides {_titles(group)}", indent=6, gutter=0)
    if commands:
        out.add()
        out.add(out.paint("Facts that are missing ('kilter snapshot' on the node gathers what it can)", "1"))
        for (_, text), group in commands[: None if verbose else MAX_MISSING]:
            out.labelled("", text, indent=2, gutter=0)
            out.labelled("", f"decides {_titles(group)}", indent=6, gutter=0)
    hidden = len(asked) - sum(len(g) for _, g in [*people[:MAX_QUESTIONS], *commands[:MAX_MISSING]])
    if hidden > 0 and not verbose:
        out.add(f"  {count(hidden, 'more parameter')} could be decided by more facts (-v)")


Groups = list[tuple[tuple[str, str], list[Advice]]]


def _by_question(asked: list[Advice]) -> tuple[Groups, Groups]:
    """(questions for people, commands), the ones that decide most first."""
    people: dict[tuple[str, str], list[Advice]] = defaultdict(list)
    commands: dict[tuple[str, str], list[Advice]] = defaultdict(list)
    for advice in asked:
        if advice.question.endswith("?"):
            people[advice.answer_key, advice.question].append(advice)
        else:
            commands["", advice.question.rpartition(": ")[2]].append(advice)

    def ordered(groups: dict[tuple[str, str], list[Advice]]) -> Groups:
        return sorted(groups.items(), key=lambda item: (-max(a.gain for a in item[1]), -len(item[1]), item[0]))

    return ordered(people), ordered(commands)


def _titles(group: list[Advice]) -> str:
    first = sorted(group, key=lambda a: (-a.gain, a.id))[:MAX_TITLES]
    more = f" and {len(group) - len(first)} more" if len(group) > len(first) else ""
    return ", ".join(dict.fromkeys(a.title for a in first)) + more


def _rest(out: Writer, plan: Plan, verbose: bool) -> None:
    already, off = plan.of(Verdict.ALREADY), plan.of(Verdict.NOT_APPLICABLE)
    out.add()
    if verbose:
        _list(out, "As it should be", already)
        _list(out, "Not applicable", off)
        return
    stand = "is as it should be" if len(already) == 1 else "are as they should be"
    apply = "does not apply" if len(off) == 1 else "do not apply"
    out.add(f"{count(len(already), 'parameter')} {stand}, {len(off)} {apply} (-v says why).")


def _list(out: Writer, heading: str, advice: Iterable[Advice]) -> None:
    out.add(out.paint(heading, "1"))
    for one in advice:
        value = f" = {one.current}" if one.current else ""
        seen = f" ({one.evidence[0].text})" if one.evidence else ""
        out.labelled("", f"{one.id}{value}: {one.why}{seen}", indent=2, gutter=0)
