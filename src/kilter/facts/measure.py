"""What was measured: samples of benchmarks and jobs, results of vendor diagnostics, collective operations of a job."""

from __future__ import annotations

from kilter.facts.base import Entity


class Sample(Entity):
    """One measured number. ``metric`` is defined by the tool: "busbw", "algbw", "bandwidth", "latency", "host_to_device", ..."""

    metric: str
    value: float
    unit: str  # GB/s (1e9), Gbit/s, us, ms, tokens/s
    tool: str = ""
    conditions: dict[str, str] = {}  # size_bytes, operation, place (in, out), ranks, device, peer, ...


class DiagnosticTest(Entity):
    """One test of ``dcgmi diag``, ``dcgmi health`` or a similar tool."""

    tool: str
    name: str  # as printed: "pcie", "Targeted Power"
    result: str  # pass, fail, warn, skip, or as printed
    device: str = ""  # "GPU 1"; "" = the whole
    message: str | None = None
    code: str | None = None  # the tool's error code or id


class CollectiveRecord(Entity):
    """One entry of a rank's flight recorder or of a watchdog's message: a collective that ended, or not."""

    rank: int
    node: str = ""
    job: str = ""  # which of several jobs, or runs of one, in a log; "" = the only or first one
    group: str = ""  # process group or communicator
    sequence: int | None = None
    operation: str | None = None  # ALLREDUCE, BROADCAST, ... upper case
    input_elements: int | None = None
    output_elements: int | None = None
    dtype: str | None = None
    state: str | None = None  # scheduled, started, completed, timed out
    time_created: float | None = None
    time_started: float | None = None
    duration_ms: float | None = None
    timeout_ms: float | None = None


class RankState(Entity):
    """What a tool says of one rank at one moment: NCCL RAS, a Python stack."""

    rank: int
    node: str = ""
    communicator: str = ""
    state: str = ""  # as printed: RUNNING, INIT, MISSING, DEAD, NOCONNECTION ...
    counts: dict[str, int] = {}  # operation -> how many were launched
    detail: str | None = None
