"""First cause over generated incidents with known truth: how often right, how often nobody is accused, how often wrongly.

    python benchmarks/incidents.py [--seeds N]

The peer is the rule of thumb that people use with one log alone: the node of the first error line is the culprit. Sizes are 8 to 512
nodes; clocks differ by up to 5 s, a tenth of the lines is lost (tests/incidents.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import incidents
from kilter.diagnose.first_cause import find, role
from kilter.facts.case import Case
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text

SIZES = (8, 16, 32, 64, 128, 512)


def case_of(files: dict[str, str]) -> Case:
    fragments, inputs = [], []
    for name, text in files.items():
        found, info = read_text(name, text, year=2026)
        for one in found:
            one.group = name.split("/")[0] if "/" in name else ""
        fragments += found
        inputs.append(info)
    return assemble(fragments, inputs)


def verdict(accused: str, truth: str) -> str:
    return "right" if accused == truth else "nobody" if not accused else "wrong"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    thumb: Counter[str] = Counter()
    start = time.process_time()
    for script in incidents.SCRIPTS:
        one: Counter[str] = Counter()
        for seed in range(arguments.seeds):
            files, truth, _ = incidents.make(1000 + seed, script, SIZES[seed % len(SIZES)])
            case = case_of(files)
            incident = find(case)
            one[verdict(incident.node if incident is not None else "", truth)] += 1
            lines = [e for e in case.events if role(e) != "other" and e.time is not None]
            thumb[verdict(min(lines, key=lambda e: e.time or 0.0).node if lines else "", truth)] += 1
        total += one
        print(f"{script:<18} " + ", ".join(f"{word} {one[word]}" for word in ("right", "nobody", "wrong")))
    count = sum(total.values())
    print(f"kilter: right {total['right'] / count:.3f}, wrong {total['wrong'] / count:.3f} of {count} incidents")
    print(f"first error line: right {thumb['right'] / count:.3f}, wrong {thumb['wrong'] / count:.3f}")
    print(f"{(time.process_time() - start) / count:.2f} s of CPU an incident, making it included")


if __name__ == "__main__":
    main()
