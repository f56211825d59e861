"""Results of serving benchmarks: ``vllm bench serve``, SGLang's bench_serving, GenAI-Perf and AIPerf, inference-perf, trtllm-bench.

Formats: vllm-project/vllm vllm/benchmarks/serve.py, sgl-project/sglang python/sglang/bench_serving.py, triton-inference-server/perf_analyzer
genai-perf, ai-dynamo/aiperf README, kubernetes-sigs/inference-perf, NVIDIA/TensorRT-LLM docs (trtllm-bench), NVIDIA/dgxc-benchmarking.
Latencies become seconds; inference-perf prints seconds without a unit, the others milliseconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from kilter.facts.base import Ref
from kilter.facts.measure import Latency, ServingResult
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LATENCIES = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "E2E LATENCY": "e2e", "E2EL": "e2e"}
_POINTS = {"mean": "mean", "median": "median", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "maximum"}
_TABLE_END = re.compile(r"={20,}\s*$")
_RESULT = re.compile(r"=+ Serving Benchmark Result =+\s*$")
_LINE = re.compile(
    r"(?P<name>[A-Za-z][^:|]{1,80}?)\s*:\s+(?P<value>-?[\d,]+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?|inf|nan|[\w./-]{1,120})\s*$"
)
_STATISTIC = re.compile(r"(?P<point>Mean|Median|Max|P\d{1,2}(?:\.\d)?) (?P<kind>TTFT|TPOT|ITL|E2E Latency|E2EL) \(ms\)$", re.I)
_COUNTS: dict[str, str] = {
    "maximum request concurrency": "concurrency",
    "max request concurrency": "concurrency",
    "concurrency": "concurrency_measured",
    "traffic request rate": "rate_asked",
    "request rate configured (rps)": "rate_asked",
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration_s",
    "request throughput (req/s)": "request_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "output token throughput (tok/s)": "output_throughput",
}
_BOXED = re.compile(r"\s*[│|┃] *(?P<name>[A-Z][^│|┃]{2,60}?) *[│|┃](?P<cells>.+)[│|┃]\s*$")
_BOX_HEAD = re.compile(r"\s*[┃|│] *(?:Statistic|Metric) *[┃|│](?P<cells>.+)[┃|│]\s*$")
_PROFILE: dict[str, str] = {
    "time to first token": "ttft",
    "inter token latency": "itl",
    "request latency": "e2e",
    "output sequence length": "output_tokens",
    "output token count": "output_tokens",
    "input sequence length": "input_tokens",
    "output token throughput": "output_throughput",
    "request throughput": "request_throughput",
    "request count": "completed",
}
_TRTLLM: dict[str, str] = {
    "number of requests": "completed",
    "number of concurrent requests": "concurrency_measured",
    "average input length (tokens)": "input_tokens",
    "average output length (tokens)": "output_tokens",
    "request throughput (req/sec)": "request_throughput",
    "total output throughput (tokens/sec)": "output_throughput",
    "total latency (ms)": "duration_ms",
    "average request latency (ms)": "e2e",
    "average time-to-first-token [ttft] (ms)": "ttft",
    "average time-per-output-token [tpot] (ms)": "tpot",
}


def number(value: object) -> float | None:
    """A finite number of text or JSON, else None."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value.replace(",", "") if isinstance(value, str) else value)  # type: ignore[arg-type]  # anything else raises
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _put(result: ServingResult, field: str, value: object, ref: Ref) -> None:
    found = number(value)
    if found is None or found < 0:
        return
    result.put(field, int(found) if field in ("asked", "completed", "failed") else found, ref)


def _latency(result: ServingResult, kind: str, point: str, value: object, scale: float, ref: Ref) -> None:
    """``scale``: what makes seconds of the value."""
    field, found = _POINTS.get(point.lower()), number(value)
    if field is None or found is None or found < 0:
        return
    latency = getattr(result, kind) or Latency(origin={"": ref})
    latency.put(field, found * scale, ref)
    result.put(kind, latency, ref)


