"""Messages of PyTorch's watchdog and torchrun, of several versions, wherever they stand in a log."""

from __future__ import annotations

from hypothesis import given, settings

from kilter.intake.captures import torch_log, tracebacks
from kilter.intake.captures.kernel_log import marked_lines
from mangle import mangled

PT25 = """\
step 120 loss 2.1
[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.
[rank1]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.
[rank0]:[E626 06:24:45.000000001 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 807, last completed NCCL work: 807.This is most likely caused by incorrect usages
"""
PT113 = "[E ProcessGroupNCCL.cpp:737] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.\n"
PT28 = "[rank14]:[E709 17:05:38.1628327 ProcessGroupNCCL.cpp:2106] [PG ID 2 PG GUID 11(mesh_tp) Rank 2] failure detected by watchdog at work sequence id: 167 PG status: last enqueued work: 167, last completed work: 166\n"
ELASTIC = """\
E0325 20:57:27.620000 2606 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 5 (pid: 14750) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-05-21_15:43:05
  host      : node07
  rank      : 6 (local_rank: 6)
  exitcode  : 1 (pid: 14751)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-21_15:43:03
  host      : node07
  rank      : 5 (local_rank: 5)
  exitcode  : -9 (pid: 14750)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 14750
============================================================
"""
ERRORS = """\
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has a total capacity of 79.10 GiB of which 12.00 MiB is free. Process 1234 has 79.05 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated.
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 12.00 GiB already allocated; 1.11 GiB free; 13.90 GiB reserved in total by PyTorch)
[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1
RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED
RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
srun: error: frontier07210: tasks 8-12,14-15: Aborted (core dumped)
slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.
"""


def read(text: str) -> torch_log.TorchLog:
    log = torch_log.TorchLog("job.log", year=2026)
    for number, line in marked_lines(text, torch_log.MARKS):
        log.feed(number, line)
    return log


def errors(text: str) -> tracebacks.Tracebacks:
    log = tracebacks.Tracebacks("job.log", year=2026)
    for number, line in marked_lines(text, tracebacks.MARKS):
        log.feed(number, line)
    return log


def test_a_timeout_gets_the_group_from_the_line_after_it() -> None:
    log = read(PT25)
    (record,) = log.records
    assert (record.rank, record.group, record.sequence, record.operation) == (1, "default_pg", 808, "ALLREDUCE")
    assert (record.input_elements, record.timeout_ms, record.duration_ms, record.state) == (9801523, 600000, 600020, "timed out")
    event = next(e for e in log.events if e.kind == "torch.watchdog")
    assert (event.device, event.line, event.fields["seq"]) == ("rank 1", 2, "808")


def test_the_dump_signal_says_how_far_the_other_rank_came() -> None:
    (event,) = [e for e in read(PT25).events if e.kind == "torch.dump_signal"]
    assert (event.fields["rank"], event.fields["enqueued"], event.fields["origin"]) == ("0", "807", "1")


def test_old_and_new_versions_are_read() -> None:
    (record,) = read(PT113).records
    assert (record.rank, record.sequence, record.input_elements) == (3, 469508, None)
    (status,) = read(PT28).events
    assert (status.fields["rank"], status.fields["group"], status.fields["completed"]) == ("14", "mesh_tp", "166")


def test_repeats_are_counted_once() -> None:
    log = read(PT113 * 5)
    assert len(log.records) == 1
    assert log.events[0].count == 5


def test_the_first_failure_has_host_rank_and_signal() -> None:
    log = read(ELASTIC)
    first = next(e for e in log.events if e.fields.get("first"))
    assert (first.node, first.device, first.code, first.fields["signal"]) == ("node07", "rank 5", -9, "SIGKILL")
    assert sorted(e.device for e in log.events) == ["rank 5", "rank 6"]


def test_errors_have_their_kinds_codes_and_sizes() -> None:
    log = errors(ERRORS)
    kinds = [(e.kind, e.fields.get("error", "")) for e in log.events]
    assert ("cuda.error", "illegal_address") in kinds
    assert ("cuda.error", "system_not_ready") in kinds
    assert ("torch.nccl_error", "system") in kinds
    assert [e.fields["library"] for e in log.events if e.kind == "cuda.library"] == ["cuDNN", "cuBLAS"]
    memory = [e.fields for e in log.events if e.kind == "cuda.out_of_memory"]
    assert (memory[0]["gpu"], memory[0]["tried_mib"], memory[0]["unallocated_mib"]) == ("2", "20.0", "1536.0")
    assert (memory[1]["total_mib"], memory[1]["free_mib"], memory[1]["allocated_mib"]) == ("16281.6", "1136.6", "12288.0")
    assert next(e for e in log.events if e.kind == "cuda.error" and e.fields["error"] == "system_not_ready").code == 802
    assert [e.kind for e in log.events if e.kind.startswith("job.")] == ["job.dataloader", "job.signal", "job.cgroup_oom"]
    assert next(e for e in log.events if e.kind == "job.signal").node == "frontier07210"


@settings(max_examples=60, deadline=None)
@given(mangled(PT25 + PT113 + PT28 + ELASTIC))
def test_damaged_logs_are_read_without_an_exception(text: str) -> None:
    for event in read(text).events:
        assert 1 <= event.line <= text.count("\n") + 1


@settings(max_examples=60, deadline=None)
@given(mangled(ERRORS))
def test_damaged_errors_are_read_without_an_exception(text: str) -> None:
    errors(text)


def test_one_job_needs_no_name() -> None:
    lines = PT25.replace("[rank1]:", "gpu-worker-1: [rank1]:").replace("[rank0]:", "gpu-worker-0: [rank0]:")
    log = read(lines)
    log.settle()
    assert {record.job for record in log.records} == {""}
    assert all("job" not in event.fields for event in log.events)


def test_jobs_by_what_stands_before_the_message() -> None:
    assert torch_log.job_of("[pod/llm-a-worker-3/pytorch] [rank3]:[E ProcessGroupNCCL.cpp:1]") == "llm-a"
    assert torch_log.job_of("[pod/llm-b-0/main] [rank3]:") == "llm-b"
    assert torch_log.job_of("[job 1234] [rank3]:[E ProcessGroupNCCL.cpp:1] job 99") == "1234"
    assert torch_log.job_of("[rank3]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog") == ""
