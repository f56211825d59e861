"""Fragments -> a :class:`Case`: one snapshot a node (and moment), events joined, repeats merged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Entity
from kilter.facts.case import Case, Conflict, Input, Snapshot
from kilter.facts.event import Clock, Event
from kilter.intake.fragment import Fragment
from kilter.intake.ras_once import once
from kilter.intake.stored import Snapshots, Stored, place_boot_times, settle, store

#: Identity of entities that stand in lists.
_KEYS = {
    "NvLink": "id",
    "RdmaDevice": "name",
    "RdmaPort": "number",
    "NetInterface": "name",
    "NvSwitch": "pci_address",
    "NumaNode": "id",
    "Bar": "index",
}
_SKIP = {"origin", "missing", "sources", "conflicts", "events", "readings", "time", "node", "schema", "kilter"}
#: Lists without identity: what both sides have is kept.
_CONCATENATED = {"samples", "diagnostics"}
#: Two repeats of one message closer than this are one burst (NVSentinel merges XID bursts within 3 min).
BURST_S = 180.0


_CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")


def _same_cpus(a: object, b: object) -> bool:
    """Whether two texts are one CPU list, written apart ("0,1" and "0-1")."""
    if not (isinstance(a, str) and isinstance(b, str) and _CPU_LIST.match(a) and _CPU_LIST.match(b)):
        return False

    def cpus(text: str) -> set[int]:
        spans = [part.partition("-") for part in text.split(",")]
        return {n for low, _, high in spans if len(low) < 6 and len(high) < 6 for n in range(int(low), int(high or low) + 1)}

    return cpus(a) == cpus(b)


def _entities(value: object) -> Iterable[Entity]:
    """Every entity in ``value``, itself included."""
    if isinstance(value, Entity):
        yield value
        for name in value.__struct_fields__:
            child = getattr(value, name)
            if child and isinstance(child, (Entity, list, dict)) and name not in ("origin", "missing"):
                yield from _entities(child)
    elif isinstance(value, list):
        for item in value:
            yield from _entities(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _entities(item)


def _shift(value: object, offset: int) -> None:
    """Make every reference in ``value`` count from ``offset``."""
    if offset:
        for entity in _entities(value):
            if entity.origin:
                entity.origin = {field: (source + offset, line) for field, (source, line) in entity.origin.items()}


def _rebase(snapshot: Snapshot, offset: int) -> None:
    _shift(snapshot, offset)
    for accelerator in snapshot.accelerators or []:
        for reading in accelerator.readings:
            reading.source += offset


class _Merger:
    """Merges facts into ``into``. With ``later``, the other side was taken later and wins where both have a value."""

    def __init__(self, into: Snapshot, *, later: bool) -> None:
        self.into = into
        self.later = later

    def snapshot(self, other: Snapshot) -> None:
        _rebase(other, len(self.into.sources))
        self.into.sources.extend(other.sources)
        self.entity(self.into, other, "")

    def entity(self, a: Entity, b: Entity, subject: str) -> None:
        for name in b.__struct_fields__:
            if name in _SKIP:
                continue
            theirs = getattr(b, name)
            if theirs is None or (theirs == [] and getattr(a, name) not in (None, [])):
                continue
            self.field(a, b, name, theirs, subject)
        for field, ref in b.origin.items():
            a.origin.setdefault(field, ref)
        for field, missing in b.missing.items():
            if getattr(a, field, None) is None:
                a.missing.setdefault(field, missing)
        if isinstance(a, Accelerator) and isinstance(b, Accelerator):
            a.readings.extend(b.readings)

    def field(self, a: Entity, b: Entity, name: str, theirs: object, subject: str) -> None:
        ours = getattr(a, name)
        if ours is None:
            setattr(a, name, theirs)
            a.missing.pop(name, None)
            if name in b.missing:  # a value with a mark that it is not all of it (lsmod | grep)
                a.missing[name] = b.missing[name]
            if name in b.origin:
                a.origin[name] = b.origin[name]
            elif "" in b.origin:
                a.origin.setdefault(name, b.origin[""])
        elif isinstance(ours, Entity) and isinstance(theirs, Entity):
            self.entity(ours, theirs, name)
        elif isinstance(ours, dict) and isinstance(theirs, dict):
            for key, value in theirs.items():
                if isinstance(value, Entity) and isinstance(ours.get(key), Entity):
                    self.entity(ours[key], value, str(key))
                elif key not in ours or self.later:
                    ours[key] = value
        elif isinstance(ours, list) and isinstance(theirs, list):
            self.items(a, name, ours, theirs)
        elif ours != theirs and not _same_cpus(ours, theirs):
            self.conflict(a, b, name, ours, theirs, subject)

    def items(self, a: Entity, name: str, ours: list[object], theirs: list[object]) -> None:
        if name == "accelerators":
            self.accelerators(ours, theirs)
            return
        key = _KEYS.get(type(theirs[0]).__name__) if theirs else None
        if name in _CONCATENATED:
            ours.extend(theirs)
        elif key is None:
            if self.later or not ours:
                setattr(a, name, theirs)
        else:
            self.keyed(name, key, ours, theirs)

    def keyed(self, name: str, key: str, ours: list[object], theirs: list[object]) -> None:
        known = {getattr(item, key): item for item in ours}
        for item in theirs:
            identity = getattr(item, key)
            mine = known.get(identity)
            if isinstance(mine, Entity) and isinstance(item, Entity) and identity not in ("", None):
                self.entity(mine, item, f"{name} {identity}")
            else:
                ours.append(item)

    def accelerators(self, ours: list[object], theirs: list[object]) -> None:
        for item in theirs:
            assert isinstance(item, Accelerator)
            mine = match_accelerator(item, [one for one in ours if isinstance(one, Accelerator)])
            if mine is None:
                ours.append(item)
            else:
                self.entity(mine, item, mine.label)

    def conflict(self, a: Entity, b: Entity, name: str, ours: object, theirs: object, subject: str) -> None:
        """Counters move; names, versions and modes should not. Of the latter the disagreement is kept."""
        kept, lost = (theirs, ours) if self.later else (ours, theirs)
        if isinstance(ours, (str, bool)):
            self.into.conflicts.append(
                Conflict(
                    subject=subject,
                    field=name,
                    kept=str(kept),
                    other=str(lost),
                    kept_ref=(b if self.later else a).ref(name),
                    other_ref=(a if self.later else b).ref(name),
                )
            )
        if self.later:
            setattr(a, name, theirs)
            if (ref := b.ref(name)) is not None:
                a.origin[name] = ref


def match_accelerator(item: Accelerator, known: list[Accelerator]) -> Accelerator | None:
    """The entry for the same device: by PCI address, else by UUID, else by index where nothing contradicts it."""
    if item.pci_address:
        for one in known:
            # Both chips of a Kunlunxin K200 card have one address; only index and minor number tell them apart.
            if one.pci_address == item.pci_address and not (
                one.vendor == "kunlunxin" and None not in (one.index, item.index) and one.index != item.index
            ):
                return one
    if item.uuid:
        same = [one for one in known if one.uuid == item.uuid and not (one.pci_address and item.pci_address)]
        if len(same) == 1:
            return same[0]
    for one in known:
        if one.index is not None and one.index == item.index and one.vendor == item.vendor:
            if one.pci_address and item.pci_address:
                continue
            if one.uuid and item.uuid and one.uuid != item.uuid:
                continue
            return one
    return None


def _settle_rows(snapshot: Snapshot) -> None:
    """Merge entries of one device inside one fragment (rows of a looping CSV query, an error line beside a table)."""
    if not snapshot.accelerators or len(snapshot.accelerators) < 2:
        return
    merger = _Merger(snapshot, later=False)
    settled: list[Accelerator] = []
    alike: dict[
        object, list[Accelerator]
    ] = {}  # identity -> the settled ones that have it, so that thousands of rows stay linear
    for item in snapshot.accelerators:
        candidates = {id(one): one for key in _identities(item) for one in alike.get(key, ())}
        mine = match_accelerator(item, list(candidates.values()))
        if mine is None:
            settled.append(item)
            mine = item
        else:
            merger.entity(mine, item, mine.label)
        for key in _identities(mine):
            known = alike.setdefault(key, [])
            if not any(one is mine for one in known):
                known.append(mine)
    snapshot.accelerators = settled


def _identities(item: Accelerator) -> list[object]:
    """What :func:`match_accelerator` goes by."""
    return [key for key in (item.pci_address, item.uuid, (item.vendor, item.index)) if key and key != (item.vendor, None)]


def _time_of(fragment: Fragment) -> float:
    return fragment.source.time if fragment.source.time is not None else float("-inf")


def _snapshots(node: str, fragments: list[Fragment]) -> list[Snapshot | Stored]:
    """All captures of one node become one snapshot; complete kilter snapshots of different moments stay apart."""
    whole = [f for f in fragments if f.source.tool == "kilter snapshot"]
    parts = [f for f in fragments if f.source.tool != "kilter snapshot" and f.source.tool not in ("NCCL log",)]
    whole.sort(key=_time_of)
    parts.sort(key=_time_of)
    result = [f.stored or f.snapshot for f in whole]
    if parts:
        base = result.pop() if result else Snapshot()
        base = base.load() if isinstance(base, Stored) else base
        base_time = base.time if whole and base.time is not None else float("-inf")
        for part in parts:
            _settle_rows(part.snapshot)
            _Merger(base, later=_time_of(part) > base_time).snapshot(part.snapshot)
            base_time = max(base_time, _time_of(part))
            if part.source.time is not None:
                base.time = max(base.time or part.source.time, part.source.time)
        result.append(base)
    return [one._replace(node=one.node or node) if isinstance(one, Stored) else settle(one, node) for one in result]


def _order(event: Event) -> tuple[bool, float]:
    return (event.time is None, event.time or 0.0)


def merge_events(events: list[Event]) -> list[Event]:
    """Join repeats of one message, and the same message told by two logs of one node (dmesg and the journal)."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        groups.setdefault((event.node, event.kind, event.device, event.code, _essence(event)), []).append(event)
    merged: list[Event] = []
    for group in groups.values():
        by_log: dict[tuple[str, Clock], list[Event]] = {}
        for event in group:
            by_log.setdefault((event.source, event.clock), []).append(event)
        # Several logs of one node tell of the same events: the one that tells most stands for all.
        best = max(by_log.values(), key=lambda told: (sum(e.count for e in told), told[0].clock in (Clock.UTC, Clock.LOCAL)))
        others = sorted({e.where for told in by_log.values() if told is not best for e in told[:1]})
        current: Event | None = None
        for event in sorted(best, key=_order):
            end = (
                current.last_time if current is not None and current.last_time is not None else current.time if current else None
            )
            near = end is None or event.time is None or event.time - end <= BURST_S
            if current is not None and near:
                current.count += event.count
                current.last_time = event.last_time or event.time
                for key, value in event.fields.items():
                    current.fields.setdefault(key, value)
            else:
                current = event
                merged.append(event)
        if others and current is not None:
            current.fields["also"] = ", ".join(others[:3])
    merged.sort(key=_order)
    return merged


