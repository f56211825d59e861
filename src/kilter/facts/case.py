"""Snapshot (one node at a time) and Case (all that is known)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilter.facts.accelerator import Accelerator, NvSwitch, TopologyMatrix
from kilter.facts.base import Entity, Ref, Source
from kilter.facts.cluster import ClusterJob, ClusterNode, ImexDomain, SchedulerLoad
from kilter.facts.event import Event
from kilter.facts.fabric import FabricNode
from kilter.facts.host import Cpu, Environment, Host, Kernel, Limits, Memory, Software
from kilter.facts.measure import CollectiveRecord, DiagnosticTest, RankState, Sample, ServingResult
from kilter.facts.nccl import NcclJob
from kilter.facts.network import NetInterface, RdmaDevice
from kilter.facts.pci import PciDevice
from kilter.facts.workload import Workload

#: Version of the fact schema. A reader accepts its own version and older ones; fields are only ever added.
SCHEMA_VERSION = 1


class NcclTopologyNode(Entity):
    """One PCI device or NIC of an NCCL topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), flattened."""

    kind: str  # cpu, pci, gpu, nic, net, nvlink
    bus_id: str | None = None  # PCI address
    parent: str | None = None  # bus id above, or "cpu <numaid>"
    numa_node: int | None = None
    link_speed: str | None = None  # as printed
    link_width: int | None = None
    attributes: dict[str, str] = {}


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
    nccl_topology: list[NcclTopologyNode] | None = None
    diagnostics: list[DiagnosticTest] | None = None
    samples: list[Sample] = []
    metrics: dict[str, dict[str, float]] = {}  # exporter metric -> label text -> value, of a Prometheus scrape
    events: list[Event] = []
    conflicts: list[Conflict] = []

    def where(self, ref: Ref | None) -> str:
        """``file:line`` of a reference, or "" when it is not known."""
        if ref is None or not 0 <= ref[0] < len(self.sources):
            return ""
        name = self.sources[ref[0]].name
        return f"{name}:{ref[1]}" if ref[1] else name


class NodeSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a node is, in a few words."""

    node: str
    accelerators: dict[str, int] = {}  # product name -> how many
    driver_version: str | None = None
    sources: list[str] = []


def summarize(snapshot: Snapshot) -> NodeSummary:
    names: dict[str, int] = {}
    for accelerator in snapshot.accelerators or []:
        name = accelerator.name or ("GPU that does not answer" if accelerator.error else "GPU (model not given)")
        names[name] = names.get(name, 0) + 1
    tools = dict.fromkeys(s.tool for s in snapshot.sources if s.tool)
    return NodeSummary(
        node=snapshot.node, accelerators=names, driver_version=snapshot.software.driver_version, sources=list(tools)
    )


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

    snapshots: Sequence[Snapshot] = []
    events: list[Event] = []
    jobs: list[NcclJob] = []
    workload: Workload | None = None
    inputs: list[Input] = []
    sources: list[Source] = []  # of what follows, which belongs to no single node
    fabric: list[FabricNode] | None = None
    cluster_nodes: list[ClusterNode] | None = None
    cluster_jobs: list[ClusterJob] | None = None
    serving: list[ServingResult] | None = None  # runs of serving benchmarks
    scheduler_loads: list[SchedulerLoad] | None = None
    imex_domains: list[ImexDomain] | None = None
    collectives: list[CollectiveRecord] = []
    rank_states: list[RankState] = []
    kernel_logs: list[str] = []  # nodes whose kernel log was given ("" = node not named)

    def where(self, ref: Ref | None) -> str:
        """``file:line`` of a reference of a fabric, cluster or job entity."""
        if ref is None or not 0 <= ref[0] < len(self.sources):
            return ""
        name = self.sources[ref[0]].name
        return f"{name}:{ref[1]}" if ref[1] else name
