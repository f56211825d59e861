"""What a diagnosis says: findings, and for every check what became of it."""

from __future__ import annotations

import enum

import msgspec

from kilter.facts.case import NodeSummary


class Severity(str, enum.Enum):
    INFO = "info"  # worth knowing, nothing to do now
    WARNING = "warning"  # degraded or will be; look at it in working hours
    ERROR = "error"  # work is lost or slow on this subject until somebody acts
    CRITICAL = "critical"  # do not place work here

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Subject(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str  # node, gpu, pci, port, interface, nvswitch, job
    name: str = ""
    node: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {self.name}" if self.node and self.name else self.node or self.name or "this node"


class Evidence(msgspec.Struct):
    text: str
    where: str = ""  # file:line
    role: str = "supports"  # supports, contradicts, missing


class Cause(msgspec.Struct, omit_defaults=True):
    """One hypothesis. Ranked by position; ``decider`` is what tells it from the next."""

    text: str
    likelihood: str = ""  # likely, possible, unlikely
    decider: str = ""


class Finding(msgspec.Struct, kw_only=True):
    id: str
    severity: Severity
    subject: Subject
    what: str
    confidence: str = "high"  # high, medium, low
    evidence: list[Evidence] = []
    causes: list[Cause] = []
    action: str = ""
    sop: str = ""
    next_test: str = ""
    sources: list[str] = []
    disagreement: str = ""  # where sources of knowledge differ
    explained_by: str = ""  # id of the finding on the same subject that this one is a sign of
    count: int = 1
    first_time: float | None = None
    last_time: float | None = None
    time_note: str = ""  # what is uncertain about the times: "local time", "year assumed", "seconds since boot"


class Outcome(str, enum.Enum):
    FINDING = "finding"
    OK = "ok"
    NOT_CHECKED = "not checked"
    NOT_APPLICABLE = "not applicable"


class Check(msgspec.Struct, kw_only=True):
    """What became of one rule: on how many subjects it was fine, found something, or could not be checked and why."""

    rule: str
    title: str
    family: str
    ok: int = 0
    findings: int = 0
    not_applicable: int = 0
    not_checked: int = 0
    reasons: list[str] = []  # "GPU0: ECC mode not collected"
    hints: list[str] = []  # commands that would show it
    failures: list[str] = []  # what the check itself raised, which is a bug of kilter: "node n1: KeyError: 'x'"

    @property
    def outcome(self) -> Outcome:
        if self.findings:
            return Outcome.FINDING
        if self.not_checked:
            return Outcome.NOT_CHECKED
        return Outcome.OK if self.ok else Outcome.NOT_APPLICABLE


class Diagnosis(msgspec.Struct, kw_only=True, omit_defaults=True):
    findings: list[Finding] = []
    checks: list[Check] = []
    nodes: list[NodeSummary] = []  # one a snapshot
