"""Conditions: what is accepted, what is refused, and Kleene's logic."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter.tune.expression import Condition, ConditionError, Use, version_key


@dataclass
class Spec:
    type: str
    values: tuple[str, ...] = ()


@dataclass(eq=False)
class Words:
    facts: dict[str, Spec] = field(
        default_factory=lambda: {
            "a": Spec("bool"),
            "b": Spec("bool"),
            "c": Spec("bool"),
            "n.x": Spec("number"),
            "n.y": Spec("number"),
            "kind": Spec("text", ("one", "two")),
            "name": Spec("text"),
            "v": Spec("version"),
            "s": Spec("set"),
        }
    )

    def fact(self, name: str) -> Spec | None:
        return self.facts.get(name)

    def keyed(self, name: str) -> Spec | None:
        return {"env": Spec("text"), "count": Spec("number")}.get(name)

    def near(self, name: str) -> str:
        return ""


WORDS = Words()


class Values(dict):
    def value(self, name, key=None):
        return self.get((name, key) if key is not None else name)


def answer(text: str, **values: object):
    return Condition(text, WORDS).answer(Values({name.replace("__", "."): value for name, value in values.items()}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a and", "no condition"),
        ("a or zz", "no fact 'zz'"),
        ("n.x", "is a number"),
        ("n.x == 'one'", "compared with 'one'"),
        ("n.x == True", "compared with True"),
        ("kind == 'three'", "never 'three'"),
        ("kind < 'two'", "no order"),
        ("1 < n.x < 3", "one comparison at a time"),
        ("n.x in [1, 2]", "tuple of literals"),
        ("env(name) == 'x'", "takes one text"),
        ("env('a', 'b') == 'x'", "takes one text"),
        ("nothing('a') == 'x'", "no keyed fact"),
        ("a is True", "no comparison of this form"),
        ("v == ''", "compared with ''"),
        ("name == n.x", "is a text"),
        ("s == s", "a set"),
        ("(lambda: a)()", "neither a fact"),
        ("__import__('os').system('true')", "neither a fact"),
        ("a if b else c", "neither a fact"),
        ("known(zz)", "no fact"),
        ("a " * 2000, "characters"),
        ("not " * 400 + "a", ""),
    ],
)
def test_what_does_not_hold_to_the_form_is_refused(text: str, says: str) -> None:
    if says:
        with pytest.raises(ConditionError, match="(?s).*" + says.replace("(", r"\(")):
            Condition(text, WORDS)
    else:
        Condition(text, WORDS)


def test_unknown_decides_only_where_it_matters() -> None:
    assert answer("a and b", a=False).truth is False
    assert answer("a or b", a=True).truth is True
    assert answer("a and b", a=True) == (None, (Use("b"),))
    assert answer("a or b or c", a=False) == (None, (Use("b"), Use("c")))
    assert answer("not a") == (None, (Use("a"),))
    assert answer("known(a)").truth is False
    assert answer("known(a)", a=False).truth is True


def test_what_decided_is_named() -> None:
    assert answer("a and n.x > 3", a=True, n__x=2) == (False, (Use("n.x"),))
    assert answer("a and n.x > 3", a=True, n__x=4) == (True, (Use("a"), Use("n.x")))


def test_versions_compare_as_versions() -> None:
    assert answer("v >= '2.9'", v="2.27.3").truth is True
    assert answer("v == '2.27'", v="2.27.3").truth is True
    assert answer("v == '2.2'", v="2.27.3").truth is False
    assert answer("v in ('2.26', '2.27')", v="2.27.3+cuda12.9").truth is True
    assert answer("v < '2.28'", v="2.28.0rc1").truth is True
    assert answer("v >= '6.6'", v="6.12.68-cos").truth is True
    assert answer("v >= '6.6'", v="6.6.0-generic").truth is True


def test_sets_hold_and_numbers_may_be_none_at_all() -> None:
    assert answer("s == 'x'", s=frozenset({"x", "y"})).truth is True
    assert answer("s in ('z', 'y')", s=frozenset({"x", "y"})).truth is True
    assert answer("s != 'z'", s=frozenset({"x"})).truth is True
    for comparison in ("<", ">", "==", "<=", ">="):
        assert answer(f"n.x {comparison} 3", n__x=math.nan).truth is False
    assert answer("n.x < n.y", n__x=1, n__y=2).truth is True


def test_keyed_facts_are_read_by_their_key() -> None:
    values = Values({("env", "NCCL_ALGO"): "Tree"})
    assert Condition("env('NCCL_ALGO') == 'Tree'", WORDS).answer(values) == (True, (Use("env", "NCCL_ALGO"),))
    assert Condition("env('NCCL_PROTO') == 'LL'", WORDS).answer(values) == (None, (Use("env", "NCCL_PROTO"),))


LEAVES = st.sampled_from(["a", "b", "c", "n.x > 3", "kind == 'one'"])
TEXTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=8,
)
BOOL = st.sampled_from([True, False, None])


@given(TEXTS, BOOL, BOOL, BOOL, st.sampled_from([1, 5, None]), st.sampled_from(["one", "two", None]))
def test_an_open_answer_is_never_contradicted_by_what_is_learnt(text, a, b, c, x, kind) -> None:
    """Whatever the missing facts turn out to be, a yes or no given before stays; and an open answer names only missing facts."""
    values = {"a": a, "b": b, "c": c, "n.x": x, "kind": kind}
    condition = Condition(text, WORDS)
    before = condition.answer(Values(values))
    missing = {name for name, value in values.items() if value is None}
    if before.truth is None:
        assert before.uses
        assert {use.name for use in before.uses} <= missing
    filled = {"a": True, "b": False, "c": True, "n.x": 5, "kind": "two"}
    for other in ({**filled}, {**filled, "a": False, "n.x": 1, "kind": "one"}):
        learnt = {name: other[name] if value is None else value for name, value in values.items()}
        after = condition.answer(Values(learnt))
        assert after.truth is not None
        if before.truth is not None:
            assert after.truth is before.truth
        plain = text.replace("n.x", str(learnt["n.x"])).replace("kind", repr(learnt["kind"]))
        expected = eval(plain, {"a": learnt["a"], "b": learnt["b"], "c": learnt["c"]})
        assert after.truth is expected


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(ConditionError):
        Condition(text, WORDS)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_version_order_is_that_of_its_numbers(left: list[int], right: list[int]) -> None:
    def padded(parts: list[int]) -> list[int]:
        return parts + [0] * (4 - len(parts))

    a, b = ".".join(map(str, left)), ".".join(map(str, right))
    assert (version_key(a) < version_key(b)) is (padded(left) < padded(right))
