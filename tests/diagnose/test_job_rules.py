"""What job logs and benchmark results are judged to show: each fault with its healthy twin."""

from __future__ import annotations

from pathlib import Path

from kilter.diagnose.engine import diagnose
from kilter.diagnose.rules import bench_sanity, job, job_errors, job_process  # noqa: F401  # rules register on import
from kilter.facts.base import Source
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Finding
from kilter.facts.measure import CollectiveRecord, RankState, Sample
from kilter.facts.nccl import NcclJob
from kilter.intake.captures import torch_log, tracebacks
from kilter.intake.captures.kernel_log import marked_lines
from kilter.intake.fragment import Block, Fragment

DATA = Path(__file__).parents[1] / "data"
TIMEOUT = "[rank{0}]:[E626 06:24:44.9038819 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={3}, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
DUMP = "[rank{0}]:[E626 06:24:45.0000000 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: {1}, last completed NCCL work: {1}.\n"


def case_of(text: str, ranks: int = 0) -> Case:
    torch, errors = torch_log.TorchLog("job.log", year=2026), tracebacks.Tracebacks("job.log", year=2026)
    for log in (torch, errors):
        for number, line in marked_lines(text, torch_log.MARKS if log is torch else tracebacks.MARKS):
            log.feed(number, line)
    jobs = [NcclJob(source="job.log", n_ranks=ranks)] if ranks else []
    return Case(
        events=torch.events + errors.events,
        collectives=torch.records,
        jobs=jobs,
        sources=[Source(name="job.log", tool="job log")],
    )


def found(case: Case) -> dict[str, Finding]:
    return {f.id: f for f in diagnose(case).findings}


def loud(case: Case) -> set[str]:
    return {f.id for f in diagnose(case).findings if f.severity.rank >= 1}


def test_a_timeout_blames_the_rank_that_never_got_there() -> None:
    text = "".join(TIMEOUT.format(r, 808, "ALLREDUCE", 64) for r in (1, 2, 3)) + DUMP.format(0, 807)
    text += "[rank1]:[E626 06:24:44.906 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.\n"
    case = case_of(text)
    for record in case.collectives:
        record.group = "default_pg"
    finding = found(case)["torch.watchdog_timeout"]
    assert finding.severity.value == "error"
    assert "rank 0 never got that far" in finding.what
    assert "ALLREDUCE number 808" in finding.what


def test_all_ranks_in_one_operation_is_the_transport() -> None:
    finding = found(case_of("".join(TIMEOUT.format(r, 5, "ALLREDUCE", 64) for r in range(4)), ranks=4))["torch.watchdog_timeout"]
    assert "all ranks wait in the same operation" in finding.what
    assert "transport" in finding.causes[0].text


def test_a_rank_that_never_reports_is_named() -> None:
    finding = found(case_of("".join(TIMEOUT.format(r, 5, "ALLREDUCE", 64) for r in range(3)), ranks=4))["torch.watchdog_timeout"]
    assert "rank 3 never reported" in finding.what


def test_different_sizes_at_one_number_is_a_desync() -> None:
    case = case_of(TIMEOUT.format(0, 5, "ALLREDUCE", 64) + TIMEOUT.format(1, 5, "ALLREDUCE", 128))
    assert found(case)["torch.desync"].severity.value == "error"
    same = case_of(TIMEOUT.format(0, 5, "ALLREDUCE", 64) + TIMEOUT.format(1, 5, "ALLREDUCE", 64))
    assert "torch.desync" not in found(same)
    uneven = case_of(TIMEOUT.format(0, 5, "ALLTOALL_BASE", 64) + TIMEOUT.format(1, 5, "ALLTOALL_BASE", 128))
    assert "torch.desync" not in found(uneven)


def test_running_flight_recorders_are_no_trouble() -> None:
    records = [
        CollectiveRecord(rank=r, group="default_pg", sequence=s, operation="ALL_REDUCE", input_elements=4, state="completed")
        for r in (0, 1)
        for s in (1, 2)
    ]
    assert not loud(Case(collectives=records))


def test_sigkill_asks_for_the_oom_killer() -> None:
    text = "Root Cause (first observed failure):\n[0]:\n  time      : x\n  host      : node07\n  rank      : 5 (local_rank: 5)\n  exitcode  : -9 (pid: 14750)\n"
    finding = found(case_of(text))["torch.rank_failed"]
    assert (finding.subject.node, "SIGKILL" in finding.what) == ("node07", True)
    assert "OOM killer" in finding.causes[0].text


def test_cuda_errors_have_their_own_ids() -> None:
    ids = found(
        case_of(
            "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "RuntimeError: CUDA error: uncorrectable ECC error encountered\nError 802: system not yet initialized\n"
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
            "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error.\n"
        )
    )
    assert {"cuda.error.illegal_address", "cuda.error.ecc_uncorrectable", "cuda.error.system_not_ready"} <= set(ids)
    assert "error in a kernel" in ids["cuda.error.illegal_address"].causes[0].text
    assert ids["cuda.error.ecc_uncorrectable"].sop == "SOP-MEM"
    assert ids["cuda.out_of_memory"].severity.value == "warning"
    assert ids["job.shm_too_small"].severity.value == "error"


def test_a_quiet_log_says_nothing() -> None:
    assert not loud(
        case_of(
            "step 1 loss 2.0\nCUDA error checking is on\nsaved checkpoint; CUDA kernel errors might be asynchronously reported\n"
        )
    )


