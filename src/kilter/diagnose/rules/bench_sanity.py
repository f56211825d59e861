"""Whether results of collective and bandwidth benchmarks may be used at all: wrong data, failed runs, averages that mislead.

A busbw above the rate of the link is no fault: the formula assumes rings, and trees, NVLS and SHARP move less (NVIDIA/nccl-tests#22).
"""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.nccl import COMPLETION
from kilter.facts.case import Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import Sample

_DOC = "NVIDIA/nccl-tests doc/PERFORMANCE.md"


def _nccl(snapshot: Snapshot, *metrics: str) -> list[Sample]:
    return [s for s in snapshot.samples if s.tool == "nccl-tests" and s.metric in metrics]


def _named(sample: Sample) -> str:
    keys = ("operation", "dtype", "size_bytes", "place")
    place = {"in": "in place", "out": "out of place"}
    return ", ".join(
        place.get(sample.conditions[k], sample.conditions[k]) + (" bytes" if k == "size_bytes" else "")
        for k in keys
        if k in sample.conditions
    )


@rule(
    "bench.data_errors",
    "Benchmarks of collectives found their data correct",
    scope="node",
    family="bench",
    sop="SOP-NCCL",
    hint="all_reduce_perf -c 1",
    sources=("NVIDIA/nccl-tests src/common.cu", "NVIDIA/nccl-tests#104"),
    action="Do not use the result. Repeat on halves of the nodes to find the GPU, link or NIC that corrupts data.",
)
def data_errors(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """nccl-tests compared the result with the right one and found wrong values. Such data would go into a model unnoticed.

    N/A in the column means that nothing was compared; rounding of the old "error" column below its limit is right.
    """
    checked = _nccl(snapshot, "wrong", "max_error", "out_of_bounds")
    if not _nccl(snapshot, "busbw"):
        raise ctx.missing("nccl-tests output")
    bad = [s for s in checked if s.metric == "wrong" and s.value > 0]
    bad += [s for s in checked if s.metric == "max_error" and s.value > float(s.conditions.get("limit", "0"))]
    bad += [
        s
        for s in checked
        if s.metric == "out_of_bounds" and (s.value > 0 or s.conditions.get("verdict", "").upper().startswith("FAIL"))
    ]
    if not [s for s in checked if s.metric != "out_of_bounds"] and not bad:
        raise ctx.missing("check of the data (#wrong is N/A)", "run nccl-tests with -c 1")
    if not bad:
        return None
    evidence = [Evidence(f"{s.metric} = {s.value:g}: {_named(s)}".rstrip(": "), snapshot.where(s.ref(""))) for s in bad]
    return ctx.finding(
        "error",
        f"nccl-tests found wrong data in {len(bad)} result(s)",
        evidence=evidence,
        causes=[
            Cause(
                "a GPU, NVLink, PCIe or NIC path that corrupts data",
                "likely",
                "the same test inside each node, then between pairs",
            ),
            Cause("an error in NCCL, a plugin, or the test's own reference", "possible", "another NCCL version; NCCL_ALGO=Ring"),
        ],
    )


@rule(
    "bench.failed",
    "Benchmarks ran to their end",
    scope="case",
    family="bench",
    sop="SOP-NCCL",
    hint="all_reduce_perf -c 1",
    sources=("NVIDIA/nccl-tests src/common.h", "NVIDIA/nccl-tests#322", "linux-rdma/perftest src/perftest_resources.c"),
    action="Read the NCCL WARN lines of the named hosts (NCCL_DEBUG=INFO); rows before the failure are valid as far as they go.",
)
def failed(case: object, ctx: Context) -> Iterator[Finding]:
    """A run of nccl-tests or perftest ended with a failure. The hosts that print it are those that noticed. A server that nobody started is
    information: nothing was measured."""
    events = [e for e in ctx.case.events if e.kind == "job.test_failed"]
    if not events and not any({"nccl-tests", "perftest"} & set(profile.measures) for profile in ctx.profiles):
        raise ctx.missing("output of nccl-tests or perftest")
    nccl = [e for e in events if e.fields.get("tool") != "perftest"]
    if nccl:
        hosts = sorted({e.node for e in nccl if e.node})
        yield ctx.finding(
            "error", f"nccl-tests failed: {nccl[0].text}" + (f" (seen by {', '.join(hosts[:8])})" if hosts else ""), evidence=nccl
        )
    runs: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.fields.get("tool") == "perftest":
            runs.setdefault((event.source, event.fields["what"]), []).append(event)
    for (source, kind), found in runs.items():
        severity, what, causes, action = _PERFTEST[kind]
        fields = found[0].fields
        if kind == "completion" and (known := COMPLETION.get(fields.get("status", ""))):
            what = f"{what} {fields['status']}: {known[0]}"
        if kind == "queue_pair" and "gid_index" in fields:
            what += f" with GID index {fields['gid_index']}"
        test = f"{fields.get('test', '').replace('_', ' ')} {fields.get('device', '')}".strip()
        yield ctx.finding(
            severity,
            f"perftest{f' ({test})' if test else ''} failed: {what}",
            subject=Subject("job", source),
            evidence=found,
            causes=causes,
            action=action,
            sop="SOP-IB",
        )


#: What failed -> severity, in words, causes, action.
_PERFTEST: dict[str, tuple[str, str, list[Cause], str]] = {
    "connect": (
        "info",
        "no server answered, nothing was measured",
        [
            Cause("the server side is not running, or listens on another port (-p)", "likely"),
            Cause("a firewall between them", "possible"),
        ],
        "Start the server side first, then run again.",
    ),
    "device": (
        "error",
        "the named RDMA device is not there",
        [
            Cause("another name on this host", "likely", "ibv_devices"),
            Cause("driver not loaded, or /dev/infiniband not in the container", "possible"),
        ],
        "Compare -d with ibv_devices on this host.",
    ),
    "port": (
        "error",
        "the port is not active",
        [Cause("link down: cable, switch port or subnet manager", "likely", "ibstat, ip link")],
        "Bring the port up first.",
    ),
    "queue_pair": (
        "error",
        "the queue pair cannot be connected",
        [
            Cause(
                "a GID index that does not exist or cannot be routed (-x)",
                "likely",
                "show_gids: the RoCE v2 entry of the IPv4 address",
            ),
            Cause("MTU larger than the path's (-m)", "possible", "ibv_devinfo: active_mtu on both ends"),
            Cause("no route or neighbour entry to the peer", "possible", "ip route get <peer>; ip neigh"),
        ],
        "Run again with the index of the RoCE v2 IPv4 GID on both sides.",
    ),
    "memory": (
        "error",
        "memory cannot be registered",
        [
            Cause("locked-memory limit too low", "likely", "ulimit -l in the same shell"),
            Cause("GPU memory without nvidia-peermem or DMA-BUF (--use_cuda)", "possible", "works without --use_cuda"),
        ],
        "Set memlock to unlimited for this user or container and run again.",
    ),
    "completion": (
        "error",
        "work completed with status",
        [Cause("link, peer or GID", "likely", "port counters of both ends before and after")],
        "Repeat against another peer: that tells this end from the other.",
    ),
    "below_limit": (
        "error",
        "the result is below the limit that was given",
        [],
        "Compare the ends: PCIe link, NUMA node, MTU, counters.",
    ),
    "broke": (
        "error",
        "the run broke while it was measured",
        [Cause("the other side ended or lost its link first", "likely", "the output of the other side")],
        "Read the other side's output.",
    ),
}


@rule(
    "bench.average_misleads",
    "The plateau, not the average, is compared",
    scope="node",
    family="bench",
    sources=(_DOC,),
    action="Compare the busbw of the largest size with the same size of a baseline.",
)
def average(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """The line "Avg bus bandwidth" is the mean over all sizes that were run; with small sizes in the run it says nothing of the machine."""
    averages = _nccl(snapshot, "average_busbw")
    if not averages:
        raise ctx.missing("nccl-tests output")
    for mean in averages:
        rows = [
            s
            for s in _nccl(snapshot, "busbw")
            if s.origin.get("", (0, 0))[0] == mean.origin.get("", (0, 0))[0] and s.conditions.get("size_bytes", "").isdecimal()
        ]
        if not rows:
            continue
        largest = max(int(s.conditions["size_bytes"]) for s in rows)
        top = max((s for s in rows if int(s.conditions["size_bytes"]) == largest), key=lambda s: s.value)
        if top.value > 0 and mean.value < 0.7 * top.value:
            yield ctx.finding(
                "info",
                f"average busbw {mean.value:g} GB/s covers all sizes; at {largest} bytes it is {top.value:g} GB/s",
                evidence=[
                    Evidence(f"average {mean.value:g} GB/s", snapshot.where(mean.ref(""))),
                    Evidence(f"busbw {top.value:g} GB/s: {_named(top)}", snapshot.where(top.ref(""))),
                ],
            )
            return
