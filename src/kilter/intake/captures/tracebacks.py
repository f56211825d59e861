"""Errors that end a job, as frameworks print them: CUDA, NCCL, cuDNN and cuBLAS errors, out of memory, signals, dead data loader workers.

Log lines, found wherever they stand: give :class:`Tracebacks` each line that holds one of :data:`MARKS`.

Texts: CUDA runtime API, cudaError_t and cudaGetErrorString; pytorch/pytorch c10/cuda/CUDAException.cpp, CUDACachingAllocator.cpp,
torch/csrc/distributed/c10d/NCCLUtils.hpp, torch/utils/data/_utils/signal_handling.py; SchedMD/slurm src/srun/libsrun/task_state.c.
"""

from __future__ import annotations

import re

from kilter.intake.captures.torch_log import MAX_LINE, LineEvents, Place, place_of

MARKS: tuple[str, ...] = (
    "CUDA error",
    "CUDA Error",
    "Cuda error",
    "CUDA_ERROR_",
    "cudaError",
    "CUDA out of memory",
    "HIP out of memory",
    "device-side assert triggered",
    "Error 80",  # cudaGetDeviceCount() ... Error 802: system not yet initialized
    "DistBackendError",
    "NCCL error",
    "NCCL Error",
    "ncclSystemError",
    "ncclRemoteError",
    "ncclInternalError",
    "ncclUnhandledCudaError",
    "cuDNN error",
    "CUDNN_STATUS_",
    "CUBLAS_STATUS_",
    "DataLoader worker (pid",
    "bus error encountered in worker",
    "unable to open shared memory object",
    "unable to write to file </torch_",
    "Segmentation fault",
    "Signal 9 (SIGKILL) received",
    "srun: error: ",
    "oom_kill event",
    "oom-kill event",
    "Bus error",
)

#: What cudaGetErrorString prints -> (word of the finding, cudaError_t). In the order of what is most telling.
CUDA_TEXTS: tuple[tuple[str, str, int], ...] = (
    ("illegal memory access", "illegal_address", 700),
    ("device-side assert", "device_assert", 710),
    ("uncorrectable ECC error", "ecc_uncorrectable", 214),
    ("uncorrectable NVLink error", "nvlink_uncorrectable", 220),
    ("system not yet initialized", "system_not_ready", 802),
    ("unsupported display driver / cuda driver combination", "driver_mismatch", 803),
    ("forward compatibility was attempted", "forward_compatibility", 804),
    ("unspecified launch failure", "launch_failure", 719),
    ("launch timed out and was terminated", "launch_timeout", 702),
    ("hardware stack error", "hardware_stack", 714),
    ("illegal instruction", "illegal_instruction", 715),
    ("misaligned address", "misaligned_address", 716),
    ("invalid program counter", "invalid_pc", 718),
    ("no kernel image is available", "no_kernel_image", 209),
    ("driver version is insufficient", "insufficient_driver", 35),
    ("no CUDA-capable device is detected", "no_device", 100),
    ("invalid device ordinal", "invalid_device", 101),
    ("busy or unavailable", "devices_unavailable", 46),
    ("peer access is not supported", "peer_unsupported", 217),
    ("operation not permitted", "not_permitted", 800),
    ("initialization error", "initialization", 3),
    ("driver shutting down", "unloading", 4),
    ("out of memory", "out_of_memory", 2),
    ("unknown error", "unknown", 999),
)
_CUDA_NAMES = {
    "illegaladdress": "illegal_address",
    "assert": "device_assert",
    "eccuncorrectable": "ecc_uncorrectable",
    "nvlinkuncorrectable": "nvlink_uncorrectable",
    "systemnotready": "system_not_ready",
    "systemdrivermismatch": "driver_mismatch",
    "launchfailure": "launch_failure",
    "launchfailed": "launch_failure",
    "launchtimeout": "launch_timeout",
    "hardwarestackerror": "hardware_stack",
    "illegalinstruction": "illegal_instruction",
    "misalignedaddress": "misaligned_address",
    "invalidpc": "invalid_pc",
    "nokernelimagefordevice": "no_kernel_image",
    "nobinaryforgpu": "no_kernel_image",
    "insufficientdriver": "insufficient_driver",
    "nodevice": "no_device",
    "devicesunavailable": "devices_unavailable",
    "outofmemory": "out_of_memory",
    "memoryallocation": "out_of_memory",
    "unknown": "unknown",
}
_CODES = {kind: code for _, kind, code in CUDA_TEXTS}

