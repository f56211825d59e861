"""Results of serving benchmarks: whether they may be used, what bounds the latency, and which of several runs or configurations is better.

Definitions: TTFT, time to the first token; TPOT, time a token after the first; ITL, time between tokens. Requests in flight = rate x latency
(Little's law). Nothing is judged by an absolute limit: what a service needs is not in the file.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import Latency, ServingResult

_HINT = "vllm bench serve --save-result, sglang.bench_serving --output-file, aiperf profile, inference-perf: the result files"
_VLLM = "vllm-project/vllm docs: optimization and tuning (chunked prefill, max_num_batched_tokens, prefix caching)"
_SGLANG = "sgl-project/sglang docs: hyperparameter tuning (chunked-prefill-size, schedule policy)"
#: Runs are of one workload when their mean lengths differ by no more than this part.
SAME_LENGTH = 0.06
#: A run with this part of the best throughput has reached it.
PLATEAU = 0.9
#: Differences below this are within what runs of one configuration differ by.
NOISE = 0.03


class _Run(NamedTuple):
    configuration: str  # the folder that tells it from other runs, "" where all lie together
    result: ServingResult

    @property
    def label(self) -> str:
        name = self.result.place.rsplit("/", 1)[-1]
        return f"{self.configuration}/{name}" if self.configuration else name


def _configurations(folders: list[tuple[str, ...]]) -> list[str]:
    """What tells folders apart: their paths without what all have in common in front and behind (a/x/results and a/y/results are x and y)."""
    least = min(len(folder) for folder in folders)
    front = next((i for i in range(least) if len({folder[i] for folder in folders}) > 1), least)
    back = next((i for i in range(least - front) if len({folder[-1 - i] for folder in folders}) > 1), least - front)
    return ["/".join(folder[front : len(folder) - back]) for folder in folders]


def _runs(ctx: Context) -> list[_Run]:
    found = ctx.case.serving
    if not found:
        raise ctx.missing("results of a serving benchmark", _HINT)
    names = _configurations([tuple(result.place.split("/")[:-1]) for result in found])
    return [_Run(name, result) for name, result in zip(names, found, strict=True)]


def _line(run: _Run, text: str) -> Evidence:
    return Evidence(text, run.result.place)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms" if value < 0.1 else f"{value * 1000:.0f} ms"


def _typical(latency: Latency | None) -> float | None:
    return None if latency is None else latency.median if latency.median is not None else latency.mean


def _workload(run: _Run) -> tuple[str, str | None]:
    return run.result.tool, run.result.model


def _alike(a: ServingResult, b: ServingResult) -> bool:
    """Whether two runs had requests of like lengths, as far as both tell."""
    pairs = ((a.input_tokens, b.input_tokens), (a.output_tokens, b.output_tokens))
    # Outputs end where the model ends them, and so differ more than inputs do.
    return all(
        x is None or y is None or abs(x - y) <= limit * max(x, y) for (x, y), limit in zip(pairs, (SAME_LENGTH, 0.2), strict=True)
    )


def _groups(runs: Iterable[_Run]) -> list[list[_Run]]:
    """Runs of one tool, model and workload."""
    groups: list[list[_Run]] = []
    for run in runs:
        for group in groups:
            if _workload(group[0]) == _workload(run) and _alike(group[0].result, run.result):
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _by_concurrency(group: list[_Run]) -> list[_Run]:
    """A sweep: runs at three or more limits of concurrency in one configuration, the lowest first; of repeats the median one."""
    found: dict[float, list[_Run]] = {}
    for run in group:
        if run.result.concurrency and run.result.output_throughput:
            found.setdefault(run.result.concurrency, []).append(run)
    runs = [sorted(same, key=lambda r: r.result.output_throughput or 0.0)[len(same) // 2] for _, same in sorted(found.items())]
    return runs if len(runs) >= 3 else []


def _sweeps(runs: list[_Run]) -> Iterator[list[_Run]]:
    for configuration in dict.fromkeys(run.configuration for run in runs):
        for group in _groups(run for run in runs if run.configuration == configuration):
            if sweep := _by_concurrency(group):
                yield sweep


def _in_words(result: ServingResult) -> str:
    parts = [
        f"{value:.0f} {word} tokens"
        for value, word in ((result.input_tokens, "input"), (result.output_tokens, "output"))
        if value
    ]
    return " and ".join(parts)


@rule(
    "bench.mean_above_p99",
    "A few requests do not spoil the mean",
    scope="case",
    family="bench",
    sop="",
    hint=_HINT,
    sources=("a mean above the 99th percentile needs less than one request in a hundred to be very late",),
    action="Use percentiles; send warm-up requests first (--num-warmups, warmup_request_count, --warmup-requests) and repeat the run.",
    also=("bench.too_few_requests",),
)
def outlier(case: Case, ctx: Context) -> Iterator[Finding]:
    """The mean of a latency is above its 99th percentile: one or a few requests, mostly the first ones (compilation, cold caches), took very long.

    A 99th percentile of fewer than a hundred requests is its maximum, which is told as information.
    """
    for run in _runs(ctx):
        result = run.result
        few = result.completed is not None and result.completed < 100
        for name in ("ttft", "tpot", "itl", "e2e"):
            latency: Latency | None = getattr(result, name)
            if latency is None or latency.mean is None or latency.p99 is None or not latency.p99 > 0:
                continue
            if latency.mean > latency.p99 * 1.02:
                extra = (
                    f"; the late requests cost {_seconds((latency.mean - (latency.median or latency.p99)) * result.completed)} together"
                    if result.completed
                    else ""
                )
                yield ctx.finding(
                    "warning",
                    f"mean {name.upper()} {_seconds(latency.mean)} is above P99 {_seconds(latency.p99)}: a few requests were very late{extra}",
                    subject=Subject("job", run.label),
                    evidence=[_line(run, f"{name.upper()}: mean {_seconds(latency.mean)}, P99 {_seconds(latency.p99)}")],
                    causes=[
                        Cause(
                            "the first requests: compilation, CUDA graphs, cold caches, connection set-up",
                            "likely",
                            "a second run without restart",
                        )
                    ],
                )
        if few and any(
            getattr(result, name) is not None and getattr(result, name).p99 is not None for name in ("ttft", "e2e", "itl")
        ):
            yield ctx.finding(
                "info",
                f"P99 of {result.completed} requests is their maximum",
                id="bench.too_few_requests",
                subject=Subject("job", run.label),
                evidence=[_line(run, f"{result.completed} requests completed")],
                action="For a P99 send some hundred requests.",
            )


@rule(
    "bench.failed_requests",
    "All requests of a benchmark succeed",
    scope="case",
    family="bench",
    hint=_HINT,
    sources=("failed requests are in no latency and no throughput of these tools",),
    action="Read the server's log and the client's first error; a run with failures is no result.",
    also=("bench.no_output",),
)
def failures(case: Case, ctx: Context) -> Iterator[Finding]:
    """Requests failed, or came back without a token: what is left is faster than the service."""
    for run in _runs(ctx):
        result = run.result
        total = (result.completed or 0) + (result.failed or 0)
        if result.failed:
            yield ctx.finding(
                "error" if result.failed >= 0.05 * total else "warning",
                f"{result.failed} of {total} requests failed",
                subject=Subject("job", run.label),
                evidence=[_line(run, f"failed {result.failed}, completed {result.completed or 0}")],
            )
        silent = result.completed and (
            result.output_tokens == 0 or (_typical(result.ttft) == 0 and (result.output_tokens or 0) > 1)
        )
        if silent:
            yield ctx.finding(
                "error",
                "requests came back without tokens: their throughput counts what was asked for",
                id="bench.no_output",
                subject=Subject("job", run.label),
                evidence=[_line(run, f"TTFT 0, {result.completed} requests counted as complete")],
                causes=[
                    Cause(
                        "the server refused them (too long an input, wrong endpoint) and the client took that for an answer",
                        "likely",
                        "one request by curl",
                    )
                ],
            )


@rule(
    "bench.workload_differs",
    "A benchmark sends what was asked for",
    scope="case",
    family="bench",
    hint=_HINT,
    sources=("NVIDIA/dgxc-benchmarking example: 4096 tokens asked, 8630 sent",),
    action="Name the measured lengths beside the result; compare only runs whose measured lengths agree.",
)
def workload(case: Case, ctx: Context) -> Iterator[Finding]:
    """Inputs are more than half longer or shorter than the length asked for, so the run is of another workload than its name says."""
    told: set[tuple[str, float, float]] = set()
    for run in _runs(ctx):
        asked, sent = run.result.input_tokens_asked, run.result.input_tokens
        if not asked or not sent or 0.5 <= sent / asked <= 1.5 or run.result.output_tokens == 0:
            continue
        key = (run.configuration, asked, round(sent, -1))
        if key not in told:
            told.add(key)
            yield ctx.finding(
                "info",
                f"inputs have {sent:.0f} tokens on average, {asked:.0f} were asked for",
                subject=Subject("job", run.label),
                evidence=[_line(run, f"measured {sent:.0f} tokens")],
                causes=[Cause("another tokenizer, a chat template, or a random range of lengths", "likely")],
            )


@rule(
    "serving.prefill_bound",
    "Prompts do not wait for each other",
    scope="case",
    family="serving",
    hint=_HINT,
    sources=(_VLLM, _SGLANG),
    action="Fewer requests at once, prefix caching (--enable-prefix-caching) where prompts share a beginning, or more prefill capacity (TP, replicas, disaggregation).",
    also=("serving.prefill_interference",),
)
def prefill(case: Case, ctx: Context) -> Iterator[Finding]:
    """One run with long prompts and short answers whose first tokens wait for several other prompts; and tokens that wait for prompts.

    At the run's own rate of input tokens a prompt takes a known time; a TTFT of three times that and more than a second is a queue of prompts.
    Runs of a sweep are judged together, by bench.queueing. Tokens wait for prompts when most of them are slower than the mean: steps with and
    without a piece of a prompt.
    """
    runs = _runs(ctx)
    swept = {id(run.result) for sweep in _sweeps(runs) for run in sweep}
    for run in runs:
        result = run.result
        concurrency = result.concurrency or result.concurrency_measured or 0
        ttft = _typical(result.ttft)
        if id(result) in swept or not result.input_tokens or not result.output_tokens or (result.completed or 0) < 20:
            continue
        ratio = result.input_tokens / result.output_tokens
        alone = result.input_tokens / result.input_throughput if result.input_throughput else None
        if (
            ttft is not None
            and alone
            and ratio >= 8
            and ttft >= 1
            and ttft >= 3 * alone
            and (concurrency > 1 or result.rate_asked)
        ):
            yield ctx.finding(
                "warning",
                f"TTFT {_seconds(ttft)}: a prompt takes {_seconds(alone)} at this rate, so {ttft / alone:.0f} prompts wait in line; {ratio:.0f} input tokens an output token",
                subject=Subject("job", run.label),
                evidence=[
                    _line(
                        run,
                        f"{result.input_tokens:.0f} input and {result.output_tokens:.0f} output tokens a request; {result.input_throughput:.0f} input tokens/s",
                    ),
                    _line(
                        run,
                        f"TTFT typical {_seconds(ttft)}"
                        + (f", P99 {_seconds(result.ttft.p99)}" if result.ttft and result.ttft.p99 else ""),
                    ),
                ],
                causes=[
                    Cause(
                        "prefill takes the whole capacity",
                        "likely",
                        "TTFT of the same prompts at concurrency 1; input tokens/s stay flat with more concurrency",
                    ),
                    Cause("the scheduler lets decoding go first", "possible", "max_num_batched_tokens, chunked-prefill-size"),
                ],
                missing=["the same at concurrency 1"],
                confidence="medium",
            )
        itl = result.itl
        if itl is None or itl.mean is None or itl.median is None or concurrency <= 1 or ratio < 2:
            continue
        if itl.median >= 1.2 * itl.mean:
            yield ctx.finding(
                "warning",
                f"most tokens wait for prompts: median ITL {_seconds(itl.median)} above the mean {_seconds(itl.mean)}",
                id="serving.prefill_interference",
                subject=Subject("job", run.label),
                evidence=[
                    _line(
                        run,
                        f"ITL: mean {_seconds(itl.mean)}, median {_seconds(itl.median)}"
                        + (f", P99 {_seconds(itl.p99)}" if itl.p99 else ""),
                    )
                ],
                causes=[
                    Cause(
                        "steps that decode and prefill a piece of a prompt take several times as long as steps that only decode",
                        "likely",
                        "a smaller max_num_batched_tokens (vLLM) or chunked-prefill-size (SGLang) lowers ITL and raises TTFT",
                    )
                ],
                action="Lower max_num_batched_tokens or chunked-prefill-size for smoother tokens, or separate prefill from decode.",
                confidence="medium",
            )


@rule(
    "bench.load_generator_saturated",
    "The client sends as fast as it was told to",
    scope="case",
    family="bench",
    hint=_HINT,
    sources=("kubernetes-sigs/inference-perf: requested_rate and achieved_rate", "Little's law"),
    action="Count these points as the largest rate of the server, not as results at the rate asked for; for latency at that rate let more requests be in flight.",
    also=("bench.server_overloaded",),
)
def client(case: Case, ctx: Context) -> Iterator[Finding]:
    """The client sent less than 95 % of the rate asked for, because its own limit of requests in flight was reached: the latencies of such points
    are held down by the client. A server that completes less than what was sent is overloaded, and its latencies grow with the length of the run."""
    held: dict[str, list[_Run]] = {}
    judged = False
    for run in _runs(ctx):
        result = run.result
        judged = judged or result.rate_asked is not None
        if result.rate_asked and result.rate_sent is not None and result.rate_sent < 0.95 * result.rate_asked:
            held.setdefault(run.configuration, []).append(run)
        elif (
            result.rate_asked
            and result.request_throughput
            and result.completed
            and (latency := _typical(result.e2e) or _longest(result))
        ):
            # The run ends when the last answer is there: that alone lowers the rate of short runs.
            possible = result.completed / (result.completed / result.rate_asked + latency)
            waits = _waits(result) if result.request_throughput < 0.85 * result.rate_asked else ""
            if waits or result.request_throughput < 0.85 * possible:
                yield ctx.finding(
                    "warning",
                    f"{result.request_throughput:.1f} of {result.rate_asked:g} requests/s were completed: the server is overloaded{waits}",
                    id="bench.server_overloaded",
                    subject=Subject("job", run.label),
                    evidence=[_line(run, f"asked {result.rate_asked:g} requests/s, completed {result.request_throughput:.2f}")],
                    causes=[
                        Cause(
                            "more requests than the server can take: the queue grows until the run ends",
                            "likely",
                            "a longer run has longer latencies",
                        )
                    ],
                    action="Read it as the largest rate of this server; measure latencies below it.",
                )
    if not judged:
        raise ctx.skip("no rate was asked for")
    for configuration, runs in held.items():
        flight = [
            r.result.rate_sent * latency
            for r in runs
            if r.result.rate_sent and (latency := r.result.e2e.mean if r.result.e2e and r.result.e2e.mean else None)
        ]
        usual = statistics.median(flight) if flight else None
        alike = usual is not None and len(flight) >= 2 and max(flight) - min(flight) <= 0.2 * usual
        yield ctx.finding(
            "warning",
            f"{len(runs)} run(s) asked for up to {max(r.result.rate_asked or 0 for r in runs):.0f} requests/s and sent at most {max(r.result.rate_sent or 0 for r in runs):.0f}"
            + (f"; about {usual:.0f} requests were in flight in each: the client's limit" if alike else ""),
            subject=Subject("job", configuration or "benchmark"),
            evidence=[_line(r, f"asked {r.result.rate_asked:.1f}, sent {r.result.rate_sent:.1f} requests/s") for r in runs[:6]],
            causes=[
                Cause(
                    "the limit of workers and requests in flight of the client",
                    "likely" if alike else "possible",
                    "rate x latency is the same in all of them",
                ),
                Cause("the client's CPU or network", "possible", "CPU of the client's host"),
            ],
        )


def _waits(result: ServingResult) -> str:
    """That the first token of prompts that are not long takes seconds, and as long as ten others: it waits for its turn. Empty else."""
    first, token = _typical(result.ttft), _typical(result.tpot) or _typical(result.itl)
    if not first or not token or not result.input_tokens or not result.output_tokens:
        return ""
    if first < 1 or first < 10 * token or result.input_tokens >= 8 * result.output_tokens:
        return ""
    return f"; the first token of {result.input_tokens:.0f} input tokens takes {_seconds(first)}, {first / token:.0f} times the next ones"


def _longest(result: ServingResult) -> float | None:
    """Latency of a request where it is not printed."""
    first, token = _typical(result.ttft), _typical(result.tpot)
    if first is None or token is None or not result.output_tokens:
        return None
    return first + token * max(result.output_tokens - 1, 0)


@rule(
    "tuning.concurrency_knee",
    "Concurrency ends where throughput does",
    scope="case",
    family="serving",
    hint=_HINT,
    sources=("queueing theory: beyond the knee latency grows with the number of requests, throughput does not",),
    action="Limit the requests in flight near the knee (--max-num-seqs, --max-running-requests, or the gateway), by input length where workloads differ.",
    also=("bench.queueing",),
)
def knee(case: Case, ctx: Context) -> Iterator[Finding]:
    """The smallest concurrency with 90 % of the best throughput of a sweep, when a larger one costs half as much latency again. Where the first
    token takes a fifth of the whole and more than twice what it takes at the knee, the queue is what is measured."""
    sweeps = list(_sweeps(_runs(ctx)))
    if not sweeps:
        raise ctx.missing("runs at three or more concurrencies", _HINT)
    for sweep in sweeps:
        rates = [run.result.output_throughput or 0.0 for run in sweep]
        at = next(i for i, rate in enumerate(rates) if rate >= PLATEAU * max(rates))
        beyond = sweep[at + 1 :]
        here = sweep[at].result
        whole = _typical(here.e2e) or _longest(here)
        slower = [
            (run, late)
            for run in beyond
            if (late := _typical(run.result.e2e) or _longest(run.result)) and whole and late >= 1.5 * whole
        ]
        if not slower:
            continue
        last, late = slower[-1]
        words = _in_words(here)
        subject = Subject(
            "job",
            f"{sweep[at].configuration or 'sweep'}{f' at {here.input_tokens:.0f} input tokens' if here.input_tokens else ''}",
        )
        table = [
            _line(
                run,
                f"concurrency {run.result.concurrency:.0f}: {run.result.output_throughput:.0f} tokens/s"
                + (f", TTFT {_seconds(t)}" if (t := _typical(run.result.ttft)) is not None else ""),
            )
            for run in sweep
        ]
        yield ctx.finding(
            "info",
            f"knee at concurrency {here.concurrency:.0f} ({words}): {rates[at]:.0f} tokens/s; at {last.result.concurrency:.0f} {last.result.output_throughput:.0f} tokens/s and {late / (whole or 1):.1f} times the latency",
            subject=subject,
            evidence=table,
            confidence="medium",
            missing=["repeats of each point"],
        )
        first = _typical(here.ttft)
        queued = [
            run
            for run in beyond
            if (t := _typical(run.result.ttft))
            and first
            and t >= 2 * first
            and (e := _typical(run.result.e2e) or _longest(run.result))
            and t >= 0.2 * e
        ]
        if queued:
            worst = queued[-1].result
            yield ctx.finding(
                "warning",
                f"TTFT is mostly waiting from concurrency {queued[0].result.concurrency:.0f} on ({words}): {_seconds(first or 0)} at the knee, {_seconds(_typical(worst.ttft) or 0)} at {worst.concurrency:.0f}, at the same throughput",
                id="bench.queueing",
                subject=subject,
                evidence=table,
                causes=[
                    Cause(
                        "prefill takes the whole capacity"
                        if (here.input_tokens or 0) >= 8 * (here.output_tokens or 1)
                        else "the server takes no more requests at once",
                        "likely",
                        "input tokens/s are flat too; the server's queue length",
                    ),
                ],
                action="Limit concurrency, or add prefill capacity: replicas, disaggregation, chunked prefill.",
            )


#: Words in the name of a configuration -> the parameter. A name is all that such folders tell.
_PARAMETERS: tuple[tuple[str, str, str], ...] = (
    (r"prefix.?cach|\bapc\b|radix", "prefix_caching", "--enable-prefix-caching (vLLM), RadixAttention (SGLang)"),
    (r"chunk", "chunked_prefill", "--enable-chunked-prefill and --max-num-batched-tokens (vLLM), --chunked-prefill-size (SGLang)"),
    (r"batch.?size|max.?num.?seqs|\bmns\d*\b|max.?running", "max_num_seqs", "--max-num-seqs (vLLM), --max-running-requests (SGLang)"),
    (r"\bv0\b|v0.?engine", "v0_engine", "the engine before V1 (vLLM)"),
    (r"spec(?:ulative)?.?dec|eagle|medusa|ngram|\bmtp\b", "speculative_decoding", "--speculative-config (vLLM)"),
    (r"\bfp8\b|\bint8\b|\bint4\b|\bawq\b|\bgptq\b|\bnvfp4\b|quant", "quantization", "--quantization"),
    (r"kv.?cache.?(?:fp8|int8|dtype)", "kv_cache_dtype", "--kv-cache-dtype"),
    (r"\btp\d+\b", "tensor_parallel", "--tensor-parallel-size"),
    (r"\bpp\d+\b", "pipeline_parallel", "--pipeline-parallel-size"),
    (r"\bdp\d+\b", "data_parallel", "--data-parallel-size"),
    (r"\bep\d*\b|expert.?parallel", "expert_parallel", "--enable-expert-parallel"),
    (r"eager|cuda.?graph", "cuda_graphs", "--enforce-eager"),
    (r"disagg|\d+p\d+d", "disaggregation", "prefill and decode on separate workers"),
)  # fmt: skip


def parameters(name: str) -> list[tuple[str, str]]:
    """(parameter, flags) that the name of a configuration speaks of."""
    words = re.sub(r"[_+\-./ ]+", " ", name.lower())
    return [(parameter, flags) for pattern, parameter, flags in _PARAMETERS if re.search(pattern.replace(".?", " ?"), words)]


def _best(runs: list[_Run]) -> tuple[float, float] | None:
    """(best request rate, how far the plateau's points differ) of a configuration; None where no run reached its limit."""
    rates = sorted((r.result.request_throughput for r in runs if r.result.request_throughput), reverse=True)
    full = [rate for rate in rates if rate >= 0.97 * rates[0]] if rates else []
    if len(full) < 2:
        return None
    return rates[0], (full[0] - full[-1]) / full[0]


def _baseline(names: list[str]) -> str | None:
    """The configuration that the others are compared with: named so, or the one whose name all others go on."""
    named = [
        name for name in names if re.search(r"\b(?:base(?:line)?|default|reference|stock)\b", re.sub(r"[_+-]", " ", name.lower()))
    ]
    if len(named) == 1:
        return named[0]
    shortest = min(names, key=len)
    return shortest if all(name.startswith(shortest) for name in names) else None


@rule(
    "tuning.configurations",
    "The fastest of the configurations tried is known",
    scope="case",
    family="serving",
    hint="one folder of results a configuration",
    sources=(_VLLM, "kubernetes-sigs/inference-perf demos: one folder a configuration"),
    action="Change one parameter at a time, keep what is proven, and repeat the best with the real workload.",
    also=("tuning.faster.*", "tuning.slower.*"),
)
def configurations(case: Case, ctx: Context) -> Iterator[Finding]:
    """Folders of results of one workload against the baseline: the largest request rate of each, where two runs or more reached it. Which parameter
    changed is read from the folder's name; several in one name share the gain, and nobody can tell how."""
    runs = _runs(ctx)
    found = False
    for group in _groups(runs):
        by_name: dict[str, list[_Run]] = {}
        for run in group:
            by_name.setdefault(run.configuration, []).append(run)
        best = {name: reached for name, same in by_name.items() if (reached := _best(same)) is not None}
        base = _baseline(list(best)) if len(best) > 1 else None
        if base is None:
            continue
        found = True
        noise = max(NOISE, 2 * max(spread for _, spread in best.values()))
        for name, (rate, _) in best.items():
            gain = rate / best[base][0] - 1
            if name == base or abs(gain) < noise:
                continue
            changed = [p for p in parameters(name) if p not in parameters(base)]
            better = "faster" if gain > 0 else "slower"
            for parameter, flags in changed or [("configuration", "")]:
                others = [p for p, _ in changed if p != parameter]
                yield ctx.finding(
                    "info",
                    f"{name} completes {rate:.0f} requests/s, {base} {best[base][0]:.0f} ({gain:+.0%})"
                    + (f"; changed: {flags}" if flags else ""),
                    id=f"tuning.{better}.{parameter}",
                    subject=Subject("job", name),
                    evidence=[
                        _line(run, f"{run.configuration}: {run.result.request_throughput:.1f} requests/s")
                        for run in (*by_name[name][-2:], *by_name[base][-2:])
                    ],
                    contradicts=[f"changed together with {', '.join(others)}: the share of each is not known"] if others else [],
                    missing=["the values of the parameters: only the folder's name tells"],
                    confidence="medium" if others or not changed else "high",
                )
    if not found:
        raise ctx.missing(
            "results of two configurations of one workload, each at its limit", "one folder of results a configuration"
        )