def _mean(result: ServingResult, total: object, field: str, ref: Ref) -> None:
    found = number(total)
    if found is not None and result.completed:
        _put(result, field, found / result.completed, ref)


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.serving``: one result for each table of the block."""
    head = next((line.strip() for line in block.lines if line.strip("= \t\r")), "")
    if _RESULT.match(head):
        _result_table(block, fragment)
    elif head.startswith(("= PERFORMANCE OVERVIEW", "= REQUEST DETAILS")):
        _trtllm(block, fragment)
    elif head.startswith(("Concurrency:", "Request concurrency:", "Starting the benchmark")) or "TOKEN-LEVEL METRICS" in head:
        _token_level(block, fragment)
    else:
        _profile(block, fragment)


def _add(fragment: Fragment, result: ServingResult) -> None:
    if result.request_throughput is None and result.output_throughput is None and result.ttft is None and result.e2e is None:
        fragment.note("a benchmark result without throughput and latency: cut short?")
        return
    fragment.serving.append(result)


def _new(fragment: Fragment, tool: str, line: int) -> ServingResult:
    return ServingResult(tool=tool, place=f"{fragment.source.name}:{line}", origin={"": fragment.ref(line)})


def _result_table(block: Block, fragment: Fragment) -> None:
    result: ServingResult | None = None
    totals: dict[str, str] = {}
    for line, raw in lines(block, fragment):
        text = raw.strip()
        ref = fragment.ref(line)
        if _RESULT.match(text):
            if result is not None:
                _finish(fragment, result, totals)
            result, totals = _new(fragment, "vllm bench serve", line), {}
        elif result is None or not text or text.startswith("---"):
            continue
        elif _TABLE_END.match(text):
            _finish(fragment, result, totals)
            result = None
        elif match := _LINE.match(text):
            name, value = match["name"].strip(), match["value"]
            if found := _STATISTIC.match(name):
                _latency(result, _LATENCIES[found["kind"].upper()], found["point"], value, 1e-3, ref)
            elif field := _COUNTS.get(name.lower()):
                _put(result, field, value, ref)
            elif name.lower() in ("total input tokens", "total generated tokens"):
                totals["input_tokens" if "input" in name.lower() else "output_tokens"] = value
            elif name == "Backend":
                result.tool = "sglang bench_serving" if value.startswith("sglang") else f"bench_serving ({value})"
        else:
            fragment.unparsed(line, raw)
    if result is not None:
        _finish(fragment, result, totals)


def _finish(fragment: Fragment, result: ServingResult, totals: dict[str, str]) -> None:
    for field, value in totals.items():
        _mean(result, value, field, result.origin[""])
    if result.input_throughput is None and result.input_tokens and result.request_throughput:
        result.input_throughput = result.input_tokens * result.request_throughput
    _add(fragment, result)


def _trtllm(block: Block, fragment: Fragment) -> None:
    result = _new(fragment, "trtllm-bench", block.first_line)
    for line, raw in lines(block, fragment):
        match = _LINE.match(raw.strip())
        field = _TRTLLM.get(match["name"].strip().lower()) if match else None
        if match is None or field is None:
            continue
        ref = fragment.ref(line)
        if field in ("ttft", "tpot", "e2e"):
            _latency(result, field, "mean", match["value"], 1e-3, ref)
        elif field == "duration_ms":
            _put(result, "duration_s", (number(match["value"]) or 0.0) / 1000, ref)
        else:
            _put(result, field, match["value"], ref)
    _add(fragment, result)


_HEADLINE = re.compile(r"(?P<name>Concurrency|Request concurrency|Input Sequence Length): (?P<value>\d{1,9})\s*$")
_TOKEN_LINE = re.compile(
    r"(?P<name>(?:Input|Output) Tokens/sec|Avg (?:Input|Output) Seq Length): +(?P<value>[\d.,]{1,20})(?: tokens)?\s*$"
)
_SECTION = re.compile(r"(?:Time to First Token|Inter-Token Latency) \((?P<kind>TTFT|ITL)\):")
_POINT = re.compile(r"(?P<point>Avg|P50|P90|P95|P99|Max): +(?P<value>[\d.,]{1,20}) ms\s*$")
_REQUESTS = re.compile(r"Request count: (?P<count>\d{1,9})\s*$")
_THROUGHPUT = re.compile(r"Throughput: (?P<rate>[\d.]{1,20}) infer/sec\s*$")
_CLIENT = re.compile(r"(?P<point>Avg|p50|p90|p95|p99) latency: (?P<value>\d{1,15}) usec")
_TOKEN_FIELDS = {
    "Input Tokens/sec": "input_throughput",
    "Output Tokens/sec": "output_throughput",
    "Avg Input Seq Length": "input_tokens",
    "Avg Output Seq Length": "output_tokens",
}


def _token_level(block: Block, fragment: Fragment) -> None:
    """perf_analyzer's runs with a summary of tokens behind each."""
    result: ServingResult | None = None
    kind = ""
    headline: dict[str, str] = {}
    for line, raw in lines(block, fragment):
        text = raw.strip()
        ref = fragment.ref(line)
        if match := _HEADLINE.match(text):
            if match["name"] == "Concurrency" and result is not None and (result.itl or result.ttft):
                _add(fragment, result)
                result = None
            headline[match["name"]] = match["value"]
            continue
        if result is None and (_REQUESTS.match(text) or _TOKEN_LINE.match(text) or _THROUGHPUT.match(text)):
            result, kind = _new(fragment, "perf_analyzer", line), ""
            _put(result, "concurrency", headline.get("Request concurrency") or headline.get("Concurrency"), ref)
            _put(result, "input_tokens_asked", headline.get("Input Sequence Length"), ref)
        if result is None:
            continue
        if match := _REQUESTS.match(text):
            _put(result, "completed", match["count"], ref)
        elif match := _THROUGHPUT.match(text):
            _put(result, "request_throughput", match["rate"], ref)
        elif match := _CLIENT.match(text):
            _latency(result, "e2e", match["point"].replace("Avg", "mean"), match["value"], 1e-6, ref)
        elif match := _TOKEN_LINE.match(text):
            _put(result, _TOKEN_FIELDS[match["name"]], match["value"], ref)
        elif match := _SECTION.match(text):
            kind = match["kind"].lower()
        elif kind and (match := _POINT.match(text)):
            _latency(result, kind, match["point"].replace("Avg", "mean"), match["value"], 1e-3, ref)
    if result is not None:
        _add(fragment, result)


