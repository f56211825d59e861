"""Flight Recorder dumps, NCCL RAS and torch's collect_env."""

from __future__ import annotations

import json
import os
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Source
from kilter.intake.captures import flight_recorder
from kilter.intake.fragment import Block, Fragment
from mangle import check_references, mangled, parse_text

DUMP = {
    "entries": [
        {
            "record_id": 4,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": 5,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_700_000_000_000_000_000,
            "input_sizes": [[3, 4]],
            "output_sizes": [[3, 4]],
            "input_dtypes": ["Float"],
            "state": "scheduled",
            "timeout_ms": 600000,
            "is_p2p": False,
        }
    ],
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": "5", "last_completed_collective": "4"}},
    "version": "2.10",
}
ANALYSED = """\
Not all ranks joining collective 5 at entry 4
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {1}
input sizes: [[3, 4]]
output sizes: [[3, 4]]
expected ranks: 2
collective state: scheduled
collective stack trace:
  all_reduce at /home/x/torch/distributed/distributed_c10d.py:2696
"""
RAS = """\
NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        30   RUNNING  INCOMPLETE,MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.210 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.210

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  29 ranks have launched up to operation 17
  Rank 3 has launched up to operation 16 -- GPU 3 (NVML 4) managed by process 77 on node 172.16.64.201

"""
RAS_JSON = {
    "nccl_version": "2.28.7",
    "communicators": [
        {
            "hash": "0xab",
            "ranks": [
                {
                    "rank": 0,
                    "host": "10.0.0.1",
                    "pid": 1,
                    "status": {"init_state": 0, "async_error": 6, "abort_flag": False},
                    "collective_counts": {"AllReduce": 9},
                }
            ],
            "missing_ranks": [
                {"rank": 1, "host": "10.0.0.2", "pid": 2, "status": {"unresponsive": True, "considered_dead": True}}
            ],
        }
    ],
    "ras": {"timeouts_count": 0},
}
ENV = """\
Collecting environment information...
PyTorch version: 2.3.0+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
Python version: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-5.15.0-105-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: Could not collect
GPU models and configuration:
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version: 535.161.08
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7
HIP runtime version: N/A
Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.20.5
"""


def dump(content: object, name: str = "nccl_trace_rank_3.json") -> Fragment:
    block = Block(source=Source(name=name, tool="Flight Recorder"), lines=json.dumps(content).splitlines())
    fragment = Fragment(block.source)
    flight_recorder.parse(block, fragment)
    return fragment


def test_a_json_dump_has_the_rank_of_its_name_and_how_far_it_came() -> None:
    fragment = dump(DUMP)
    (record,) = fragment.collectives
    assert (record.rank, record.group, record.sequence, record.operation, record.input_elements, record.state) == (
        3,
        "default_pg",
        5,
        "ALL_REDUCE",
        12,
        "scheduled",
    )
    (event,) = fragment.events
    assert (event.fields["members"], event.fields["enqueued"], event.fields["completed"]) == ("0,1", "5", "4")


def test_a_pickle_of_plain_data_is_read_without_unpickling() -> None:
    for protocol in (2, 4, 5):
        fragment = Fragment(Source(name="nccl_trace_rank_7", tool="Flight Recorder"))
        assert flight_recorder.read_bytes(pickle.dumps(DUMP, protocol), fragment)
        assert [r.rank for r in fragment.collectives] == [7]


class Harm:
    def __reduce__(self) -> object:
        return (os.system, ("true",))


def test_a_pickle_that_calls_something_is_refused_with_a_note() -> None:
    fragment = Fragment(Source(name="x_1", tool="Flight Recorder"))
    assert flight_recorder.read_bytes(pickle.dumps({"entries": [Harm()]}, 2), fragment)
    assert not fragment.collectives
    assert "convert" in fragment.notes[0]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_pickles_raise_nothing(noise: bytes, at: int) -> None:
    data = pickle.dumps(DUMP, 2)
    flight_recorder.read_bytes(data[:at] + noise + data[at:], Fragment(Source(name="x", tool="")))


def test_the_analyzer_names_the_missing_ranks() -> None:
    fragment = parse_text("flight_recorder", ANALYSED)
    (event,) = fragment.events
    assert (event.kind, event.fields["missing"], event.fields["op"], event.fields["group"]) == (
        "torch.not_joined",
        "1",
        "ALL_REDUCE",
        "default_pg",
    )
    assert not fragment.unplaced


def test_ras_text_names_dead_processes_missing_ranks_and_low_counts() -> None:
    fragment = parse_text("nccl_ras", RAS)
    assert not fragment.unplaced
    assert fragment.snapshot.software.nccl_version == "2.27.3"
    states = [(s.rank, s.state, s.counts) for s in fragment.rank_states]
    assert states == [(21, "MISSING", {}), (3, "", {"AllReduce": 16})]
    assert [e.node for e in fragment.events if e.kind == "nccl.ras.dead"] == ["", "172.16.64.210"]


def test_ras_json_names_dead_ranks_and_errors() -> None:
    fragment = parse_text("nccl_ras", json.dumps(RAS_JSON, indent=2))
    assert [(s.rank, s.state) for s in fragment.rank_states] == [(0, "RUNNING"), (1, "DEAD")]
    assert [e.kind for e in fragment.events] == ["nccl.ras.error", "nccl.ras.dead"]


def test_collect_env_gives_versions_and_what_it_could_not_collect() -> None:
    fragment = parse_text("collect_env", ENV)
    software = fragment.snapshot.software
    assert (software.driver_version, software.cudnn_version, software.nccl_version) == ("535.161.08", "8.9.7", "2.20.5")
    assert software.cuda_toolkit_version is None
    assert "cuda_toolkit_version" in software.missing
    assert fragment.snapshot.kernel.release == "5.15.0-105-generic"
    assert [a.name for a in fragment.snapshot.accelerators or []] == ["NVIDIA H100 80GB HBM3"] * 2
    assert not fragment.unplaced


@settings(max_examples=40, deadline=None)
@given(mangled(RAS))
def test_damaged_ras(text: str) -> None:
    check_references(parse_text("nccl_ras", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(ENV))
def test_damaged_collect_env(text: str) -> None:
    check_references(parse_text("collect_env", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(ANALYSED))
def test_damaged_analysis(text: str) -> None:
    check_references(parse_text("flight_recorder", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(json.dumps(DUMP, indent=1)), mangled(json.dumps(RAS_JSON, indent=1)))
def test_damaged_documents(first: str, second: str) -> None:
    parse_text("flight_recorder", first)
    parse_text("nccl_ras", second)