_CUDA = re.compile(
    r"(?:CUDA|Cuda|cuda) ?(?:runtime |driver )?[Ee]rror(?: ?[:=(]? ?(?P<code>\d{1,4})\)?)?[: ,']{0,4}(?P<text>[^\n]{0,200})"
)
_CUDA_NAME = re.compile(r"\b(?:cudaError|CUDA_ERROR_)(?P<name>\w{2,60})")
_COUNT_ERROR = re.compile(r"\bError (?P<code>80[0-9]): (?P<text>[^\n]{1,160})")

_GPU = re.compile(r"\bGPU (\d{1,3})\b")
_SIZE = r"(\d{1,9}(?:\.\d{1,4})?) ([KMGT]i?B|bytes)"
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"(?:has a total capacit(?:y|ty) of {_SIZE}|{_SIZE} total capacity)")
_FREE = re.compile(rf"(?:of which {_SIZE} is free|{_SIZE} free)")
_ALLOCATED = re.compile(rf"(?:{_SIZE} is allocated by PyTorch|{_SIZE} already allocated)")
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OTHER = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")

_NCCL_KINDS = (
    ("unhandled system error", "system"),
    ("ncclSystemError", "system"),
    ("unhandled cuda error", "cuda"),
    ("ncclUnhandledCudaError", "cuda"),
    ("remote process", "remote"),
    ("ncclRemoteError", "remote"),
    ("internal error", "internal"),
    ("ncclInternalError", "internal"),
    ("invalid usage", "invalid_usage"),
    ("invalid argument", "invalid_argument"),
)
_NCCL_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_LIBRARY = re.compile(r"\b(CUDNN|CUBLAS)_STATUS_(?!SUCCESS\b)(\w{2,60})")
_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]{1,80})\) (?:is killed by signal: (?P<signal>[\w ]{2,40})|(?P<exit>exited unexpectedly))"
)
_SRUN = re.compile(r"srun: error: (?P<host>[\w.-]{1,255}): tasks? (?P<tasks>[\d,-]{1,200}): (?P<what>[\w ()]{3,60})")
_OOM_STEP = re.compile(r"oom[_-]kill event[^\n]{0,20} in (?P<step>StepId=[\w.]{1,40}|step [\w.]{1,40})")
_GOT = re.compile(r"Signal (\d{1,3}) \((SIG\w{1,10})\) received by PID (\d{1,10})")
#: MiB a unit, as PyTorch's allocator prints (powers of two, both spellings)
_MIB = {
    "KiB": 1 / 1024,
    "KB": 1 / 1024,
    "MiB": 1.0,
    "MB": 1.0,
    "GiB": 1024.0,
    "GB": 1024.0,
    "TiB": 1048576.0,
    "TB": 1048576.0,
    "bytes": 1 / 1048576,
}


def cuda_kind(text: str) -> tuple[str, int | None]:
    """(word, cudaError_t) of a CUDA error's message or name; ("other", None) for one that is not known."""
    lower = text.lower()
    for part, kind, code in CUDA_TEXTS:
        if part.lower() in lower:
            return kind, code
    if match := _CUDA_NAME.search(text):
        kind = _CUDA_NAMES.get(match.group("name").replace("_", "").lower(), "")
        if kind:
            return kind, _CODES[kind]
    return "other", None


def _mib(match: re.Match[str] | None) -> str | None:
    if match is None:
        return None
    groups = [group for group in match.groups() if group is not None]
    value, unit = groups[-2], groups[-1]
    return f"{float(value) * _MIB[unit]:.1f}"