def _profile(block: Block, fragment: Fragment) -> None:
    """Tables and CSV of GenAI-Perf and AIPerf: a row a metric, a column a statistic. CSV has a second table with one value a row."""
    result: ServingResult | None = None
    columns: list[str] = []
    for line, raw in lines(block, fragment):
        ref = fragment.ref(line)
        text = raw.strip()
        if match := _BOX_HEAD.match(raw):
            cells = re.split(r"[┃|│]", match["cells"])
        elif text.startswith(("Metric,", "Statistic,")):
            cells = text.split(",")[1:]
        else:
            if result is not None and columns:
                _metric(result, columns, raw, ref)
            continue
        columns = [cell.strip().lower() for cell in cells]
        if result is None or "value" not in columns:
            if result is not None:
                _add(fragment, result)
            result = _new(fragment, "GenAI-Perf or AIPerf", line)
    if result is not None:
        _add(fragment, result)


def _metric(result: ServingResult, columns: list[str], raw: str, ref: Ref) -> None:
    if match := _BOXED.match(raw):
        name, cells = match["name"], re.split(r"[│|┃]", match["cells"])
    elif raw.count(",") >= 1:
        name, *cells = [cell.strip('" ') for cell in re.findall(r'"[^"]*"|[^,]+', raw)]
    else:
        return
    base = re.sub(r" ?\(.*", "", name).strip().lower()
    field = _PROFILE.get(base)
    if field is None:
        return
    scale = 1.0 if "(s)" in name else 1e-6 if "(us)" in name else 1e-3
    values = dict(zip(columns, cells, strict=False))
    if field in ("ttft", "itl", "e2e"):
        for column, value in values.items():
            _latency(result, field, column.replace("avg", "mean"), value.strip(), scale, ref)
    else:
        _put(result, field, values.get("avg", values.get("value", "")).strip(), ref)


