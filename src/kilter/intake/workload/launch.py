"""Launch lines of training and serving frameworks: which one it is, its flags, and what they say of the layout.

Flags: NVIDIA/Megatron-LM megatron/training/arguments.py; vllm-project/vllm vllm/engine/arg_utils.py; sgl-project/sglang
python/sglang/srt/server_args.py; NVIDIA/TensorRT-LLM tensorrt_llm/commands/serve.py; huggingface/text-generation-inference launcher;
pytorch/torchtitan torchtitan/config; volcengine/verl verl/trainer/config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kilter.facts.base import Entity
from kilter.facts.workload import Layout, Model, Workload
from kilter.intake.workload.shell import Command

#: Framework -> words of which one names it, in the order in which they are tried.
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("verl", re.compile(r"verl\.trainer\.main_\w+$|recipe\.\w+\.main_\w+$|verl\.trainer\.\w*sft\w*$")),
    ("openrlhf", re.compile(r"openrlhf\.cli\.\w+$")),
    ("vllm", re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server$|vllm/vllm-openai[:@]?\S*$")),
    ("sglang", re.compile(r"sglang\.launch_server$|lmsysorg/sglang[:@]?\S*$")),
    ("tensorrt_llm", re.compile(r"(?:.*/)?trtllm-(?:serve|build|bench)$")),
    ("tgi", re.compile(r"(?:.*/)?text-generation-launcher$|ghcr\.io/huggingface/text-generation-inference\S*$")),
    ("torchtitan", re.compile(r"torchtitan\.train$|(?:.*/)?torchtitan/train\.py$")),
    ("llama_factory", re.compile(r"llamafactory-cli$")),
    ("trl", re.compile(r"trl$|(?:.*/)?(?:sft|dpo|grpo)\.py$")),
    ("megatron", re.compile(r"(?:.*/)?pretrain_\w+\.py$|(?:.*/)?megatron/training\S*$")),
)
_SERVING = ("vllm", "sglang", "tensorrt_llm", "tgi")
#: Field of Layout -> flags of any framework (no two use one name for different things).
_LAYOUT: dict[str, tuple[str, ...]] = {
    "tp": (
        "tensor-model-parallel-size",
        "tensor-parallel-size",
        "tp-size",
        "tp_size",
        "tp",
        "num-shard",
        "parallelism.tensor_parallel_degree",
    ),
    "pp": (
        "pipeline-model-parallel-size",
        "pipeline-parallel-size",
        "pp-size",
        "pp_size",
        "pp",
        "parallelism.pipeline_parallel_degree",
    ),
    "vpp": ("num-layers-per-virtual-pipeline-stage",),
    "cp": ("context-parallel-size", "parallelism.context_parallel_degree", "prefill-context-parallel-size"),
    "ep": (
        "expert-model-parallel-size",
        "expert-parallel-size",
        "ep-size",
        "ep_size",
        "ep",
        "parallelism.expert_parallel_degree",
    ),
    "etp": ("expert-tensor-parallel-size",),
    "dp": ("data-parallel-size", "dp-size", "dp_size", "dp"),
    "micro_batch": ("micro-batch-size", "per_device_train_batch_size", "training.local_batch_size", "training.batch_size"),
    "global_batch": ("global-batch-size", "training.global_batch_size"),
}
_WORKLOAD: dict[str, tuple[str, ...]] = {
    "sequence_length": (
        "seq-length",
        "max-model-len",
        "context-length",
        "max_seq_len",
        "max-total-tokens",
        "training.seq_len",
        "max_length",
        "cutoff_len",
    ),
    "nodes": ("nnodes", "num_nodes", "num_machines"),
}
_SIZES: dict[str, tuple[str, ...]] = {
    "layers": ("num-layers",),
    "hidden": ("hidden-size",),
    "heads": ("num-attention-heads",),
    "kv_heads": ("num-query-groups",),
    "head_dim": ("kv-channels",),
    "intermediate": ("ffn-hidden-size",),
    "experts": ("num-experts",),
    "experts_per_token": ("moe-router-topk",),
    "moe_intermediate": ("moe-ffn-hidden-size",),
    "vocab": ("vocab-size", "padded-vocab-size"),
    "kv_lora_rank": ("kv-lora-rank",),
    "q_lora_rank": ("q-lora-rank",),
    "max_positions": ("max-position-embeddings",),
}


def framework_of(words: Iterable[str]) -> str | None:
    """The framework that a command starts."""
    listed = list(words)
    if listed[:1] and listed[0] in ("echo", "printf", "cat", "pip", "pip3", "git", "docker-compose", "apt-get"):
        return None
    for name, pattern in _MARKS:
        if any(pattern.match(word) for word in listed):
            return name
    joined = " ".join(listed)
    if re.search(r"(?:^|[ /])vllm serve(?: |$)", joined):
        return "vllm"
    if "--tensor-model-parallel-size" in joined or "--use-mcore-models" in joined:
        return "megatron"
    if "--job.config_file" in joined or "--job.config-file" in joined:
        return "torchtitan"
    if listed[:1] == ["deepspeed"] or "--deepspeed" in joined:
        return "deepspeed"
    if "accelerate" in listed and "--use_fsdp" in joined:
        return "fsdp"
    if re.search(r"(?:^| )trainer\.(?:num_nodes|devices)=", joined):
        return "nemo"
    # A script of somebody's own: what is known is how many processes it runs as, and its variables.
    launchers = (
        r"(?:^|[ /])torchrun(?: |$)|(?:^| )-m torch\.distributed\.(?:run|launch)(?: |$)|(?:^|[ /])accelerate launch(?: |$)"
    )
    return "pytorch" if re.search(launchers, joined) else None


def flags_of(words: list[str]) -> dict[str, str]:
    """``--name value``, ``--name=value``, ``-tp 8`` and the ``key=value`` of hydra; "" for a switch; the last one counts."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        takes_next = bool(following) and (not following.startswith("-") or re.fullmatch(r"-\d+(?:\.\d+)?", following) is not None)
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.lstrip("-").partition("=")
            found[name] = value if equals else following if takes_next else ""
        elif re.match(r"\+{0,2}[A-Za-z_]\w*(?:\.\w+)+=", word):
            name, _, value = word.lstrip("+").partition("=")
            found[name] = value
    return found


