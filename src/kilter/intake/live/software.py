"""Driver and stack versions that files tell: NVIDIA and Kunlunxin drivers, OFED, CUDA toolkit, the daemons of a GPU node."""

from __future__ import annotations

import json
import re

from kilter.facts.base import Reason
from kilter.facts.host import Service
from kilter.intake.live.places import Places

SERVICES = ("nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced", "nvidia-dcgm")

_NVRM = re.compile(r"NVRM version:\s*NVIDIA UNIX (Open )?.*?Kernel Module\b.*?\s(\d{3,4}\.\d+(?:\.\d+)*)\s")
#: Out-of-tree mlx5 carries OFED's version ("24.10-1.1.4"); the kernel's own has none, or "5.0-0" in old kernels.
_OFED = re.compile(r"(?:OFED-internal-)?(\d+\.\d+-\d+\.\d+\.\d+(?:\.\d+)*)$")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)+(?:[-+.\w]*)")

_UNIT_DIRS = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
_SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice", "/sys/fs/cgroup/unified/system.slice")


def nvidia_version(text: str) -> tuple[str, str] | None:
    """(version, "open" or "proprietary") of ``/proc/driver/nvidia/version``.

    "NVIDIA UNIX x86_64 Kernel Module  535.104.05  <date>" or "NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release
    Build ...".
    """
    match = _NVRM.search(f"{text}\n")
    return (match[2], "open" if match[1] else "proprietary") if match else None


def kunlun_version(text: str) -> str | None:
    """Driver version of the line with "KUNLUN": its tenth word as the vendor's scripts read it, else the first version-like
    word.
    """
    for line in text.splitlines():
        if "KUNLUN" not in line.upper():
            continue
        words = line.split()
        candidates = [*words[9:10], *words]
        for word in candidates:
            if _VERSION.fullmatch(word):
                return word
    return None


def cuda_version(text: str) -> str | None:
    """Version of the toolkit by its ``version.json``."""
    try:
        document = json.loads(text)
        version = document["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return version if isinstance(version, str) else None


def _services(places: Places) -> None:
    """Daemons by their control group: systemd keeps one, with processes in it, while a service runs.

    A stopped one and a failed one look alike here ("inactive"); ``systemctl`` tells them apart.
    """
    tree, software = places.tree, places.snapshot.software
    if not any(tree.exists(path) for path in _SLICES):
        return
    for name in SERVICES:
        unit = f"{name}.service"
        group = next((f"{top}/{unit}" for top in _SLICES if tree.exists(f"{top}/{unit}")), None)
        file = next((f"{top}/{unit}" for top in _UNIT_DIRS if tree.exists(f"{top}/{unit}")), None)
        if group is not None and (tree.read(f"{group}/cgroup.procs") or "").strip():
            state, where = "active", group
        elif places.is_text:
            continue  # what a text does not show may still be there
        elif group is not None or file is not None:
            state, where = "inactive", group or file or ""
        elif any(tree.names(top) for top in _UNIT_DIRS):
            state, where = "not-found", _UNIT_DIRS[0]
        else:
            continue
        ref = places.ref(f"{where}/cgroup.procs", where)
        service = Service(name=name, state=state, origin={"": ref, "state": ref})
        service.lacks(
            "version", Reason.NOT_COLLECTED, "files do not tell it", "nv-fabricmanager --version" if "fabric" in name else ""
        )
        software.services.setdefault(name, service)


def read(places: Places) -> None:
    """Fill ``snapshot.software`` as far as files tell."""
    software, tree = places.snapshot.software, places.tree
    path = "/proc/driver/nvidia/version"
    found = nvidia_version(tree.read(path) or "")
    module = places.folder("/sys/module/nvidia")
    if found is not None:
        ref = places.ref(path, "/proc/driver/nvidia")
        software.put("driver_version", found[0], ref)
        software.put("driver_flavour", found[1], ref)
    elif (version := module.text("version")) is not None:
        software.put("driver_version", version, places.ref(module.path("version"), "/sys/module"))
    elif (text := tree.read("/proc/kunlun/version")) is not None and (version := kunlun_version(text)) is not None:
        software.put("driver_version", version, places.ref("/proc/kunlun/version", "/proc/kunlun"))
    elif not places.is_text:
        software.lacks(
            "driver_version",
            Reason.ABSENT,
            "neither /proc/driver/nvidia nor /proc/kunlun exists: no accelerator driver is loaded",
        )
    core = places.folder("/sys/module/mlx5_core")
    version = core.text("version")
    match = _OFED.match(version or "")
    if match is not None:
        software.put("ofed_version", match[1], places.ref(core.path("version"), "/sys/module"))
    elif not places.is_text and core.names():
        software.lacks("ofed_version", Reason.ABSENT, f"mlx5_core is the kernel's own (version {version or 'none'})")
    toolkit = tree.read("/usr/local/cuda/version.json")
    if toolkit is not None:
        software.put("cuda_toolkit_version", cuda_version(toolkit), places.ref("/usr/local/cuda/version.json", "/usr/local/cuda"))
    _services(places)
