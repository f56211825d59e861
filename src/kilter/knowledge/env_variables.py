"""Environment variables of NCCL by version. Table: ``tables/env_variables.yaml``."""

from __future__ import annotations

import difflib
import functools

import msgspec

from kilter.knowledge.table import table, typed


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One variable; versions are releases of NCCL."""

    since: str = ""
    deprecated: str = ""
    removed: str = ""
    renamed: str = ""  # the name that it has now
    instead: str = ""
    section: str = ""  # of the manual: system, debug; "" = not in the manual
    default: list[tuple[str, str]] = []  # (since which version, value), oldest first


@functools.cache
def variables() -> dict[str, Variable]:
    """Every variable that NCCL 2.4 to 2.30 reads or its manual names."""
    return typed(table("env_variables").head("nccl"), dict[str, Variable])


@functools.cache
def moved() -> dict[str, str]:
    """Old names of PyTorch's own variables -> the names since 2.2."""
    return typed(table("env_variables").head("moved"), dict[str, str])


@functools.cache
def _prefixes() -> list[tuple[str, str]]:
    return [(one["prefix"], one["who"]) for one in typed(table("env_variables").head("known_prefixes"), list[dict[str, str]])]


def owner(name: str) -> str:
    """Who else reads a variable of this name: "gIB of Google"; "" if nobody is known."""
    return next((who for prefix, who in _prefixes() if name.startswith(prefix)), "")


@functools.lru_cache(maxsize=1024)
def near(name: str) -> str:
    """The variable that was probably meant; "" if none is near."""
    close = difflib.get_close_matches(name, variables(), 1, 0.84)
    return close[0] if close else ""
