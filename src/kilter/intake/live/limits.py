"""What limits this process: resource limits, ``/dev/shm``, control groups. Only of the live host: a captured tree does not
hold them.
"""

from __future__ import annotations

import os
import resource

from kilter.facts.base import Reason
from kilter.facts.host import UNLIMITED, Limits
from kilter.intake.live.places import Places, integer

_RESOURCES = (
    ("memlock_bytes", resource.RLIMIT_MEMLOCK),
    ("stack_bytes", resource.RLIMIT_STACK),
    ("nofile", resource.RLIMIT_NOFILE),
    ("nproc", resource.RLIMIT_NPROC),
    ("core_bytes", resource.RLIMIT_CORE),
)

_CGROUP = "/sys/fs/cgroup"


def process_limits(limits: Limits, places: Places) -> None:
    """Soft limits of the calling process (``getrlimit``)."""
    ref = places.ref("", "/proc/self/limits")
    limits.put("scope", "this process", ref)
    for field, which in _RESOURCES:
        soft, _ = resource.getrlimit(which)
        limits.put(field, UNLIMITED if soft == resource.RLIM_INFINITY else soft, ref)


def shared_memory(limits: Limits, places: Places) -> None:
    """Size of ``/dev/shm``, which NCCL and data loaders use."""
    path = "/dev/shm"
    try:
        state = os.statvfs(path)
    except OSError as error:
        limits.lacks("shm_bytes", Reason.ABSENT, f"{path}: {error.strerror}")
        return
    ref = places.ref("", path)
    limits.put("shm_bytes", state.f_blocks * state.f_frsize, ref)
    limits.put("shm_free_bytes", state.f_bavail * state.f_frsize, ref)


def _own_paths(text: str) -> tuple[str | None, dict[str, str]]:
    """(path in the unified hierarchy, path by version 1 controller) of ``/proc/self/cgroup``."""
    unified = None
    controllers: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            unified = path
        for name in names.split(","):
            if name and not name.startswith("name="):
                controllers[name] = path
    return unified, controllers


def _upwards(mount: str, path: str) -> list[str]:
    """Directories of a control group and those above it, inside out. A path outside this namespace counts as its root."""
    if path.startswith("/.."):
        path = ""
    parts = [part for part in path.split("/") if part]
    return ["/".join([mount, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _least(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    finite = [value for value in known if value >= 0]
    return min(finite) if finite else UNLIMITED if known else None


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    if text.strip() == "max":
        return UNLIMITED
    value = integer(text)
    # Version 1 prints "no limit" as the largest multiple of a page.
    return None if value is None else UNLIMITED if value < 0 or value >= 1 << 62 else float(value)


def _cpu_max(text: str | None) -> float | None:
    """CPUs of ``cpu.max`` ("200000 100000" -> 2.0)."""
    parts = (text or "").split()
    if len(parts) != 2:
        return None
    quota, period = _number(parts[0]), _number(parts[1])
    return UNLIMITED if quota == UNLIMITED else quota / period if quota is not None and period else None


def _cpu_quota(places: Places, path: str) -> float | None:
    """CPUs that a version 1 group may use."""
    quota = (places.tree.read(f"{path}/cpu.cfs_quota_us") or "").strip()
    period = places.tree.read(f"{path}/cpu.cfs_period_us") or ""
    return UNLIMITED if quota.startswith("-") else _cpu_max(f"{quota} {period}")


def control_group(limits: Limits, places: Places) -> None:
    """CPU, memory and task limits of this process's control group: the least of it and all groups above that are visible."""
    tree = places.tree
    unified, controllers = _own_paths(tree.read("/proc/self/cgroup") or "")
    second = tree.exists(f"{_CGROUP}/cgroup.controllers")
    if unified is None and not controllers:
        return
    limits.put("cgroup_version", 2 if second else 1, places.ref("", "/proc/self/cgroup"))
    if second:
        dirs = _upwards(_CGROUP, unified or "/")
        ref = places.ref("", dirs[0])
        limits.put("cgroup_cpu_quota", _least([_cpu_max(tree.read(f"{path}/cpu.max")) for path in dirs]), ref)
        memory = _least([_number(tree.read(f"{path}/memory.max")) for path in dirs])
        pids = _least([_number(tree.read(f"{path}/pids.max")) for path in dirs])
        cpus = next((text.strip() for path in dirs if (text := tree.read(f"{path}/cpuset.cpus.effective"))), None)
    else:

        def first(controller: str, mounts: tuple[str, ...]) -> list[str]:
            found = [path for mount in mounts for path in _upwards(f"{_CGROUP}/{mount}", controllers.get(controller, "/"))]
            return [path for path in found if tree.exists(path)]

        cpu = first("cpu", ("cpu,cpuacct", "cpu"))
        ref = places.ref("", cpu[0] if cpu else _CGROUP)
        limits.put("cgroup_cpu_quota", _least([_cpu_quota(places, path) for path in cpu]), ref)
        memory = _least([_number(tree.read(f"{path}/memory.limit_in_bytes")) for path in first("memory", ("memory",))])
        pids = _least([_number(tree.read(f"{path}/pids.max")) for path in first("pids", ("pids",))])
        cpus = next(
            (
                text.strip()
                for path in first("cpuset", ("cpuset",))
                if (text := tree.read(f"{path}/cpuset.effective_cpus") or tree.read(f"{path}/cpuset.cpus"))
            ),
            None,
        )
    limits.put("cgroup_memory_bytes", None if memory is None else int(memory), ref)
    limits.put("cgroup_pids", None if pids is None else int(pids), ref)
    limits.put("cgroup_cpus", cpus, ref)


def read(places: Places) -> None:
    """Fill ``snapshot.limits`` of the live host; nothing for a capture, whose ``/proc/self`` is that of the collector."""
    if not places.is_live:
        return
    limits = places.snapshot.limits
    process_limits(limits, places)
    shared_memory(limits, places)
    control_group(limits, places)