class Tracebacks(LineEvents):
    """Reads the lines of one log into events: cuda.error, cuda.out_of_memory, cuda.library, torch.nccl_error, job.signal, job.dataloader."""

    def feed(self, number: int, line: str) -> None:
        """Read one line that holds one of :data:`MARKS`."""
        line = line.rstrip("\r\n")
        if len(line) > MAX_LINE:
            line = line[:2048] + line[-MAX_LINE + 2048 :]
        place = place_of(line, year=self.year)
        if "NCCL WARN" in line or "NCCL INFO" in line:
            return  # read by the NCCL log's reader
        for read in (self._dataloader, self._memory, self._library, self._nccl, self._cuda, self._signal):
            if read(number, line, place):
                self.lines += 1
                break

    def _memory(self, number: int, line: str, place: Place) -> bool:
        if "CUDA out of memory" not in line and "HIP out of memory" not in line:
            return False
        sizes = {
            "tried_mib": _mib(_TRIED.search(line)),
            "total_mib": _mib(_TOTAL.search(line)),
            "free_mib": _mib(_FREE.search(line)),
            "allocated_mib": _mib(_ALLOCATED.search(line)),
            "unallocated_mib": _mib(_RESERVED.search(line)),
        }
        others = _OTHER.findall(line[:8192])
        if len(others) > 1:
            sizes["processes"] = str(len(others))
        gpu = _GPU.search(line, line.find("out of memory"))
        shown = line[line.find("out of memory") - 5 :].strip()
        self.add(
            "cuda.out_of_memory",
            shown[:300],
            number,
            place,
            key=f"gpu {gpu.group(1) if gpu else '?'}",
            gpu=gpu.group(1) if gpu else None,
            code=None,
            **sizes,
        )
        return True

    def _cuda(self, number: int, line: str, place: Place) -> bool:
        text, code = "", None
        if match := _CUDA.search(line):
            text = match.group("text").strip()
            code = int(match.group("code")) if match.group("code") else None
        elif match := _COUNT_ERROR.search(line):
            text, code = match.group("text").strip(), int(match.group("code"))
        name = _CUDA_NAME.search(line)
        if not text and name is None:
            return False
        kind, known = cuda_kind(text) if text else ("other", None)
        if kind == "other" and name is not None:
            kind, known = cuda_kind(name.group(0))
        if kind == "other" and code is not None:
            kind = next((word for word, number_ in _CODES.items() if number_ == code), "other")
        if kind == "other" and not (match and ("CUDA error: " in line or code is not None)):
            return False  # "CUDA errors might be asynchronously reported", source code, names in a stack
        if kind == "out_of_memory":
            self.add("cuda.out_of_memory", (text or line.strip())[:300], number, place, key="gpu ?")
            return True
        self.add(
            "cuda.error",
            f"CUDA error: {text or (name.group(0) if name else '')}",
            number,
            place,
            code=code or known,
            key=kind,
            error=kind,
        )
        return True

    def _library(self, number: int, line: str, place: Place) -> bool:
        match = _LIBRARY.search(line)
        if match is None or ("error" not in line and "Error" not in line):
            return False
        library = {"CUDNN": "cuDNN", "CUBLAS": "cuBLAS"}[match.group(1)]
        self.add("cuda.library", f"{library} error: {match.group(0)}", number, place, library=library, status=match.group(2))
        return True

    def _nccl(self, number: int, line: str, place: Place) -> bool:
        lower = line.lower()
        if (
            "nccl error" not in lower
            and "distbackenderror" not in lower
            and not re.search(r"\bnccl(?:System|Remote|Internal|UnhandledCuda)Error:", line)
        ):
            return False
        kind = next((word for part, word in _NCCL_KINDS if part.lower() in lower), "")
        if not kind:
            return False
        version = _NCCL_VERSION.search(line)
        text = line[max(lower.find("nccl"), 0) :].strip()
        self.add("torch.nccl_error", text[:300], number, place, key=kind, error=kind, nccl=version.group(1) if version else None)
        return True

    def _dataloader(self, number: int, line: str, place: Place) -> bool:
        if match := _WORKER.search(line):
            signal = (match.group("signal") or "").strip()
            what = f"killed by signal: {signal}" if signal else "exited unexpectedly"
            self.add(
                "job.dataloader",
                f"DataLoader worker {match.group(1).strip()} {what}",
                number,
                place,
                key=what,
                signal=signal,
                pids=match.group(1).strip(),
            )
        elif "bus error encountered in worker" in line:
            self.add("job.dataloader", line.strip()[-200:], number, place, key="killed by signal: Bus error", signal="Bus error")
        elif "unable to open shared memory object" in line or "unable to write to file </torch_" in line:
            why = "files" if "Too many open files" in line else "shm"
            self.add("job.shared_memory", line.strip()[-200:], number, place, key=why, reason=why)
        else:
            return False
        return True

    def _signal(self, number: int, line: str, place: Place) -> bool:
        if match := _SRUN.search(line):
            what = match.group("what").strip()
            if not re.match(r"Killed|Segmentation fault|Aborted|Bus error|Terminated|Out Of Memory", what):
                return False
            place = place._replace(node=match.group("host"), rank=None)
            self.add(
                "job.signal",
                f"tasks {match.group('tasks')} on {match.group('host')}: {what}",
                number,
                place,
                signal=what,
                tasks=match.group("tasks"),
            )
        elif match := _OOM_STEP.search(line):
            self.add("job.cgroup_oom", f"out-of-memory kill in {match.group('step')}", number, place, step=match.group("step"))
        elif match := _GOT.search(line):
            if line.lstrip().startswith("traceback"):
                return False  # torchrun's table, read by torch_log
            self.add("job.signal", match.group(0), number, place, signal=match.group(2), pid=match.group(3))
        elif re.search(
            r"Fatal Python error: (?:Segmentation fault|Bus error)|(?:Segmentation fault|Bus error) +\(core dumped\)", line
        ):
            what = "Segmentation fault" if "Segmentation" in line else "Bus error"
            self.add("job.signal", what, number, place, signal=what)
        else:
            return False
        return True
