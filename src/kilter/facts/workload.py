"""What the machine is used for. Optional: rules that need it say so."""

from __future__ import annotations

from kilter.facts.base import Entity


class Workload(Entity):
    kind: str | None = None  # pretrain, sft, rl, inference
    framework: str | None = None
    framework_version: str | None = None
    multi_node: bool | None = None
    gpus: int | None = None
