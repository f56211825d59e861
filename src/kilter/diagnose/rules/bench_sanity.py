"""Whether results of collective and bandwidth benchmarks may be used at all: wrong data, failed runs, averages that mislead.

A busbw above the rate of the link is no fault: the formula assumes rings, and trees, NVLS and SHARP move less (NVIDIA/nccl-tests#22).
"""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding
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
    "Benchmarks of collectives ran to their end",
    scope="case",
    family="bench",
    sop="SOP-NCCL",
    hint="all_reduce_perf -c 1",
    sources=("NVIDIA/nccl-tests src/common.h", "NVIDIA/nccl-tests#322"),
    action="Read the NCCL WARN lines of the named hosts (NCCL_DEBUG=INFO); rows before the failure are valid as far as they go.",
)
def failed(case: object, ctx: Context) -> Finding | None:
    """A run of nccl-tests ended with a failure. The hosts that print it are those that noticed."""
    events = [e for e in ctx.case.events if e.kind == "job.test_failed"]
    if not events:
        if not any(_nccl(snapshot, "busbw") for snapshot in ctx.case.snapshots):
            raise ctx.missing("nccl-tests output")
        return None
    hosts = sorted({e.node for e in events if e.node})
    return ctx.finding(
        "error", f"nccl-tests failed: {events[0].text}" + (f" (seen by {', '.join(hosts[:8])})" if hosts else ""), evidence=events
    )


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
