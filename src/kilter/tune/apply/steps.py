"""The few kinds of step that every change is made of. Each can be undone from what was there before, by kilter and by plain sh."""

from __future__ import annotations

import msgspec


class Put(msgspec.Struct, frozen=True, tag="put"):
    """A file gets these bytes; ``data`` None takes it away. ``mode`` counts for a file that is new."""

    path: str
    data: bytes | None
    mode: int = 0o644


class Poke(msgspec.Struct, frozen=True, tag="poke"):
    """A file of the kernel (/proc, /sys) gets a value. What it reads back may be written differently."""

    path: str
    value: str


class Bytes(msgspec.Struct, frozen=True, tag="bytes"):
    """Bytes at an offset of a binary file of the kernel: PCI configuration space."""

    path: str
    offset: int
    data: bytes


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A command; no ``argv`` = nothing now, but ``undo`` on the way back, after all later steps are undone.

    ``undo`` takes its effect back. ``touches`` names the files that it writes, which are kept and put back byte for byte; where somebody else
    has written them since (a new kernel makes a new boot menu), ``again`` makes them anew instead.
    """

    argv: list[str] = []
    undo: list[list[str]] = []
    touches: list[str] = []
    again: list[str] = []


Step = Put | Poke | Bytes | Call
