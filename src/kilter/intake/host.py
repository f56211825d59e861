"""This host, live: the tree, the GPU driver in a child process, the kernel log -> one snapshot or case."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable

from kilter.facts.base import Source
from kilter.facts.case import Case, Input, Snapshot
from kilter.intake.captures import kernel_log
from kilter.intake.merge import merge_events
from kilter.intake.stored import boot_time, place_boot_times

#: /dev/kmsg holds at most the kernel's ring buffer; a few MB even on large machines.
_MAX_LOG = 32 << 20


def _kernel_log(snapshot: Snapshot) -> None:
    """Read the ring buffer without waiting for new records; without permission that is noted, not raised."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        from kilter.facts.base import Reason

        snapshot.lacks("events", Reason.NOT_READABLE, f"/dev/kmsg: {error.strerror}", "run as root, or give dmesg -T as a file")
        return
    records: list[str] = []
    size = 0
    try:
        while size < _MAX_LOG:
            try:
                record = os.read(fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # records were overwritten while reading: go on with the oldest left
            except OSError:
                break
            if not record:
                break
            records.append(record.decode("utf-8", "replace").split("\n", 1)[0])
            size += len(record)
    finally:
        os.close(fd)
    year = datetime.datetime.now(tz=datetime.timezone.utc).year
    log = kernel_log.scan("\n".join(records), "live:/dev/kmsg", year=year)
    for event in log.events:
        event.node = snapshot.node
        event.line = 0
    snapshot.sources.append(Source(name="live:/dev/kmsg", tool="kernel log", node=snapshot.node))
    snapshot.events = merge_events(log.events)


def live_snapshot(root: str = "/", *, timeout_s: float = 10.0, progress: Callable[[str], None] | None = None) -> Snapshot:
    """All facts of this host (or of the captured tree below ``root``).

    ``timeout_s`` limits each driver probe. Raises NotADirectoryError when ``root`` is no folder.
    """
    from kilter.intake.live import snapshot as tree_snapshot

    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root}: no such folder; expected the root of a /sys and /proc tree")
    result = tree_snapshot(root, progress=progress)
    if os.path.realpath(root) != "/":
        return result
    from kilter.intake.live.nvml import read_nvml
    from kilter.intake.live.xpu_smi import read_xpu_smi

    if progress is not None:
        progress("GPU driver (NVML)")
    read_nvml(result, timeout_s=timeout_s)
    read_xpu_smi(result, timeout_s=timeout_s)
    _kernel_log(result)
    return result


def live_case(*, progress: Callable[[str], None] | None = None) -> Case:
    """This host as a case."""
    snapshot = live_snapshot(progress=progress)
    events, snapshot.events = snapshot.events, []
    booted = boot_time(snapshot)
    place_boot_times({} if booted is None else {snapshot.node: booted}, events)
    logs = [snapshot.node] if any(s.tool == "kernel log" for s in snapshot.sources) else []
    return Case(snapshots=[snapshot], events=events, kernel_logs=logs, inputs=[Input(name="this host", tools=["live"])])
