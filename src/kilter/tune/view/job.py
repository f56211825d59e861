"""Facts of the job: its kind, framework, layout, environment, and what its NCCL log says."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from kilter.tune.view import ABSENT, Value, View, fact, keyed, one

_WORKLOAD = "kilter workload init"
_LOG = "NCCL_DEBUG=INFO log of the job"


@fact(
    "workload.kind",
    "text",
    "what the job does",
    how=_WORKLOAD,
    question="Is it pretraining, SFT, RL or inference?",
    values=("pretrain", "sft", "rl", "inference"),
)
def _kind(v: View) -> str | None:
    value = v.read(v.workload, "kind")
    return str(value) if value else None


@fact("workload.training", "bool", "whether it trains (pretraining, SFT, RL)", how=_WORKLOAD)
def _training(v: View) -> bool | None:
    kind = v.value("workload.kind")
    return None if kind is None else kind != "inference"


@fact("workload.framework", "text", "framework that runs the job", how=_WORKLOAD)
def _framework(v: View) -> str | None:
    value = v.read(v.workload, "framework")
    return str(value) if value else None


@fact("workload.rollout_engine", "text", "engine that generates in RL", how=_WORKLOAD)
def _rollout(v: View) -> str | None:
    value = v.read(v.workload, "rollout_engine")
    return str(value) if value else None


@fact(
    "workload.sharding",
    "text",
    "how states are sharded: ddp, distributed_optimizer, zero, fsdp1, fsdp2, hsdp, megatron_fsdp",
    how=_WORKLOAD,
)
def _sharding(v: View) -> str | None:
    value = v.read(v.workload.layout, "sharding")
    return str(value) if value else None


def _layout(name: str, what: str) -> None:
    @fact(f"workload.{name}", "number", what, how=_WORKLOAD)
    def _(v: View) -> int | None:
        value = v.read(v.workload.layout, name)
        return value if isinstance(value, int) else None


_layout("tp", "tensor-parallel size")
_layout("pp", "pipeline stages")
_layout("cp", "context-parallel size")
_layout("ep", "expert-parallel size")


@fact("workload.moe", "bool", "whether the model has routed experts", how=_WORKLOAD)
def _moe(v: View) -> bool | None:
    if v.workload.layout.ep is not None and v.workload.layout.ep > 1:
        return True
    return None if v.workload.model is None else v.workload.model.is_moe


@fact("workload.nodes", "number", "nodes of the job", how=_WORKLOAD)
def _nodes(v: View) -> int | None:
    if v.workload.nodes is not None:
        v.saw(f"{v.workload.nodes} node(s) in the workload")
        return v.workload.nodes
    logged = [job.n_nodes or len(job.nodes) for job in v.jobs if job.n_nodes or job.nodes]
    return max(logged, default=None)


@fact("workload.multi_node", "bool", "whether the job spans nodes", how=_WORKLOAD, question="Does the job span several nodes?")
def _multi(v: View) -> bool | None:
    if v.workload.multi_node is not None:
        return v.workload.multi_node
    nodes = v.value("workload.nodes")
    return nodes > 1 if isinstance(nodes, int) else None


@fact("workload.ranks", "number", "ranks of the job", how=_WORKLOAD)
def _ranks(v: View) -> int | None:
    if v.workload.gpus is not None:
        return v.workload.gpus
    return max((job.n_ranks for job in v.jobs if job.n_ranks), default=None)


@fact("workload.nvlink_domain_ranks", "number", "ranks of the job in one NVLink domain", how=_WORKLOAD)
def _domain(v: View) -> int | None:
    ranks, count = v.value("workload.ranks"), v.value("gpu.count")
    if not isinstance(ranks, int):
        return None
    if v.value("gpu.mnnvl") is True:
        return min(ranks, 72)
    return min(ranks, count) if isinstance(count, int) else None


@fact(
    "workload.latency_sensitive",
    "bool",
    "whether a percentile of latency is a goal",
    how=_WORKLOAD,
    question="Is a percentile of latency (TTFT, ITL) a goal?",
)
def _latency(v: View) -> bool | None:
    return v.workload.latency_sensitive


@fact("workload.cuda_graphs", "bool", "whether the job replays CUDA graphs", how=_WORKLOAD)
def _graphs(v: View) -> bool | None:
    if v.workload.cuda_graphs is None and v.workload.framework in ("vllm", "sglang") and "enforce-eager" not in v.workload.flags:
        return True  # the default of both engines
    return v.workload.cuda_graphs


@fact("workload.concurrency", "number", "requests in flight", how=_WORKLOAD)
def _concurrency(v: View) -> int | None:
    value = v.read(v.workload, "concurrency")
    return value if isinstance(value, int) else None


@fact("workload.checkpoint_bytes", "number", "size of a checkpoint, bytes", how=_WORKLOAD)
def _checkpoint(v: View) -> int | None:
    value = v.read(v.workload, "checkpoint_bytes")
    return value if isinstance(value, int) else None


@fact("nccl.version", "version", "NCCL that the job uses", how=_LOG)
def _nccl(v: View) -> str | None:
    if v.workload.nccl_version:
        v.saw(f"NCCL {v.workload.nccl_version} (workload)")
        return v.workload.nccl_version
    for job in v.jobs:
        if job.version:
            v.saw(f"NCCL {job.version}", None, _where(v, job.source, job.origin.get("version")))
            return job.version.partition("+")[0]
    value = v.read(v.snapshot.software, "nccl_version")
    return str(value).partition("+")[0] if value else None


def _where(v: View, source: str, ref: tuple[int, int] | None) -> str:
    return f"{source}:{ref[1]}" if ref else source


@fact("nccl.net", "text", "network that NCCL chose", how=_LOG)
def _net(v: View) -> str | None:
    names = {name for job in v.jobs for name in job.networks}
    if names:
        v.saw(f"NCCL log: Using network {', '.join(sorted(names))}")
    return one(names)


@fact("nccl.p2p_over", "set", "how ranks of one node talk: P2P, SHM, NET", how=_LOG)
def _over(v: View) -> Value | None:
    found = {c.via.partition("/")[0] for job in v.jobs for c in job.connections}
    return frozenset(found) if found else None


@fact("torch.version", "version", "PyTorch of the job", how=_WORKLOAD)
def _torch(v: View) -> str | None:
    return v.workload.torch_version


@fact("job.events", "set", "kinds of events of the job's logs", how="the job's log")
def _events(v: View) -> Value | None:
    if not v.jobs and not v.case.collectives and not v.case.events:
        return None
    return frozenset(e.kind for e in v.case.events) | (
        {"hang"} if any(r.state == "timed out" for r in v.case.collectives) else set()
    )


class Setting(NamedTuple):
    """A variable of the job: its value, where that stands, and the mechanism that would change it."""

    value: str
    where: str
    mechanism: str = "env"


def environment(v: View) -> tuple[dict[str, Setting], bool]:
    """Variables of the job, and whether these are all, so that what is not among them is not set.

    The launch line counts more than the job's log, that more than the shell's environment, and /etc/nccl.conf only where none of them
    sets a variable.
    """
    found: dict[str, Setting] = {}
    known = False
    shell = v.snapshot.environment
    for name, value in (shell.nccl_conf or {}).items():
        where = v.snapshot.where(shell.ref(f"nccl_conf.{name}") or shell.ref("nccl_conf"))
        found[name] = Setting(value, where, "nccl_conf")
    if shell.variables is not None:
        known = True
        for name, value in shell.variables.items():
            found[name] = Setting(value, v.snapshot.where(shell.ref(f"variables.{name}") or shell.ref("variables")))
    for job in v.jobs:
        known = True
        for name, value in job.environment.items():
            if name not in found or found[name].value != value:
                found[name] = Setting(value, _where(v, job.source, job.origin.get(f"environment/{name}")))
    if v.workload.environment or v.workload.framework:
        known = True
        for name, value in v.workload.environment.items():
            found[name] = Setting(value, v.workload.sources[0] if v.workload.sources else "workload")
    return found, known


def set_by(v: View, key: str) -> str:
    """The mechanism that a variable's value came by: ``env`` or ``nccl_conf``."""
    setting = environment(v)[0].get(key)
    return setting.mechanism if setting is not None else "env"


@keyed("env", "text", f'a variable of the job; "{ABSENT}" where it is not set', how="env, in the job")
def _env(v: View, key: str) -> str | None:
    variables, are_all = environment(v)
    if key not in variables:
        return ABSENT if are_all else None
    setting = variables[key]
    v.saw(f"{key}={setting.value}", None, setting.where)
    return setting.value


@keyed(
    "env_number",
    "number",
    "a variable of the job as a number; for what is none, or not set, no comparison holds",
    how="env, in the job",
)
def _env_number(v: View, key: str) -> int | float | None:
    value = _env(v, key)
    if value is None:
        return None
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else math.nan


@keyed("flag", "text", f'a flag of the framework, without dashes; "{ABSENT}" where it is not given', how="the launch line")
def _flag(v: View, key: str) -> str | None:
    flags = v.workload.flags
    if not flags and v.workload.framework is None:
        return None
    value = flags.get(key, flags.get(key.replace("-", "_"), ABSENT))
    if value != ABSENT:
        v.saw(f"--{key} {value}".rstrip(), None, v.workload.sources[0] if v.workload.sources else "workload")
    return value
