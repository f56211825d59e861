"""Step times in training logs: Megatron-LM, nanoGPT, PyTorch Lightning and NeMo. Each line becomes a sample ``step_time`` in ms.

Texts: NVIDIA/Megatron-LM megatron/training/training.py (training_log), karpathy/nanoGPT train.py, NVIDIA/NeMo ``train_step_timing in s``.
"""

from __future__ import annotations

import re

from kilter.facts.base import Ref
from kilter.facts.measure import Sample

MARKS: tuple[str, ...] = ("elapsed time per iteration (ms)", "train_step_timing in s", ", time ")
MAX_LINE = 4096
MAX_SAMPLES = 65536

_PATTERNS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"\biteration +(?P<step>\d{1,9})/ *\d{1,9} \|.{0,400}?elapsed time per iteration \(ms\): (?P<time>\d{1,9}(?:\.\d{1,6})?)"), 1.0),
    (re.compile(r"\biter (?P<step>\d{1,9}): loss [\d.]{1,12}, time (?P<time>\d{1,9}(?:\.\d{1,6})?)ms"), 1.0),
    (re.compile(r"\bglobal_step[=:] ?(?P<step>\d{1,9})(?:\.0)?\b.{0,400}?train_step_timing in s[=:] ?(?P<time>\d{1,6}(?:\.\d{1,6})?)"), 1000.0),
)  # fmt: skip


class StepLog:
    """Collects the samples of one text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.samples: list[Sample] = []

    def feed(self, number: int, line: str) -> None:
        """One line that holds one of :data:`MARKS`."""
        if len(self.samples) >= MAX_SAMPLES:
            return
        for pattern, scale in _PATTERNS:
            if match := pattern.search(line[:MAX_LINE]):
                ref: Ref = (0, number)
                sample = Sample(
                    metric="step_time", value=float(match["time"]) * scale, unit="ms", tool="training log", origin={"": ref}
                )
                sample.conditions = {"step": match["step"], "log": self.source}
                self.samples.append(sample)
                return
