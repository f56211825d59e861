"""The facts that conditions may name: what they are, how each is read from a case and a workload, how to get it, or what to ask."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Entity, Ref
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Evidence
from kilter.facts.nccl import NcclJob
from kilter.facts.workload import Workload

Value = str | int | float | bool | frozenset[str]
T = TypeVar("T")

#: What a keyed fact says of something that is not there, where the whole list is known.
ABSENT = "absent"


class Fact(NamedTuple):
    """One name of the vocabulary."""

    name: str
    type: str  # of expression.TYPES
    doc: str
    how: str = ""  # command whose output shows it
    question: str = ""  # what to ask, where no command shows it
    values: tuple[str, ...] = ()
    read: Callable[..., Value | None] | None = None  # (View) or, keyed, (View, key)


FACTS: dict[str, Fact] = {}
KEYED: dict[str, Fact] = {}
_MODULES = ("node", "devices", "job", "asked")
_F = TypeVar("_F", bound=Callable[..., "Value | None"])


def fact(
    name: str, type_: str, doc: str, *, how: str = "", question: str = "", values: tuple[str, ...] = ()
) -> Callable[[_F], _F]:
    """Register a reader: a function of a :class:`View` that gives the value, or None where it is not known."""

    def register(read: _F) -> _F:
        FACTS[name] = Fact(name, type_, doc, how, question, values, read)
        return read

    return register


def keyed(name: str, type_: str, doc: str, *, how: str) -> Callable[[_F], _F]:
    """Register a reader of a keyed fact: a function of a :class:`View` and a key."""

    def register(read: _F) -> _F:
        KEYED[name] = Fact(name, type_, doc, how, "", (), read)
        return read

    return register


class Vocabulary:
    """The schema that conditions are checked against. One instance: :func:`vocabulary`."""

    def fact(self, name: str) -> Fact | None:
        return FACTS.get(name)

    def keyed(self, name: str) -> Fact | None:
        return KEYED.get(name)

    def near(self, name: str) -> str:
        close = difflib.get_close_matches(name, [*FACTS, *KEYED], 1)
        return f"; did you mean {close[0]}?" if close else ""


@functools.cache
def vocabulary() -> Vocabulary:
    for module in _MODULES:
        importlib.import_module(f"kilter.tune.view.{module}")
    return Vocabulary()


class View:
    """The facts of one node and its job. Each is read once; what was read for it is kept as evidence."""

    def __init__(self, case: Case, snapshot: Snapshot, workload: Workload | None = None) -> None:
        vocabulary()
        self.case, self.snapshot = case, snapshot
        self.workload = workload or case.workload or Workload()
        self._values: dict[tuple[str, str | None], Value | None] = {}
        self._evidence: dict[tuple[str, str | None], list[Evidence]] = {}
        self._reading: list[Evidence] = []

    @functools.cached_property
    def jobs(self) -> list[NcclJob]:
        """NCCL logs of jobs that ran on this node."""
        alone = len(self.case.snapshots) <= 1
        return [job for job in self.case.jobs if alone or not job.nodes or self.snapshot.node in job.nodes]

    @functools.cached_property
    def gpus(self) -> list[Accelerator] | None:
        return self.snapshot.accelerators

    def read(self, entity: Entity, field: str) -> object:
        """A field of the snapshot, its place kept as evidence."""
        value = getattr(entity, field)
        if value is not None:
            self.saw(f"{field.replace('_', ' ')}: {_shown(value)}", entity.ref(field))
        return value

    def saw(self, text: str, ref: Ref | None = None, where: str = "") -> None:
        self._reading.append(Evidence(text, where or self.snapshot.where(ref)))

    def value(self, name: str, key: str | None = None) -> Value | None:
        """The value of a fact; None = not known."""
        at = (name, key)
        if at not in self._values:
            before, self._reading = self._reading, []
            answered = self.workload.answers.get(name) if key is None else None
            if answered is not None:
                self._values[at] = answered
                self._reading = [Evidence(f"{name}: {_shown(answered)} (as answered)")]
            else:
                spec = FACTS[name] if key is None else KEYED[name]
                assert spec.read is not None
                self._values[at] = spec.read(self) if key is None else spec.read(self, key)
            self._evidence[at] = self._reading
            self._reading = before
        return self._values[at]

    def evidence(self, name: str, key: str | None = None) -> list[Evidence]:
        """What the value of a fact rests on."""
        self.value(name, key)
        return self._evidence[name, key]

    def missing(self, name: str, key: str | None = None) -> Fact:
        """The entry of the vocabulary that tells how to get a fact."""
        return FACTS[name] if key is None else KEYED[name]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (frozenset, list, tuple, set)):
        return ", ".join(sorted(str(v) for v in value)) or "none"
    return str(value)


def one(values: set[T]) -> T | None:
    """The only element of a set, or None."""
    return next(iter(values)) if len(values) == 1 else None
