"""Result codes of NCCL calls. Table: ``tables/nccl_results.yaml``."""

from __future__ import annotations

import functools
import re

import msgspec

from kilter.knowledge.table import table, typed


class NcclResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    meaning: str
    first: str  # what to look at first
    look_at: list[str] = []  # topics


@functools.cache
def results() -> tuple[NcclResult, ...]:
    return tuple(typed(table("nccl_results").head("results"), list[NcclResult]))


def find(text: str) -> NcclResult | None:
    """The result code that ``text`` names, as PyTorch prints it ("ncclRemoteError: ..."); the first one where it names several."""
    word = re.search(r"\bnccl[A-Z]\w+", text)
    return None if word is None else next((one for one in results() if one.name.lower() == word.group().lower()), None)
