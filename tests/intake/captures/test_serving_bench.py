"""Serving benchmarks: every tool's result is read with its own units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Source
from kilter.facts.measure import ServingResult
from kilter.intake.captures.serving_bench import read_json
from kilter.intake.fragment import Fragment
from kilter.intake.read import read_paths
from mangle import check_references, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
SERVING = DATA / "serving"
VLLM = (DATA / "s057-vllm-bench-prefill-saturated" / "vllm-bench-serve.txt").read_text()
SWEEP = (DATA / "s066-genai-perf-vllm-sweep" / "benchmark-output.txt").read_text()
TABLE = (SERVING / "aiperf-table.txt").read_text()


def read(path: Path) -> list[ServingResult]:
    case = read_paths([str(path)])
    assert not case.snapshots
    return case.serving or []


def test_result_table_of_vllm() -> None:
    (one,) = read(DATA / "s057-vllm-bench-prefill-saturated" / "vllm-bench-serve.txt")
    assert (one.tool, one.concurrency, one.completed, one.failed) == ("vllm bench serve", 24, 100, 0)
    assert (one.input_tokens, one.output_tokens) == (4537.38, 116.18)
    assert one.ttft is not None
    assert (one.ttft.mean, one.ttft.median, one.ttft.p99) == pytest.approx((7.53565, 6.63345, 21.10743))
    assert one.itl is not None
    assert one.itl.median == pytest.approx(0.2024)
    assert one.input_throughput == pytest.approx(4401, rel=0.01)


def test_several_tables_in_one_file_are_several_results() -> None:
    found = read(SERVING / "vllm-console.txt")
    assert [one.completed for one in found] == [1, 2, 4]
    assert len({one.place for one in found}) == 3


def test_sglang_table_and_lines() -> None:
    (table,) = read(DATA / "s058-sglang-bench-8xb200-minimax" / "c016.txt")
    assert (table.tool, table.concurrency, table.concurrency_measured) == ("sglang bench_serving", 16, 13.67)
    assert table.e2e is not None
    assert table.e2e.p90 == pytest.approx(13.6907)
    (line,) = read(SERVING / "sglang.jsonl")
    assert (line.rate_asked, line.concurrency, line.completed) == (5.0, 256, 1000)
    assert line.ttft is not None
    assert line.ttft.median == pytest.approx(0.07641966750088613)


def test_infinity_is_no_rate() -> None:
    (one,) = read(SERVING / "sglang-no-output.jsonl")
    assert one.rate_asked is None
    assert one.output_tokens == 0


def test_older_keys_of_vllm_and_seconds_of_its_relatives() -> None:
    (legacy,) = read(SERVING / "vllm.json")
    assert (legacy.rate_asked, legacy.completed) == (10, 300)
    (seconds,) = read(DATA / "s068-tuning-glm5-concurrency" / "glm5_fp8_vllm_tp8_isl1024_osl128_conc4.json")
    assert seconds.ttft is not None
    assert seconds.ttft.median == pytest.approx(0.265, abs=1e-3)
    assert (seconds.model, seconds.input_tokens, seconds.output_tokens) == ("zai-org/GLM-5-FP8", 1024, 128)


def test_runs_of_perf_analyzer_keep_use_cases_apart() -> None:
    found = read(DATA / "s066-genai-perf-vllm-sweep" / "benchmark-output.txt")
    assert [one.concurrency for one in found] == [1, 1, 25, 25, 50, 50, 100, 100]
    assert [round(one.input_tokens or 0) for one in found] == [271, 8631, 270, 8633, 271, 8632, 271, 8630]
    assert found[-1].ttft is not None
    assert found[-1].ttft.p99 == pytest.approx(3.79383)
    assert found[-1].e2e is not None
    assert found[-1].e2e.mean == pytest.approx(7.434037)


def test_aiperf_table_csv_and_export() -> None:
    (table,) = read(SERVING / "aiperf-table.txt")
    assert (table.completed, table.output_throughput, table.request_throughput) == (711, 10944.03, 255.54)
    assert table.ttft is not None
    assert (table.ttft.mean, table.ttft.p99, table.ttft.maximum) == pytest.approx((0.01826, 0.06882, 0.10632))
    (report,) = read(SERVING / "aiperf.csv")
    assert (report.completed, report.output_throughput, report.output_tokens) == (50, 595.68, 498.06)
    (older,) = read(SERVING / "genai-perf.csv")
    assert older.itl is not None
    assert (older.itl.median, older.request_throughput) == (pytest.approx(0.011), 123)
    export = {
        "request_throughput": {"unit": "requests/sec", "avg": 4.5},
        "time_to_first_token": {"unit": "ms", "avg": 50.0, "p50": 40.0},
    }
    fragment = Fragment(Source(name="profile_export.json", tool=""))
    assert read_json("profile_export.json", json.dumps(export), fragment)
    (one,) = fragment.serving
    assert one.ttft is not None
    assert (one.request_throughput, one.ttft.mean, one.ttft.median) == (4.5, 0.05, 0.04)


def test_trtllm_bench() -> None:
    text = (
        "===========================================================\n= PERFORMANCE OVERVIEW\n===========================================================\n"
        "Request Throughput (req/sec):                     16.2583\nTotal Output Throughput (tokens/sec):             16258.3472\n"
        "Total Latency (ms):                               629830.3198\nAverage request latency (ms):                     62678.9133\n"
        "Average time-to-first-token [TTFT] (ms):          1937.5098\nAverage time-per-output-token [TPOT] (ms):        60.8022\n"
    )
    (one,) = parse_text("serving_bench", text).serving
    assert (one.tool, one.output_throughput, one.duration_s) == ("trtllm-bench", 16258.3472, pytest.approx(629.83, abs=0.01))
    assert one.ttft is not None
    assert one.ttft.mean == pytest.approx(1.9375098)


def test_inference_perf_is_in_seconds() -> None:
    (one,) = read(DATA / "s067-tuning-vllm-h100-four-configs" / "vllm" / "stage_6.json")
    assert (one.rate_asked, round(one.rate_sent or 0, 1), one.completed, one.failed) == (183.38, 106.5, 11002, 0)
    assert one.ttft is not None
    assert one.ttft.median == pytest.approx(2.8865, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(mangled(VLLM))
def test_damaged_table(text: str) -> None:
    check_references(parse_text("serving_bench", text), text)


@settings(max_examples=20, deadline=None)
@given(mangled(SWEEP[:6000]))
def test_damaged_sweep(text: str) -> None:
    check_references(parse_text("serving_bench", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(TABLE))
def test_damaged_box(text: str) -> None:
    check_references(parse_text("serving_bench", text), text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mean", "p99", "count", "avg", "unit", "latency", "throughput"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_KEYS = st.sampled_from(
    [
        "request_throughput",
        "duration",
        "load_summary",
        "successes",
        "failures",
        "mean_ttft_ms",
        "completed",
        "total_input_tokens",
        "max_concurrency",
        "request_rate",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_KEYS, _JSON))
def test_any_json_with_these_keys(content: dict[str, object]) -> None:
    fragment = Fragment(Source(name="x.json", tool=""))
    read_json("x.json", json.dumps(content), fragment)
    for one in fragment.serving:
        assert (one.completed or 0) >= 0
