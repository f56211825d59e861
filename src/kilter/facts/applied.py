"""What came of changing a machine: differences, outcomes by change, drift, what was rolled back."""

from __future__ import annotations

import enum

import msgspec

from kilter.facts.plan import Change


class Outcome(str, enum.Enum):
    APPLIED = "applied"
    ALREADY = "already"  # nothing to do
    SKIPPED = "skipped"  # this machine has no such thing
    REFUSED = "refused"  # it could be written, and must not be
    FAILED = "failed"  # writing did not work, or reads back something else; this change was undone


class Reading(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A parameter as it is now. The value in force and that of the next boot are two things."""

    runtime: str | None = None  # None = not set, or the parameter has no runtime form
    persistent: str | None = None  # None = not set, or it has no persistent form
    has_runtime: bool = True
    has_persistent: bool = True
    missing: str = ""  # why this machine has no such parameter


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody else who sets the same parameter."""

    name: str  # "sysctl.d", "TuneD profile aks-h100-inference", "kubelet"
    where: str = ""  # file:line
    value: str = ""
    wins: bool = False  # whether it overrides what kilter would write


class Difference(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one change would do."""

    change: Change
    reading: Reading
    outcome: Outcome  # APPLIED = would be written
    why: str = ""
    owners: list[Owner] = []
    files: dict[str, str] = {}  # path -> unified diff
    commands: list[str] = []
    needs: str = ""  # what it takes until it is in force: "reboot"


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one change."""

    change: Change
    outcome: Outcome
    why: str = ""
    before: Reading
    after: Reading | None = None
    owners: list[Owner] = []
    needs: str = ""


class Applied(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One application. ``id`` is "" when there was nothing to do."""

    id: str = ""
    results: list[Result] = []
    notes: list[str] = []
    confirm_by: float | None = None  # seconds since the epoch; rolled back then unless confirmed

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)


class Status(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One application of this machine, as the journal tells it."""

    id: str
    state: str  # applying (cut short), applied, confirmed, rolled back, failed
    time: float
    changes: int
    steps: int
    note: str = ""


class Drift(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether a change still holds."""

    change: Change
    holds: bool
    pending: bool = False  # not yet in force: needs what ``why`` says
    why: str = ""
    reading: Reading


class Verification(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    state: str
    drifts: list[Drift] = []

    @property
    def holds(self) -> bool:
        return all(drift.holds for drift in self.drifts)


class RolledBack(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a rollback did: paths put back, what somebody else had changed and was left, what could not be done."""

    id: str
    restored: list[str] = []
    left: list[str] = []
    failed: list[str] = []
    needs: str = ""
