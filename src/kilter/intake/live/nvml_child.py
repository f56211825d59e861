"""The child process that talks to NVML for :mod:`kilter.intake.live.nvml`.

A call into a sick driver may never return, or crash, so nothing here runs in kilter's own process. What is read is written at
once, one line each, to the pipe that standard output was when the process began:

``> <monotonic seconds> <device> <call>``
    about to make this NVML call for this device (-1: none), so that whoever reads the lines knows which call hung or crashed
``{"d": 3, "v": {...}, "m": {...}, "r": {...}}``
    fields of device 3 with a value, fields without one (reason, detail, hint), fields of its reading, in the spelling of facts
``{"absent": "..."}``, ``{"s": {...}}``, ``{"idle": 3}``, ``{"broken": 3, "why": "..."}``, ``{"done": 3}``, ``{"end": true}``
    no NVML, and why; facts of the system; no call for device 3 is open; a group of device 3 could not be read because of a
    fault of ours; device 3 is read; everything is read

One device is read after the other. When a call takes too long, a further thread goes on with the next device (NVML is
thread-safe), so one hung GPU does not hide the others.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml as nv

from kilter.intake.live.nvml_device import GROUPS, Device, Lost, Output, error_text, throughput, why

#: Where the driver's library lies when the dynamic linker does not know it: GKE, GPU operator, WSL.
LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
)


def read_device(out: Output, index: int, done: list[Device]) -> None:
    """Reads one device from its handle on, group by group."""
    d = Device(out, index)
    d.values["index"] = index
    try:
        try:
            d.handle = d.call("nvmlDeviceGetHandleByIndex", index)
        except nv.NVMLError as error:
            raise Lost(error_text(error.value)) from error
        for group in GROUPS:
            try:
                group(d)
            except Lost:
                raise
            except Exception as error:  # a binding that is other than expected must cost one group, not the device
                out.emit({"broken": index, "why": f"{group.__name__}: {type(error).__name__}: {error}"})
            d.flush()
        out.emit({"idle": index})
        done.append(d)
    except Lost as lost:
        d.values["error"] = str(lost)
        d.flush()
        out.emit({"done": index})


def finish(d: Device) -> None:
    """Reads the one thing for which a device is not kept waiting on another."""
    try:
        throughput(d)
    except Lost as lost:
        d.values["error"] = str(lost)
    d.flush()
    d.out.emit({"done": d.index})


def read_all(out: Output, count: int, stall_s: float) -> None:
    """Reads all devices, going round those whose calls do not return. Returns when every call has returned, if ever."""
    waiting = collections.deque(range(count))
    done: list[Device] = []
    finished: set[int] = set()
    at_work: dict[threading.Thread, int] = {}

    def work() -> None:
        while waiting:
            index = at_work[threading.current_thread()] = waiting.popleft()
            read_device(out, index, done)

    def add(target: Callable[..., None], index: int, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        at_work[thread] = index
        out.begun[index] = time.monotonic()
        thread.start()

    while True:
        now = time.monotonic()
        busy = [thread for thread in tuple(at_work) if thread.is_alive()]
        # One hung GPU is news, the next ones are not: they get less patience, so that all the others are still reached in time.
        limit = stall_s / 5 if len(busy) > 1 else stall_s
        if all(now - out.begun.get(at_work[thread], now) > limit for thread in busy):
            if waiting:
                add(work, -1)
            elif ready := [d for d in done if d.index not in finished]:
                for d in ready:
                    finished.add(d.index)
                    add(finish, d.index, d)
            elif not busy:
                return
        if busy:
            busy[-1].join(0.02)


def load(out: Output, library: str) -> str:
    """Opens NVML where nvidia-ml-py will look for it. Returns "" or why there is none."""
    problem = ""
    for name in (library,) if library else LIBRARIES:
        out.mark(-1, f"dlopen {name}")
        try:
            nv.nvmlLib = ctypes.CDLL(name)
            return ""
        except OSError as error:
            problem = problem or str(error)
    return problem


def read_system(out: Output) -> int:
    """Initialises NVML and reads what is no device's. Returns the number of devices; -1 when NVML does not work."""
    system: dict[str, Any] = {}

    def ask(field: str, function: str) -> Any:
        out.mark(-1, function)
        try:
            system[field] = getattr(nv, function)()
        except Exception as error:
            system.setdefault("missing", {})[field] = why(error, function)
        return system.get(field)

    ask("driver_library_version", "nvmlSystemGetNVMLVersion")  # answers without initialisation too
    out.mark(-1, "nvmlInitWithFlags")
    try:
        nv.nvmlInit()
    except nv.NVMLError as error:
        system["driver_error"] = f"Failed to initialize NVML: {error_text(error.value)}"
        system["code"] = error.value
        out.emit({"s": system})
        return -1
    if "driver_library_version" not in system:
        ask("driver_library_version", "nvmlSystemGetNVMLVersion")
    ask("driver_version", "nvmlSystemGetDriverVersion")
    cuda = ask("cuda_driver_version", "nvmlSystemGetCudaDriverVersion_v2")
    if cuda is not None:
        system["cuda_driver_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    count = ask("count", "nvmlDeviceGetCount")
    out.emit({"s": system})
    return -1 if count is None else int(count)


def restrain() -> None:
    """No core file when the library crashes, and no life after the parent's death."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(stall_s: float, library: str) -> None:
    """Entry point; ``library`` "" means that the dynamic linker chooses. Never returns."""
    # The library may print: keep the pipe to ourselves and let it print to standard error.
    out = Output(os.dup(1))
    os.dup2(2, 1)
    restrain()
    if problem := load(out, library):
        out.emit({"absent": problem})
        os._exit(0)
    count = read_system(out)
    if count >= 0:
        read_all(out, count, stall_s)
    out.emit({"end": True})
    os._exit(0)  # without nvmlShutdown, which may hang as well
