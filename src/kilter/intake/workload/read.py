"""From sources to a workload: model configurations, launch scripts and lines, frameworks' own files, kilter's workload file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kilter.facts.workload import Layout, Model, Workload
from kilter.intake.encoding import decode
from kilter.intake.errors import UnusableInput
from kilter.intake.workload.launch import batch_lines, workload_of
from kilter.intake.workload.model_config import is_model_config, model_of
from kilter.intake.workload.shell import commands

_MAX_BYTES = 8 << 20
READS = (
    "a Hugging Face config.json, a launch script or line (Megatron-LM, torchtitan, DeepSpeed, verl, vLLM, SGLang, TensorRT-LLM, TGI, ...), "
    "a torchtitan TOML, a DeepSpeed JSON, an accelerate or LLaMA-Factory YAML, a Kubernetes YAML, a workload file of kilter"
)


def read_sources(paths: list[str], text: str = "") -> Workload:
    """The workload of files ("-" is standard input) and a pasted line. The first source that tells a field wins.

    Raises UnusableInput where a source cannot be read or says nothing that is known.
    """
    found: list[tuple[str, Workload]] = [(path, _one(path)) for path in paths]
    if text:
        found.append(("command line", _of_text(text, "command line")))
    if not found:
        return Workload()
    merged = Workload()
    for source, work in found:
        _merge(merged, work)
        if source not in merged.sources:
            merged.sources.append(source)
    return merged


def _one(path: str) -> Workload:
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES + 1) if path == "-" else _file(path)
    except OSError as error:
        raise UnusableInput(f"{path}: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise UnusableInput(f"{path}: larger than 8 MiB; expected {READS}")
    return _of_text(decode(data), path)


def _file(path: str) -> bytes:
    target = Path(path)
    if target.is_dir():
        target = target / "config.json"
    with target.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


def _of_text(text: str, source: str) -> Workload:
    tree = _tree(text, source)
    for reader in _TREES if isinstance(tree, dict) else ():
        work = reader(tree, source)
        if work is not None:
            return work
    work = _of_script(text, source)
    if work is None:
        raise UnusableInput(f"{source}: says nothing of a job that is known; expected {READS}")
    return work


def _tree(text: str, source: str) -> Any:
    """The text as JSON, TOML or YAML; None for a script."""
    start = text.lstrip()[:1]
    if start == "{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    if source.endswith(".toml") or "\n[training]" in text or text.startswith("[job]"):
        try:
            import tomllib
        except ImportError:  # Python 3.10
            raise UnusableInput(f"{source}: reading TOML needs Python 3.11 or newer") from None
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnusableInput(f"{source}: no TOML: {error}") from None
    if source.endswith((".yaml", ".yml")) or (
        start and not text.startswith("#!") and ":" in text.partition("\n")[0] and "--" not in text
    ):
        import yaml

        try:
            documents = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except (yaml.YAMLError, ValueError, RecursionError):
            return None
        return (
            {"kubernetes": documents}
            if any(isinstance(d, dict) and "apiVersion" in d for d in documents)
            else documents[0]
            if documents
            else None
        )
    return None


def _kilter(tree: dict[str, Any], source: str) -> Workload | None:
    if not tree or not set(tree) <= set(Workload.__struct_fields__):
        return None
    try:
        work = msgspec.convert(tree, Workload)
    except msgspec.ValidationError as error:
        raise UnusableInput(f"{source}: {error}") from None
    return work


def _model(tree: dict[str, Any], source: str) -> Workload | None:
    if not is_model_config(tree):
        return None
    return Workload(model=model_of(tree), sources=[source])


def _deepspeed(tree: dict[str, Any], source: str) -> Workload | None:
    if not {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"} & tree.keys():
        return None
    work = Workload(framework="deepspeed", sources=[source])
    zero = tree.get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, dict) else None
    work.layout.put("sharding", "zero")
    work.layout.put("zero_stage", stage if isinstance(stage, int) else None)
    for field, name in (("micro_batch", "train_micro_batch_size_per_gpu"), ("global_batch", "train_batch_size")):
        work.layout.put(field, tree.get(name) if isinstance(tree.get(name), int) else None)
    for name in ("bf16", "fp16"):
        part = tree.get(name)
        if isinstance(part, dict) and part.get("enabled") is True:
            work.precision = name
    return work


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (str, int, float, bool)):
            found[f"{prefix}{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _as_flags(start: list[str], tree: dict[str, Any], source: str) -> Workload | None:
    from kilter.intake.workload.shell import Command

    return workload_of(Command([*start, *(f"--{name}={value}" for name, value in _flat(tree).items())], {}, 1), source)


def _torchtitan(tree: dict[str, Any], source: str) -> Workload | None:
    if not {"parallelism", "training"} <= tree.keys() and not {"job", "training"} <= tree.keys():
        return None
    return _as_flags(["torchtitan.train"], tree, source)


def _verl(tree: dict[str, Any], source: str) -> Workload | None:
    return _as_flags(["verl.trainer.main_ppo"], tree, source) if "actor_rollout_ref" in tree else None


def _accelerate(tree: dict[str, Any], source: str) -> Workload | None:
    kind = str(tree.get("distributed_type") or "")
    if not kind:
        return None
    work = Workload(
        framework="fsdp" if "FSDP" in kind else "deepspeed" if "DEEPSPEED" in kind else "accelerate", sources=[source]
    )
    for field, name in (("gpus", "num_processes"), ("nodes", "num_machines")):
        work.put(field, tree.get(name) if isinstance(tree.get(name), int) else None)
    fsdp, deepspeed = tree.get("fsdp_config"), tree.get("deepspeed_config")
    if isinstance(fsdp, dict):
        work.layout.put("sharding", "fsdp2" if str(fsdp.get("fsdp_version")) == "2" else "fsdp1")
    if isinstance(deepspeed, dict) and isinstance(deepspeed.get("zero_stage"), int):
        work.layout.put("sharding", "zero")
        work.layout.put("zero_stage", deepspeed["zero_stage"])
    work.put("precision", tree.get("mixed_precision") if tree.get("mixed_precision") in ("bf16", "fp16", "fp8") else None)
    work.multi_node = work.nodes > 1 if work.nodes else None
    return work


def _llama_factory(tree: dict[str, Any], source: str) -> Workload | None:
    if "finetuning_type" not in tree and not ("stage" in tree and "model_name_or_path" in tree):
        return None
    work = _as_flags(["llamafactory-cli", "train"], tree, source)
    if work is not None and tree.get("stage") == "pt":
        work.kind = "pretrain"
    return work


def _kubernetes(tree: dict[str, Any], source: str) -> Workload | None:
    """The first container of a manifest that starts something known; its variables and GPUs."""
    for container in _containers(tree.get("kubernetes"), 0):
        listed = [str(w) for part in ("command", "args") if isinstance(container.get(part), list) for w in container[part]]
        script = "\n".join(listed) if any("\n" in w for w in listed) else ""
        image = str(container.get("image") or "")
        variables = {
            str(e["name"]): str(e["value"])
            for e in container.get("env") or []
            if isinstance(e, dict) and "name" in e and "value" in e
        }
        from kilter.intake.workload.shell import Command

        work = workload_of(Command([image, *listed], variables, 1), source) if listed or image else None
        if work is None and (script or listed):
            work = _of_script(script or listed[-1], source, variables)
        if work is None:
            continue
        limits = (container.get("resources") or {}).get("limits") or {}
        gpus = limits.get("nvidia.com/gpu") if isinstance(limits, dict) else None
        if gpus is not None and str(gpus).isdecimal():
            work.gpus_per_node = int(gpus)
        return work
    return None


def _containers(tree: Any, depth: int) -> list[dict[str, Any]]:
    if depth > 12:
        return []
    if isinstance(tree, list):
        return [found for one in tree[:200] for found in _containers(one, depth + 1)]
    if not isinstance(tree, dict):
        return []
    found = (
        [one for one in tree.get("containers") or [] if isinstance(one, dict)] if isinstance(tree.get("containers"), list) else []
    )
    return found + [one for key, value in tree.items() if key != "containers" for one in _containers(value, depth + 1)]


_TREES: tuple[Callable[[dict[str, Any], str], Workload | None], ...] = (
    _kilter,
    _kubernetes,
    _model,
    _torchtitan,
    _verl,
    _deepspeed,
    _accelerate,
    _llama_factory,
)


def _of_script(text: str, source: str, variables: dict[str, str] | None = None) -> Workload | None:
    """The command of a script that says most."""
    batch = batch_lines(text)
    found = [work for command in commands(text, variables) if (work := workload_of(command, source)) is not None]
    if not found:
        return None
    best = max(found, key=lambda work: (work.framework != "pytorch", len(work.flags)))
    for name, value in batch.items():
        if getattr(best, name) is None:
            best.put(name, value)
    if batch.get("nodes") and best.gpus_per_node:
        best.gpus = batch["nodes"] * best.gpus_per_node
        best.multi_node = batch["nodes"] > 1
        layout = best.layout
        group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
        if best.kind != "inference" and best.gpus % group == 0:
            layout.dp = best.gpus // group
    return best


def _merge(into: Workload, other: Workload) -> None:
    """Take what ``into`` does not know; of structures, field by field."""
    for name in Workload.__struct_fields__:
        mine, theirs = getattr(into, name), getattr(other, name)
        if isinstance(mine, Layout) or (isinstance(mine, Model) and isinstance(theirs, Model)):
            for field in type(mine).__struct_fields__:
                if getattr(mine, field) in (None, {}) and getattr(theirs, field) is not None:
                    setattr(mine, field, getattr(theirs, field))
        elif isinstance(mine, dict) and isinstance(theirs, dict):
            setattr(into, name, {**theirs, **mine})
        elif mine in (None, []) and theirs not in (None, []):
            setattr(into, name, theirs)
