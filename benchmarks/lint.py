"""How many scripts a second the linter judges, beside shellcheck reading the same scripts: ``python benchmarks/lint.py``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from kilter.tune.lint.judge import Target, judge
from kilter.tune.lint.settings import settings

ROOT = Path(__file__).parents[1]
SCRIPTS = [ROOT / "examples" / "stale-job.sh", *sorted((ROOT / "tests" / "data" / "lint").iterdir())]
COUNT = 4000
PEER = 100


def main() -> None:
    texts = [path.read_text() for path in SCRIPTS]
    for text in texts:
        judge(settings(text, "x.sh"), Target(nccl="2.30.7"))
    start = time.perf_counter()
    for number in range(COUNT):
        judge(settings(texts[number % len(texts)], "x.sh"), Target(nccl="2.30.7"))
    ours = COUNT / (time.perf_counter() - start)
    print(f"kilter lint: {ours:.0f} scripts/s (asked 2000)")
    if shutil.which("shellcheck") is None:
        print("shellcheck is not installed: no ratio")
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number in range(PEER):
            path = Path(folder, f"{number}.sh")
            path.write_text(SCRIPTS[0].read_text())
            paths.append(str(path))
        start = time.perf_counter()
        subprocess.run(["shellcheck", *paths], capture_output=True, check=False)
        peer = PEER / (time.perf_counter() - start)
    print(f"shellcheck (another job: it reads the shell, not the settings): {peer:.0f} scripts/s; ratio {ours / peer:.1f}")


if __name__ == "__main__":
    main()