def test_ras_names_dead_ranks_and_is_calm_about_running_counts() -> None:
    dead = Case(
        events=[Event(kind="nccl.ras.dead", text="rank 1 considered dead", node="10.0.0.2", fields={"rank": "1"})],
        rank_states=[RankState(rank=1, state="DEAD", communicator="c")],
    )
    assert "rank 1" in found(dead)["nccl.ras.lost"].what
    differing = Case(
        events=[Event(kind="nccl.ras.mismatch", text="different AllReduce operation counts")],
        rank_states=[
            RankState(rank=3, communicator="c", counts={"AllReduce": 16}),
            RankState(rank=4, communicator="c", counts={"AllReduce": 17}),
        ],
    )
    assert not loud(differing)
    assert "lowest: rank 3" in found(differing)["nccl.ras.mismatch"].what


def benchmark(name: str, module: str) -> Case:
    import importlib

    block = Block(source=Source(name=name, tool=module), lines=(DATA / name).read_text().splitlines())
    fragment = Fragment(block.source)
    importlib.import_module(f"kilter.intake.captures.{module}").parse(block, fragment)
    return Case(snapshots=[fragment.snapshot])


def test_healthy_benchmarks_are_silent() -> None:
    folder = "s027-nccl-tests-8xa100-healthy"
    for path in (DATA / folder).glob("*.txt"):
        case = benchmark(f"{folder}/{path.name}", "nccl_tests")
        assert not {f for f in loud(case) if f.startswith(("bench.", "job."))}
        assert "bench.average_misleads" in found(case)
    assert not loud(benchmark("s030-ib-write-bw-loopback-parser/ib_write_bw_8M.txt", "ib_write_bw"))
    assert not loud(benchmark("s028-nvbandwidth-gh200-parser/nvbandwidth.txt", "nvbandwidth"))


def test_wrong_values_are_an_error_and_rounding_is_not() -> None:
    def case(metric: str, value: float, **conditions: str) -> Case:
        busbw = Sample(metric="busbw", value=125.0, unit="GB/s", tool="nccl-tests")
        return Case(
            snapshots=[
                Snapshot(
                    samples=[busbw, Sample(metric=metric, value=value, unit="values", tool="nccl-tests", conditions=conditions)]
                )
            ]
        )

    assert found(case("wrong", 3))["bench.data_errors"].severity.value == "error"
    assert "bench.data_errors" not in found(case("wrong", 0))
    assert "bench.data_errors" not in found(case("max_error", 4e-7, limit="1e-05"))
    assert "bench.data_errors" in found(case("max_error", 300.0, limit="0"))


def test_kills_stuck_watchdogs_and_library_errors_are_told() -> None:
    ids = loud(
        case_of(
            "srun: error: node7: task 3: Killed\nslurmstepd: error: Detected 1 oom_kill event in StepId=77.0.\n"
            "[rank0]: ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
            "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n"
        )
    )
    assert {"job.process_killed", "job.cgroup_oom", "torch.heartbeat_stuck", "cuda.library_error"} <= ids


def test_without_a_log_nothing_is_called_healthy() -> None:
    checks = {c.rule: c for c in diagnose(Case()).checks}
    for name in (
        "torch.watchdog_timeout",
        "torch.desync",
        "torch.rank_failed",
        "cuda.error.*",
        "cuda.out_of_memory",
        "job.process_killed",
        "nccl.ras.lost",
    ):
        assert checks[name].outcome.value == "not checked", name


def _at(line: str, hour: str) -> str:
    return line.replace("E626 06:", f"E626 {hour}:")


def test_two_runs_in_one_log_do_not_mix() -> None:
    first = "".join(TIMEOUT.format(r, 808, "ALLREDUCE", 64) for r in (1, 2)) + DUMP.format(0, 807)
    second = "".join(_at(TIMEOUT.format(r, 12, "ALLGATHER", 64), "09") for r in (0, 2)) + _at(DUMP.format(1, 11), "09")
    case = case_of(first + second)
    for record in case.collectives:
        record.group = "default_pg"
    told = [f for f in diagnose(case).findings if f.id == "torch.watchdog_timeout"]
    assert ["rank 0 never got that far" in told[0].what, "rank 1 never got that far" in told[1].what] == [True, True]
    assert [f.subject.name for f in told] == ["group default_pg", "run 2, group default_pg"]
    assert "torch.desync" not in found(case)


def test_two_jobs_by_their_pods_do_not_mix() -> None:
    a = "".join(f"[pod/train-a-worker-{r}/main] " + TIMEOUT.format(r, 808, "ALLREDUCE", 64) for r in (0, 1))
    b = "".join(f"[pod/train-b-worker-{r}/main] " + TIMEOUT.format(r, 12, "ALLGATHER", 128) for r in (0, 1))
    lines = [line for pair in zip(a.splitlines(), b.splitlines(), strict=True) for line in pair]
    case = case_of("\n".join(lines) + "\n", ranks=2)
    told = {f.subject.name: f.what for f in diagnose(case).findings if f.id == "torch.watchdog_timeout"}
    assert set(told) == {"job train-a", "job train-b"}
    assert "ALLREDUCE number 808" in told["job train-a"]
    assert "ranks are in different operations" not in " ".join(told.values())
    assert "torch.desync" not in found(case)


def test_one_rank_on_two_nodes_names_no_culprit() -> None:
    case = case_of("".join(TIMEOUT.format(r, 808 - r, "ALLREDUCE", 64) for r in (0, 1)))
    extra = case_of(TIMEOUT.format(1, 12, "ALLGATHER", 64))
    case.collectives += extra.collectives
    for record, node in zip(case.collectives, ("n1", "n1", "n2"), strict=True):
        record.node = node
    (finding,) = [f for f in diagnose(case).findings if f.id == "torch.watchdog_timeout"]
    assert "never got that far" not in finding.what
    assert "two nodes" in finding.what
