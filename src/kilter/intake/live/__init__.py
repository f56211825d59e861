"""Readers of the host itself, and of captured or pasted ``/sys`` and ``/proc``: one module a subject, all on a :class:`Tree`.

Nothing is written, nothing with side effects is read (``reset``, ``remove``, ``rescan``, ``vpd``, ``resource<N>``, sleeping
functions), and no read can hang the caller, see :mod:`kilter.intake.live.guard`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping

from kilter import __version__
from kilter.facts.base import Source
from kilter.facts.case import SCHEMA_VERSION, Snapshot
from kilter.intake.live import cpu, host, kernel, limits, memory, net, pci, rdma, software
from kilter.intake.live.guard import GuardedTree
from kilter.intake.live.places import Places
from kilter.intake.tree import RealTree, Tree

#: Environment variables that matter to GPU work, by prefix.
_PREFIXES = "NCCL_ CUDA_ NVIDIA_ TORCH_ PYTORCH_ UCX_ OMP_ MKL_ GLOO_ XPU_ BKCL_ HSA_ FI_ MELLANOX_ LD_LIBRARY_PATH SLURM_"
ENVIRONMENT = tuple(_PREFIXES.split())

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIAL", re.IGNORECASE)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, without any whose name hints at a secret."""
    return {name: value for name, value in sorted(variables.items()) if name.startswith(ENVIRONMENT) and not _SECRET.search(name)}


def _read(places: Places, progress: Callable[[str], None] | None) -> None:
    def say(text: str) -> None:
        if progress is not None:
            progress(text)

    say("CPU, memory, kernel")
    cpu.read(places)
    memory.read(places)
    host.read(places)
    kernel.read(places)
    software.read(places)
    limits.read(places)
    say("PCI functions")
    folders = pci.read(places)
    say("RDMA devices")
    rdma.read(places, folders)
    say("network interfaces")
    net.read(places, folders)


def read_tree(tree: Tree, snapshot: Snapshot) -> None:
    """Read all that ``tree`` holds into ``snapshot``.

    A text's facts refer to source 0 and the line of their file; those of a real tree to one source an entity, appended here.
    What the tree does not hold stays None.
    """
    if isinstance(tree, RealTree) and not isinstance(tree, GuardedTree) and str(tree.root) == "/":
        with GuardedTree() as guarded:
            guarded.start_quietly()
            _read(Places(guarded, snapshot, time=time.time()), None)
        return
    _read(Places(tree, snapshot), None)


def snapshot(root: str = "/", *, env: bool = True, progress: Callable[[str], None] | None = None) -> Snapshot:
    """All facts of the tree below ``root``; for ``/`` also limits and environment of this process, the time, and what ioctl
    tells.

    ``env=False`` leaves the environment out. ``progress`` is called with the subject that comes next.
    """
    live = os.path.realpath(root) == "/"
    result = Snapshot(schema=SCHEMA_VERSION, kilter=__version__)
    if not live:
        _read(Places(RealTree(root), result), progress)
        return result
    now = time.time()
    result.time = now
    with GuardedTree() as tree:
        tree.start_quietly()
        _read(Places(tree, result, time=now), progress)
        for device, why in tree.silent.items():
            if progress is not None:
                progress(f"no answer: {device} ({why})")
    if env:
        result.sources.append(Source(name="live:environment", tool="env", time=now))
        result.environment.put("variables", environment(os.environ), (len(result.sources) - 1, 0))
    for source in result.sources:
        source.node = source.node or result.node
    return result
