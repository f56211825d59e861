"""nccl-tests, perftest and nvbandwidth: the real captures read as their sources say."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings

from kilter.facts.measure import Sample
from mangle import check_references, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
NCCL = (DATA / "s027-nccl-tests-8xa100-healthy" / "all_reduce_perf.txt").read_text()
IB = (DATA / "s030-ib-write-bw-loopback-parser" / "ib_write_bw_all_sizes.txt").read_text()
NVB = (DATA / "s028-nvbandwidth-gh200-parser" / "nvbandwidth.txt").read_text()
WRONG = """\
#                                               out-of-place                       in-place
#       size         count      type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    37748744      37748744     uint8    11732    3.22    3.22  0e+00    11698    3.23    3.23  3e+02
"""


def only(samples: list[Sample], metric: str, **conditions: str) -> Sample:
    (found,) = [s for s in samples if s.metric == metric and conditions.items() <= s.conditions.items()]
    return found


def test_the_plateau_is_read_with_ranks_and_place() -> None:
    samples = parse_text("nccl_tests", NCCL, command="./all_reduce_perf -b 1 -e 8G").snapshot.samples
    top = only(samples, "busbw", size_bytes="8589934592", place="out")
    assert (top.value, top.unit, top.conditions["ranks"], top.conditions["operation"]) == (235.26, "GB/s", "8", "all_reduce")
    assert only(samples, "busbw", size_bytes="8589934592", place="in").value == 235.03
    assert only(samples, "average_busbw").value == 68.4048


def test_validation_turned_off_is_no_value() -> None:
    assert not [s for s in parse_text("nccl_tests", NCCL).snapshot.samples if s.metric == "wrong"]


def test_blank_and_absent_columns_do_not_shift_the_values() -> None:
    text = (DATA / "s027-nccl-tests-8xa100-healthy" / "alltoall_perf.txt").read_text()
    samples = parse_text("nccl_tests", text).snapshot.samples
    assert only(samples, "busbw", size_bytes="8589934592", place="out").value == 224.31


def test_launchers_tags_and_wrong_values() -> None:
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in WRONG.splitlines())
    for text in (WRONG, tagged):
        samples = parse_text("nccl_tests", text).snapshot.samples
        assert only(samples, "max_error", place="in").value == 300.0
        assert only(samples, "busbw", place="in").value == 3.23


def test_a_failure_keeps_the_rows_before_it() -> None:
    text = WRONG + "HCA-128: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '\n"
    fragment = parse_text("nccl_tests", text)
    assert [e.node for e in fragment.events] == ["HCA-128"]
    assert fragment.snapshot.samples


def test_rows_of_client_and_server_count_once_and_mb_is_mib() -> None:
    fragment = parse_text("ib_write_bw", IB)
    row = only(fragment.snapshot.samples, "bandwidth", size_bytes="8388608")
    assert abs(row.value - 23240.68 * 1048576 / 1e9) < 1e-9
    assert row.unit == "GB/s"
    assert row.conditions["device"] == "ib0"
    assert not fragment.unplaced


def test_perftest_json_has_its_unit_from_the_message_rate() -> None:
    content = {
        "test_info": {"test": "RDMA_Write_BW_Test", "Device": "mlx5_11"},
        "results": {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 5293.52, "BW_average": 2229.27, "MsgRate": 0.035668},
    }
    samples = parse_text("ib_write_bw", json.dumps(content, indent=2)).snapshot.samples
    assert only(samples, "bandwidth").unit == "GB/s"
    content["results"] = {"MsgSize": 65536, "n_iterations": 5000, "BW_average": 2229.27}
    fragment = parse_text("ib_write_bw", json.dumps(content, indent=2))
    assert not fragment.snapshot.samples
    assert fragment.notes


def test_nvbandwidth_cells_sums_and_waived() -> None:
    fragment = parse_text("nvbandwidth", NVB)
    samples = fragment.snapshot.samples
    assert only(samples, "host_to_device_memcpy_ce", row="1", column="2").value == 312.11
    assert only(samples, "device_to_host_memcpy_ce", aggregate="sum").value == 607.26
    assert only(samples, "host_device_latency_sm", row="0").unit == "ns"
    assert fragment.snapshot.software.driver_version == "550.54.15"
    assert any("waived" in note for note in fragment.notes)
    assert not fragment.unplaced


def test_a_device_with_itself_is_no_measurement() -> None:
    text = "Running device_to_device_memcpy_write_ce.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n          0         1\n0      0.00    276.07\n1    276.19       N/A\n"
    assert sorted(s.value for s in parse_text("nvbandwidth", text).snapshot.samples) == [276.07, 276.19]


def test_nvbandwidth_json_between_garbage() -> None:
    case = {
        "name": "host_to_device_memcpy_ce",
        "status": "Passed",
        "sum": 12.39,
        "bandwidth_description": "memcpy CE (GB/s) ",
        "bandwidth_matrix": [["12.3964"]],
    }
    text = "WARNING: garbage {\n" + json.dumps({"nvbandwidth": {"testcases": [case]}}, indent=1) + "\nWARNING }}}{"
    assert [s.value for s in parse_text("nvbandwidth", text).snapshot.samples] == [12.3964, 12.39]


@settings(max_examples=40, deadline=None)
@given(mangled(NCCL))
def test_damaged_nccl_tests(text: str) -> None:
    check_references(parse_text("nccl_tests", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(IB))
def test_damaged_perftest(text: str) -> None:
    check_references(parse_text("ib_write_bw", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(NVB))
def test_damaged_nvbandwidth(text: str) -> None:
    check_references(parse_text("nvbandwidth", text), text)
