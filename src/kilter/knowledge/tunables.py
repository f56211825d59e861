"""Parameters of kernel, PCIe, GPU, NIC, NCCL, containers and frameworks. Table: ``tables/tunables.yaml``."""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from kilter.knowledge.table import folded, table, typed


class Tunable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    """One parameter; ``gate`` is a condition on facts (Python syntax) outside of which it must not be recommended."""

    id: str
    layer: str
    how_to_read: str
    how_to_set: str
    persistent_form: str
    needs: str
    default: str | int | float
    recommended_when: str
    recommended_value: str | int | float
    effect: str
    risk: str
    conflicts_with: list[str]
    source: list[str]
    confidence: Literal["high", "medium", "low"]
    meaning: str = ""
    since: str | float = ""
    class_: str = ""
    gate: str | None = None
    cargo_cult: bool = False
    kind: str = ""

    @property
    def unverified(self) -> bool:
        """Whether a part of it rests on no source that was seen."""
        return any(
            "(unverified)" in part for part in (*self.source, str(self.default), self.recommended_when, self.effect, self.risk)
        )


def names() -> list[str]:
    """All ids, as written."""
    return table("tunables").keys("tunables", "id")


@functools.cache
def _index() -> dict[str, str]:
    found: dict[str, str] = {}
    for full in names():
        parts = full.split(".")
        for start in range(len(parts)):
            found.setdefault(folded(".".join(parts[start:])), full)
    return found


def lookup(name: str) -> Tunable | None:
    """The parameter called ``name``: its id, the id's last parts, an environment variable, or ``NAME=value``."""
    full = _index().get(folded(re.sub(r"=.*", "", name.removeprefix("export ").strip(), flags=re.DOTALL)))
    entry = None if full is None else table("tunables").entry("tunables", "id", full)
    return None if entry is None else typed(entry, Tunable)
