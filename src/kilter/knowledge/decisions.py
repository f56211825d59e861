"""What to do about each parameter, by conditions over facts. Table: ``tables/decisions.yaml``; the parameters: ``tables/tunables.yaml``."""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from kilter.facts.plan import Benefit
from kilter.knowledge.table import table, typed


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change with blanks: ``{value}`` is the value to be, ``{item}`` one of what ``Decision.each`` lists."""

    mechanism: str
    key: str
    value: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case: under ``when`` exactly one of ``set``, ``unset``, ``leave`` and ``by_hand`` says what is to be."""

    when: str
    set: str | None = None
    unset: bool = False
    leave: str = ""
    by_hand: str = ""
    verdict: Literal["recommend", "refuse"] = "recommend"
    gain: int = 0
    why: str = ""
    ok: list[str] = []
    reads: str = ""
    write: list[Write] = []
    needs: str = ""
    verify: str = ""
    disagreement: str = ""
    benefits: list[Benefit] = []
    after: list[str] = []  # parameters that come first


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one parameter; ``reads`` is ``mechanism:key`` of the value in force, or ``none``."""

    id: str
    reads: str
    rules: list[Rule]
    title: str = ""
    write: list[Write] = []
    each: str = ""


@functools.cache
def decisions() -> dict[str, Decision]:
    """All explicit decisions by id, in the order of the table."""
    return {d.id: d for d in typed(table("decisions").head("decisions"), list[Decision])}


@functools.cache
def classes() -> dict[str, str]:
    """Class of each parameter that has one (nccl_env), without parsing the table."""
    text = table("tunables").sections["tunables"]
    found = {}
    for entry in re.split(r"^- id: ", text, flags=re.MULTILINE)[1:]:
        if (match := re.search(r"^  class: (\S+)$", entry, re.MULTILINE)) is not None:
            found[entry.partition("\n")[0]] = match[1]
    return found
