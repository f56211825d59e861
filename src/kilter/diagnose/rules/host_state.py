"""What state the host is in: tasks that wait in the kernel, and its clock."""

from __future__ import annotations

import re

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.host import Host
from kilter.facts.measure import DiagnosticTest

_GPU_TASK = re.compile(r"\d+ (?:nvidia|nv-|dcgm|nvsm|cuda|irq/\d+-nvidia)")
_GPU_WAIT = re.compile(r"\((?:nv_|rm_|_nv|os_acquire|nvidia|uvm_)")
_FILES_WAIT = re.compile(
    r"\((?:nfs|rpc_|cl_sync|ldlm|ptlrpc|lustre|fuse|request_wait|gpfs|cxi|io_schedule|wait_on_page|folio_wait)"
)
#: An offset that breaks tokens, logs and certificates; NTP keeps nodes within milliseconds.
OFFSET_S = 1.0


@rule(
    "host.d_state",
    "No GPU task waits in the kernel",
    scope="node",
    family="host",
    sop="SOP-HOST",
    hint="ps -eo pid,stat,wchan:32,comm; twice, a minute apart",
    sources=("procps ps(1): state D", "research: failure mode 51"),
    action="Save the stacks (echo w > /proc/sysrq-trigger; cat /proc/<pid>/stack) and the kernel log; a GPU task that stays needs a reboot.",
)
def d_state(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Tasks of the GPU driver in uninterruptible sleep, or, as information, four and more of any kind. One sample: a moment in D is normal for
    whatever reads and writes files."""
    tasks = ctx.need(snapshot.host, Host.blocked_tasks)
    gpu = [t for t in tasks if _GPU_TASK.match(t) or _GPU_WAIT.search(t)]
    files = [t for t in tasks if _FILES_WAIT.search(t) and t not in gpu]
    if not gpu and len(tasks) < 4:
        return None
    hangs = [e for e in ctx.case.events if e.node in ("", snapshot.node) and e.kind == "xid" and e.code in (79, 119, 120)]
    driver = Cause(
        "the GPU driver: it waits for firmware or for a GPU that is gone",
        "likely" if hangs or gpu else "unlikely",
        "XID 79, 119 or 120 in the kernel log",
    )
    storage = Cause(
        "network file system or storage",
        "likely" if files and not gpu else "possible",
        "nfs, Lustre or GPFS lines in the kernel log; df hangs",
    )
    return ctx.finding(
        "warning" if gpu else "info",
        f"{len(gpu) or len(tasks)} {'GPU ' if gpu else ''}task(s) in state D: {', '.join((gpu or tasks)[:4])}",
        evidence=[Evidence(t, ctx.where(snapshot.host, "blocked_tasks")) for t in (gpu or tasks)[:6]]
        + [Evidence(e.text, e.where) for e in hangs[:2]],
        causes=[driver, storage] if gpu else [storage, driver],
        missing=["a second sample: a moment in D is normal"] + ([] if hangs else ["the kernel log of that time"]),
        confidence="high" if hangs and gpu else "medium",
        reads=False,
    )


@rule(
    "host.clock_skew",
    "The node's clock is right",
    scope="node",
    family="host",
    sop="SOP-HOST",
    hint="chronyc tracking, or timedatectl",
    sources=("chrony documentation: tracking", "research: failure mode 52"),
    action="Mend the time service; until then the order of this node's log lines against other nodes' is not sure.",
)
def clock_skew(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """A clock a second and more off, or not synchronised: logs of nodes cannot be ordered, tokens and certificates fail."""
    offset = ctx.known(snapshot.host, Host.clock_offset_s)
    synchronized = ctx.known(snapshot.host, Host.clock_synchronized)
    if offset is None and synchronized is None:
        raise ctx.missing("offset of the clock")
    if offset is not None and abs(offset) >= OFFSET_S:
        return ctx.finding("warning", f"the clock is {abs(offset):.1f} s {'fast' if offset > 0 else 'slow'}")
    return ctx.finding("info", "the clock is not synchronised") if synchronized is False else None


@rule(
    "host.disk_health",
    "Drives are healthy by their own word",
    scope="diagnostic",
    family="host",
    sop="SOP-HOST",
    hint="smartctl -a <device>; nvme smart-log <device>",
    sources=("NVM Express base specification: SMART / Health Information", "smartmontools", "research: failure mode 52"),
    action="Save what is on it, replace the drive; look for I/O errors of the same device in the kernel log.",
)
def disk_health(test: DiagnosticTest, ctx: Context) -> Finding | None:
    """A drive's own health check fails, it lost data (media errors, pending sectors), or its spare is below its threshold."""
    if test.tool != "SMART":
        raise ctx.skip("no result of SMART")
    if test.result == "pass":
        return None
    severity = "error" if test.name == "health" else "warning"
    return ctx.finding(
        severity,
        f"{test.device or 'drive'}: {test.message}",
        evidence=[Evidence(f"{test.device or 'drive'}: {test.message}", ctx.where(test))],
        reads=False,
    )
