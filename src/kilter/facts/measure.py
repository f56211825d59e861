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


class Latency(Entity):
    """One kind of latency over the requests of a benchmark run, in seconds. Percentiles that a tool does not print are ``None``."""

    mean: float | None = None
    median: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = None


class ServingResult(Entity):
    """One run of a serving benchmark: how many requests in what time, and how long they took.

    Latencies are ``ttft`` (to the first token), ``tpot`` (a token after the first, mean of each request), ``itl`` (between tokens) and ``e2e``
    (the whole request). Rates are per second.
    """

    tool: str
    place: str = ""  # file of the run, as evidence names it
    model: str | None = None
    concurrency: float | None = None  # requests in flight that were allowed
    concurrency_measured: float | None = None
    rate_asked: float | None = None  # requests/s; None = as fast as the limit allows
    rate_sent: float | None = None  # requests/s that the client managed to send
    asked: int | None = None  # requests
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    input_tokens: float | None = None  # of a request, mean
    output_tokens: float | None = None
    input_tokens_asked: float | None = None
    request_throughput: float | None = None
    input_throughput: float | None = None  # tokens/s
    output_throughput: float | None = None
    ttft: Latency | None = None
    tpot: Latency | None = None
    itl: Latency | None = None
    e2e: Latency | None = None
