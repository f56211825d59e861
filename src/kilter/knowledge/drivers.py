"""NVIDIA driver branches: support, end of life, security floors, the first driver of a GPU.

Table: ``tables/driver_branches.yaml``.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from kilter.knowledge.table import table, typed


class SecurityFloor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest release of a branch that has all fixes of a bulletin."""

    version: str
    bulletin: int
    published: str


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    branch: str  # "R580"
    type: str
    eol: str | None  # "2026-06": end of that month; None = not published
    open_kernel_modules: bool
    type_source: str = ""
    eol_source: str = ""
    security_floor: SecurityFloor | None = None
    min_kernel: str | None = None
    min_kernel_source: str = ""
    last_known: str | None = None
    last_known_source: str = ""
    latest_known: str | None = None
    latest_known_source: str = ""
    first_known: str | None = None
    first_known_source: str = ""
    gpu_archs: list[str] = []
    gpu_archs_proprietary: list[str] = []
    gpu_archs_open: list[str] = []
    arch_note: str = ""
    open_gsp_archs: list[str] = []
    first_open_tag: str | None = None
    first_open_tag_date: str = ""
    last_open_tag_in_snapshot: str | None = None
    last_open_tag_date: str = ""
    open_tags: int | None = None
    conftest_tests: int | None = None
    has_fix_pci_resize_exclude_bars: bool | None = None
    nvidia_smi_labels: str = ""
    nvidia_smi_labels_source: str = ""
    note: str = ""

    @property
    def number(self) -> int:
        return int(self.branch[1:])

    @property
    def newest(self) -> str | None:
        """The newest release that the table knows."""
        return self.latest_known or self.last_known or self.last_open_tag_in_snapshot

    @property
    def confidence(self) -> Literal["high", "low"]:
        text = f"{self.type} {self.type_source} {self.note}"
        return "low" if any(w in text for w in ("unconfirmed", "disputed", "(memory)")) else "high"


class FirstDriver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first_open_readme: str | None = None
    mig_min: str | None = None
    other: str = ""


class KernelBreakage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel_change: str
    evidence: str
    upstream_commit: str = ""
    seen_backported_in: list[str] = []
    not_in: list[str] = []
    fails: list[str] = []
    fixed_in: list[str] = []
    error: str = ""


def version_key(version: str) -> tuple[int, ...]:
    """``"580.95.05"`` -> ``(580, 95, 5)``, for comparing; what follows the numbers is ignored."""
    match = re.match(r"\s*(\d+(?:\.\d+)*)", version)
    return tuple(int(p) for p in match[1].split(".")) if match else ()


@functools.cache
def branches() -> tuple[Branch, ...]:
    """All branches, oldest first."""
    return tuple(typed(_plain(table("driver_branches").head("branches")), list[Branch]))


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Dates and versions that YAML reads as numbers or dates, back as text."""
    texts = {"eol", "min_kernel", "last_known", "latest_known", "last_open_tag_in_snapshot", "first_known", "first_open_tag"}
    return [{k: str(v) if k in texts and v is not None else v for k, v in row.items()} for row in rows]


def branch(driver_version: str) -> Branch | None:
    """The branch of a driver version ("580.95.05" -> R580), or ``None`` for a branch that the table does not have."""
    key = version_key(driver_version)
    if not key:
        return None
    # a branch starts at a multiple of 5 and minor trains inside it (e.g. 471) belong to the branch below
    below = [b for b in branches() if b.number <= key[0] < b.number + 5]
    return below[-1] if below else None


def is_end_of_life(item: Branch, year_month: str) -> bool | None:
    """Is the branch out of support in ``year_month`` ("2026-11")? ``None`` where no date is published."""
    return None if item.eol is None else item.eol[:7] < year_month


def below_security_floor(driver_version: str) -> SecurityFloor | None:
    """The security floor that a driver version misses, or ``None``: it is at or above the floor, or none is known."""
    item = branch(driver_version)
    if item is None or item.security_floor is None:
        return None
    return item.security_floor if version_key(driver_version) < version_key(item.security_floor.version) else None


@functools.cache
def first_drivers() -> dict[str, FirstDriver]:
    """GPU (key as in ``gpus.yaml``, some shorter) -> the first driver that lists it."""
    rows: dict[str, Any] = table("driver_branches").head("gpu_first_driver")
    return {gpu: typed(row, FirstDriver) for gpu, row in rows.items() if gpu != "note"}


@functools.cache
def kernel_breakages() -> tuple[KernelBreakage, ...]:
    """Kernel changes that stop driver builds, with the versions that fail and those that are fixed."""
    return tuple(typed(table("driver_branches").head("kernel_breakages"), list[KernelBreakage]))


class DriverBug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known bug of a branch, with the sign by which it shows. Table: ``tables/driver_bugs.yaml``."""

    branch: str
    xid: int
    below: str  # first release that has the fix
    what: str
    source: str
    workaround: str = ""
    confidence: Literal["high", "medium", "low"] = "medium"


@functools.cache
def bugs() -> tuple[DriverBug, ...]:
    return tuple(typed(table("driver_bugs").head("bugs"), list[DriverBug]))


def known_bug(driver_version: str, xid: int) -> DriverBug | None:
    """The known bug that an XID points to with this driver, or ``None``: it has the fix, or no bug is known of its branch."""
    item = branch(driver_version)
    return next(
        (
            bug
            for bug in bugs()
            if item is not None
            and bug.branch == item.branch
            and bug.xid == xid
            and version_key(driver_version) < version_key(bug.below)
        ),
        None,
    )
