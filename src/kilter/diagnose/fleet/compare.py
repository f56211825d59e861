"""Outliers: a number of one GPU, port or node against the same number of its peers.

Peers have the same kind (GPU models of their node) and role: first those at the same index or of the same name over all nodes, since slots
differ in air and rails in load; else all of the kind. Median and MAD (median absolute deviation), with a floor for both scale and effect, so
that 7 counts among zeros are no alarm. Only numbers with a direction are compared.
Source of the method: research section 7 (median/MAD z over siblings of the same role).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec

from kilter.diagnose.fleet.numbers import METRICS
from kilter.diagnose.fleet.profile import Profile, kinds, latest

MIN_PEERS = 5
MIN_Z = 5.0
#: MAD of a normal distribution x this = its standard deviation.
MAD_SCALE = 1.4826


class Outlier(msgspec.Struct, kw_only=True):
    metric: str
    node: str
    subject: str  # "GPU4 0000:9b:00.0", "mlx5_0", "" = the node
    subject_kind: str  # gpu, port, interface, pci, node
    value: float
    median: float
    mad: float
    peers: int
    z: float
    role: str  # "GPU4 of all nodes", "all GPUs"
    where: str = ""


def median(ordered: array[float] | list[float]) -> float:
    """Of sorted, non-empty numbers."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def centre(values: Iterable[float]) -> tuple[float, float]:
    """Median and MAD."""
    ordered = sorted(values)
    middle = median(ordered)
    return middle, median(sorted(abs(v - middle) for v in ordered))


def outliers(profiles: Iterable[Profile]) -> list[Outlier]:
    """Numbers far on the bad side of their peers', the worst first. Needs two nodes and five peers."""
    nodes = latest(profiles)
    found: list[Outlier] = []
    for members in kinds(nodes).values():
        if len(members) < 2:
            continue
        by_role: dict[tuple[str, str, str], array[float]] = {}
        everywhere: dict[tuple[str, str], array[float]] = {}
        for index in members:
            for one, value in zip(nodes[index].keys, nodes[index].numbers, strict=True):
                by_role.setdefault((one.metric, one.condition, one.role), array("d")).append(value)
                everywhere.setdefault((one.metric, one.condition), array("d")).append(value)
        # A role with too few peers is judged among all of its kind.
        centres: dict[tuple[str, ...], tuple[float, float, int]] = {
            key: (*centre(numbers), len(numbers) - 1) for key, numbers in by_role.items() if len(numbers) > MIN_PEERS
        }
        general: dict[tuple[str, str], tuple[float, float, int]] = {
            key: (*centre(numbers), len(numbers) - 1) for key, numbers in everywhere.items() if len(numbers) > MIN_PEERS
        }
        for index in members:
            for one, value in zip(nodes[index].keys, nodes[index].numbers, strict=True):
                peers = centres.get((one.metric, one.condition, one.role)) if one.role else None
                role = f"{one.role} of every node" if peers else "all of its kind"
                peers = peers or general.get((one.metric, one.condition))
                if peers is None:
                    continue
                middle, mad, count = peers
                metric = METRICS[one.metric]
                off = value - middle if metric.bad == "high" else middle - value
                z = off / max(MAD_SCALE * mad, metric.floor)
                if off >= metric.effect and z >= MIN_Z:
                    found.append(
                        Outlier(
                            metric=one.metric,
                            node=nodes[index].node,
                            subject=one.subject,
                            subject_kind=one.kind,
                            value=value,
                            median=middle,
                            mad=mad,
                            peers=count,
                            z=z,
                            role="every other node" if one.kind == "node" else role,
                            where=nodes[index].where(one.ref),
                        )
                    )
    return sorted(found, key=lambda o: (-o.z, o.metric, o.node, o.subject))
