"""What exporters of metrics show, and how they mislead: series that end, gauges that never go back, values that stand still."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.dcgm import gpu_series, gpu_subject, series_labels
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.knowledge import dcgm_fields, xid

#: Metrics that every GPU has, in whatever mode: their lack means that the GPU did not answer.
_ALWAYS = {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED"}
MIN_ROWS = 20


def _coverage(snapshot: Snapshot) -> tuple[dict[str, set[str]], dict[str, str]]:
    """GPU -> its DCGM device metrics, and GPU -> its kind (model, and whether it is cut into MIG instances)."""
    names: dict[str, set[str]] = {}
    models: dict[str, str] = {}
    mig: set[str] = set()
    for metric, series in snapshot.metrics.items():
        field = dcgm_fields.canonical(metric)
        if field is None or not metric.startswith("DCGM_FI_"):
            continue
        for text in series:
            labels = series_labels(text)
            key = labels.get("gpu") or labels.get("UUID") or ""
            if not key:
                continue
            names.setdefault(key, set()).add(field)
            models.setdefault(key, labels.get("modelName", ""))
            if labels.get("GPU_I_ID"):
                mig.add(key)
    return names, {key: f"{model}|{key in mig}" for key, model in models.items()}


@rule(
    "gpu.metric_missing_for_one",
    "The exporter tells as much of each GPU",
    scope="node",
    family="monitoring",
    sop="SOP-BUS",
    hint="curl -s localhost:9400/metrics",
    sources=("NVIDIA/dcgm-exporter#348, #646, #700 (series of a lost GPU end or go blank)", "knowledge: dcgm_fields.yaml"),
)
def missing_for_one(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """One GPU lacks metrics that two or more siblings of its model have. Series of a lost GPU end; they do not go to 0.

    A warning when temperature, power, clock and memory are among them, or when the exporter says nothing at all of a GPU that another tool
    lists. GPUs with MIG instances are compared among themselves, since whole-GPU series end there by design.
    """
    names, kinds = _coverage(snapshot)
    if not names:
        raise ctx.missing("metrics of dcgm-exporter")
    for key, own in sorted(names.items()):
        peers = [names[k] for k in names if k != key and kinds[k] == kinds[key]]
        if len(peers) < 2:
            continue
        lacks = set.intersection(*peers) - own
        if not lacks:
            continue
        lost = len(lacks & _ALWAYS) >= 2
        yield ctx.finding(
            "warning" if lost else "info",
            f"{len(lacks)} metric(s) that {len(peers)} siblings have are missing: {', '.join(sorted(lacks)[:4])}"
            + (": the GPU may be lost or hang" if lost else ""),
            subject=gpu_subject(snapshot, key, ctx.node),
            evidence=[Evidence(f"{len(own)} metrics of this GPU, {len(set.intersection(*peers))} common to its siblings")],
            causes=[
                Cause(
                    "the GPU fell off the bus or its driver does not answer", "likely", "nvidia-smi -L; kernel log: XID 79, 119"
                ),
                Cause("the field is not supported in this GPU's mode", "possible", "nvidia-smi -q of this GPU"),
            ]
            if lost
            else (),
            action="nvidia-smi -L and the kernel log of this node; a missing series is not a zero." if lost else "",
            confidence="medium",
            sop=None if lost else "",
        )
    seen = {key for key in names if key.isdecimal()}
    listed = [gpu for gpu in snapshot.accelerators or [] if gpu.index is not None]
    numbers = sorted(int(key) for key in seen)
    gaps = [(low, high) for low, high in pairwise(numbers) if high - low > 1]
    told = {str(gpu.index) for gpu in listed}
    # One hole among many; more holes are an exporter told to watch some GPUs only.
    hole = gaps[0][0] + 1 if len(gaps) == 1 and gaps[0][1] - gaps[0][0] == 2 else None
    if hole is not None and len(numbers) >= 4 and str(hole) not in told:
        yield ctx.finding(
            "warning",
            f"no metric at all of GPU {hole}, while GPUs {numbers[0]} to {numbers[-1]} beside it have theirs",
            subject=gpu_subject(snapshot, str(hole), ctx.node),
            evidence=[Evidence(f"metrics of GPU {', '.join(map(str, numbers))}")],
            causes=[
                Cause(
                    "the GPU fell off the bus or its driver does not answer", "likely", "nvidia-smi -L; kernel log: XID 79, 119"
                ),
                Cause("the exporter is told to leave it out", "possible", "the exporter's -d option; a GPU given to a VM"),
            ],
            action="nvidia-smi -L and the kernel log of this node; a missing series is not a zero.",
            confidence="medium",
        )
    # More than half without metrics is an exporter told to watch some GPUs only.
    if seen and len(names) < len(listed) <= 2 * len(names):
        for gpu in listed:
            if str(gpu.index) not in seen and gpu.uuid not in names:
                yield ctx.finding(
                    "warning",
                    "the exporter has no metric of this GPU, which another tool lists",
                    subject=gpu_subject(snapshot, str(gpu.index), ctx.node),
                    evidence=[ctx.fact(gpu, "index"), Evidence(f"metrics of GPU {', '.join(sorted(seen))}")],
                    action="nvidia-smi -L; restart the exporter only after the GPU answers.",
                    confidence="medium",
                )


@rule(
    "metrics.xid",
    "The exporter has seen no XID",
    scope="node",
    family="monitoring",
    sop="",
    hint="curl -s localhost:9400/metrics | grep XID",
    sources=("NVIDIA/DCGM#277 (the gauge keeps the last XID until restart)", "knowledge: dcgm_fields.yaml"),
    also=("metrics.xid_last", "metrics.xid_recent"),
)
def xid_seen(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """The gauge DCGM_FI_DEV_XID_ERRORS repeats the last XID until DCGM restarts, so it tells that there was one, not when: information.

    DCGM_EXP_XID_ERRORS_COUNT counts those of the last minutes (label xid) and is a warning.
    """
    recent = snapshot.metrics.get("DCGM_EXP_XID_ERRORS_COUNT")
    last = gpu_series(snapshot, "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
    if recent is None and not last:
        raise ctx.missing("XID metric")
    for name, series in last.items():
        for key, value in series.items():
            if value > 0:
                yield _xid(int(value), snapshot, ctx, key, name, recent=False, count=1)
    for text, count in (recent or {}).items():
        labels = series_labels(text)
        code, key = labels.get("xid", ""), labels.get("gpu") or labels.get("UUID", "")
        if count > 0 and re.fullmatch(r"\d{1,4}", code) and int(code) and key:
            yield _xid(int(code), snapshot, ctx, key, "DCGM_EXP_XID_ERRORS_COUNT", recent=True, count=int(count))


def _xid(code: int, snapshot: Snapshot, ctx: Context, key: str, metric: str, *, recent: bool, count: int) -> Finding:
    known = xid.lookup(code)
    what = f"XID {code}" + (f" ({known.name})" if known is not None else "")
    return ctx.finding(
        "warning" if recent else "info",
        f"{what}: {count} in the exporter's window"
        if recent
        else f"{what} was the last one; the gauge keeps it, so it is no new event",
        id="metrics.xid_recent" if recent else "metrics.xid_last",
        subject=gpu_subject(snapshot, key, ctx.node),
        evidence=[Evidence(f"{metric} = {count if recent else code}", ctx.where(snapshot, f"metrics.{metric}"))],
        missing=["when it was: kernel log of the node (dmesg -T)"],
        action=f"Look for it in the kernel log; kilter explain {code} says what to do.",
        sop=xid.sop(code),
    )


@rule(
    "metrics.stuck",
    "Readings of a busy GPU move",
    scope="gpu",
    family="monitoring",
    sop="SOP-SW",
    hint="nvidia-smi dmon -c 30",
    sources=("kilter: power of a busy GPU never stays the same to the watt",),
    action="Compare with nvidia-smi on the node; if that hangs, SOP-GSP. Restart the host engine.",
)
def stuck(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Twenty and more readings of one source that show work and are the same in power, temperature, clock and memory: old values repeated."""

    def values(r: Reading) -> tuple[object, ...]:
        return (r.power_w, r.temperature_c, r.sm_clock_mhz, r.graphics_clock_mhz, r.memory_used_mib, r.utilization_percent)

    rows: dict[int, list[Reading]] = {}
    for reading in gpu.readings:
        if reading.power_w is not None and reading.temperature_c is not None and reading.utilization_percent is not None:
            rows.setdefault(reading.source, []).append(reading)
    judged = [r for r in rows.values() if len(r) >= MIN_ROWS]
    if not judged:
        raise ctx.missing(f"{MIN_ROWS} readings in a row")
    for run in judged:
        if (run[0].utilization_percent or 0) >= 50 and all(values(r) == values(run[0]) for r in run):
            return ctx.finding(
                "warning",
                f"{len(run)} readings under load are all the same: {run[0].power_w:g} W, {run[0].temperature_c} C",
                evidence=[ctx.fact(run[0], "power_w"), ctx.fact(run[-1], "power_w")],
                causes=[
                    Cause("the host engine or exporter repeats an old value", "likely", "nvidia-smi now, on the node"),
                    Cause("the driver hangs", "possible", "kernel log: XID 119"),
                ],
                confidence="medium",
            )
    return None
