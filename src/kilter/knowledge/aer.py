"""PCIe Advanced Error Reporting: the errors by the names that Linux and lspci print. Table: ``tables/aer.yaml``.

Bits, names and default severities come from the kernel and the specification; causes and actions are kilter's reading.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import msgspec

from kilter.knowledge.table import folded, table, typed


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bit: int
    name: str
    long: str
    cause: str
    action: str
    aliases: list[str] = []
    layer: Literal["physical", "data_link", "transaction", ""] = ""
    default_severity: Literal["fatal", "nonfatal", "unknown", ""] = ""
    user_code: Literal["yes", "possible", "no", "unknown"] = "unknown"
    expect_xid: list[int] = []


class AerError(msgspec.Struct, frozen=True):
    name: str
    long: str
    bit: int
    correctable: bool
    default_severity: Literal["corrected", "fatal", "nonfatal", "unknown"]
    layer: Literal["physical", "data_link", "transaction"]
    cause: str
    action: str
    aliases: list[str]
    expect_xid: list[int]  # XIDs that often follow on a GPU
    user_code: Literal["yes", "possible", "no", "unknown"]
    masked_by_default: bool  # the PCIe default mask hides it: its absence proves nothing

    @property
    def confidence(self) -> Literal["medium", "low"]:
        """``low`` where no source gives the cause."""
        return "low" if self.cause == "not read from a source" else "medium"


def _typed(row: _Row, *, correctable: bool, masked: set[int]) -> AerError:
    layer = row.layer or ("data_link" if row.bit in (4, 5) else "transaction")
    return AerError(
        name=row.name,
        long=row.long,
        bit=row.bit,
        correctable=correctable,
        default_severity="corrected" if correctable else row.default_severity or "unknown",
        layer=layer,
        cause=row.cause,
        action=row.action,
        aliases=row.aliases,
        expect_xid=row.expect_xid,
        user_code=row.user_code,
        masked_by_default=correctable and row.bit in masked,
    )


@functools.cache
def errors() -> tuple[AerError, ...]:
    """All errors: the correctable ones by bit, then the uncorrectable ones."""
    source = table("aer")
    masked = set(typed(source.head("masked_by_default")["correctable_bits"], list[int]))
    rows = [(typed(source.head(key), list[_Row]), key == "correctable") for key in ("correctable", "uncorrectable")]
    return tuple(_typed(r, correctable=correctable, masked=masked) for group, correctable in rows for r in group)


@functools.cache
def _by_name() -> dict[str, AerError]:
    return {folded(name): e for e in errors() for name in (e.name, *e.aliases, e.long)}


def lookup(name: str) -> AerError | None:
    """The error that ``name`` means: kernel and lspci names ("CmpltTO"), or the long ones of rasdaemon and old kernels."""
    return _by_name().get(folded(name))


def of_bit(bit: int, *, correctable: bool) -> AerError | None:
    """The error of one bit of the status register."""
    return next((e for e in errors() if e.bit == bit and e.correctable is correctable), None)


def names_of_status(status: int, *, correctable: bool) -> list[str]:
    """Names of the bits set in a status register; a bit without a name becomes ``unknown_bit_N``."""
    names = []
    for bit in range(status.bit_length()):
        if status >> bit & 1:
            error = of_bit(bit, correctable=correctable)
            names.append(error.name if error else f"unknown_bit_{bit}")
    return names


def replay_limit(generation: int, width: int) -> int | None:
    """Replays a minute above which DCGM 4.6 calls a link bad, for its generation and width; ``None`` if not tabled."""
    rates = typed(table("aer").head("replay_limits")["per_lane_per_minute"], dict[str, float])
    rate = rates.get(f"gen{generation}")
    # rounded first: 0.96 * 16 must not become 16 by way of 15.360000000000001, nor 1.92 * 25 = 48 become 49
    return None if rate is None or width < 1 else math.ceil(round(rate * width, 6))


def reading_rules() -> list[str]:
    """How to read AER lines: who noticed, who is to blame."""
    return typed(table("aer").head("reading_rules"), list[str])


def sources() -> list[str]:
    return typed(table("aer").head("sources"), list[str])
