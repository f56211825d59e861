"""Who failed first: roots told from victims over all nodes, with "cannot be known" as an answer.

Three ways lead to a culprit, the strongest first:

1. a *root* event (hardware, firmware, kernel, link, process) on one node, not later than the first victim elsewhere;
2. *votes*: many ranks complain of one peer;
3. *absence*: all ranks but one report that a collective timed out: the silent one, or the one that is behind, is looked at first.

What contradicts the answer is told with it. When roots on different nodes cannot be ordered, or nothing points to one node, no node is
accused.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from kilter.diagnose.timeline import Moment, Timeline, build
from kilter.diagnose.two_ends import hosts_by_address
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.measure import CollectiveRecord

#: XIDs that mean hardware, firmware or fabric on their own (knowledge: xid.yaml, severity fatal, or error with hardware as its cause)
ROOT_XIDS = {
    46,
    48,
    54,
    57,
    58,
    62,
    64,
    74,
    79,
    94,
    95,
    109,
    110,
    119,
    120,
    136,
    140,
    143,
    *range(144, 151),
    155,
    158,
    167,
    169,
    171,
    172,
    173,
    175,
}
APPLICATION_XIDS = {13, 31, 32, 68, 69}
#: kind -> (class of the incident, weight). A heavier root explains a lighter one near it on the same node.
ROOTS: dict[str, tuple[str, int]] = {
    "bmc.power": ("power", 9),
    "kernel.panic": ("host crash", 9),
    "kernel.oops": ("host crash", 7),
    "machine_check": ("host hardware", 6),
    "pcie.hotplug": ("gpu or bus", 7),
    "pcie.dpc": ("gpu or bus", 7),
    "gpu.off_bus": ("gpu or bus", 8),
    "gpu.init_failed": ("gpu or bus", 6),
    "mlx5.health": ("nic", 7),
    "mlx5.link_down": ("link", 6),
    "mlx5.module": ("link", 6),
    "oom.kill": ("host memory", 7),
    "lockup": ("host hang", 6),
    "hung_task": ("host hang", 4),
    "nvme.timeout": ("storage", 6),
    "disk.io_error": ("storage", 6),
    "filesystem.read_only": ("storage", 7),
    "filesystem.error": ("storage", 6),
    "segfault": ("process crash", 3),
    "torch.rank_failed": ("process crash", 3),
    "cuda.error": ("application", 3),
    "traceback": ("application", 2),
    "nccl.cuda": ("application", 2),
    "nccl.shm": ("host memory", 4),
    "nccl.ib.reg_mr": ("host limits", 5),
    "nccl.ib.open_device": ("nic", 5),
}
VICTIMS = {"nccl.peer_gone", "nccl.ib.completion", "nccl.timeout", "torch.watchdog", "nccl.ib.async_event"}
#: How long before the first complaint a root may lie: NCCL's and PyTorch's time-outs are up to 30 min by default (10 min for NCCL).
LOOK_BACK_S = 2400.0
LOOK_AHEAD_S = 120.0
UNFINISHED = {"timed out", "timeout", "started", "scheduled"}
#: Ranks that may be silent by lost log lines before the silence of one proves nothing.
MAX_LOST = 0.2
_PEER = re.compile(r"(?:peer|remote peer|with|to) ([\w.-]+)<\d+>")


_PREDICATES = ("failed first", "is ", "never ")


class Suspect(msgspec.Struct, kw_only=True):
    """One node as the possible first cause."""

    node: str
    kind: str  # class of the incident
    weight: float
    moments: list[Moment] = []
    why: str = ""


class Incident(msgspec.Struct, kw_only=True):
    """The verdict over a case. ``node`` "" and ``kind`` "unknown": it cannot be known from these inputs, ``why`` says because of what."""

    node: str = ""
    device: str = ""
    kind: str = "unknown"
    confidence: str = "low"
    what: str = ""
    why: list[str] = []
    against: list[str] = []
    missing: list[str] = []
    evidence: list[Event] = []
    victims: list[str] = []  # nodes that complain and are not accused
    others: list[Suspect] = []

    @property
    def verdict(self) -> str:
        """One line: who, and what."""
        who = " ".join(x for x in (self.node, self.device) if x)
        if not who:
            return self.what
        return f"{who} {self.what}" if self.what.startswith(_PREDICATES) else f"{who}: {self.what}"


def _root_of(event: Event) -> tuple[str, int] | None:
    """(class, weight) when the event can be a first cause."""
    if event.kind == "xid":
        if event.code in ROOT_XIDS and "caused_by" not in event.fields:
            return ("gpu or bus", 8) if event.code == 79 else ("gpu", 7)
        if event.code in APPLICATION_XIDS:
            return ("application", 4)
        return None
    if event.kind == "sxid":
        return ("nvswitch", 7) if event.severity.lower() == "fatal" else None
    if event.kind == "aer":
        return ("gpu or bus", 5) if "ncorrect" in event.severity or "Fatal" in event.severity else None
    if event.kind.startswith("bmc") and re.search(
        r"power supply|redundancy lost|IERR|CATERR|power off|AC lost", event.text, re.I
    ):
        return ("power", 8)
    if event.kind == "pcie.hotplug" and event.fields.get("what") not in ("Link Down", "Card not present"):
        return None
    if event.kind == "torch.rank_failed" and event.fields.get("exitcode") in ("0", "-15", "143"):
        return None  # ended by the launcher after another rank failed
    if event.kind.startswith("cuda.error"):
        return ROOTS["cuda.error"]
    return ROOTS.get(event.kind)


def _victim(event: Event) -> bool:
    return event.kind in VICTIMS or (event.kind == "xid" and (event.code in (43, 45) or "caused_by" in event.fields))


def _votes(events: Iterable[Event], addresses: dict[str, str]) -> Counter[str]:
    """How many different nodes complain of each peer."""
    pairs: set[tuple[str, str]] = set()
    for event in events:
        if event.kind not in ("nccl.ib.completion", "nccl.peer_gone"):
            continue
        if match := _PEER.search(event.text):
            peer = match.group(1)
            named = addresses.get(peer, peer)
            if named != event.node:
                pairs.add((event.node, named))
    return Counter(peer for _, peer in pairs)


def _window(timeline: Timeline) -> tuple[float | None, list[Moment], list[Moment]]:
    """(time of the first complaint, roots near it, victims)."""
    victims = [m for m in timeline.moments if _victim(m.event)]
    first = min((m.time for m in victims if m.time is not None), default=None)
    candidates = [m for m in timeline.moments if _root_of(m.event) is not None]
    roots = []
    # Without a time of the complaints only the last burst of roots can belong to them: logs keep faults of weeks ago.
    last = max((m.time for m in candidates if m.time is not None), default=None) if first is None else None
    for moment in candidates:
        if last is not None and moment.time is not None and moment.time < last - LOOK_BACK_S:
            continue
        if first is not None and moment.time is not None and not first - LOOK_BACK_S <= moment.time <= first + LOOK_AHEAD_S:
            continue
        roots.append(moment)
    return first, roots, victims


def _suspects(roots: list[Moment]) -> list[Suspect]:
    by_node: dict[str, list[Moment]] = defaultdict(list)
    for moment in roots:
        by_node[moment.event.node].append(moment)
    suspects = []
    for node, moments in by_node.items():
        best = max(moments, key=lambda m: (_root_of(m.event) or ("", 0))[1])
        kind, weight = _root_of(best.event) or ("", 0)
        suspects.append(
            Suspect(node=node, kind=kind, weight=weight, moments=sorted(moments, key=lambda m: (m.time is None, m.time or 0.0)))
        )
    return suspects


def _starts(suspect: Suspect) -> Moment:
    return suspect.moments[0]


def _together(suspects: list[Suspect]) -> bool:
    """Whether all suspects' first roots can be one moment."""
    first = _starts(suspects[0])
    return all(_starts(s).before(first) is None for s in suspects[1:])


