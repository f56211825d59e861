"""Conditions over facts: parsed once, checked against the schema of facts when they are loaded, answered with yes, no or unknown.

The form is a small part of Python's expressions: names of facts (``gpu.sm``), keyed facts (``sysctl('vm.swappiness')``), literals,
``and or not``, comparisons, ``in`` a tuple, and ``known(fact)``. Nothing is ever executed by Python: the syntax tree is walked. Logic is
Kleene's: what cannot be known leaves the answer open only where it matters. Versions compare as versions; ``==`` and ``in`` compare as
many parts as the shorter one has (2.26.3 is a 2.26).
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

Scalar = str | int | float | bool
#: Types of facts. A "version" is text that compares as a version; "set" is a collection of texts.
TYPES = ("bool", "number", "text", "version", "set")


class ConditionError(ValueError):
    """A condition that does not hold to the form or the schema: what was found, where, and what is known."""


class Spec(Protocol):
    """What the schema must say of a fact."""

    @property
    def type(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


class Schema(Protocol):
    """Facts by name, and keyed facts by the name of their function."""

    def fact(self, name: str) -> Spec | None: ...
    def keyed(self, name: str) -> Spec | None: ...
    def near(self, name: str) -> str: ...


class Facts(Protocol):
    """Values of facts; None = not known."""

    def value(self, name: str, key: str | None = None) -> Scalar | frozenset[str] | None: ...


class Use(NamedTuple):
    """A fact that a condition rests on: its name, and the key of a keyed one."""

    name: str
    key: str | None = None

    def __str__(self) -> str:
        return self.name if self.key is None else f"{self.name}({self.key!r})"


class Answer(NamedTuple):
    """``truth`` None = unknown; then ``uses`` are the facts that are missing, else those that decided."""

    truth: bool | None
    uses: tuple[Use, ...]


_MAX_LENGTH = 2000
_PART = re.compile(r"\d+|[a-z]+")
_PRE_RELEASE = ("a", "alpha", "b", "beta", "dev", "pre", "rc")


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """For comparing: numbers as numbers; a pre-release ("rc1", "b2") comes below the version, other words count for nothing."""
    parts: list[tuple[int, int, str]] = []
    for part in _PART.findall(text.lower().partition("+")[0]):
        if part.isdigit():
            parts.append((1, int(part), ""))
        elif part in _PRE_RELEASE:
            _drop_zeros(parts)
            parts.append((-1, 0, part))
    _drop_zeros(parts)
    return (*parts, (0, 0, ""))


def _drop_zeros(parts: list[tuple[int, int, str]]) -> None:
    while parts and parts[-1] == (1, 0, ""):
        parts.pop()


def _same_version(a: str, b: str) -> bool:
    left, right = _PART.findall(a.lower()), _PART.findall(b.lower())
    n = min(len(left), len(right))
    return n > 0 and [_number(p) for p in left[:n]] == [_number(p) for p in right[:n]]


def _number(part: str) -> str | int:
    return int(part) if part.isdigit() else part


_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Condition:
    """One parsed and checked condition. Use :func:`condition`."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = " ".join(text.split())
        self._schema = schema
        if len(text) > _MAX_LENGTH:
            raise ConditionError(f"a condition of {len(text)} characters; expected at most {_MAX_LENGTH}")
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConditionError(f"{self.text!r} is no condition: {error}") from None
        self._check_truth(self._tree)

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    # -- checking -----------------------------------------------------------------------------------------------------------------

    def _fail(self, what: str) -> ConditionError:
        return ConditionError(f"{self.text!r}: {what}")

    def _use(self, node: ast.expr) -> tuple[Use, Spec]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            spec = self._schema.keyed(node.func.id)
            if spec is None:
                raise self._fail(f"no keyed fact {node.func.id!r}{self._schema.near(node.func.id)}")
            if (
                len(node.args) != 1
                or node.keywords
                or not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str))
            ):
                raise self._fail(f"{node.func.id} takes one text, as {node.func.id}('name')")
            return Use(node.func.id, node.args[0].value), spec
        name = _dotted(node)
        if name is None:
            raise self._fail(f"{ast.unparse(node)} is neither a fact nor a literal")
        spec = self._schema.fact(name)
        if spec is None:
            raise self._fail(f"no fact {name!r}{self._schema.near(name)}")
        return Use(name), spec

    def _check_truth(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._check_truth(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._check_truth(node.operand)
        elif isinstance(node, ast.Compare):
            self._check_comparison(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return
        elif _is_known(node):
            self._use(node.args[0])  # type: ignore[attr-defined]
        else:
            use, spec = self._use(node)
            if spec.type != "bool":
                raise self._fail(f"{use} is a {spec.type}; compare it with something")

    def _check_comparison(self, node: ast.Compare) -> None:
        if len(node.ops) != 1:
            raise self._fail("one comparison at a time: join them with 'and'")
        op, right = node.ops[0], node.comparators[0]
        use, spec = self._use(node.left)
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(right, ast.Tuple):
                raise self._fail("'in' wants a tuple of literals: ('a', 'b')")
            for element in right.elts:
                self._check_literal(use, spec, element, ordered=False)
        elif isinstance(op, (ast.Eq, ast.NotEq)):
            self._check_literal(use, spec, right, ordered=False)
        elif type(op) in _ORDER:
            if spec.type not in ("number", "version"):
                raise self._fail(f"{use} is a {spec.type} and has no order")
            self._check_literal(use, spec, right, ordered=True)
        else:
            raise self._fail(f"{type(op).__name__} is no comparison of this form")

    def _check_literal(self, use: Use, spec: Spec, node: ast.expr, *, ordered: bool) -> None:
        if not isinstance(node, ast.Constant):
            other, other_spec = self._use(node)
            if other_spec.type != spec.type or spec.type == "set":
                raise self._fail(f"{use} is a {spec.type}, {other} a {other_spec.type}")
            return
        value = node.value
        right = {
            "bool": isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
            "text": isinstance(value, str),
            "version": isinstance(value, str) and bool(_PART.match(value)),
            "set": isinstance(value, str) and not ordered,
        }[spec.type]
        if not right:
            raise self._fail(f"{use} is a {spec.type} and is compared with {value!r}")
        if spec.values and value not in spec.values:
            raise self._fail(f"{use} is never {value!r}; it is one of {', '.join(spec.values)}")

    # -- answering ----------------------------------------------------------------------------------------------------------------

    def uses(self) -> list[Use]:
        """Every fact that the condition names, each once."""
        found: dict[Use, None] = {}

        def walk(node: ast.expr) -> None:
            if isinstance(node, ast.BoolOp):
                for value in node.values:
                    walk(value)
            elif isinstance(node, ast.UnaryOp):
                walk(node.operand)
            elif isinstance(node, ast.Compare):
                found.setdefault(self._use(node.left)[0])
                if not isinstance(node.comparators[0], (ast.Constant, ast.Tuple)):
                    found.setdefault(self._use(node.comparators[0])[0])
            elif _is_known(node):
                walk(node.args[0])  # type: ignore[attr-defined]
            elif not isinstance(node, ast.Constant):
                found.setdefault(self._use(node)[0])

        walk(self._tree)
        return list(found)

    def answer(self, facts: Facts) -> Answer:
        """Yes, no or unknown, and the facts that decided it."""
        return self._truth(self._tree, facts)

    def _truth(self, node: ast.expr, facts: Facts) -> Answer:
        if isinstance(node, ast.BoolOp):
            return self._joined(node, facts)
        if isinstance(node, ast.UnaryOp):
            inner = self._truth(node.operand, facts)
            return Answer(None if inner.truth is None else not inner.truth, inner.uses)
        if isinstance(node, ast.Compare):
            return self._compared(node, facts)
        if isinstance(node, ast.Constant):
            return Answer(bool(node.value), ())
        if _is_known(node):
            use, _ = self._use(node.args[0])  # type: ignore[attr-defined]
            return Answer(facts.value(use.name, use.key) is not None, (use,))
        use, _ = self._use(node)
        value = facts.value(use.name, use.key)
        return Answer(None if value is None else bool(value), (use,))

    def _joined(self, node: ast.BoolOp, facts: Facts) -> Answer:
        decisive = isinstance(node.op, ast.Or)  # the truth of one part that settles the whole
        open_: list[Use] = []
        settled: list[Use] = []
        for part in node.values:
            answer = self._truth(part, facts)
            if answer.truth is decisive:
                return answer
            (open_ if answer.truth is None else settled).extend(answer.uses)
        if open_:
            return Answer(None, tuple(dict.fromkeys(open_)))
        return Answer(not decisive, tuple(dict.fromkeys(settled)))

    def _compared(self, node: ast.Compare, facts: Facts) -> Answer:
        op, right = node.ops[0], node.comparators[0]
        use, spec = self._use(node.left)
        left = facts.value(use.name, use.key)
        uses = [use]
        others: list[object] = []
        for element in right.elts if isinstance(right, ast.Tuple) else [right]:
            if isinstance(element, ast.Constant):
                others.append(element.value)
            else:
                other, _ = self._use(element)
                uses.append(other)
                others.append(facts.value(other.name, other.key))
        missing = [one for one in uses if facts.value(one.name, one.key) is None]
        if missing or left is None:
            return Answer(None, tuple(missing))
        if type(op) in _ORDER:
            compare = _ORDER[type(op)]
            if spec.type == "version":
                return Answer(compare(version_key(str(left)), version_key(str(others[0]))), tuple(uses))
            return Answer(compare(left, others[0]), tuple(uses))
        equal = any(_equal(spec.type, left, other) for other in others)
        return Answer(equal is isinstance(op, (ast.In, ast.Eq)), tuple(uses))


def _equal(type_: str, left: object, right: object) -> bool:
    if type_ == "set":
        return isinstance(left, frozenset) and right in left
    if type_ == "version":
        return _same_version(str(left), str(right))
    return left == right


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


def _is_known(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "known" and len(node.args) == 1


@functools.lru_cache(maxsize=4096)
def condition(text: str, schema: Schema) -> Condition:
    """``text`` parsed and checked. Raises :class:`ConditionError`."""
    return Condition(text, schema)