def _essence(event: Event) -> str:
    """What makes two events of one kind, device and code the same message."""
    if event.kind == "xid":
        return "|".join(
            event.fields.get(name, "") for name in ("pid", "gi", "ci", "unit", "link", "regs", "caused_by", "action", "function")
        )
    if event.kind == "sxid":
        return event.fields.get("link", "")
    if event.kind == "aer":
        # The kernel log and rasdaemon tell of one error in other words.
        return f"{event.severity}|{' '.join(sorted(event.fields.get('errors', '').split()))}"
    if event.kind == "machine_check" and "status" in event.fields:
        return f"{event.fields.get('bank', '')}|{event.fields['status']}"
    return event.text


#: Tools that speak of a whole cluster or fabric, and never of the host they ran on.
_OF_ALL = {
    *("sinfo/squeue", "scontrol show node", "scontrol show job", "sdiag", "sacct", "Slurm JSON", "Slurm log"),
    *("kubectl describe", "kubectl get", "kubectl get -o"),
    *(
        "perfquery",
        "ibnetdiscover",
        "iblinkinfo",
        "ibqueryerrors",
        "ibdiagnet",
        "ibswinfo",
        "nvidia-imex-ctl",
        "serving benchmark",
    ),
}


def _labels(fragments: list[Fragment]) -> dict[str, str]:
    """The node of each group's nameless fragments: the only host that the group names, else the group itself."""
    names: dict[str, set[str]] = {}
    for fragment in fragments:
        known = names.setdefault(fragment.group, set())
        if fragment.source.tool != "NCCL log":  # its hosts are those of the whole job
            told = () if fragment.source.tool in _OF_ALL else fragment.events
            known |= {name for name in (fragment.source.node, *(e.node for e in told)) if name}
    return {group: known.pop() if len(known) == 1 else group for group, known in names.items()}


