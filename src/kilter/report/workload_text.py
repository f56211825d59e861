"""A workload on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kilter.facts.workload import Workload
from kilter.report.writer import Writer


class MessageLike(Protocol):
    """What is printed of a collective."""

    @property
    def what(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def per_step(self) -> int: ...
    @property
    def inside_node(self) -> bool | None: ...


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def _billions(count: int) -> str:
    return f"{count / 1e9:.4g} B" if count >= 1e9 else f"{count / 1e6:.4g} M"


def workload_text(
    work: Workload,
    *,
    messages: Sequence[MessageLike],
    kv_bytes: float | None,
    checkpoint: int | None,
    problems: Sequence[str],
    width: int,
    color: bool,
) -> str:
    out = Writer(width, color)
    head = ", ".join(str(p) for p in (work.kind, work.framework, work.framework_version) if p) or "nothing known yet"
    out.add(out.paint(f"Workload: {head}", "1"))
    model = work.model
    if model is not None:
        parts = [model.name or model.architecture or "not named"]
        parts += [f"{_billions(model.parameters)} parameters"] if model.parameters else []
        parts += [f"{_billions(model.active_parameters)} active"] if model.experts and model.active_parameters else []
        parts += [model.attention] if model.attention else []
        parts += [f"{model.experts} experts, {model.experts_per_token} a token"] if model.experts else []
        parts += [f"{model.layers} layers of {model.hidden}"] if model.layers and model.hidden else []
        out.labelled("model", ", ".join(parts))
    if kv_bytes:
        out.labelled("KV cache", f"{size(kv_bytes)} a token in two bytes a value")
    layout = work.layout
    sizes = [f"{n.upper()}={v}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp") if (v := getattr(layout, n))]
    sizes += [s for s in (layout.sharding, f"ZeRO {layout.zero_stage}" if layout.zero_stage is not None else None) if s]
    where = [f"{work.gpus} GPUs" if work.gpus else "", f"{work.nodes} nodes" if work.nodes else ""]
    sizes += ["sequence parallel"] if layout.sequence_parallel else []
    text = ", ".join([*filter(None, where), *sizes])
    if text:
        out.labelled("layout", text)
    pairs = [
        ("tokens", work.sequence_length),
        ("micro-batch", layout.micro_batch),
        ("global batch", layout.global_batch),
        ("requests at once", work.concurrency),
    ]
    said = ", ".join(f"{name} {value}" for name, value in pairs if value)
    if said:
        out.labelled("sizes", said)
    for message in messages:
        place = {True: ", inside a node", False: ", between nodes", None: ""}[message.inside_node]
        out.labelled(message.group.upper(), f"{message.what}: {size(message.bytes)}, {message.per_step} a step{place}")
    if checkpoint:
        out.labelled("saved", f"checkpoint of about {size(checkpoint)}")
    for name, value in sorted(work.environment.items()):
        out.labelled("env", f"{name}={value}")
    for problem in problems:
        out.labelled("wrong", problem)
    if work.sources:
        out.labelled("from", ", ".join(work.sources))
    return out.text()
