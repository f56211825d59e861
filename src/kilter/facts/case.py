"""Snapshot (one node at a time) and Case (all that is known)."""

from __future__ import annotations

import msgspec

from kilter.facts.accelerator import Accelerator, NvSwitch, TopologyMatrix
from kilter.facts.base import Entity, Ref, Source
from kilter.facts.event import Event
from kilter.facts.host import Cpu, Environment, Host, Kernel, Limits, Memory, Software
from kilter.facts.nccl import NcclJob
from kilter.facts.network import NetInterface, RdmaDevice
from kilter.facts.pci import PciDevice
from kilter.facts.workload import Workload

#: Version of the fact schema. A reader accepts its own version and older ones; fields are only ever added.
SCHEMA_VERSION = 1


class Conflict(msgspec.Struct, omit_defaults=True):
    """Two sources disagree on a fact. The later (or, without times, the first) is kept."""

    subject: str
    field: str
    kept: str
    other: str
    kept_ref: Ref | None = None
    other_ref: Ref | None = None


class Snapshot(Entity):
    """All facts of one node."""

    schema: int = 0  # SCHEMA_VERSION once it is written to a file
    node: str = ""  # host name; "" = not known
    time: float | None = None
    kilter: str = ""  # version of the collector, if kilter took it
    sources: list[Source] = []
    host: Host = msgspec.field(default_factory=Host)
    kernel: Kernel = msgspec.field(default_factory=Kernel)
    cpu: Cpu = msgspec.field(default_factory=Cpu)
    memory: Memory = msgspec.field(default_factory=Memory)
    limits: Limits = msgspec.field(default_factory=Limits)
    environment: Environment = msgspec.field(default_factory=Environment)
    software: Software = msgspec.field(default_factory=Software)
    pci: dict[str, PciDevice] | None = None  # None = not collected
    accelerators: list[Accelerator] | None = None  # None = nobody asked; [] = there are none
    accelerators_attached: int | None = None  # how many the tool says there are
    nvswitches: list[NvSwitch] | None = None
    rdma: list[RdmaDevice] | None = None
    nics: list[NetInterface] | None = None
    topology: TopologyMatrix | None = None
    events: list[Event] = []
    conflicts: list[Conflict] = []

    def where(self, ref: Ref | None) -> str:
        """``file:line`` of a reference, or "" when it is not known."""
        if ref is None or not 0 <= ref[0] < len(self.sources):
            return ""
        name = self.sources[ref[0]].name
        return f"{name}:{ref[1]}" if ref[1] else name


class Input(msgspec.Struct, kw_only=True):
    """What became of one input file."""

    name: str
    tools: list[str] = []  # what was recognised in it
    lines: int = 0
    unrecognised_lines: int = 0
    unrecognised_sample: list[str] = []  # "17: text", the first few
    notes: list[str] = []  # e.g. "cut short inside GPU 3"


class Case(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that is known: snapshots by node, events in time order, NCCL jobs, the workload if given."""

    snapshots: list[Snapshot] = []
    events: list[Event] = []
    jobs: list[NcclJob] = []
    workload: Workload | None = None
    inputs: list[Input] = []
    kernel_logs: list[str] = []  # nodes whose kernel log was given ("" = node not named)