def _of_no_node(fragment: Fragment) -> bool:
    """Whether a fragment tells nothing of a node: it must not make one, least of all one without a name."""
    if fragment.source.tool not in _OF_ALL:
        return False
    bare = Snapshot(sources=fragment.snapshot.sources, node=fragment.snapshot.node)
    return fragment.snapshot == bare


def _take_shared(case: Case, fragment: Fragment) -> None:
    """Move what belongs to no single node from a fragment to the case."""
    parts: tuple[tuple[str, list[Any]], ...] = (
        ("fabric", fragment.fabric),
        ("cluster_nodes", fragment.cluster_nodes),
        ("cluster_jobs", fragment.cluster_jobs),
        ("serving", fragment.serving),
        ("scheduler_loads", fragment.scheduler_loads),
        ("imex_domains", fragment.imex_domains),
        ("collectives", fragment.collectives),
        ("rank_states", fragment.rank_states),
    )
    if not any(part for _, part in parts):
        return
    offset = len(case.sources)
    case.sources.extend(fragment.snapshot.sources[:1])
    for name, part in parts:
        if part:
            _shift(part, offset)
            known = getattr(case, name)
            if known:
                known.extend(part)
            else:
                setattr(case, name, part)


def assemble(fragments: list[Fragment], inputs: list[Input]) -> Case:
    """The case of all ``fragments``. In each group, the one host that is named takes the fragments that name none."""
    labels = _labels(fragments)
    by_node: dict[str, list[Fragment]] = {}
    events: list[Event] = []
    case = Case(inputs=inputs)
    for fragment in fragments:
        node = fragment.source.node or labels[fragment.group]
        for event in fragment.events:
            event.node = event.node or node
            events.append(event)
        case.jobs.extend(fragment.jobs)
        _take_shared(case, fragment)
        if fragment.source.tool == "kernel log":
            case.kernel_logs.append(node)
        if fragment.source.tool != "NCCL log" and not _of_no_node(fragment):
            by_node.setdefault(node, []).append(fragment)
    snapshots: list[Snapshot | Stored] = []
    for node, group in by_node.items():
        snapshots.extend(_snapshots(node, group))
    boots: dict[str, float] = {}
    for one in snapshots:
        known = one if isinstance(one, Stored) else store(one, "")
        if known.has_kernel_log:
            case.kernel_logs.append(one.node)
        if known.booted is not None:
            boots[one.node] = known.booted
    case.snapshots = Snapshots(snapshots)
    case.kernel_logs = sorted(set(case.kernel_logs))
    place_boot_times(boots, events)
    case.events = merge_events(once(events))
    return case
