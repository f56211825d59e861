"""Command-line flags of serving engines by version. Table: ``tables/engine_flags.yaml``."""

from __future__ import annotations

import difflib
import functools

import msgspec

from kilter.knowledge.table import table, typed

ENGINES = ("vllm", "sglang")


class Flag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One flag, without dashes; versions are releases of the engine."""

    since: str
    removed: str = ""


@functools.cache
def flags(engine: str) -> dict[str, Flag]:
    """The flags of an engine of :data:`ENGINES`."""
    return typed(table("engine_flags").head(engine), dict[str, Flag])


@functools.cache
def read_to(engine: str) -> str:
    """The newest release that was read: what later ones have is not known."""
    return typed(table("engine_flags").head("read_to"), dict[str, str])[engine]


@functools.lru_cache(maxsize=256)
def near(engine: str, name: str) -> str:
    """The flag that was probably meant; "" if none is near."""
    close = difflib.get_close_matches(name, flags(engine), 1, 0.88)
    return close[0] if close else ""
