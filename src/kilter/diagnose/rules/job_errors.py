"""Errors that end a job: CUDA errors, GPU memory, NCCL results, shared memory of data loaders."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.job import events_of, need_job_log, rank_names, rank_of_event
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Finding, Subject

_CUDA = "CUDA Runtime API: cudaError_t"
#: word -> (what it means, causes, SOP)
_CUDA_ERRORS: dict[str, tuple[str, tuple[Cause, ...], str]] = {
    "illegal_address": (
        "a kernel read or wrote outside its memory",
        (
            Cause("an error in a kernel or its indices", "likely", "compute-sanitizer; CUDA_LAUNCH_BLOCKING=1"),
            Cause("hardware, when it follows one GPU", "unlikely", "XID 31 or 48, 94, 95 in the kernel log"),
        ),
        "SOP-APP",
    ),
    "device_assert": (
        "a device-side assertion failed, often an index out of range",
        (Cause("the program's data: labels or token ids out of range", "likely", "CUDA_LAUNCH_BLOCKING=1"),),
        "SOP-APP",
    ),
    "launch_failure": (
        "a kernel failed while running",
        (
            Cause("an error in the kernel", "likely", "compute-sanitizer"),
            Cause("the GPU failed", "possible", "XID in the kernel log at this time"),
        ),
        "SOP-APP",
    ),
    "ecc_uncorrectable": (
        "an uncorrectable ECC error: the GPU's memory",
        (Cause("GPU memory (XID 48, 94, 95)", "likely", "nvidia-smi -q -d ECC,ROW_REMAPPER"),),
        "SOP-MEM",
    ),
    "nvlink_uncorrectable": (
        "an uncorrectable NVLink error",
        (Cause("an NVLink, NVSwitch or GPU", "likely", "kernel log: XID 74, SXid; nvidia-smi nvlink -e"),),
        "SOP-NVL",
    ),
    "hardware_stack": (
        "the hardware call stack failed",
        (Cause("a corrupted stack by an error in a kernel", "likely"), Cause("the GPU", "possible")),
        "SOP-APP",
    ),
    "system_not_ready": (
        "CUDA error 802: the NVSwitch fabric is not ready",
        (
            Cause(
                "Fabric Manager does not run, or its version differs from the driver's",
                "likely",
                "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 3 Fabric",
            ),
        ),
        "SOP-NVL",
    ),
    "driver_mismatch": (
        "CUDA error 803: library and kernel driver do not fit together",
        (
            Cause(
                "libcuda of another version in the container or host",
                "likely",
                "ldconfig -p | grep libcuda; cat /proc/driver/nvidia/version",
            ),
        ),
        "SOP-SW",
    ),
    "forward_compatibility": (
        "CUDA error 804: forward compatibility is not supported on this GPU",
        (
            Cause(
                "a compat libcuda in the container on a GPU that it does not support, or a driver update without reload", "likely"
            ),
        ),
        "SOP-SW",
    ),
    "no_device": (
        "no CUDA device is visible",
        (Cause("CUDA_VISIBLE_DEVICES, the container's devices, or a lost GPU", "likely", "nvidia-smi -L"),),
        "SOP-SW",
    ),
    "devices_unavailable": (
        "all devices are busy or unavailable",
        (
            Cause(
                "exclusive compute mode, MIG without instances, or a GPU that needs a reset", "likely", "nvidia-smi -q -d COMPUTE"
            ),
        ),
        "SOP-SW",
    ),
    "no_kernel_image": (
        "the program has no code for this GPU's architecture",
        (Cause("a build for other compute capabilities", "likely", "cuobjdump --list-elf"),),
        "SOP-APP",
    ),
    "insufficient_driver": (
        "the driver is older than the CUDA runtime needs",
        (Cause("driver too old for this CUDA", "likely", "nvidia-smi"),),
        "SOP-SW",
    ),
}
_APPLICATION = {
    "illegal_address",
    "device_assert",
    "misaligned_address",
    "illegal_instruction",
    "invalid_pc",
    "no_kernel_image",
    "invalid_device",
}


@rule(
    "cuda.error.*",
    "No CUDA error ended the job",
    scope="case",
    family="job",
    sop="SOP-APP",
    sources=(_CUDA,),
    action="See the causes; set the time beside the kernel log's XIDs on the same node.",
)
def cuda_error(case: Case, ctx: Context) -> Iterator[Finding]:
    """A CUDA call returned an error that poisons the process. Errors are reported asynchronously: the line that raises is often not the cause.

    One error on many ranks at once points to the program or a shared part; one that stays on one rank over runs points to its GPU.
    """
    need_job_log(case, ctx)
    kinds: dict[str, list[Event]] = {}
    for event in events_of(case, "cuda.error"):
        kinds.setdefault(event.fields.get("error", "other"), []).append(event)
    for kind, events in sorted(kinds.items()):
        meaning, causes, sop = _CUDA_ERRORS.get(kind, (events[0].text, (), "SOP-APP"))
        code = next((e.code for e in events if e.code is not None), None)
        ranks = {rank_of_event(e) for e in events} - {-1}
        who = f" on {rank_names(ranks)}" if ranks else ""
        xids = [e for e in case.events if e.kind == "xid" and (not events[0].node or e.node == events[0].node)]
        yield ctx.finding(
            "error",
            f"{meaning}{who}" + (f" (cudaError {code})" if code is not None and str(code) not in meaning else ""),
            id=f"cuda.error.{kind}",
            subject=Subject("job", rank_names(ranks) if ranks else "job", events[0].node),
            evidence=events,
            causes=causes,
            contradicts=[f"an XID was logged on this node: {x.text[:120]}" for x in xids[:2]] if kind in _APPLICATION else [],
            sop=sop,
            confidence="high" if kind in _CUDA_ERRORS else "medium",
        )


@rule(
    "cuda.out_of_memory",
    "The job's GPU memory suffices",
    scope="case",
    family="job",
    sop="SOP-APP",
    sources=("pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp", "PyTorch documentation: Memory management"),
    action="Lower batch or sequence length, recompute activations, shard more; if much is reserved but unallocated: expandable_segments:True.",
)
def out_of_memory(case: Case, ctx: Context) -> Finding | None:
    """The program asked for more GPU memory than is free. No sign of faulty hardware; another process on the GPU is said by the message itself."""
    need_job_log(case, ctx)
    events = events_of(case, "cuda.out_of_memory")
    if not events:
        return None
    event = next((e for e in events if "tried_mib" in e.fields), events[0])
    sizes = {
        name: float(event.fields[f"{name}_mib"])
        for name in ("tried", "total", "free", "allocated", "unallocated")
        if f"{name}_mib" in event.fields
    }
    parts = [f"{name} {value / 1024:.2f} GiB" for name, value in sizes.items()]
    causes = [Cause("the model, batch or sequence is too large for this layout", "likely")]
    if sizes.get("unallocated", 0) > max(sizes.get("tried", 0), 0.1 * sizes.get("total", 1e12)):
        causes.insert(
            0,
            Cause(
                "fragmentation: the allocator holds more than was asked for, in pieces",
                "likely",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
        )
    if sizes and sizes.get("total", 0) - sizes.get("free", 0) - sizes.get("allocated", 0) - sizes.get(
        "unallocated", 0
    ) > 0.2 * sizes.get("total", 1e12):
        causes.append(Cause("another process holds memory of this GPU", "possible", "nvidia-smi"))
    ranks = {rank_of_event(e) for e in events} - {-1}
    who = f" on {rank_names(ranks)}" if ranks else ""
    return ctx.finding(
        "warning",
        f"out of GPU memory{who}" + (f": {', '.join(parts)}" if parts else ""),
        subject=Subject("job", "job"),
        evidence=events,
        causes=causes,
    )


@rule(
    "job.nccl_error",
    "NCCL gave the job no error",
    scope="case",
    family="job",
    sop="SOP-NCCL",
    sources=("NVIDIA NCCL documentation: ncclResult_t", "pytorch/pytorch torch/csrc/distributed/c10d/NCCLUtils.hpp"),
    action="Read the first NCCL WARN lines of this rank (NCCL_DEBUG=INFO); a remote error only says that another rank ended first.",
    also=("job.nccl_error.*",),
)
def nccl_error(case: Case, ctx: Context) -> Iterator[Finding]:
    """A collective failed with an NCCL result. "remote" is a sign of another rank's end; "system" is the network, shared memory or a limit."""
    need_job_log(case, ctx)
    meanings = {
        "system": (
            "a system call or the network failed",
            [Cause("network, IB verbs, shared memory or a limit", "likely", "NCCL WARN lines before it")],
        ),
        "cuda": (
            "a CUDA call inside NCCL failed",
            [Cause("an earlier CUDA error of the program or GPU", "likely", "the first CUDA error; XIDs")],
        ),
        "remote": (
            "another rank ended or its connection broke",
            [
                Cause("a rank died first", "likely", "the first failed rank"),
                Cause("network between two nodes", "possible", "port counters"),
            ],
        ),
        "internal": (
            "NCCL met a state that it does not expect",
            [Cause("mismatch of ranks, versions or topology", "possible", "NCCL version on every node")],
        ),
    }
    kinds: dict[str, list[Event]] = {}
    for event in events_of(case, "torch.nccl_error"):
        kinds.setdefault(event.fields.get("error", "other"), []).append(event)
    for kind, events in sorted(kinds.items()):
        meaning, causes = meanings.get(kind, ("NCCL refused the call", [Cause("wrong arguments of the program", "likely")]))
        ranks = {rank_of_event(e) for e in events} - {-1}
        yield ctx.finding(
            "info" if kind == "remote" else "error",
            meaning + (f" on {rank_names(ranks)}" if ranks else ""),
            id=f"job.nccl_error.{kind}",
            subject=Subject("job", "job"),
            evidence=events,
            causes=causes,
        )


