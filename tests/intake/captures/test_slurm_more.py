"""sacct, sdiag and the logs of Slurm's daemons."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.diagnose.engine import diagnose
from kilter.intake.captures.slurm_log import SlurmLog
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

SDIAG = (Path(__file__).parents[2] / "data" / "slurm-22.05" / "sdiag.txt").read_text()
# layouts as published with sacct -P, -p and in columns; values invented
PIPED = """\
JobID|JobName|Partition|State|ExitCode|Elapsed|MaxRSS|NodeList|AllocTRES
101|train|gpu|COMPLETED|0:0|00:00:33||node01|billing=2,cpu=2,gres/gpu=1,mem=6G,node=1
101.batch|batch||COMPLETED|0:0|00:00:33|211488K|node01|cpu=2,gres/gpu=1
102|train|gpu|NODE_FAIL|0:0|1-02:00:00||node[02-03]|cpu=64,gres/gpu=16
103|train|gpu|FAILED|1:0|00:10:00||node03|cpu=8,gres/gpu=8
103.0|python||OUT_OF_MEMORY|0:125|00:09:59||node03|cpu=8
104|long|gpu|TIMEOUT|0:0|2-00:00:00||node04|cpu=8,gres/gpu=8
105_7|array|gpu|CANCELLED by 1000|0:0|00:00:05||node04|cpu=8
106|killed|gpu|FAILED|0:9|00:00:05||node05|cpu=8
107|train|gpu|NODE_FAIL|0:0|02:00:00||node[03,06]|cpu=64,gres/gpu=16
"""
COLUMNS = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
101               train        gpu     proj-a          2  COMPLETED      0:0
101.batch         batch                proj-a          2  COMPLETED      0:0
103               train        gpu     proj-a          8     FAILED      1:0
103.0            python                proj-a          8 OUT_OF_ME+    0:125
"""
# format strings of slurmctld and slurmd 22.05 with invented names
CONTROLLER = """\
[2026-11-03T08:00:00.123] error: Nodes node[02-03] not responding
[2026-11-03T08:05:00.123] error: Nodes node02 not responding, setting DOWN
[2026-11-03T08:05:00.200] Killing JobId=102 on failed node node02
[2026-11-03T08:05:30.000] Node node03 now responding
[2026-11-03T08:06:00.000] error: Setting node node04 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)
[2026-11-03T08:07:00.000] update_node: node node05 reason set to: Kill task failed
[2026-11-03T08:07:00.001] update_node: node node05 state set to DRAINED
[2026-11-03T08:08:00.000] update_node: node node06 reason set to: firmware update
[2026-11-03T08:08:00.001] update_node: node node06 state set to DRAINED
[2026-11-03T08:09:00.001] sched: Allocate JobId=110 NodeList=node01 #CPUs=8 Partition=gpu
[2026-11-03T08:10:00.001] error: Prolog failed on node node07
[2026-11-03T08:11:00.001] Node node08 unexpectedly rebooted
"""
DAEMON = """\
Nov  3 08:00:00 node09 slurmd[1873]: error: Waiting for gres.conf file /dev/nvidia7
Nov  3 08:00:20 node09 slurmd[1873]: fatal: can't stat gres.conf file /dev/nvidia7: No such file or directory
Nov  3 08:01:00 node09 slurmd[1873]: error: [job 77] prolog failed status=1:0
Nov  3 08:02:00 node09 slurmd[1873]: Launching batch job 78 for UID 1000
"""


def test_jobs_with_what_their_steps_tell() -> None:
    fragment = parse_text("slurm_sacct", PIPED)
    check_references(fragment, PIPED)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    jobs = {job.id: job for job in fragment.cluster_jobs}
    assert (jobs["102"].state, jobs["102"].nodes, jobs["102"].gpus, jobs["102"].run_time_s) == (
        "NODE_FAIL",
        ["node02", "node03"],
        16,
        93600.0,
    )
    assert (jobs["103"].state, jobs["103"].exit_code) == ("OUT_OF_MEMORY", 1)
    assert (jobs["105_7"].state, jobs["106"].exit_code) == ("CANCELLED", 137)


def test_trailing_signs_columns_and_no_header() -> None:
    trailing = "\n".join(line + "|" for line in PIPED.splitlines())
    assert {j.id: j.state for j in parse_text("slurm_sacct", trailing).cluster_jobs} == {
        j.id: j.state for j in parse_text("slurm_sacct", PIPED).cluster_jobs
    }
    assert [(j.id, j.state, j.cpus) for j in parse_text("slurm_sacct", COLUMNS).cluster_jobs] == [
        ("101", "COMPLETED", 2),
        ("103", "FAILED", 8),
    ]
    bare = parse_text("slurm_sacct", PIPED.split("\n", 1)[1])
    assert [(j.id, j.state, j.nodes) for j in bare.cluster_jobs if j.id == "102"] == [("102", "NODE_FAIL", ["node02", "node03"])]
    assert bare.notes


def verdict(*texts: str):
    fragments = [one for n, text in enumerate(texts) for one in read_text(f"f{n}", text, year=2026)[0]]
    case = assemble(fragments, [])
    return case, diagnose(case)


