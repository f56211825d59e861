"""One place of a text that sets a variable, and how that place is edited."""

from __future__ import annotations

import re

import msgspec

#: Families of variables that are looked at.
FAMILY = r"(?:NCCL|TORCH_NCCL|TORCH|PYTORCH|CUDA|FI|OFI_NCCL|RDMAV|UCX|NVSHMEM|OMP|VLLM|SGLANG|SGL|NVTE|BKCL|TORCHINDUCTOR|GLOO)_[A-Z0-9_]+"
ANY = re.compile(FAMILY)
MAX_LINE = 1 << 16


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A piece of one line: line from 1, columns from 0, ``end`` exclusive."""

    line: int
    start: int
    end: int


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a patch writes. ``cut`` are the pieces that go when the setting goes; a piece with ``end`` -1 is its whole line."""

    name: Span
    value: Span | None = None
    cut: list[Span] = []


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place that sets a variable; ``value`` None = unset there. Line and column count from 1.

    ``scope`` and ``branch`` say where it holds: two settings meet only if the scope of one begins with that of the other (a
    container, a command, a file that the script writes), and one holds whenever the other does if its branch begins that other's.
    """

    name: str
    value: str | None
    file: str
    line: int
    column: int = 1
    length: int = 0  # of the text that sets it
    plain: bool = False  # a variable of the script itself, which no program need ever see
    known: bool = True  # False: the value is computed when the script runs
    verbatim: bool = False  # of NCCL's own file, which knows no shell
    scope: tuple[str, ...] = ()
    branch: tuple[str, ...] = ()
    edit: Edit | None = None


def begins(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    return long[: len(short)] == short


def meet(one: Setting, other: Setting) -> bool:
    """Whether a program may see both."""
    return begins(one.scope, other.scope) or begins(other.scope, one.scope)


def holds_for(cause: Setting, other: Setting) -> bool:
    """Whether ``cause`` is in force wherever ``other`` is, as far as the text tells."""
    return begins(cause.scope, other.scope) and begins(cause.branch, other.branch)
