"""NCCL logs become one job with its networks, transports and warnings."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.intake.captures import nccl
from kilter.intake.captures.kernel_log import marked_lines
from kilter.intake.captures.nccl import MARKS, NcclLog
from mangle import mangled

DATA = Path(__file__).parents[2] / "data"


def read(text: str) -> NcclLog:
    log = NcclLog("log", year=2026)
    for number, line in marked_lines(text, MARKS):
        log.feed(number, line)
    log.finish()
    return log


def vias(log: NcclLog) -> dict[str, int]:
    return {c.via: c.count for c in log.job.connections}


def test_real_log_of_two_gpus_over_shared_memory() -> None:
    job = read((DATA / "s055-nccl-2xa800-shm-instead-of-p2p/nccl.log").read_text()).job
    assert (job.version, job.n_ranks, job.n_nodes) == ("2.27.3+cuda12.9", 2, 1)
    assert job.networks == {"Socket": 2}
    assert job.ib_devices == []
    assert job.all_direct_p2p is False
    assert [(c.via, c.count) for c in job.connections] == [("SHM/direct/direct", 4)]
    assert [(r.rank, r.bus_id) for r in job.ranks] == [(0, "0000:52:00.0"), (1, "0000:d6:00.0")]
    assert (job.init_started, job.init_complete) == (2, 2)


@pytest.mark.parametrize(
    ("via", "kind"),
    [
        ("NET/IB/1/GDRDMA", "NET/IB/GDRDMA"),
        ("NET/IB/1(3)/GDRDMA/Shared", "NET/IB/GDRDMA/Shared"),
        ("NET/IB/0", "NET/IB"),
        ("NET/Socket/0", "NET/Socket"),
        ("NET/Libfabric/0/GDRDMA", "NET/Libfabric/GDRDMA"),
        ("P2P/CUMEM/read", "P2P/CUMEM/read"),
        ("P2P/IPC", "P2P/IPC"),
        ("SHM/direct/direct", "SHM/direct/direct"),
        ("direct shared memory", "SHM/direct"),
    ],
)
def test_transport_words_lose_the_device_number_only(via: str, kind: str) -> None:
    assert vias(read(f"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via {via} comm 0x1 nRanks 02")) == {kind: 1}


@pytest.mark.parametrize(
    "line",
    [
        "gpu-1:10:11 [0] NCCL INFO Using network IB",
        "[1,3]<stdout>:gpu-1:10:11 [0] NCCL INFO Using network IB",
        "3: gpu-1:10:11 [0] NCCL INFO Using network IB",
        "(RayTrainWorker pid=3704, ip=10.52.3.7) gpu-1:10:11 [0] NCCL INFO Using network IB",
        "[2026-01-01 12:08:32] gpu-1:10:11 [0] NCCL INFO Using network IB",
        "NCCL INFO Using network IB",
        "[rank0] NCCL INFO Using network IB",
    ],
)
def test_launchers_tags_do_not_hide_the_line(line: str) -> None:
    assert read(line).job.networks == {"IB": 1}


@pytest.mark.parametrize(
    "line",
    [
        "h:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.1.12<48133> with error 12, opcode 0, len 32768, vendor err 129 (Recv)",
        "h:1:2 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB: Got completion from peer 10.2.0.5<33092> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "h:1:2 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB: Got completion from peer 10.2.0.5<33092> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send",
        "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
    ],
)
def test_completion_errors_of_all_versions_give_their_status(line: str) -> None:
    (event,) = read(line).events
    assert (event.kind, event.code) == ("nccl.ib.completion", 12)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "nccl.ib.reg_mr"),
        ("Error: failed to extend /dev/shm/nccl-UbzKZ9 to 9637892 bytes", "nccl.shm"),
        ("NET/IB : Unable to open device erdma_1", "nccl.ib.open_device"),
        ("NET/IB : mlx5_1:1 Got async event : port error", "nccl.ib.async_event"),
        ("Bootstrap : no socket interface found", "nccl.no_interface"),
        ("socketProgress: Connection closed by remote peer h2<1234>", "nccl.peer_gone"),
        ("Call to connect to 10.0.0.2<33333> failed : Connection refused", "nccl.peer_gone"),
        ("Cuda failure 700 'an illegal memory access was encountered'", "nccl.cuda"),
        ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", "nccl.duplicate_gpu"),
        ("something that nobody has seen", "nccl.warn"),
    ],
)
def test_warnings_have_their_kind(text: str, kind: str) -> None:
    (event,) = read(f"h:1:2 [0] misc/x.cc:1 NCCL WARN {text}").events
    assert event.kind == kind
    assert event.node == "h"


def test_ranks_of_one_log_are_told_apart_by_node() -> None:
    log = read(
        "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
        "b:7:8 [0] NCCL INFO comm 0x2 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
        "a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
        "b:7:8 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n"
    )
    assert [(r.rank, r.node) for r in log.job.ranks] == [(0, "a"), (1, "b")]
    assert log.events[0].device == "rank 1"


def test_versions_environment_and_gdr_are_kept() -> None:
    log = read(
        "NCCL version 2.21.5+cuda12.4\nh:1:2 [0] NCCL INFO NCCL version 2.20.3+cuda12.3\n"
        "h:1:2 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0,mlx5_1.\n"
        "h:1:2 [0] NCCL INFO NET/gIB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\n"
        "h:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 81000 / HCA 1 (distance 7 > 4)\n"
    )
    assert set(log.job.versions) == {"2.21.5+cuda12.4", "2.20.3+cuda12.3"}
    assert log.job.environment == {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}
    assert log.job.gdr == {"mlx5_0": "enabled", "HCA 1": "disabled"}


@given(
    st.sampled_from(["s055-nccl-2xa800-shm-instead-of-p2p/nccl.log", "s056-nccl-shm-exhausted-container/nccl.log"]).flatmap(
        lambda n: mangled((DATA / n).read_text())
    )
)
@settings(max_examples=100, deadline=None)
def test_damaged_logs_never_raise(text: str) -> None:
    read(text)


def test_devices_and_connections_are_told_by_node():
    from kilter.intake.captures.nccl import NcclLog

    log = NcclLog("job.log", year=2026)
    for number, line in enumerate(
        (
            "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>",
            "b:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.2<0>",
            "b:3:4 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.2<0>",
            "a:1:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
            "b:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [receive] via NET/IB/0",
        ),
        1,
    ):
        log.feed(number, line)
    job = log.finish()
    assert {node: len(names) for node, names in job.ib_devices_by_node.items()} == {"a": 2, "b": 1}
    assert job.origin["ib_devices_by_node/b"] == (0, 3)
    assert {c.via: c.by_node for c in job.connections} == {"NET/IB/GDRDMA": {"a": 1}, "NET/IB": {"b": 1}}


def test_repeats_of_one_warning_are_counted_and_others_kept() -> None:
    line = (
        "h:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.1.12<48133> with error 12, opcode 0, len 0, vendor err 129\n"
    )
    log = NcclLog("log", year=2026)
    for number, text in enumerate([line, line, line.replace("h:1", "h:7"), line.replace("10.0.1.12", "10.0.1.13")], 1):
        log.feed(number, text)
    assert [(event.line, event.count) for event in log.events] == [(1, 2), (3, 1), (4, 1)]


_LINES = [
    *(DATA / "s055-nccl-2xa800-shm-instead-of-p2p/nccl.log").read_text().splitlines(),
    *(DATA / "s056-nccl-shm-exhausted-container/nccl.log").read_text().splitlines(),
    "b:7:8 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0",
    "b:7:8 [0] NCCL INFO Using network IB",
    "b:7:9 [1] NCCL INFO Using network Socket",
    "b:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.2<0>",
    "b:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.2<0>",
    "b:7:8 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    "b:7:8 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/1/GDRDMA comm 0x7f nRanks 02",
    "[2025-08-22 17:44:36] c:7:8 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [send] via NET/IB/1",
    "[2025-08-22 17:44:36] d:7:8 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [send] via NET/IB/1",
    "[1,0]<stdout>:e:7:8 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] via P2P/IPC",
    "[rank3]: NCCL INFO Channel 01/0 : 1[0] -> 0[0] via P2P/IPC",
    "b:7:8 [0] NCCL INFO AllReduce: opCount 3b sendbuff 0x7f recvbuff 0x7f count 9 datatype 9 op 0 root 0 comm 0x55b [nranks=64] stream 0x3",
    "b:7:8 [0] NCCL INFO AllReduce: opCount 3c sendbuff 0x7f recvbuff 0x7f count 9 datatype 9 op 0 root 0 comm 0x55b [nranks=64] stream 0x3",
    "b:7:8 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS",
    "b:7:9 [1] NCCL INFO NCCL_P2P_LEVEL set by environment to NVL",
    "b:7:9 [1] NCCL INFO init.cc:1 -> 3",
    "b:7:9 [1] NCCL INFO GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
    "NCCL version 2.7.8+cuda10.2NCCL version 2.7.8+cuda10.2",
    "something else",
    "",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_LINES), max_size=60), st.integers(0, 60))
def test_what_says_the_same_can_be_read_once(lines: list[str], sample: int) -> None:
    """Each line read alone, and lines summed up, give one job and the same events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nccl, "_SAMPLE", sample)
        told = nccl.telling("\n".join(lines))
    alone, summed = NcclLog("x", year=2026), NcclLog("x", year=2026)
    for number, line in enumerate(lines, 1):
        if any(mark in line for mark in MARKS):
            alone.feed(number, line)
    for index, times, line in told:
        assert lines[index] == line
        summed.feed(index + 1, line, times)
    assert summed.finish() == alone.finish()
    assert summed.events == alone.events
    assert summed.lines == alone.lines
