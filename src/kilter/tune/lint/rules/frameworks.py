"""Variables of CUDA, PyTorch and libfabric, and what a framework wants on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kilter.facts.workload import Workload
from kilter.tune.lint.report import Report, Target, say
from kilter.tune.lint.setting import Setting

_CUDA = "CUDA Programming Guide, environment variables"


def other_reports(setting: Setting, target: Target) -> Iterator[Report]:
    """Of variables that are not NCCL's own."""
    name, value = setting.name, setting.value or ""
    if name == "TORCH_NCCL_BLOCKING_WAIT" and value == "1":
        yield say("env.debug", "note", setting, "for diagnosis: the host waits for every collective", "")
    elif name == "TORCH_NCCL_ASYNC_ERROR_HANDLING" and value == "0":
        yield say("env.dangerous", "warning", setting, "a failed collective hangs the job instead of ending it", "")
    elif name == "CUDA_LAUNCH_BLOCKING" and value == "1":
        yield say("env.debug", "warning", setting, "for diagnosis: every kernel launch waits for its end", "", _CUDA)
    elif name == "FI_EFA_USE_DEVICE_RDMA" and value == "0":
        yield say("env.dangerous", "warning", setting, "switches GPUDirect RDMA off", "")
    elif name == "RDMAV_FORK_SAFE":
        yield say("env.debug", "note", setting, "breaks registration of large buffers on EFA", "")


def connections(found: list[Setting], target: Target, workload: Workload | None) -> Iterator[Report]:
    """CUDA_DEVICE_MAX_CONNECTIONS by framework and architecture, as the planner decides it."""
    if workload is None or workload.framework is None:
        return
    for setting in found:
        if setting.name == "CUDA_DEVICE_MAX_CONNECTIONS" and setting.known:
            yield from _connections(setting, target, workload)


def _connections(setting: Setting, target: Target, workload: Workload) -> Iterator[Report]:
    from kilter.facts.case import Case, Snapshot
    from kilter.facts.plan import Verdict
    from kilter.tune.recommend import advise
    from kilter.tune.view import View

    answers = dict(workload.answers)
    if target.gpu_sm is not None:
        answers["gpu.sm"] = target.gpu_sm
    work = msgspec.structs.replace(workload, answers=answers, environment={setting.name: setting.value or ""})
    advice = advise("fw.CUDA_DEVICE_MAX_CONNECTIONS", View(Case(), Snapshot(), work))
    if advice.verdict in (Verdict.RECOMMEND, Verdict.REFUSE):
        to_be = "unset" if advice.value is None else advice.value
        fix = "" if advice.value is None else f"{setting.name}={advice.value}"
        source = advice.sources[0] if advice.sources else ""
        yield say("env.framework", "warning", setting, f"should be {to_be}: {advice.why}", fix, source)
