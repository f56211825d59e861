"""Kunlunxin XPUs of this host, through the vendor's ``xpu-smi -q`` under a time limit."""

from __future__ import annotations

import os
import shutil
import time

from kilter.facts.base import Entity, Reason, Source
from kilter.facts.case import Snapshot
from kilter.facts.pci import KUNLUNXIN
from kilter.intake.captures.xpu_smi import parse
from kilter.intake.fragment import Block, Fragment
from kilter.intake.live.child import ChildResult, run_limited

#: Names of the tool on PATH, then where its installers put it.
_TOOLS = ("xpu-smi", "xpu_smi", "/usr/local/bin/xpu-smi", "/usr/local/xpu/bin/xpu-smi", "/usr/local/xpu/bin/xpu_smi")
_MAX_BYTES = 4 << 20


def _find() -> str | None:
    return next((path for tool in _TOOLS if (path := shutil.which(tool)) is not None), None)


def _moved(entity: Entity, source: int) -> None:
    """Points all references of ``entity`` and of what it holds to ``source``."""
    for field, ref in entity.origin.items():
        entity.origin[field] = (source, ref[1])
    if hasattr(entity, "source"):
        entity.source = source
    for field in entity.__struct_fields__:
        value = getattr(entity, field)
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, Entity):
                _moved(part, source)


def _trouble(result: ChildResult, timeout_s: float) -> str:
    """What went wrong with the run; "" if nothing did."""
    if result.error:
        return f"xpu-smi could not be started: {result.error}"
    if result.timed_out:
        return f"xpu-smi -q hung for {timeout_s:g} s (driver sick?)"
    if result.truncated:
        return f"xpu-smi -q wrote more than {_MAX_BYTES >> 20} MiB and was ended"
    if result.signal_name:
        return f"xpu-smi -q was ended by {result.signal_name}"
    if result.returncode:
        said = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()
        return f"xpu-smi -q ended with status {result.returncode}: {said[-1][:300] if said else 'no message'}"
    return ""


def read_xpu_smi(snapshot: Snapshot, *, timeout_s: float = 10.0) -> None:
    """Adds the Kunlunxin XPUs to ``snapshot``, where the PCI bus shows one or was not read.

    What was printed before a hang is kept. Trouble is ``software.driver_error`` where the bus shows an XPU; without one, a tool
    of this name may as well be Intel's. Never raises for what the tool does.
    """
    expected = None if snapshot.pci is None else any(device.vendor_id in KUNLUNXIN for device in snapshot.pci.values())
    if expected is False:
        return
    software = snapshot.software
    tool = _find()
    if tool is None:
        if expected:
            detail = "xpu-smi is not on PATH, nor in /usr/local/bin or /usr/local/xpu/bin"
            software.lacks("xpu_runtime_version", Reason.ABSENT, detail, "install Kunlunxin's XRE")
            if software.driver_version is None:
                software.lacks("driver_version", Reason.ABSENT, detail, "install Kunlunxin's XRE")
        return
    # The tool's words are what is parsed: keep them untranslated.
    result = run_limited([tool, "-q"], timeout_s=timeout_s, max_bytes=_MAX_BYTES, env=os.environ | {"LC_ALL": "C"})
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    source = Source(name="live:xpu-smi -q", tool="xpu-smi", time=time.time(), node=snapshot.node)
    fragment = Fragment(source)
    parse(Block(source=source, lines=lines), fragment)
    found = fragment.snapshot
    trouble = _trouble(result, timeout_s)
    if found.accelerators is None and not expected:
        return
    index = len(snapshot.sources)
    snapshot.sources.append(source)
    for accelerator in found.accelerators or []:
        _moved(accelerator, index)
    if found.accelerators:
        snapshot.accelerators = [*(snapshot.accelerators or []), *found.accelerators]
        snapshot.origin["accelerators"] = (index, 0)
    if found.accelerators_attached is not None:
        snapshot.put("accelerators_attached", (snapshot.accelerators_attached or 0) + found.accelerators_attached, (index, 0))
    _moved(found.software, index)
    for field in ("driver_version", "xpu_runtime_version", "driver_error"):
        software.put(field, getattr(found.software, field), found.software.origin.get(field))
        if getattr(software, field) is None and field in found.software.missing:
            software.missing[field] = found.software.missing[field]
    trouble = trouble or ("" if found.accelerators else f"xpu-smi -q shows no XPU: {' '.join(lines[:3])[:300] or 'no output'}")
    if trouble:
        software.put("driver_error", trouble, (index, 0))
