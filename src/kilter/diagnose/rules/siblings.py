"""GPUs of one node against each other: same model, same settings?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, gpus_of, rule
from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.finding import Evidence, Finding, Subject

_Q = "nvidia-smi -q"

#: (field, word, severity): settings that should be equal on GPUs of one model
_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("power_limit_w", "power limit", "warning"),
    ("memory_total_mib", "memory size", "error"),
    ("link_width_max", "PCIe width possible", "warning"),
    ("link_generation_max", "PCIe generation possible", "warning"),
    ("firmware", "VBIOS", "info"),
    ("ecc_mode", "ECC mode", "warning"),
    ("persistence_mode", "persistence mode", "info"),
    ("compute_mode", "compute mode", "info"),
    ("application_sm_clock_mhz", "application clock", "info"),
    ("gsp_firmware", "GSP firmware", "warning"),
)


def _models(snapshot: Snapshot) -> dict[str, list[Accelerator]]:
    models: dict[str, list[Accelerator]] = {}
    for gpu in gpus_of(snapshot):
        if gpu.name:
            models.setdefault(gpu.name, []).append(gpu)
    return models


@rule(
    "gpu.siblings_differ",
    "GPUs of one model are set alike",
    scope="node",
    family="siblings",
    sop="SOP-SW",
    hint=_Q,
    sources=("research: failure mode 29 (configuration drift inside a node)",),
    action="Bring the odd ones in line, or note why they differ.",
    also=("gpu.siblings_differ.*",),
)
def settings(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """A setting of one or two GPUs differs from that of most others of the same model in the node. Three and more are compared.

    MIG on some GPUs only is a common choice and not reported; memory size is compared only between GPUs with equal MIG and ECC mode.
    """
    models = {name: gpus for name, gpus in _models(snapshot).items() if len(gpus) >= 3}
    if not models:
        if snapshot.accelerators is None:
            raise ctx.missing("GPUs")
        raise ctx.skip("fewer than three GPUs of one model")
    for name, gpus in models.items():
        for field, word, severity in _FIELDS:
            values = [(getattr(g, field), g) for g in gpus if getattr(g, field) is not None]
            if field == "memory_total_mib" and len({(g.mig_mode, g.ecc_mode) for g in gpus}) > 1:
                continue
            counts = Counter(value for value, _ in values)
            if len(counts) < 2:
                continue
            usual, number = counts.most_common(1)[0]
            odd = [(value, g) for value, g in values if value != usual]
            if number < 2 * len(odd):
                yield ctx.finding(
                    "info",
                    f"{name}: {word} differs between GPUs: {', '.join(f'{v} on {n}' for v, n in counts.most_common())}",
                    id=f"gpu.siblings_differ.{field}",
                    evidence=[ctx.fact(g, field) for _, g in values[:8]],
                )
                continue
            for value, gpu in odd:
                yield ctx.finding(
                    severity,
                    f"{word} is {value}, {usual} on {number} siblings",
                    id=f"gpu.siblings_differ.{field}",
                    subject=Subject("gpu", gpu.label, snapshot.node),
                    evidence=[ctx.fact(gpu, field), Evidence(f"{number} siblings: {usual}")],
                )


@rule(
    "gpu.hotter_than_siblings",
    "No GPU is hotter than its siblings at the same power",
    scope="node",
    family="siblings",
    sop="SOP-THERM",
    hint=_Q,
    sources=("research: failure mode 25; median and MAD over siblings",),
    action="Check the heat sink and the air path of this slot.",
)
def hotter(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """15 C and five MADs above the median of four or more siblings that draw about the same power."""
    gpus = gpus_of(snapshot)
    pairs = [
        (g, g.readings[-1])
        for g in gpus
        if g.readings and g.readings[-1].temperature_c is not None and g.readings[-1].power_w is not None
    ]
    if len(pairs) < 4:
        if not gpus:
            raise ctx.missing("temperature and power of the GPUs")
        raise ctx.skip("fewer than four GPUs with temperature and power")
    for gpu, reading in pairs:
        power, heat = reading.power_w or 0.0, reading.temperature_c or 0
        peers = sorted(
            r.temperature_c or 0 for g, r in pairs if g is not gpu and abs((r.power_w or 0.0) - power) <= max(0.15 * power, 20.0)
        )
        if len(peers) < 3:
            continue
        median = peers[len(peers) // 2]
        mad = sorted(abs(p - median) for p in peers)[len(peers) // 2]
        if heat >= median + max(15, 5 * mad):
            yield ctx.finding(
                "warning",
                f"{heat} C at {power:.0f} W, siblings {median} C at about the same power",
                subject=Subject("gpu", gpu.label, snapshot.node),
                evidence=[ctx.fact(reading, "temperature_c"), ctx.fact(reading, "power_w")],
            )


@rule(
    "facts.conflict",
    "Sources agree",
    scope="node",
    family="log",
    sources=("kilter: where sources disagree, both are shown",),
    action="Find out which capture is of another time or node.",
)
def conflict(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Two captures of this node give different driver versions, names or serial numbers: they may be of different nodes or times."""
    hard = {"driver_version", "uuid", "serial", "name", "hostname", "release"}
    conflicts = [c for c in snapshot.conflicts if c.field in hard]
    if not conflicts:
        return None
    lines = [Evidence(f"{c.subject} {c.field}: {c.kept}", snapshot.where(c.kept_ref)) for c in conflicts] + [
        Evidence(f"{c.subject} {c.field}: {c.other}", snapshot.where(c.other_ref), "contradicts") for c in conflicts
    ]
    return ctx.finding("info", f"{len(conflicts)} fact(s) differ between captures; the later one is used", evidence=lines)
