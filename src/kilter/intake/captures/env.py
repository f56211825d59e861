"""Environment variables as ``env``, ``printenv``, ``export -p`` and ``declare -x`` print them, or as a job script exports them.

Only what matters to GPU work is kept, and no value of a name that may hold a secret.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.intake import nccl_conf
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LINE = re.compile(r"(declare -[a-zA-Z]{1,8} |typeset -x |export |setenv )?([A-Za-z_][A-Za-z0-9_]*)(?:=(.*)| +(.*)|)$")
_KEPT = re.compile(
    r"(?:NCCL|RCCL|BKCL|XCCL|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|NVSHMEM|TORCH|TORCHELASTIC|PYTORCH|TRITON|UCX|UCC|OMP|GOMP|KMP|MKL|OPENBLAS|OMPI"
    r"|PMI|PMIX|MPI|GLOO|HSA|HIP|ROCR|XPU|XRE|XPURT|XTCL|XDNN|KUNLUN|SLURM|FI|OFI|AWS_OFI|RDMA|RDMAV|IBV|MLX5|IPOIB|DEEPSPEED|DS|MEGATRON"
    r"|VLLM|SGLANG|SGL|HOROVOD|JAX|XLA|TF_GPU|TF_XLA|ACCELERATE|RAY|MALLOC|TCMALLOC|NUMEXPR|PYTHONUNBUFFERED|LAZY|DGX|GDRCOPY|SHARP|HCOLL|COLL)_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|CUDA_HOME|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|NNODES"
    r"|MALLOC_ARENA_MAX|container|KUBERNETES_SERVICE_HOST"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL", re.IGNORECASE)
_ESCAPES = re.compile(r'\\(["\\$`])')


def _unquote(value: str) -> str:
    """The value behind the quotes of ``export -p``. Plain ``env`` prints no quotes: there they belong to the value."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return _ESCAPES.sub(r"\1", value[1:-1])
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1].replace("'\\''", "'")
    return value


def _nccl_conf(block: Block, fragment: Fragment) -> None:
    found = nccl_conf.variables("\n".join(line for _, line in lines(block, fragment, limit=1 << 12)))
    environment = fragment.snapshot.environment
    environment.put("nccl_conf", {name: value for name, (value, _) in found.items()}, fragment.ref(block.first_line))
    for name, (_, line) in found.items():
        environment.origin[f"nccl_conf.{name}"] = fragment.ref(block.first_line + line - 1)


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.environment.variables``. What is not a variable is reported, but never the inside of a key block."""
    environment = fragment.snapshot.environment
    if re.search(r"\bnccl\.conf(?:\.txt)?$", block.source.command or block.source.name):
        _nccl_conf(block, fragment)
        return
    in_key = False
    for line, raw in lines(block, fragment, limit=1 << 17):
        text = raw.strip()
        match = _LINE.match(text)
        if in_key and not (match and _KEPT.fullmatch(match[2])):
            in_key = "-----END" not in text
            continue
        in_key = False
        if "-----BEGIN" in text:
            in_key = "-----END" not in text
        if match is None or (match[3] is None and not match[1]):
            if not in_key and "-----" not in text:
                fragment.unparsed(line, raw)
            continue
        command, name = match[1], match[2]
        value = match[3] if match[3] is not None else match[4]
        if environment.variables is None:
            environment.put("variables", {}, fragment.ref(line))
        assert environment.variables is not None
        if value is None or not _KEPT.fullmatch(name):
            continue
        if _SECRET.search(name):
            environment.lacks(f"variables.{name}", Reason.NOT_COLLECTED, "set, but kilter keeps no value of such a name")
            continue
        environment.variables[name] = _unquote(value) if command else value
        environment.origin[f"variables.{name}"] = fragment.ref(line)
