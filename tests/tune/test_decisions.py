"""The table of decisions: every parameter loads, every condition holds to the schema, and every rule can be reached and says what it says."""

from __future__ import annotations

import itertools
import math
import random
import re

import pytest

from kilter.facts.case import Case, Snapshot
from kilter.facts.plan import Change, Cost, Verdict
from kilter.facts.workload import Workload
from kilter.knowledge import tunables
from kilter.knowledge.decisions import Decision, Rule, classes, decisions
from kilter.tune import recommend
from kilter.tune.expression import Use, condition
from kilter.tune.view import ABSENT, FACTS, KEYED, View, vocabulary

vocabulary()
MECHANISMS = set(re.findall(r"^    (\w+) +\S", Change.__doc__ or "", re.MULTILINE)) - {"mechanism"}


class Made(View):
    """A view of values that a test chose; everything else is not known."""

    def __init__(self, values: dict[Use, object]) -> None:
        super().__init__(Case(), Snapshot(), Workload())
        self.made = values

    def value(self, name, key=None):
        return self.made.get(Use(name, key))

    def evidence(self, name, key=None):
        return []


def literals(text: str) -> list[str]:
    return [a or b for a, b in re.findall(r"'([^']*)'|(?<![\w.])(\d+)(?![\w.])", text)]


def candidates(use: Use, texts: list[str]) -> list[object]:
    """Values of a fact that may make a difference: those that conditions name, their neighbours, something else."""
    spec = FACTS[use.name] if use.key is None else KEYED[use.name]
    words = [word for text in texts for word in literals(text)]
    if spec.type == "bool":
        return [True, False]
    if spec.type == "number":
        numbers = {int(word) for word in words if re.fullmatch(r"-?\d+", word)}
        return sorted({n + d for n in numbers for d in (-1, 0, 1)} | {0, 1})
    if spec.type == "version":
        versions = {word for word in words if re.match(r"\d+(\.\d+)+$", word)}
        return [*sorted(versions), "0.1", "99.0", *(f"{v}.1" for v in sorted(versions))]
    if spec.type == "set":
        return [frozenset({word}) for word in words] + [frozenset()]
    chosen = list(spec.values) or [*words, "something else"]
    return [*chosen, ABSENT] if use.key is not None else chosen


def reach(decision: Decision, index: int) -> dict[Use, object] | None:
    """Facts under which rule ``index`` is the first that is true, found by trying; None if there are none."""
    texts = [rule.when for rule in decision.rules[: index + 1]]
    conditions = [condition(text, vocabulary()) for text in texts]
    uses = list(dict.fromkeys(use for one in conditions for use in one.uses()))
    choices = [candidates(use, [*texts, rule_reads(decision, index)]) for use in uses]
    number = math.prod(len(c) for c in choices)
    rng = random.Random(decision.id)
    tries = itertools.product(*choices) if number <= 50_000 else ([rng.choice(c) for c in choices] for _ in range(200_000))
    for picked in tries:
        facts = Made(dict(zip(uses, picked, strict=True)))
        if conditions[-1].answer(facts).truth is True and all(c.answer(facts).truth is False for c in conditions[:-1]):
            return facts.made
    return None


def rule_reads(decision: Decision, index: int) -> str:
    return decision.rules[index].reads or decision.reads


RULES = [(d, i) for d in decisions().values() for i in range(len(d.rules))]


def test_every_decision_is_about_a_parameter_of_the_catalogue() -> None:
    assert set(decisions()) <= set(tunables.names())
    assert not set(classes()) - set(tunables.names())


def test_every_parameter_has_a_decision_or_a_policy() -> None:
    assert [i for i in tunables.names() if i not in decisions() and classes().get(i) not in recommend.POLICY] == []


@pytest.mark.parametrize("decision", decisions().values(), ids=lambda d: d.id)
def test_every_rule_says_one_thing_and_names_what_exists(decision: Decision) -> None:
    for rule in decision.rules:
        said = [rule.set is not None, rule.unset, bool(rule.leave), bool(rule.by_hand)]
        assert sum(said) == 1 or (said == [True, False, False, True]), rule.when
        assert rule.why or rule.leave
        for reads in {decision.reads, rule.reads} - {"", "none"}:
            mechanism, _, key = reads.partition(":")
            assert (key in FACTS) if mechanism == "fact" else (mechanism in KEYED), reads
        for write in [*decision.write, *rule.write]:
            assert write.mechanism in MECHANISMS, write
        for other in rule.after:
            assert other in set(tunables.names())
        for benefit in rule.benefits:
            assert benefit.source
            assert benefit.on


