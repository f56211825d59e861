"""The state of a search for guilty nodes and paths, and what it comes to. See bisect.py."""

from __future__ import annotations

import msgspec

SCHEMA = 1


class Result(msgspec.Struct, omit_defaults=True):
    nodes: list[str]
    value: float | None = None  # None: passed or failed without a number
    failed: bool = False
    round: int = 0


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that is known of one search."""

    schema: int = SCHEMA
    test: str = "pair"  # pair, group
    plan: str = "circle"  # circle, quick; of pair tests
    seed: int = 1
    nodes: list[str] = []
    references: list[str] = []  # known to be good
    lower_is_better: bool = False
    effect: float = 0.05  # least slowdown that matters
    min_group: int = 1  # least number of nodes of a group test
    round: int = 0  # rounds handed out
    planned: int = 0  # of them, rounds of the plan
    pending: list[list[str]] = []  # tests of the last round
    results: list[Result] = []


class Round(msgspec.Struct):
    number: int
    tests: list[list[str]]
    why: str
    is_repeat: bool = False  # tests of an earlier round that have no result yet


class Accused(msgspec.Struct, kw_only=True):
    kind: str  # node, path, together
    names: list[str]
    slowdown: float | None  # 0.25 = a quarter slower; None: it fails
    tests: int
    confidence: str  # high, medium, low
    text: str


class Verdict(msgspec.Struct, kw_only=True):
    accused: list[Accused] = []
    suspects: list[str] = []  # what more tests have to decide
    good: int = 0  # nodes cleared
    spread: float | None = None  # relative spread of good pairs
    tests: int = 0
    not_tested: str = ""
    next: str = ""
