"""What one source yields: a partial snapshot, events, jobs, and what it could not place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Ref, Source
from kilter.facts.case import Snapshot
from kilter.facts.cluster import ClusterJob, ClusterNode, ImexDomain, SchedulerLoad
from kilter.facts.event import Event
from kilter.facts.fabric import FabricNode
from kilter.facts.measure import CollectiveRecord, RankState, ServingResult
from kilter.facts.nccl import NcclJob
from kilter.facts.network import NetInterface
from kilter.facts.pci import PciDevice, pci_address

if TYPE_CHECKING:
    from kilter.intake.stored import Stored

#: Outputs of a fleet, pasted one after the other, have hundreds; a megabyte can claim a hundred thousand, and distances grow with the square.
MAX_ACCELERATORS = 1024
_TOO_MANY = f"more than {MAX_ACCELERATORS}"


class Block(msgspec.Struct, kw_only=True):
    """A run of lines that one tool printed."""

    source: Source
    lines: list[str]  # without line ends
    first_line: int = 1  # number of lines[0] in its file

    def numbered(self) -> list[tuple[int, str]]:
        """(line number in the file, text) of each line."""
        return list(enumerate(self.lines, self.first_line))


class Fragment:
    """Collects what a parser or a live reader finds in one source.

    ``snapshot.sources[0]`` is the source; ``ref(line)`` makes the reference that :meth:`Entity.put` wants.
    """

    __slots__ = (
        "cluster_jobs",
        "cluster_nodes",
        "collectives",
        "events",
        "fabric",
        "group",
        "imex_domains",
        "jobs",
        "more",
        "notes",
        "rank_states",
        "scheduler_loads",
        "serving",
        "snapshot",
        "source",
        "stored",
        "unplaced",
    )

    def __init__(self, source: Source) -> None:
        self.source = source
        self.snapshot = Snapshot(sources=[source], node=source.node)
        self.stored: Stored | None = None  # stands for the snapshot, which is then empty
        self.events: list[Event] = []
        self.jobs: list[NcclJob] = []
        # What belongs to no single node; entities carry refs into ``snapshot.sources`` like all others.
        self.fabric: list[FabricNode] = []
        self.cluster_nodes: list[ClusterNode] = []
        self.cluster_jobs: list[ClusterJob] = []
        self.serving: list[ServingResult] = []
        self.scheduler_loads: list[SchedulerLoad] = []
        self.imex_domains: list[ImexDomain] = []
        self.collectives: list[CollectiveRecord] = []
        self.rank_states: list[RankState] = []
        self.notes: list[str] = []
        self.unplaced: list[tuple[int, str]] = []
        self.more: list[Fragment] = []  # of other nodes that the same text tells of
        self.group = ""  # what the input was filed under (a folder, an archive): one node, when nothing names several

    def ref(self, line: int = 0) -> Ref:
        return (0, line)

    def note(self, text: str) -> None:
        """Something the user should know about this input, e.g. that it was cut short."""
        self.notes.append(text)

    def unparsed(self, line: int, text: str) -> None:
        """A line of the block that the parser has no place for. Blank lines are dropped here."""
        if text.strip():
            self.unplaced.append((line, text))

    def device(self, address: str, line: int = 0) -> PciDevice:
        """The PCI function at ``address`` (any spelling), made on first use."""
        full = pci_address(address)
        if full is None:
            raise ValueError(f"no PCI address: {address!r}")
        if self.snapshot.pci is None:
            self.snapshot.pci = {}
        device = self.snapshot.pci.get(full)
        if device is None:
            device = self.snapshot.pci[full] = PciDevice(address=full, origin={"": self.ref(line)})
        return device

    def interface(self, name: str, line: int = 0) -> NetInterface:
        """The network interface of that name, made if it is not there yet."""
        if self.snapshot.nics is None:
            self.snapshot.nics = []
        for nic in self.snapshot.nics:
            if nic.name == name:
                return nic
        nic = NetInterface(name=name, origin={"": self.ref(line)})
        self.snapshot.nics.append(nic)
        return nic

    def accelerator(self, line: int = 0) -> Accelerator:
        """A new accelerator entry; merging by PCI address, UUID or index happens later. Beyond :data:`MAX_ACCELERATORS` it is not kept."""
        if self.snapshot.accelerators is None:
            self.snapshot.accelerators = []
        accelerator = Accelerator(origin={"": self.ref(line)})
        if len(self.snapshot.accelerators) < MAX_ACCELERATORS:
            self.snapshot.accelerators.append(accelerator)
        elif not any(note.startswith(_TOO_MANY) for note in self.notes):
            self.note(f"{_TOO_MANY} accelerators in one output; the rest, from line {line} on, is left out")
        return accelerator
