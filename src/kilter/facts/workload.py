"""What a machine is used for: a training or serving job, as far as its files, its launch line or its user tell.

Every field may be missing. Fields hold what the source says or what follows from it with certainty; guesses belong to whoever makes them.
"""

from __future__ import annotations

import msgspec

from kilter.facts.base import Entity

#: Kinds of workload.
KINDS = ("pretrain", "sft", "rl", "inference")


class Model(Entity):
    """A transformer as its configuration describes it. Sizes are in elements, not bytes."""

    name: str | None = None
    architecture: str | None = None  # of config.json: "LlamaForCausalLM"
    attention: str | None = None  # mha, gqa, mqa, mla
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None  # of the dense feed-forward layers
    vocab: int | None = None
    tied_embeddings: bool | None = None
    max_positions: int | None = None
    sliding_window: int | None = None
    kv_lora_rank: int | None = None  # MLA: width of the compressed key/value
    q_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None
    experts: int | None = None  # routed experts of an MoE layer; None or 0 = dense
    experts_per_token: int | None = None
    shared_experts: int | None = None
    moe_intermediate: int | None = None  # of one expert
    dense_layers: int | None = None  # leading layers without experts
    dtype: str | None = None  # of the weights: bfloat16, float16, float8_e4m3fn
    quantization: str | None = None  # fp8, awq, gptq, ...
    parameters: int | None = None  # counted from the sizes above, embeddings included
    active_parameters: int | None = None  # those that one token uses

    @property
    def is_moe(self) -> bool | None:
        """Whether it has routed experts; None for a model whose layers are not known."""
        if self.experts:
            return True
        return None if self.layers is None else False


class Layout(Entity):
    """How a job is spread over GPUs."""

    tp: int | None = None  # tensor parallel
    pp: int | None = None  # pipeline stages
    vpp: int | None = None  # virtual stages per rank, or layers per virtual stage where the framework counts so
    cp: int | None = None  # context parallel
    ep: int | None = None  # expert parallel
    etp: int | None = None  # tensor parallel inside experts
    dp: int | None = None  # replicas (of the whole model, or engines behind one router)
    sharding: str | None = None  # ddp, distributed_optimizer, zero, fsdp1, fsdp2, hsdp, megatron_fsdp
    zero_stage: int | None = None
    sequence_parallel: bool | None = None
    micro_batch: int | None = None  # sequences
    global_batch: int | None = None  # sequences
    recompute: str | None = None  # none, selective, full


class Objective(msgspec.Struct, omit_defaults=True):
    """A limit that serving must hold, as ``ttft_ms`` p99 <= 2000."""

    metric: str  # ttft_ms, tpot_ms, itl_ms, e2e_ms, tokens_per_s
    limit: float
    percentile: float | None = None


class Workload(Entity):
    """One job. ``source`` of a field is in :attr:`origin`, its first number being an index into ``sources``."""

    kind: str | None = None  # one of KINDS
    framework: str | None = None  # megatron, torchtitan, deepspeed, fsdp, verl, vllm, sglang, tensorrt_llm, tgi, ...
    framework_version: str | None = None
    rollout_engine: str | None = None  # of RL: vllm, sglang
    torch_version: str | None = None
    nccl_version: str | None = None
    multi_node: bool | None = None
    nodes: int | None = None
    gpus: int | None = None  # all of the job
    gpus_per_node: int | None = None
    workers: int | None = None  # engines or replicas on a node, each with its own GPUs
    model: Model | None = None
    layout: Layout = msgspec.field(default_factory=Layout)
    precision: str | None = None  # of the arithmetic: bf16, fp16, fp8, mxfp8, fp4
    kv_cache_dtype: str | None = None
    sequence_length: int | None = None  # tokens of a training sample, or the longest request that is served
    input_tokens: int | None = None  # of a typical request
    output_tokens: int | None = None
    concurrency: int | None = None  # requests in flight
    objectives: list[Objective] = []
    checkpoint_bytes: int | None = None
    checkpoint_interval_s: float | None = None
    cuda_graphs: bool | None = None
    speculative: str | None = None  # method of speculative decoding
    flags: dict[str, str] = {}  # command-line flags of the framework as given, without dashes; "" for a switch
    environment: dict[str, str] = {}  # variables that the launch sets
    answers: dict[str, str | int | float | bool] = {}  # what only the user knows: name of the asked fact -> answer
    sources: list[str] = []  # where this was read: a file, "command line", "answers"

    @property
    def latency_sensitive(self) -> bool | None:
        """Whether a percentile of latency is a goal: said, or implied by the objectives; None where nothing tells."""
        said = self.answers.get("workload.latency_sensitive")
        if isinstance(said, bool):
            return said
        if self.objectives:
            return any(goal.metric.endswith("_ms") for goal in self.objectives)
        return False if self.kind in ("pretrain", "sft") else None