def found(*texts: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for finding in verdict(*texts)[1].findings:
        out.setdefault(finding.id, []).append(f"{finding.severity.value} {finding.subject.node}".strip())
    return out


def test_what_the_rules_say_of_ended_jobs() -> None:
    told = found(PIPED)
    assert told["slurm.jobs_lost_to_nodes"] == ["error"]
    assert told["slurm.job_out_of_memory"] == ["warning"]
    assert told["slurm.job_timed_out"] == ["info"]
    healthy = "\n".join(
        line for line in PIPED.splitlines() if not any(w in line for w in ("FAIL", "MEMORY", "TIMEOUT", "CANCELLED"))
    )
    assert found(healthy) == {}


def test_sdiag_speaks_only_when_it_matters() -> None:
    case, diagnosis = verdict(SDIAG)
    assert case.scheduler_loads is not None
    assert (case.scheduler_loads[0].server_threads, case.scheduler_loads[0].jobs_pending) == (3, 7)
    assert case.scheduler_loads[0].max_cycle_us == 1261  # not the backfill's
    assert (diagnosis.findings, list(case.snapshots)) == ([], [])
    busy = SDIAG.replace("Server thread count:  3", "Server thread count:  251").replace(
        "DBD Agent queue size: 0", "DBD Agent queue size: 7000"
    )
    assert found(busy) == {"slurm.controller_busy": ["warning"], "slurm.database_behind": ["warning"]}


def test_users_of_sdiag() -> None:
    text = (
        SDIAG
        + "\nRemote Procedure Call statistics by user\n\troot            (       0) count:90     ave_time:1 total_time:2\n\ta (1000) count:910 ave_time:1 total_time:1\n"
    )
    case, _ = verdict(text)
    assert case.scheduler_loads is not None
    assert case.scheduler_loads[0].user_requests["a"] == 910


def test_slurms_outputs_make_no_nameless_node() -> None:
    for text in (PIPED, SDIAG, CONTROLLER):
        case, _ = verdict(text)
        assert [s.node for s in case.snapshots if not s.node] == []


def test_a_controllers_log_names_no_other_capture() -> None:
    lost = "[2026-11-03T08:05:00.123] error: Nodes node02 not responding, setting DOWN\n"
    case, _ = verdict("MemTotal:       1056000000 kB\nMemFree:  1 kB\n", lost)
    assert [s.node for s in case.snapshots] == [""]


def test_job_arrays() -> None:
    text = "JOBID|PARTITION|NAME|USER|ST|TIME|NODES|NODELIST(REASON)\n1234_[1-10%2]|gpu|a|u|PD|0:00|1|(Resources)\n1234_5|gpu|a|u|R|1:00|1|node01\n"
    case, _ = verdict(text)
    assert [(j.id, j.state, j.nodes) for j in case.cluster_jobs or []] == [
        ("1234_[1-10%2]", "PENDING", []),
        ("1234_5", "RUNNING", ["node01"]),
    ]


def test_log_of_the_controller() -> None:
    told = found(CONTROLLER)
    assert told["slurm.log_node_lost"] == ["error node02", "info node03"]
    assert told["slurm.log_gpu_missing"] == ["error node04"]
    assert told["slurm.log_kill_task_failed"] == ["warning node05"]
    assert told["slurm.log_drained"] == ["info node06"]
    assert told["slurm.log_prolog_failed"] == ["warning node07"]
    assert told["slurm.log_node_rebooted"] == ["error node08"]


def test_log_of_a_daemon_names_its_own_node() -> None:
    told = found(DAEMON)
    assert told["slurm.log_gpu_missing"] == ["error node09"]
    assert told["slurm.log_prolog_failed"] == ["warning node09"]


def test_a_jobs_output_names_why_it_was_ended() -> None:
    log = SlurmLog("job.out", year=2026)
    log.feed(
        3,
        "slurmstepd: error: *** JOB 102 ON node02 CANCELLED AT 2026-11-03T08:05:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    (event,) = log.events
    assert (event.kind, event.node, event.fields["job"], event.fields["why"]) == (
        "slurm.job_ended",
        "node02",
        "102",
        "NODE FAILURE",
    )


@pytest.mark.parametrize(
    "line",
    [
        "ControlMachine head not responding, BackupController1 taking over",
        "my server is not responding",
        "Nodes are not responding to ping",
        "unit test: prolog failed status=1",
    ],
)
def test_lines_of_others_are_none(line: str) -> None:
    log = SlurmLog("x", year=2026)
    log.feed(1, line)
    assert log.events == []


@pytest.mark.parametrize("text", [PIPED, COLUMNS, SDIAG])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(text: str, data: st.DataObject) -> None:
    for module in ("slurm_sacct", "slurm"):
        damaged = data.draw(mangled(text))
        check_references(parse_text(module, damaged), damaged)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_logs_raise_nothing(data: st.DataObject) -> None:
    log = SlurmLog("x", year=2026)
    for number, line in enumerate(data.draw(mangled(CONTROLLER + DAEMON)).split("\n"), 1):
        log.feed(number, line)


@given(
    long_lines(
        "JobID|State\n",
        "101|",
        "slurmctld: Nodes ",
        "slurmctld: node ",
        "update_node: node n reason set to: ",
        "*** JOB 1 ON ",
        "gres/gpu count reported lower than configured (",
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text: str) -> None:
    parse_text("slurm_sacct", text)
    log = SlurmLog("x", year=2026)
    for line in text.split("\n"):
        log.feed(1, line)
