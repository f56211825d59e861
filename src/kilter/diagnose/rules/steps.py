"""Step times of a training log: slow steps that come back at a fixed distance."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, gather, rule
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import Sample

LEAST_STEPS = 30
#: A step this many times the median, and this many robust deviations above it, is slow.
SLOW, DEVIATIONS = 1.5, 8
LEAST_SLOW = 4
#: Less of the run's time than this is not worth a word.
SHARE = 0.03


@gather
def step_times(snapshot: Snapshot) -> list[tuple[Sample, str]] | None:
    """Times of steps, each with its place."""
    return [
        (sample, snapshot.where(sample.ref("")))
        for sample in snapshot.samples
        if sample.metric == "step_time" and sample.conditions.get("step", "").isdigit()
    ] or None


def _series(ctx: Context) -> dict[str, list[tuple[int, Sample, str]]]:
    """log -> (step, sample, place) in order; of repeated steps (several ranks, a restart) the slowest is kept."""
    found: dict[str, dict[int, tuple[Sample, str]]] = {}
    for _, times in ctx.gathered(step_times):
        for sample, where in times:
            steps = found.setdefault(sample.conditions.get("log", ""), {})
            known = steps.get(int(sample.conditions["step"]))
            if known is None or sample.value > known[0].value:
                steps[int(sample.conditions["step"])] = (sample, where)
    return {log: [(n, *steps[n]) for n in sorted(steps)] for log, steps in found.items()}


@rule(
    "job.slow_steps_periodic",
    "Steps of the job take equal time",
    scope="case",
    family="job",
    sop="SOP-SLOW",
    hint="the training log with the time of each step",
    sources=("research: failure mode 49",),
    action="No node is at fault: make checkpoints asynchronous, collect garbage at one fixed step on all ranks, give the loader more workers.",
)
def periodic(case: Case, ctx: Context) -> Iterator[Finding]:
    """Slow steps at a fixed distance, costing three percent and more of the time: software that all ranks wait for. Slow steps without a period
    say nothing here. The first steps (compilation, warm-up) are left out."""
    series = {log: rows for log, rows in _series(ctx).items() if len(rows) >= LEAST_STEPS}
    if not series:
        raise ctx.missing(f"times of {LEAST_STEPS} steps")
    for log, all_rows in series.items():
        rows = all_rows[len(all_rows) // 20 + 1 :]
        times = [s.value for _, s, _ in rows]
        median = statistics.median(times)
        spread = statistics.median([abs(t - median) for t in times])
        limit = max(SLOW * median, median + DEVIATIONS * spread)
        slow = [row for row in rows if row[1].value > limit]
        if len(slow) < LEAST_SLOW or len(slow) > len(rows) // 3:
            continue
        gaps = [b[0] - a[0] for a, b in itertools.pairwise(slow)]
        gap, count = Counter(gaps).most_common(1)[0]
        lost = sum(s.value - median for _, s, _ in slow) / sum(times)
        printed = statistics.median([b[0] - a[0] for a, b in itertools.pairwise(rows)])
        if count < 0.75 * len(gaps) or gap < 2 * printed or lost < SHARE:
            continue
        usual = statistics.median([s.value for _, s, _ in slow])
        yield ctx.finding(
            "warning",
            f"every {gap} steps one takes {usual / 1000:.1f} s in place of {median / 1000:.1f} s: {lost:.0%} of the time",
            subject=Subject("job", log),
            evidence=[Evidence(f"step {n}: {s.value:.0f} ms", where) for n, s, where in slow[:6]],
            causes=[
                Cause(
                    "saving a checkpoint",
                    "likely" if gap >= 50 else "possible",
                    "save interval of the job; storage bandwidth at these steps",
                ),
                Cause(
                    "the data loader refills or reads the next file",
                    "likely" if gap < 50 else "possible",
                    "number of workers and prefetch; files a shard",
                ),
                Cause(
                    "Python's garbage collection, evaluation or logging",
                    "possible",
                    "gc.freeze or a fixed collection step; evaluation interval",
                ),
            ],
            contradicts=[],
            missing=["a profile of one slow step"],
            confidence="medium",
        )
