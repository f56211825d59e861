"""What a layout makes the GPUs say to each other: collectives, their sizes and how often, and the size of a checkpoint.

Volumes: Megatron-LM (Korthikanti et al., arXiv:2205.05198, section 4: two all-reduces a layer and direction, or all-gather and reduce-scatter with
sequence parallelism); ZeRO (Rajbhandari et al., arXiv:1910.02054, section 7); FSDP (Zhao et al., arXiv:2304.11277, section 3). Sizes are those
that the collective is called with, per rank, in bytes.
"""

from __future__ import annotations

import msgspec

from kilter.facts.workload import Workload

_BYTES = {"bf16": 2, "fp16": 2, "fp8": 2, "mxfp8": 2, "fp4": 2, "fp32": 4}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One collective of a step (of training, or of decoding one token for a whole batch)."""

    what: str
    group: str  # tp, pp, cp, ep, dp
    bytes: int
    per_step: int
    inside_node: bool | None = None  # whether the whole group fits one node


def messages(work: Workload) -> list[Message]:
    """As far as the workload tells; empty where sizes are missing."""
    if work.kind == "inference":
        return _decode(work)
    return [*_tensor(work), *_pipeline(work), *_expert(work), *_data(work)] if work.kind else []


def _value_bytes(work: Workload) -> int:
    return _BYTES.get(work.precision or "bf16", 2)


def _inside(work: Workload, ranks: int) -> bool | None:
    return None if work.gpus_per_node is None else ranks <= work.gpus_per_node


def _steps(work: Workload) -> int:
    """Micro-batches of a step."""
    layout = work.layout
    if layout.global_batch and layout.micro_batch and layout.dp:
        return max(layout.global_batch // (layout.micro_batch * layout.dp), 1)
    return 1


def _tensor(work: Workload) -> list[Message]:
    layout, model = work.layout, work.model
    if model is None or not (layout.tp and layout.tp > 1 and model.hidden and model.layers and work.sequence_length):
        return []
    size = (layout.micro_batch or 1) * (work.sequence_length // (layout.cp or 1)) * model.hidden * _value_bytes(work)
    layers = model.layers // (layout.pp or 1)
    inside = _inside(work, layout.tp)
    if layout.sequence_parallel:
        times = 4 * layers * _steps(work)
        return [
            Message("all-gather of activations", "tp", size, times, inside),
            Message("reduce-scatter of activations", "tp", size, times, inside),
        ]
    return [Message("all-reduce of activations", "tp", size, 4 * layers * _steps(work), inside)]


def _pipeline(work: Workload) -> list[Message]:
    layout, model = work.layout, work.model
    if model is None or not (layout.pp and layout.pp > 1 and model.hidden and work.sequence_length):
        return []
    size = (layout.micro_batch or 1) * (work.sequence_length // (layout.cp or 1)) * model.hidden * _value_bytes(work)
    if layout.sequence_parallel and layout.tp:
        size //= layout.tp
    return [Message("send of activations and their gradients", "pp", size, 2 * _steps(work), None)]


def _expert(work: Workload) -> list[Message]:
    layout, model = work.layout, work.model
    if model is None or not (
        layout.ep and layout.ep > 1 and model.experts and model.hidden and model.layers and work.sequence_length
    ):
        return []
    tokens = (layout.micro_batch or 1) * (work.sequence_length // (layout.cp or 1)) // (layout.tp or 1)
    size = tokens * (model.experts_per_token or 1) * model.hidden * _value_bytes(work)
    sparse = (model.layers - (model.dense_layers or 0)) // (layout.pp or 1)
    return [
        Message("all-to-all of tokens (dispatch and combine)", "ep", size, 4 * sparse * _steps(work), _inside(work, layout.ep))
    ]


def _data(work: Workload) -> list[Message]:
    layout, model = work.layout, work.model
    if model is None or not (model.parameters and layout.dp and layout.dp > 1):
        return []
    shard = model.parameters // ((layout.tp or 1) * (layout.pp or 1))
    inside = _inside(work, layout.dp * (layout.tp or 1))
    gradients = shard * (4 if layout.sharding in ("ddp", "distributed_optimizer") else 2)
    if layout.sharding == "ddp" or layout.sharding is None or layout.zero_stage == 0:
        return [Message("all-reduce of gradients (in buckets)", "dp", gradients, 1, inside)]
    if layout.sharding in ("fsdp1", "fsdp2", "hsdp", "megatron_fsdp") or layout.zero_stage == 3:
        return [
            Message("all-gather of weights, layer by layer", "dp", shard * 2, 2 * _steps(work), inside),
            Message("reduce-scatter of gradients, layer by layer", "dp", shard * 2, _steps(work), inside),
        ]
    return [
        Message("reduce-scatter of gradients (in buckets)", "dp", gradients, 1, inside),
        Message("all-gather of weights (in buckets)", "dp", shard * 2, 1, inside),
    ]


def _decode(work: Workload) -> list[Message]:
    layout, model = work.layout, work.model
    if model is None or not (layout.tp and layout.tp > 1 and model.hidden and model.layers):
        return []
    batch = work.concurrency or 1
    return [
        Message(
            f"all-reduce while decoding, batch {batch}",
            "tp",
            batch * model.hidden * 2,
            2 * model.layers,
            _inside(work, layout.tp),
        )
    ]


def checkpoint_bytes(work: Workload) -> int | None:
    """Weights in two bytes, and for mixed-precision Adam a master copy and two moments in four each: 14 bytes a parameter."""
    if work.checkpoint_bytes is not None:
        return work.checkpoint_bytes
    if work.model is None or not work.model.parameters or work.kind not in ("pretrain", "sft", "rl"):
        return None
    return work.model.parameters * 14


def contradictions(work: Workload) -> list[str]:
    """What cannot be as it is said: sizes that do not divide."""
    found = []
    layout, model = work.layout, work.model
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if work.gpus and work.kind != "inference":
        if work.gpus % group:
            found.append(f"{work.gpus} GPUs are no multiple of TP x PP x CP = {group}")
        elif layout.dp and group * layout.dp != work.gpus:
            found.append(f"TP x PP x CP x DP = {group * layout.dp}, and there are {work.gpus} GPUs")
    if (
        layout.tp
        and work.gpus_per_node
        and layout.tp > work.gpus_per_node
        and work.gpus_per_node > 0
        and layout.tp % work.gpus_per_node == 0
    ):
        found.append(f"TP {layout.tp} spans nodes of {work.gpus_per_node} GPUs: every layer waits for the network between nodes")
    if model is not None:
        if layout.tp and model.heads and model.heads % layout.tp:
            found.append(f"{model.heads} attention heads cannot be split by TP {layout.tp}")
        if layout.pp and model.layers and not layout.vpp and model.layers % layout.pp and work.framework == "megatron":
            found.append(f"{model.layers} layers cannot be split evenly by PP {layout.pp}")
        if layout.ep and model.experts and model.experts % layout.ep:
            found.append(f"{model.experts} experts cannot be split by EP {layout.ep}")
        if model.max_positions and work.sequence_length and work.sequence_length > model.max_positions:
            found.append(f"sequences of {work.sequence_length} tokens, and the model has {model.max_positions} positions")
    if layout.global_batch and layout.micro_batch and layout.dp and layout.global_batch % (layout.micro_batch * layout.dp):
        found.append(f"global batch {layout.global_batch} is no multiple of micro-batch {layout.micro_batch} x DP {layout.dp}")
    return found
