"""Damaged captures through reading and diagnosing: ``python tests/fuzz.py [--count N] [--seed S]``.

Each input is a real capture of tests/data, damaged, read as a text and, now and then, as a packed file of a folder. A
failure prints the seed that makes it again. Ends with the slowest input.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tarfile
import time
import traceback
from pathlib import Path

from kilter.diagnose.engine import diagnose
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import FOREIGN, HARMS

DATA = Path(__file__).parent / "data"


def texts() -> list[tuple[str, str]]:
    paths = [p for p in sorted(DATA.rglob("*")) if p.is_file() and p.suffix != ".yaml" and p.stat().st_size < 200_000]
    return [(path.name, path.read_bytes().decode("utf-8", "replace")) for path in paths]


def damage(rng: random.Random, text: str) -> str:
    """One to four damages of mangle.py, line ends and encodings of other systems, and long lines."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 4)):
        lines = rng.choice(HARMS)(lines, rng.randrange(1 << 30), rng.randrange(1, 50), rng.choice(FOREIGN))
    text = "\n".join(lines)
    what = rng.randrange(12)
    if what == 0:
        rng.shuffle(lines)
        text = "\n".join(lines)
    elif what == 1:
        text = text.replace("\n", "\r\n")
    elif what == 2:
        text = text.encode("utf-16", "replace").decode("latin-1")
    elif what == 3:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice("yA0_ :./-x") * 200_000 + text[at:]
    elif what == 4:
        text = "".join(c if rng.random() > 0.01 else chr(rng.randrange(1, 0x250)) for c in text)
    return text


def one(seed: int, captures: list[tuple[str, str]], folder: Path) -> None:
    rng = random.Random(seed)
    parts = rng.sample(captures, rng.choice((1, 1, 1, 2, 3)))
    text = "\n".join(damage(rng, content) for _, content in parts)
    if seed % 200 == 0:  # the whole way, from a broken archive
        from kilter.intake.read import UnusableInput, read_paths

        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            info = tarfile.TarInfo("../../node/" + parts[0][0])
            data = text.encode("utf-8", "surrogatepass")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        path = folder / "x.tar.gz"
        content = packed.getvalue()
        path.write_bytes(content[: rng.randint(1, len(content))])
        try:
            case = read_paths([str(path)])
        except UnusableInput:
            return
    else:
        fragments, info_ = read_text(parts[0][0], text, year=2026)
        assert not any("failed at line" in note for note in info_.notes), info_.notes
        case = assemble(fragments, [info_])
    diagnose(case)


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    captures = texts()
    failures = 0
    slowest = (0.0, -1)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            start = time.perf_counter()
            try:
                one(seed, captures, Path(folder))
            except Exception:
                failures += 1
                if failures <= 5:
                    print(f"seed {seed}:\n{traceback.format_exc()[-1500:]}", file=sys.stderr)
            slowest = max(slowest, (time.perf_counter() - start, seed))
    print(f"{arguments.count} inputs, {failures} failures, slowest {slowest[0]:.2f} s (seed {slowest[1]})")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