def _pending(case: Case) -> list[CollectiveRecord]:
    return [c for c in case.collectives if c.sequence is not None and (c.state or "").lower() in UNFINISHED]


def _silent_by_loss(case: Case) -> float:
    """How many ranks would be silent by chance, from the lines that are missing of the ranks that are not."""
    lines: Counter[str] = Counter()
    for event in case.events:
        if event.kind.startswith("torch.") and event.fields.get("rank"):
            lines[event.fields["rank"]] += event.count
    if not lines:
        return 0.0
    usual = Counter(lines.values()).most_common(1)[0][0]
    missing = sum(max(usual - count, 0) for count in lines.values()) / (usual * len(lines))
    return float(len(lines) * missing**usual)


def _rank_nodes(case: Case) -> dict[int, str]:
    """Rank -> node. Ranks that no log names are filled in where the known ones show that ranks lie on the nodes in blocks of one size."""
    where = {rank.rank: rank.node for job in case.jobs for rank in job.ranks if rank.node}
    total = max((job.n_ranks or 0 for job in case.jobs), default=0)
    nodes = set(where.values())
    if len(where) < total and nodes and total % len(nodes) == 0:
        size = total // len(nodes)
        blocks: dict[int, set[str]] = defaultdict(set)
        for rank, node in where.items():
            blocks[rank // size].add(node)
        if len(blocks) == len(nodes) and all(len(names) == 1 for names in blocks.values()):
            return {rank: next(iter(blocks[rank // size])) for rank in range(total)}
    return where


def _stuck(case: Case) -> bool:
    """Whether a collective timed out (a dump of a healthy job has running ones too)."""
    return any((c.state or "").lower() in ("timed out", "timeout") for c in case.collectives)


def _by_absence(case: Case, timeline: Timeline, incident: Incident) -> bool:
    """The rank that is behind or silent when all others report one collective. Fills ``incident``; False when that says nothing."""
    records = _pending(case)
    shared: dict[str, list[CollectiveRecord]] = defaultdict(list)
    for record in records:
        shared[record.group].append(record)
    if len(shared) > 1 and (unnamed := shared.pop("", None)):  # older lines do not name the group
        max(shared.values(), key=len).extend(unnamed)
    if not shared:
        return False
    _, mine = max(shared.items(), key=lambda item: len(item[1]))
    pending: dict[int, CollectiveRecord] = {}
    for record in mine:
        known = pending.get(record.rank)
        if known is None or (record.sequence or 0) < (known.sequence or 0):
            pending[record.rank] = record
    total = max([job.n_ranks or 0 for job in case.jobs] + [max(pending) + 1])
    usual, number = Counter((r.sequence, r.operation, r.input_elements) for r in pending.values()).most_common(1)[0]
    odd = {rank: r for rank, r in pending.items() if (r.sequence, r.operation, r.input_elements) != usual}
    # Any line of a rank's watchdog shows that the rank is there and waits.
    heard = {int(e.fields["rank"]) for e in case.events if e.kind.startswith("torch.") and e.fields.get("rank", "").isdecimal()}
    enough = 2 * number >= total
    silent = sorted(set(range(total)) - set(pending) - heard) if enough else []
    differ = {rank: r for rank, r in odd.items() if r.sequence == usual[0]}
    where = _rank_nodes(case)
    where |= {r.rank: r.node for r in records if r.node}
    if differ and number > len(differ):
        ranks = sorted(differ)
        one = differ[ranks[0]]
        incident.kind, incident.confidence = "desync", "high" if len(ranks) <= 2 else "medium"
        incident.node = where.get(ranks[0], "") if len({where.get(r, "") for r in ranks}) == 1 else ""
        incident.device = ", ".join(f"rank {r}" for r in ranks[:8])
        incident.what = (
            f"is in {one.operation} ({one.input_elements} elements) at sequence {usual[0]}, "
            f"{number} ranks are in {usual[1]} ({usual[2]} elements): the program took two ways"
        )
        return True
    behind = {rank: r for rank, r in odd.items() if (r.sequence or 0) < (usual[0] or 0)}
    late = sorted(behind) or silent
    if late and len(late) <= max(1, total // 8) and enough:
        nodes = {where.get(r, "") for r in late}
        if not behind and (lost := _silent_by_loss(case)) > MAX_LOST:
            incident.what = f"rank {', '.join(map(str, late[:8]))} never reported, but lines of this log are missing"
            incident.why.append(f"about {lost:.1f} ranks are silent by lost lines alone")
            return True
        incident.kind = "straggler or hang"
        incident.confidence = "medium"
        incident.node = nodes.pop() if len(nodes) == 1 else ""
        incident.device = ", ".join(f"rank {r}" for r in late[:8])
        how = (
            f"is behind (sequence {behind[late[0]].sequence} of {usual[0]})"
            if behind
            else f"never reported, {number} of {total} ranks wait for it in {usual[1]} {usual[0]}"
        )
        incident.what = how
        if not incident.node:
            incident.missing.append("which node this rank runs on (an NCCL log with INFO tells)")
        return True
    return False


def find(case: Case, timeline: Timeline | None = None) -> Incident | None:
    """The first cause of a case's trouble, or None when there is no trouble that calls for one.

    A single node's kernel log with one fault needs no such verdict: its finding says it all. It is asked for when ranks complain of
    their peers or hang in a collective, or when several nodes have roots.
    """
    timeline = timeline or build(case)
    first, roots, victims = _window(timeline)
    suspects = _suspects(roots)
    if len(suspects) < 2 and not any(m.event.kind in VICTIMS for m in victims) and not _stuck(case):
        return None
    incident = Incident(missing=_missing(case))
    addresses = hosts_by_address(case)
    votes = _votes((m.event for m in victims), addresses)
    complaining = sorted({m.event.node for m in victims if m.event.node})
    suspects.sort(key=lambda s: (-s.weight, _starts(s).time is None, _starts(s).time or 0.0))
    # Processes of an application that die in many places died of something else: only heavier roots accuse then.
    heavy = [s for s in suspects if s.weight >= 4] or suspects
    if heavy:
        _choose(heavy, votes, first, incident, len(complaining))
    elif votes and votes.most_common(1)[0][1] >= 2 and _clear(votes):
        node, count = votes.most_common(1)[0]
        incident.node, incident.kind, incident.confidence = node, "link or dead peer", "medium"
        incident.what = f"{count} nodes complain of {node}, no other peer is named as often"
        incident.evidence = [
            m.event for m in victims if node in m.event.text or addresses.get((_PEER.search(m.event.text) or [""])[0]) == node
        ][:6]
    elif not _by_absence(case, timeline, incident):
        incident.what = "the first cause cannot be known from these inputs"
        incident.why.append("only consequences are seen: every rank tells of its peers, no node tells of a fault of its own")
    incident.victims = [n for n in complaining if n != incident.node]
    incident.others = [s for s in suspects if s.node != incident.node]
    return incident


def _clear(votes: Counter[str]) -> bool:
    ranked = votes.most_common(2)
    return len(ranked) == 1 or ranked[0][1] >= 2 * ranked[1][1]


def _choose(suspects: list[Suspect], votes: Counter[str], first: float | None, incident: Incident, complaining: int) -> None:
    """Pick one suspect, or say that several cannot be told apart."""
    best = suspects[0]
    if len(suspects) > 1:
        same = [s for s in suspects if s.kind == best.kind]
        if len(same) >= 3 and len(same) >= 0.6 * len(suspects) and _together(same):
            incident.kind = f"{best.kind} on several nodes"
            incident.confidence = "medium"
            names = ", ".join(s.node for s in same[:6]) + (" ..." if len(same) > 6 else "")
            incident.what = (
                f"{len(same)} nodes show it at one moment ({names}): "
                "what they share is the first suspect (switch, power, storage, facility)"
            )
            incident.evidence = [_starts(s).event for s in same[:8]]
            return
        early = min(suspects, key=lambda s: (_starts(s).time is None, _starts(s).time or 0.0))
        rivals = [s for s in suspects if s is not best]
        # An earlier root on another node beats a heavier later one, when the order is sure; votes decide when it is not.
        if early is not best and _starts(early).before(_starts(best)) and early.weight >= best.weight - 3:
            best, rivals = early, [s for s in suspects if s is not early]
        elif any(_starts(s).before(_starts(best)) is None and s.weight >= best.weight - 1 for s in rivals):
            pointed = [s for s in suspects if votes.get(s.node, 0) >= 2]
            if len(pointed) == 1:
                best = pointed[0]
                incident.why.append(f"{votes[best.node]} nodes complain of it")
            else:
                close = [s for s in suspects if s.weight >= best.weight - 1]
                names = ", ".join(s.node or "unnamed" for s in close[:6])
                incident.what = f"{len(close)} nodes failed within the uncertainty of their clocks: {names}"
                incident.why.append("their order cannot be told")
                incident.evidence = [_starts(s).event for s in close[:8]]
                return
    start = _starts(best)
    top = max(best.moments, key=lambda m: (_root_of(m.event) or ("", 0))[1])
    incident.node, incident.kind = best.node, best.kind
    incident.device = top.event.device
    incident.evidence = [m.event for m in best.moments[:6]]
    incident.what = f"failed first: {start.event.text[:160]}"
    incident.confidence = "high" if best.weight >= 6 and len(suspects) == 1 else "medium" if best.weight >= 4 else "low"
    if start.time is not None and first is not None:
        lead = first - start.time
        if lead > start.uncertainty_s:
            incident.why.append(f"{lead:.0f} s before the first complaint of another node")
        elif lead < -start.uncertainty_s:
            incident.against.append(f"the first complaint came {-lead:.0f} s earlier than its own first line")
            incident.confidence = "low"
        else:
            incident.why.append("at the moment of the first complaint, within the clocks' uncertainty")
    elif start.time is None:
        incident.against.append("its time cannot be compared with the other nodes'")
    if votes.get(best.node):
        incident.why.append(f"{votes[best.node]} node(s) complain of it")
    elif votes and _clear(votes) and votes.most_common(1)[0][1] >= 3 and votes.most_common(1)[0][0] != best.node:
        incident.against.append(f"{votes.most_common(1)[0][1]} nodes complain of {votes.most_common(1)[0][0]} instead")
        incident.confidence = "low"


def _missing(case: Case) -> list[str]:
    missing = []
    nodes = {e.node for e in case.events if e.node} | {n for job in case.jobs for n in job.nodes}
    without = sorted(nodes - set(case.kernel_logs))
    if without and nodes:
        missing.append(f"kernel log of {', '.join(without[:6])}{' ...' if len(without) > 6 else ''}")
    return missing


def role(event: Event) -> str:
    """ "root" for what can be a first cause, "victim" for a complaint about others, else "other"."""
    return "root" if _root_of(event) is not None else "victim" if _victim(event) else "other"
