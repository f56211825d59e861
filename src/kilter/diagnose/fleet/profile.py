"""What one node brings to a comparison of many, so that its snapshot need not be kept.

Equal facts, names and lists of them are one object over all nodes: a profile of a node like its siblings costs about two kilobytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from kilter.diagnose.fleet.numbers import numbers
from kilter.diagnose.fleet.rare import attributes
from kilter.diagnose.fleet.values import ConfigFact, complete_groups, config_facts, models
from kilter.facts.base import Ref
from kilter.facts.case import NodeSummary, Snapshot, summarize

T = TypeVar("T", bound=Hashable)


class NumberKey(NamedTuple):
    """What a number is: see :class:`kilter.diagnose.fleet.numbers.Number`."""

    metric: str
    condition: str
    role: str
    subject: str
    kind: str
    ref: Ref | None


class Profile(NamedTuple):
    position: int  # of its snapshot in the case
    node: str
    time: float | None
    product: str | None
    models: tuple[str, ...]  # GPU models
    asked_for_gpus: bool
    facts: tuple[ConfigFact, ...]
    complete: tuple[str, ...]  # listings that the node has whole
    keys: tuple[NumberKey, ...]
    numbers: array[float]  # one a key
    attributes: tuple[tuple[str, str], ...]  # what rare events are grouped by
    variables: tuple[str, ...] | None  # NCCL settings of its environment; None = not known
    measures: tuple[str, ...]  # tools whose measurements it has
    sources: tuple[str, ...]
    summary: NodeSummary

    def where(self, ref: Ref | None) -> str:
        """``file:line`` of a reference, or "" when it is not known."""
        if ref is None or not 0 <= ref[0] < len(self.sources):
            return ""
        return f"{self.sources[ref[0]]}:{ref[1]}" if ref[1] else self.sources[ref[0]]


class Profiler:
    """Makes the profiles of one case."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Hashable] = {}

    def _one(self, value: T) -> T:
        return self._known.setdefault(value, value)  # type: ignore[return-value]  # the key is the value

    def _all(self, values: Iterable[T]) -> tuple[T, ...]:
        return self._one(tuple(self._one(value) for value in values))

    def of(self, snapshot: Snapshot, position: int) -> Profile:
        found = list(numbers(snapshot))
        variables = snapshot.environment.variables
        return Profile(
            position=position,
            node=snapshot.node,
            time=snapshot.time,
            product=self._one(snapshot.host.dmi_product),
            models=self._all(models(snapshot)),
            asked_for_gpus=snapshot.accelerators is not None,
            facts=self._all(config_facts(snapshot)),
            complete=self._all(complete_groups(snapshot)),
            keys=self._all(NumberKey(n.metric, n.condition, n.role, n.subject, n.kind, n.ref) for n in found),
            numbers=array("d", [n.value for n in found]),
            attributes=self._all(attributes(snapshot).items()),
            variables=None if variables is None else self._all(name for name in variables if name.startswith("NCCL_")),
            measures=self._all({sample.tool for sample in snapshot.samples}),
            sources=self._all(source.name for source in snapshot.sources),
            summary=summarize(snapshot),
        )


def profiles(snapshots: Iterable[Snapshot]) -> list[Profile]:
    """One profile a snapshot, in their order."""
    profiler = Profiler()
    return [profiler.of(snapshot, position) for position, snapshot in enumerate(snapshots)]


def latest(profiles: Iterable[Profile]) -> list[Profile]:
    """One profile a node: the last one taken. Nodes without a name stay apart."""
    found: dict[object, Profile] = {}
    for profile in profiles:
        key = profile.node or profile.position
        known = found.get(key)
        if known is None or (profile.time or 0.0) >= (known.time or 0.0):
            found[key] = profile
    return list(found.values())


def kinds(nodes: Sequence[Profile]) -> dict[str, list[int]]:
    """Indices of nodes by kind (GPU models). A node without known GPUs joins the only kind of its product, so that a node that lost all
    GPUs is still compared with its like."""
    groups: dict[str, list[int]] = {}
    products: dict[str | None, set[str]] = {}
    rest: list[int] = []
    for index, node in enumerate(nodes):
        if node.models:
            key = " + ".join(node.models)
            groups.setdefault(key, []).append(index)
            products.setdefault(node.product, set()).add(key)
        else:
            rest.append(index)
    for index in rest:
        product = nodes[index].product
        near = products.get(product, set()) if product else set()
        if not near and (product is None or None in products) and len(groups) == 1 and not nodes[index].asked_for_gpus:
            near = set(groups)
        groups.setdefault(next(iter(near)) if len(near) == 1 else "", []).append(index)
    return groups