@rule(
    "job.shm_too_small",
    "Data loader workers have shared memory",
    scope="case",
    family="job",
    sop="SOP-APP",
    sources=("pytorch/pytorch torch/utils/data/_utils/signal_handling.py",),
    action="Enlarge /dev/shm (docker --shm-size, --ipc=host; Kubernetes: emptyDir medium Memory), or use fewer workers.",
    also=("job.dataloader_died", "job.shared_memory_files"),
)
def shared_memory(case: Case, ctx: Context) -> Iterator[Finding]:
    """A data loader worker died of SIGBUS: /dev/shm is full, as the default 64 MiB of a container soon is. Other ends have other causes."""
    need_job_log(case, ctx)
    workers = events_of(case, "job.dataloader")
    shm = [e for e in workers if "Bus error" in e.fields.get("signal", "")] + [
        e for e in events_of(case, "job.shared_memory") if e.fields.get("reason") == "shm"
    ]
    files = [e for e in events_of(case, "job.shared_memory") if e.fields.get("reason") == "files"]
    rest = [e for e in workers if "Bus error" not in e.fields.get("signal", "")]
    if shm:
        yield ctx.finding(
            "error",
            "shared memory (/dev/shm) is too small for the data loader's workers",
            subject=Subject("job", "job", shm[0].node),
            evidence=shm,
            next_test="df -h /dev/shm in the container",
        )
    if files:
        yield ctx.finding(
            "error",
            "too many open files for shared tensors",
            id="job.shared_memory_files",
            subject=Subject("job", "job", files[0].node),
            evidence=files,
            action="Raise ulimit -n, or torch.multiprocessing.set_sharing_strategy('file_system').",
        )
    if rest:
        yield ctx.finding(
            "warning",
            f"a data loader worker died: {rest[0].text}",
            id="job.dataloader_died",
            subject=Subject("job", "job", rest[0].node),
            evidence=rest,
            causes=[
                Cause("killed for host memory", "likely", "kernel log: oom-kill"),
                Cause("an error in the data set's code", "possible"),
            ],
            action="Look for OOM kills on the node, then run with num_workers=0 to see the error itself.",
        )
