"""What serving benchmarks tell: real results judged as their facts say, and near misses that must be silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.finding import Finding
from kilter.intake.read import read_paths

DATA = Path(__file__).parents[1] / "data"
FAMILIES = ("bench.", "serving.", "tuning.")


def judged(*paths: Path) -> list[Finding]:
    return [f for f in diagnose(read_paths([str(p) for p in paths])).findings if f.id.startswith(FAMILIES)]


def ids(found: list[Finding], least: str = "info") -> set[str]:
    return {f.id for f in found if least == "info" or f.severity.value != "info"}


def result(path: Path, **changes: Any) -> Path:
    """A healthy run of vLLM: 512 in, 256 out, 16 at once."""
    content = {
        "model_id": "m",
        "num_prompts": 400,
        "request_rate": "inf",
        "max_concurrency": 16,
        "duration": 60.0,
        "completed": 400,
        "failed": 0,
        "total_input_tokens": 400 * 512,
        "total_output_tokens": 400 * 256,
        "request_throughput": 6.67,
        "output_throughput": 1707.0,
        "mean_ttft_ms": 80.0,
        "median_ttft_ms": 70.0,
        "p99_ttft_ms": 300.0,
        "mean_tpot_ms": 9.0,
        "median_tpot_ms": 9.0,
        "p99_tpot_ms": 12.0,
        "mean_itl_ms": 9.0,
        "median_itl_ms": 8.5,
        "p99_itl_ms": 30.0,
        "mean_e2el_ms": 2400.0,
        "median_e2el_ms": 2390.0,
        "p99_e2el_ms": 3000.0,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return path


def test_healthy_run_is_silent(tmp_path: Path) -> None:
    assert judged(result(tmp_path / "run.json")) == []


@pytest.mark.parametrize(
    ("case", "loud"),
    [
        ("s057-vllm-bench-prefill-saturated", {"serving.prefill_bound", "serving.prefill_interference"}),
        ("s058-sglang-bench-8xb200-minimax", set()),
        ("s066-genai-perf-vllm-sweep", {"bench.mean_above_p99"}),
        ("s067-tuning-vllm-h100-four-configs", {"bench.load_generator_saturated"}),
        ("s068-tuning-glm5-concurrency", {"bench.queueing"}),
    ],
)
def test_real_results(case: str, loud: set[str]) -> None:
    assert ids(judged(DATA / case), "warning") == loud


# -- may the result be used


def test_mean_above_p99_is_told_and_below_is_not(tmp_path: Path) -> None:
    (found,) = judged(result(tmp_path / "a.json", mean_ttft_ms=400.0))
    assert (found.id, "late requests cost 132.0 s" in found.what) == ("bench.mean_above_p99", True)
    assert judged(result(tmp_path / "b.json", mean_ttft_ms=299.0)) == []


def test_few_requests_are_information(tmp_path: Path) -> None:
    few = result(tmp_path / "a.json", completed=40, num_prompts=40, total_input_tokens=40 * 512, total_output_tokens=40 * 256)
    assert {f.id: f.severity.value for f in judged(few)} == {"bench.too_few_requests": "info"}


@pytest.mark.parametrize(("failed", "severity"), [(4, "warning"), (40, "error")])
def test_failed_requests(tmp_path: Path, failed: int, severity: str) -> None:
    (found,) = judged(result(tmp_path / "a.json", failed=failed))
    assert (found.id, found.severity.value) == ("bench.failed_requests", severity)


def test_run_without_tokens_is_no_result() -> None:
    found = judged(DATA / "serving" / "sglang-no-output.jsonl")
    assert "bench.no_output" in ids(found, "warning")
    assert "serving.prefill_bound" not in ids(found)


def test_a_rate_below_the_one_asked_for_is_the_end_of_a_short_run(tmp_path: Path) -> None:
    assert judged(DATA / "serving" / "vllm.json") == []
    assert judged(DATA / "serving" / "sglang.jsonl") == []
    over = result(tmp_path / "a.json", request_rate=20.0, request_throughput=6.67)
    assert ids(judged(over), "warning") == {"bench.server_overloaded"}


def test_first_tokens_that_wait_tell_overload_from_the_end_of_a_short_run(tmp_path: Path) -> None:
    run: dict[str, Any] = {
        "request_rate": 10.0,
        "request_throughput": 6.17,
        "total_input_tokens": 400 * 67,
        "mean_tpot_ms": 260.0,
    }
    run |= {
        "median_tpot_ms": 280.0,
        "p99_tpot_ms": 600.0,
        "mean_e2el_ms": 40_000.0,
        "median_e2el_ms": 39_000.0,
        "p99_e2el_ms": 60_000.0,
    }
    assert judged(result(tmp_path / "a.json", **run)) == []
    (found,) = judged(result(tmp_path / "b.json", **run, mean_ttft_ms=9500.0, median_ttft_ms=5000.0, p99_ttft_ms=21_000.0))
    assert (found.id, found.what.rpartition("; ")[2]) == (
        "bench.server_overloaded",
        "the first token of 67 input tokens takes 5.0 s, 18 times the next ones",
    )


# -- what bounds the latency


def test_long_prompts_alone_are_no_queue(tmp_path: Path) -> None:
    long = {"total_input_tokens": 400 * 8000, "total_output_tokens": 400 * 100, "request_throughput": 2.0}
    # 16,000 input tokens a second: 0.5 s a prompt
    assert judged(result(tmp_path / "a.json", **long, mean_ttft_ms=900.0, median_ttft_ms=800.0, p99_ttft_ms=1300.0)) == []
    queued = judged(result(tmp_path / "b.json", **long, mean_ttft_ms=5000.0, median_ttft_ms=4500.0, p99_ttft_ms=9000.0))
    assert ids(queued, "warning") == {"serving.prefill_bound"}
    assert "9 prompts wait" in queued[0].what


def test_interference_needs_most_tokens_to_be_slow(tmp_path: Path) -> None:
    slow = {"total_input_tokens": 400 * 2048, "mean_itl_ms": 20.0, "p99_itl_ms": 60.0}
    assert ids(judged(result(tmp_path / "a.json", **slow, median_itl_ms=30.0))) == {"serving.prefill_interference"}
    assert judged(result(tmp_path / "b.json", **slow, median_itl_ms=12.0)) == []


# -- sweeps


def sweep(folder: Path, points: list[tuple[int, float, float, float]]) -> list[Finding]:
    """(concurrency, output tokens/s, median TTFT ms, median latency ms)"""
    for concurrency, rate, ttft, whole in points:
        result(
            folder / f"c{concurrency}.json",
            max_concurrency=concurrency,
            output_throughput=rate,
            request_throughput=rate / 256,
            median_ttft_ms=ttft,
            mean_ttft_ms=ttft,
            p99_ttft_ms=2 * ttft,
            median_e2el_ms=whole,
            mean_e2el_ms=whole,
            p99_e2el_ms=2 * whole,
        )
    return judged(folder)


def test_knee_is_where_throughput_stops(tmp_path: Path) -> None:
    (found,) = sweep(
        tmp_path, [(1, 100, 50, 2500), (8, 700, 60, 2900), (32, 1500, 90, 5400), (64, 1550, 120, 10500), (128, 1560, 200, 21000)]
    )
    assert (found.id, found.severity.value) == ("tuning.concurrency_knee", "info")
    assert found.what.startswith("knee at concurrency 32 ")


def test_a_sweep_that_still_gains_has_no_knee(tmp_path: Path) -> None:
    assert sweep(tmp_path, [(1, 100, 50, 2500), (8, 700, 60, 2900), (32, 1500, 90, 5400)]) == []


def test_queue_is_told_when_the_first_token_is_most_of_the_wait(tmp_path: Path) -> None:
    points = [(1, 100, 50, 2500), (8, 700, 60, 2900), (16, 720, 2000, 5600), (32, 725, 7000, 11000)]
    assert ids(sweep(tmp_path, points)) == {"tuning.concurrency_knee", "bench.queueing"}


def test_runs_of_different_lengths_are_no_sweep(tmp_path: Path) -> None:
    for concurrency, length in ((1, 512), (8, 2048), (32, 8192)):
        result(
            tmp_path / f"c{concurrency}.json",
            max_concurrency=concurrency,
            total_input_tokens=400 * length,
            output_throughput=700.0,
        )
    assert judged(tmp_path) == []


# -- configurations


def test_real_configurations_against_their_baseline() -> None:
    found = {f.id: f for f in judged(DATA / "s067-tuning-vllm-h100-four-configs") if f.id.startswith("tuning.")}
    assert set(found) == {
        "tuning.faster.prefix_caching",
        "tuning.faster.chunked_prefill",
        "tuning.faster.max_num_seqs",
        "tuning.slower.v0_engine",
    }
    assert "+68%" in found["tuning.faster.prefix_caching"].what
    assert any("changed together" in e.text for e in found["tuning.faster.prefix_caching"].evidence)
    assert found["tuning.faster.max_num_seqs"].confidence == "high"


def configuration(folder: Path, rates: list[float]) -> None:
    for number, rate in enumerate(rates):
        result(folder / "results" / f"run{number}.json", request_throughput=rate, output_throughput=rate * 256)


def test_a_gain_within_noise_is_none(tmp_path: Path) -> None:
    configuration(tmp_path / "baseline", [100.0, 98.0])
    configuration(tmp_path / "kv-cache-fp8", [102.0, 101.0])
    assert judged(tmp_path) == []
    configuration(tmp_path / "kv-cache-fp8", [112.0, 111.0])
    assert ids(judged(tmp_path)) == {"tuning.faster.quantization", "tuning.faster.kv_cache_dtype"}


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    configuration(tmp_path / "tp4", [100.0, 99.0])
    configuration(tmp_path / "tp8", [150.0, 149.0])
    assert judged(tmp_path) == []


def test_one_run_a_configuration_proves_nothing(tmp_path: Path) -> None:
    configuration(tmp_path / "baseline", [100.0])
    configuration(tmp_path / "eagle", [150.0])
    assert judged(tmp_path) == []