@pytest.mark.parametrize(("decision", "index"), RULES, ids=lambda v: v.id if isinstance(v, Decision) else str(v))
def test_every_rule_can_be_reached_and_gives_its_verdict(decision: Decision, index: int) -> None:
    """No rule hides behind earlier ones, and under its facts the advice is what the rule says."""
    rule = decision.rules[index]
    facts = reach(decision, index)
    assert facts is not None, "no facts make this rule the first that is true"
    mechanism, _, key = rule_reads(decision, index).partition(":")
    if mechanism != "none":
        facts.setdefault(Use(key) if mechanism == "fact" else Use(mechanism, key), "some other value")
    advice = recommend.advise(decision.id, Made(facts))
    if rule.leave:
        assert (advice.verdict, advice.why) == (Verdict.NOT_APPLICABLE, rule.leave)
        return
    current = None if mechanism == "none" else facts[Use(key) if mechanism == "fact" else Use(mechanism, key)]
    if advice.verdict is Verdict.ALREADY:
        assert rule.unset or recommend.text_of(current) in (rule.set, *rule.ok)
        return
    assert advice.verdict is (Verdict.REFUSE if rule.verdict == "refuse" else Verdict.RECOMMEND)
    assert advice.value == rule.set
    assert advice.why == rule.why
    assert advice.changes or advice.by_hand or decision.each
    assert advice.verify
    assert advice.sources
    assert isinstance(advice.cost, Cost)


@pytest.mark.parametrize("decision", decisions().values(), ids=lambda d: d.id)
def test_without_any_fact_nothing_is_recommended(decision: Decision) -> None:
    advice = recommend.advise(decision.id, Made({}))
    assert advice.verdict in (Verdict.ASK, Verdict.NOT_APPLICABLE)
    if advice.verdict is Verdict.ASK:
        assert advice.question


@pytest.mark.parametrize("id_", [i for i in tunables.names() if i not in decisions()])
def test_what_follows_the_policy_of_its_class(id_: str) -> None:
    """Taken away where it is set, left alone where it is not or where nobody knows."""
    name = id_.partition(".")[2]
    refuse, _, _ = recommend.POLICY[classes()[id_]]
    set_ = recommend.advise(id_, Made({Use("env", name): "1"}))
    assert set_.verdict is (Verdict.REFUSE if refuse else Verdict.RECOMMEND)
    assert set_.changes == [Change(mechanism="env", key=name, value=None, was="1")]
    for value in (ABSENT, None):
        facts = {} if value is None else {Use("env", name): value}
        assert recommend.advise(id_, Made(facts)).verdict is Verdict.NOT_APPLICABLE


def test_kinds_of_events_that_conditions_name_are_kinds_that_readers_make() -> None:
    from kilter.intake.captures import kernel_log, nccl

    made = {kind for _, kind in nccl.WARNINGS}
    source = re.sub(r"\s+", " ", open(kernel_log.__file__, encoding="utf-8").read())  # noqa: SIM115
    made |= set(
        re.findall(r'_simple\("([\w.]+)"|kind="([\w.]+)"', source)
        and [a or b for a, b in re.findall(r'_simple\("([\w.]+)"|kind="([\w.]+)"', source)]
    )
    named = {
        word
        for decision in decisions().values()
        for rule in decision.rules
        for word in re.findall(r"(?:host|job)\.events == '([^']+)'", rule.when)
    }
    assert named <= made


def test_rules_without_facts_of_their_own_do_not_exist() -> None:
    """A rule that rests on nothing would speak on every machine."""
    for decision in decisions().values():
        for rule in decision.rules:
            assert condition(rule.when, vocabulary()).uses(), (decision.id, rule.when)


def test_rule_objects_are_what_the_table_says() -> None:
    assert all(isinstance(rule, Rule) for decision in decisions().values() for rule in decision.rules)
    assert len(decisions()) > 200