def _number(flags: dict[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        for spelling in (name, name.replace("-", "_"), name.replace("_", "-")):
            text = flags.get(spelling, "")
            if re.fullmatch(r"\d{1,12}", text):
                return int(text)
            if match := re.fullmatch(r"(\d{1,6})([kK])", text):
                return int(match[1]) * (1024 if match[2] == "K" else 1000)
    return None


def _fill(entity: Entity, table: dict[str, tuple[str, ...]], flags: dict[str, str]) -> None:
    for field, names in table.items():
        entity.put(field, _number(flags, names))


def workload_of(command: Command, source: str) -> Workload | None:
    """What one command says; None where it starts nothing that is known."""
    framework = framework_of(command.words)
    if framework is None:
        return None
    flags = flags_of(command.words)
    work = Workload(framework=framework, flags=flags, sources=[source])
    work.environment = {
        k: v
        for k, v in command.environment.items()
        if re.match(r"NCCL|CUDA|TORCH|PYTORCH|UCX|OMP|VLLM|SGL|NVTE|FI_|OFI|XPU|BKCL", k)
    }
    for extra in _passed_variables(command.words):
        name, equals, value = extra.partition("=")
        if equals:
            work.environment[name] = value
    _fill(work.layout, _LAYOUT, flags)
    _fill(work, _WORKLOAD, flags)
    _processes(work, command.words, flags)
    _KINDS.get(framework, _training)(work, command.words, flags)
    _totals(work)
    return work


def _passed_variables(words: list[str]) -> list[str]:
    """``-x NAME=value`` of mpirun, ``-e NAME=value`` and ``--env`` of docker, ``--export=ALL,NAME=value`` of srun."""
    found: list[str] = []
    for index, word in enumerate(words[:-1]):
        if word in ("-x", "-e", "--env"):
            found.append(words[index + 1])
    for word in words:
        if word.startswith("--export="):
            found += word[9:].split(",")
    return [one for one in found if re.match(r"[A-Za-z_]\w*=", one)]


def _processes(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    launcher = {word.rpartition("/")[2] for word in words[:6]}
    per_node = _number(flags, ("nproc-per-node", "nproc_per_node", "gpus-per-node", "num_gpus", "ntasks-per-node"))
    if match := re.match(r"(\d+)(?::\d+)?$", flags.get("nnodes", "")):
        work.put("nodes", int(match[1]))
    if "srun" in launcher and (nodes := _number(flags, ("N", "nodes"))):
        work.put("nodes", nodes)
    if "accelerate" in launcher and (total := _number(flags, ("num_processes",))):
        work.put("gpus", total)
    if launcher & {"mpirun", "mpiexec"} and (total := _number(flags, ("np", "n"))):
        work.put("gpus", total)
    work.put("gpus_per_node", per_node)


def _serving(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    work.kind = "inference"
    name = (
        flags.get("model")
        or flags.get("model-path")
        or flags.get("model_path")
        or flags.get("model-id")
        or flags.get("model_tag")
    )
    for starter in ("serve", "trtllm-serve"):
        if not name and starter in words and words.index(starter) + 1 < len(words):
            following = words[words.index(starter) + 1]
            name = following if not following.startswith("-") else None
    if name:
        work.model = Model(name=name)
    work.put("kv_cache_dtype", flags.get("kv-cache-dtype") or None)
    quantization = flags.get("quantization") or flags.get("quantize")
    if quantization and work.model:
        work.model.quantization = quantization
    if "enforce-eager" in flags or "disable-cuda-graph" in flags:
        work.cuda_graphs = False
    method = flags.get("speculative-algorithm") or (
        "configured" if "speculative-config" in flags or "speculative-model" in flags else None
    )
    work.put("speculative", method)
    work.put("concurrency", _number(flags, ("max-num-seqs", "max-running-requests", "max_batch_size", "max-concurrent-requests")))
    if "enable-expert-parallel" in flags or "enable-ep-moe" in flags:
        work.layout.put("ep", (work.layout.tp or 1) * (work.layout.dp or 1))
    if (
        tag := next(
            (
                w
                for w in words
                if re.match(r"(?:vllm/vllm-openai|lmsysorg/sglang|ghcr\.io/huggingface/text-generation-inference):", w)
            ),
            None,
        )
    ) is not None:
        version = re.match(r"v?(\d+(?:\.\d+)+)", tag.rpartition(":")[2])
        work.put("framework_version", version[1] if version else None)


def _training(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    tuned = any(re.search(r"sft|finetune|fine_tune|lora", word, re.I) for word in words)
    work.kind = "sft" if tuned or work.framework in ("trl", "llama_factory") else "pretrain"
    if "bf16" in flags or "fp16" in flags:
        work.precision = "bf16" if "bf16" in flags else "fp16"
    if work.framework == "deepspeed":
        work.layout.put("sharding", "zero")
        if stage := _number(flags, ("zero_stage", "zero-stage")):
            work.layout.put("zero_stage", stage)
    name = flags.get("model_name_or_path") or flags.get("model")
    if name:
        work.model = Model(name=name)


def _megatron(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    _training(work, words, flags)
    model = Model()
    _fill(model, _SIZES, flags)
    if model.layers:
        work.model = model
        model.put(
            "attention", "mla" if "multi-latent-attention" in flags else "gqa" if "group-query-attention" in flags else "mha"
        )
    layout = work.layout
    layout.put("sequence_parallel", True if "sequence-parallel" in flags else None)
    fsdp = (
        "megatron_fsdp"
        if {"use-megatron-fsdp", "use-custom-fsdp"} & flags.keys()
        else "fsdp2"
        if "use-torch-fsdp2" in flags
        else None
    )
    layout.put("sharding", fsdp or ("distributed_optimizer" if "use-distributed-optimizer" in flags else "ddp"))
    granularity = flags.get("recompute-granularity")
    layout.put("recompute", granularity or ("selective" if "recompute-activations" in flags else "none"))
    if flags.get("fp8-format") or flags.get("fp8-recipe"):
        work.precision = "mxfp8" if flags.get("fp8-recipe") == "mxfp8" else "fp8"


def _torchtitan(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    _training(work, words, flags)
    work.precision = work.precision or "bf16"
    replicas = _number(flags, ("parallelism.data_parallel_replicate_degree",)) or 1
    work.layout.put("sharding", "hsdp" if replicas > 1 else "fsdp2")
    name = flags.get("model.name")
    if name:
        work.model = Model(name=f"{name} {flags.get('model.flavor', '')}".strip())


def _verl(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    supervised = any("sft" in word for word in words)
    work.kind = "sft" if supervised else "rl"
    work.put("rollout_engine", flags.get("actor_rollout_ref.rollout.name") or None)
    strategy = flags.get("actor_rollout_ref.actor.strategy") or flags.get("model.strategy") or "fsdp"
    megatron = strategy == "megatron" or "ppo_megatron_trainer" in " ".join(words)
    work.layout.put("sharding", "distributed_optimizer" if megatron else "fsdp2" if strategy == "fsdp2" else "fsdp1")
    prefix = "actor_rollout_ref.actor.megatron."
    for field, name in (
        ("tp", "tensor_model_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_model_parallel_size"),
    ):
        work.layout.put(field, _number(flags, (prefix + name,)))
    work.put("nodes", _number(flags, ("trainer.nnodes",)))
    work.put("gpus_per_node", _number(flags, ("trainer.n_gpus_per_node",)))
    path = flags.get("actor_rollout_ref.model.path") or flags.get("model.partial_pretrain")
    if path:
        work.model = Model(name=path)


def _nemo(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    _training(work, words, flags)
    work.put("nodes", _number(flags, ("trainer.num_nodes",)))
    work.put("gpus_per_node", _number(flags, ("trainer.devices",)))
    for field, name in (("tp", "tensor"), ("pp", "pipeline")):
        work.layout.put(field, _number(flags, (f"trainer.strategy.{name}_model_parallel_size",)))


def _own_script(work: Workload, words: list[str], flags: dict[str, str]) -> None:
    _training(work, words, flags)
    if work.kind == "pretrain":
        work.kind = None  # nothing tells what the script does
    if {"enable_fsdp", "use_fsdp", "fsdp", "sharding_strategy"} & flags.keys():
        work.layout.put("sharding", "fsdp1")


_KINDS = {
    "nemo": _nemo,
    "pytorch": _own_script,
    "megatron": _megatron,
    "torchtitan": _torchtitan,
    "verl": _verl,
    **dict.fromkeys(_SERVING, _serving),
}


def _totals(work: Workload) -> None:
    """GPUs, nodes and replicas that follow from what is said."""
    layout: Layout = work.layout
    if work.gpus is None and work.nodes and work.gpus_per_node:
        work.put("gpus", work.nodes * work.gpus_per_node)
    if work.gpus is None and work.gpus_per_node and work.nodes is None and work.kind != "inference":
        work.put("gpus", work.gpus_per_node)
        work.put("nodes", 1)
    if work.gpus is None and work.kind == "inference":
        work.put("gpus", (layout.tp or 1) * (layout.pp or 1) * (layout.dp or 1))
    if work.multi_node is None and work.nodes is not None:
        work.multi_node = work.nodes > 1
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if work.kind != "inference" and layout.dp is None and work.gpus and work.gpus % group == 0:
        layout.put("dp", work.gpus // group)


def batch_lines(text: str) -> dict[str, int]:
    """Nodes and GPUs a node of ``#SBATCH`` lines."""
    found: dict[str, int] = {}
    for line in re.findall(r"^#SBATCH\s+(.*)$", text, re.MULTILINE):
        if match := re.match(r"(?:-N\s*|--nodes[= ])(\d+)", line):
            found["nodes"] = int(match[1])
        if match := re.match(r"(?:--gpus-per-node|--gres|--gpus-per-task)[= ](?:gpu:)?(?:[\w-]+:)?(\d+)", line):
            found["gpus_per_node"] = int(match[1])
    return found