# -- JSON


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a JSON document, or of each line of JSON lines. ``Infinity`` is no JSON, and is written by SGLang."""
    try:
        whole = json.loads(text)
        if isinstance(whole, dict):
            yield 1, whole
            return
    except (ValueError, RecursionError):
        pass
    for line, raw in enumerate(text.split("\n"), 1):
        if raw.lstrip().startswith("{"):
            try:
                one = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(one, dict):
                yield line, one


def read_json(name: str, text: str, fragment: Fragment) -> bool:
    """Read a result file; whether it is one."""
    found = False
    for line, content in _objects(text):
        if "load_summary" in content and isinstance(content.get("successes"), dict):
            result = _inference_perf(content, fragment, line)
        elif isinstance(content.get("request_throughput"), dict):
            result = _profile_json(content, fragment, line)
        elif "request_throughput" in content and "duration" in content:
            result = _vllm_json(content, fragment, line)
        else:
            continue
        found = True
        result.place = name if line == 1 else f"{name}:{line}"
        _add(fragment, result)
    return found


def _vllm_json(content: dict[str, Any], fragment: Fragment, line: int) -> ServingResult:
    backend = str(content.get("backend") or content.get("endpoint_type") or "")
    result = _new(fragment, "sglang bench_serving" if backend.startswith("sglang") else "vllm bench serve", line)
    ref = fragment.ref(line)
    if isinstance(content.get("model_id"), str):
        result.model = content["model_id"]
    for key, field in (
        ("max_concurrency", "concurrency"),
        ("concurrency", "concurrency_measured"),
        ("request_rate", "rate_asked"),
        ("num_prompts", "asked"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("duration", "duration_s"),
        ("request_throughput", "request_throughput"),
        ("input_throughput", "input_throughput"),
        ("output_throughput", "output_throughput"),
        ("random_input_len" if str(content.get("dataset_name")).startswith("random") else "", "input_tokens_asked"),
    ):
        _put(result, field, content.get(key), ref)
    if result.failed is None and result.asked is not None and result.completed is not None and result.asked > result.completed:
        result.failed = result.asked - result.completed
    _mean(result, content.get("total_input_tokens"), "input_tokens", ref)
    _mean(result, content.get("total_output_tokens", content.get("total_output")), "output_tokens", ref)
    if content.get("total_output_tokens_retokenized") == 0 and (result.output_tokens or 0) > 0:
        fragment.note(f"{fragment.source.name}: no output token came back; the throughput counts what was asked for")
        result.output_tokens = 0.0
    for kind, names in (("ttft", ("ttft",)), ("tpot", ("tpot",)), ("itl", ("itl",)), ("e2e", ("e2el", "e2e_latency"))):
        for point in _POINTS:
            for key in names:
                _latency(result, kind, point, content.get(f"{point}_{key}_ms"), 1e-3, ref)
                _latency(result, kind, point, content.get(f"{point}_{key}"), 1.0, ref)
    if result.input_throughput is None and result.input_tokens and result.request_throughput:
        result.input_throughput = result.input_tokens * result.request_throughput
    return result


def _inference_perf(content: dict[str, Any], fragment: Fragment, line: int) -> ServingResult:
    result = _new(fragment, "inference-perf", line)
    ref = fragment.ref(line)
    load, good, bad = content["load_summary"], content["successes"], content.get("failures")
    load = load if isinstance(load, dict) else {}
    _put(result, "rate_asked", load.get("requested_rate"), ref)
    _put(result, "rate_sent", load.get("achieved_rate"), ref)
    _put(result, "asked", load.get("count"), ref)
    _put(result, "duration_s", load.get("send_duration"), ref)
    _put(result, "completed", good.get("count"), ref)
    _put(result, "failed", bad.get("count") if isinstance(bad, dict) else None, ref)
    rates = good.get("throughput") if isinstance(good.get("throughput"), dict) else {}
    _put(result, "request_throughput", rates.get("requests_per_sec", good.get("rate")), ref)
    _put(result, "input_throughput", rates.get("input_tokens_per_sec"), ref)
    _put(result, "output_throughput", rates.get("output_tokens_per_sec"), ref)
    latencies = good.get("latency") if isinstance(good.get("latency"), dict) else good
    for kind, key in (
        ("ttft", "time_to_first_token"),
        ("tpot", "time_per_output_token"),
        ("itl", "inter_token_latency"),
        ("e2e", "request_latency"),
    ):
        points = latencies.get(key)
        for point, value in points.items() if isinstance(points, dict) else ():
            _latency(result, kind, str(point), value, 1.0, ref)
    for field, key in (("input_tokens", "prompt_len"), ("output_tokens", "output_len")):
        lengths = good.get(key)
        _put(result, field, lengths.get("mean") if isinstance(lengths, dict) else None, ref)
    return result


def _profile_json(content: dict[str, Any], fragment: Fragment, line: int) -> ServingResult:
    """profile_export_genai_perf.json and profile_export_aiperf.json: ``{metric: {unit, avg, p99, ...}}``."""
    result = _new(fragment, "GenAI-Perf or AIPerf", line)
    ref = fragment.ref(line)
    for key, entry in content.items():
        field = _PROFILE.get(key.replace("_", " "))
        if field is None or not isinstance(entry, dict):
            continue
        if field in ("ttft", "itl", "e2e"):
            scale = {"s": 1.0, "us": 1e-6, "ns": 1e-9}.get(str(entry.get("unit")), 1e-3)
            for point, value in entry.items():
                _latency(result, field, str(point).replace("avg", "mean"), value, scale, ref)
        else:
            _put(result, field, entry.get("avg"), ref)
    return result
