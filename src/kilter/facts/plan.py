"""What a plan says: for every parameter what to do about it and why, and the changes that would be written."""

from __future__ import annotations

import enum

import msgspec

from kilter.facts.finding import Evidence


class Cost(str, enum.Enum):
    """What it takes until a change works, cheapest first."""

    JOB = "job"  # the next start of the job: its environment and flags
    RUNTIME = "runtime"  # nothing: sysctl, sysfs
    SERVICE = "service"  # a service or container runtime is restarted, or users log in again
    DRIVER = "driver"  # the driver is reloaded: no process may use the GPUs
    REBOOT = "reboot"
    FIRMWARE = "firmware"  # BIOS or device firmware, a cold start, or hands on the machine

    @property
    def rank(self) -> int:
        return _COSTS[self]


_COSTS = {cost: rank for rank, cost in enumerate(Cost)}


class Verdict(str, enum.Enum):
    RECOMMEND = "recommend"
    CONFLICT = "conflict"  # to be changed, but somebody else owns the key
    REFUSE = "refuse"  # set or asked for, and must not be
    ASK = "ask"  # depends on what cannot be read
    ALREADY = "already"  # as it should be
    NOT_APPLICABLE = "not applicable"


class Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing to write. What ``key`` is depends on the mechanism; see ``tune/apply/mechanisms``.

    ========== =========================================== =====================================================
    mechanism  key                                         value (None = take it away)
    ========== =========================================== =====================================================
    sysctl     ``vm.swappiness``                           text of the value
    sysfs      path below ``/sys`` or ``/proc``, ``*`` ok  text to write
    cmdline    parameter of the kernel command line        its value, "" for a flag
    modprobe   ``module.parameter``                        value of the option
    limits     item of limits.conf: ``memlock``            KiB, a number, or ``unlimited``; for all users
    unit       systemd unit                                ``enabled``, ``disabled``, ``started``, ``masked``, joined by ``+``
    dropin     ``unit/Section.Directive``                  value of the directive
    udev       name of the rule                            text of the rule
    env        variable                                    value, in the job's environment file
    nccl_conf  variable                                    value, in /etc/nccl.conf
    pci        ``0000:3b:00.0/acs`` or ``.../mrrs``        ACS bits as hexadecimal; bytes
    irq        ``interrupt or device``                     CPU list
    ethtool    ``interface/setting``                       value
    nvidia     ``gpu/setting``                             value
    ========== =========================================== =====================================================
    """

    mechanism: str
    key: str
    value: str | None
    was: str | None = None  # the value found; None = not set or not known
    persistent: bool = True  # also for the next boot


class Benefit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What somebody measured, where. Nothing is promised by it."""

    text: str  # "148,344 against 50,404 tok/s"
    on: str = ""  # hardware and software
    source: str = ""


class Advice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What to do about one parameter."""

    id: str  # stable: that of the parameter in knowledge/tables/tunables.yaml
    verdict: Verdict
    title: str
    current: str | None = None  # as found; None = not set or not known
    value: str | None = None  # to be; None = unset, or not said
    why: str = ""
    cost: Cost = Cost.JOB
    gain: int = 0  # 3 = what makes or breaks this workload, 2 = measured by others as large, 1 = some, 0 = hygiene
    evidence: list[Evidence] = []
    effect: str = ""
    benefits: list[Benefit] = []
    risk: str = ""
    question: str = ""  # of ASK
    answer_key: str = ""  # of ASK: the name to answer under
    owner: str = ""  # of CONFLICT: who set it and where
    after: list[str] = []  # ids of what must be done first
    conflicts_with: list[str] = []
    disagreement: str = ""  # where vendors contradict each other, and what decided
    verify: str = ""  # how to see that it works
    changes: list[Change] = []
    expires_with: list[str] = []  # versions and products it rests on: "nccl.version 2.27.5"; look again after an upgrade
    by_hand: str = ""  # what to do where kilter has no mechanism for it
    confidence: str = "high"
    sources: list[str] = []


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Advice for one node and workload, the most important first."""

    node: str = ""
    workload: str = ""  # in a few words
    advice: list[Advice] = []
    notes: list[str] = []

    def of(self, verdict: Verdict) -> list[Advice]:
        return [one for one in self.advice if one.verdict is verdict]
