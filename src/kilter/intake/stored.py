"""Snapshots that stay in their files: a folder of ten thousand is looked at one after the other, not held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import msgspec

from kilter.facts.case import Snapshot
from kilter.facts.event import Clock, Event
from kilter.intake.documents import decode_snapshot
from kilter.intake.errors import UnusableInput


class Stored(NamedTuple):
    """What has to be known of a snapshot that is not in memory."""

    path: str
    node: str
    time: float | None
    booted: float | None  # wall time of its boot, s since 1970
    has_kernel_log: bool

    def load(self) -> Snapshot:
        """The snapshot itself.

        Raises:
            UnusableInput: the file is gone, or no longer what it was.
        """
        try:
            with open(self.path, "rb") as stream:
                snapshot = decode_snapshot(stream.read())
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise UnusableInput(
                f"{self.path}: was a snapshot when it was read first, and is none now ({error}); start again"
            ) from None
        snapshot.events = []  # they are the case's
        return settle(snapshot, self.node)


def store(snapshot: Snapshot, path: str) -> Stored:
    return Stored(path, snapshot.node, snapshot.time, boot_time(snapshot), any(s.tool == "kernel log" for s in snapshot.sources))


def settle(snapshot: Snapshot, node: str) -> Snapshot:
    """Give a snapshot its node where it names none, and its devices their order."""
    snapshot.node = snapshot.node or node
    if snapshot.accelerators:
        snapshot.accelerators.sort(key=lambda a: (a.index is None, a.index or 0, a.pci_address or ""))
    return snapshot


#: Sources that tell wall time and uptime of one moment.
_TIMED = {"kilter collector", "kilter snapshot"}


def boot_time(snapshot: Snapshot) -> float | None:
    """Wall time of the boot, where a collector told time and uptime at once. NTP slews make this good to about a second."""
    taken = next((s.time for s in snapshot.sources if s.tool in _TIMED and s.time is not None), None)
    if taken is None and snapshot.kilter:
        taken = snapshot.time
    return None if taken is None or snapshot.host.uptime_s is None else taken - snapshot.host.uptime_s


def place_boot_times(boots: dict[str, float], events: list[Event]) -> None:
    """Turn times since boot into wall time. ``boots``: node -> wall time of its boot."""
    for event in events:
        if event.clock is Clock.BOOT and event.time is not None and event.node in boots:
            event.time += boots[event.node]
            event.clock = Clock.UTC
            event.uncertainty_s += 1.0


class Snapshots(Sequence[Snapshot]):
    """The snapshots of a case. Those that are stored are read again each time they are asked for."""

    def __init__(self, items: Sequence[Snapshot | Stored]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> list[Snapshot]: ...
    def __getitem__(self, index: int | slice) -> Snapshot | list[Snapshot]:
        if isinstance(index, slice):
            return [_load(item) for item in self._items[index]]
        return _load(self._items[index])

    def __iter__(self) -> Iterator[Snapshot]:
        return map(_load, self._items)


def _load(item: Snapshot | Stored) -> Snapshot:
    return item.load() if isinstance(item, Stored) else item


def node_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """The nodes of snapshots, without reading those that are stored."""
    items: Sequence[Snapshot | Stored] = snapshots._items if isinstance(snapshots, Snapshots) else snapshots
    return [item.node for item in items]
