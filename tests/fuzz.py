"""Damaged and hostile inputs through the whole path: ``python tests/fuzz.py [--count N] [--seed S] [--jobs J] [--seconds T]``.

A seed makes one input: real captures of tests/data, damaged and in other encodings, as a file, a folder of nodes, an archive, or one of the
hostile kinds of hostile.py. It is read, diagnosed and printed; some also go through every command. What must hold is in :func:`check`.
A failure prints the seed that makes it again (``--seed N --count 1``). Also when it is stopped, the last line says how far it came.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import hostile
from kilter.diagnose.engine import diagnose
from kilter.intake.encoding import decode
from kilter.intake.read import UnusableInput, read_paths
from kilter.intake.unpack import is_packed
from kilter.report.json import diagnosis_json
from kilter.report.text import diagnosis_text
from mangle import FOREIGN, HARMS, written_samples

DATA = Path(__file__).parent / "data"
#: CPU seconds for an input below 1 MB.
LIMIT_S = 2.0
#: Address space of a worker, bytes.
MEMORY = 3 << 30
COLUMNS = 100
#: Control characters but line ends, marks that turn the direction of text, halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class TooSlow(BaseException):
    """No ``Exception``: readers that fail are caught, and this must not be."""


def texts() -> list[tuple[str, str]]:
    """(name, text) of every capture, long ones cut, and of those that stand in the tests."""
    paths = [p for p in sorted(DATA.rglob("*")) if p.is_file() and p.name != "case.yaml"]
    captures = [(path.name, path.read_bytes()[:200_000].decode("utf-8", "replace")) for path in paths]
    return captures + written_samples()


def window(rng: random.Random, text: str) -> str:
    """A text as it is, or, of a long one, some lines in a row, mostly the first ones."""
    limit = rng.choice((2_000, 4_000, 4_000, 8_000, 30_000))
    if len(text) <= limit:
        return text
    start = 0 if rng.random() < 0.7 else text.find("\n", rng.randrange(len(text) - limit)) + 1
    return text[start : start + limit]


def damage(rng: random.Random, text: str) -> str:
    """Up to four damages of mangle.py, then, for some, shuffled lines, long lines, huge numbers, repeats or wrong characters."""
    lines = text.split("\n")
    for _ in range(rng.randint(0, 4)):
        lines = rng.choice(HARMS)(lines, rng.randrange(1 << 30), rng.randrange(1, 50), rng.choice(FOREIGN))
    what = rng.randrange(20)
    if what == 0:
        rng.shuffle(lines)
    text = "\n".join(lines)
    at = rng.randrange(len(text) + 1)
    if what == 1:
        text = (
            text[:at]
            + rng.choice(("y", "A", "0", "_", " ", ":", ".", "/", "-", "x", "\t", "1,", "a=", "a: ", "| ")) * 50_000
            + text[at:]
        )
    elif what == 2:
        piece = rng.choice((" ", "0", "-", "a", ":", "=", "\t", ", ", "a.", "1-", "[", '"', "| "))
        text = (text[max(at - 60, 0) : at].rpartition("\n")[2] + piece * (4000 // len(piece)) + "\n") * 10 + text
    elif what == 3:
        text = re.sub(
            r"\d+",
            lambda m: rng.choice((m.group(), m.group(), "9" * rng.choice((19, 20, 40, 310, 400, 5000)), "-" + m.group())),
            text,
        )
    elif what == 4:
        text = "".join(c if rng.random() > 0.01 else chr(rng.randrange(1, 0x250)) for c in text)
    elif what == 5:
        text = text * min(rng.choice((2, 10, 50)), 1 + 200_000 // (len(text) + 1))
    elif what == 6:
        text = re.sub(r"[A-Za-z_]+", lambda m: m.group() if rng.random() > 0.03 else rng.choice(FOREIGN), text)
    elif what == 7:
        text = re.sub(
            r": .*",
            lambda m: (
                m.group() if rng.random() > 0.3 else ": " + rng.choice(("", "N/A", "0", "-1", "\x1b[2J", "nan", "inf", "1e999"))
            ),
            text,
        )
    return text


def encode(rng: random.Random, text: str) -> bytes:
    """Mostly UTF-8; else what other systems and programs write."""
    what = rng.randrange(24)
    if what == 0:
        return text.replace("\n", "\r\n").encode("utf-8", "replace")
    if what == 1:
        return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig")), "replace")
    if what == 2:
        return text.encode("latin-1", "replace") + b"\xe9\xff\n"
    if what == 3:
        return rng.choice(list(hostile.PACKERS.values()))(text.encode("utf-8", "replace"))
    if what == 4:
        return text.replace("\n", "\r").encode("utf-8", "replace")
    if what == 5:
        data = bytearray(text.encode("utf-8", "replace"))
        for _ in range(len(data) // 500 + 1):
            data[rng.randrange(len(data) + 1) : rng.randrange(len(data) + 1)] = rng.choice(
                (b"\x00", b"\xff\xfe", b"\xc3", b"\x1b[31m", b"\n")
            )
        return bytes(data[:300_000])
    return text.encode("utf-8", "surrogatepass" if what == 6 else "replace")


class Maker:
    """Inputs by seed."""

    def __init__(self) -> None:
        self.captures = texts()
        self.kinds: list[tuple[int, Callable[[random.Random, Path], Path]]] = [
            (76, self.file),
            (7, self.folder),
            (6, self.archive),
            (5, self.document),
            (2, self.pickle),
            (4, self.names),
        ]

    def make(self, seed: int, folder: Path) -> tuple[str, Path]:
        """(kind, path) of the input; all of it lies below ``folder``."""
        rng = random.Random(seed)
        make = rng.choices([m for _, m in self.kinds], [weight for weight, _ in self.kinds])[0]
        return make.__name__, make(rng, folder)

    def capture(self, rng: random.Random) -> tuple[str, bytes]:
        name, text = rng.choice(self.captures)
        return name, encode(rng, damage(rng, window(rng, text)))

    def file(self, rng: random.Random, folder: Path) -> Path:
        parts = [rng.choice(self.captures) for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))]
        text = "\n".join(damage(rng, window(rng, text)) for _, text in parts)
        path = folder / rng.choice((parts[0][0], "x.log", "dmesg", "paste.txt", "x.gz"))
        path.write_bytes(encode(rng, text))
        return path

    def folder(self, rng: random.Random, folder: Path) -> Path:
        """Some nodes with one capture or two each, often the same ones."""
        top = folder / "nodes"
        same = [self.capture(rng) for _ in range(2)]
        for number in range(rng.randint(2, 4)):
            node = top / f"gpu-{number}"
            node.mkdir(parents=True)
            for name, data in same if rng.random() < 0.8 else [self.capture(rng)]:
                (node / name).write_bytes(data)
        return top

    def archive(self, rng: random.Random, folder: Path) -> Path:
        members = [self.capture(rng) for _ in range(rng.randint(1, 3))]
        members = [(rng.choice((name, f"node-a/{name}", rng.choice(hostile.PATHS) + name)), data) for name, data in members]
        make = rng.choice((hostile.tar_of, hostile.zip_of))
        data = make(members, links=rng.random() < 0.5)
        what = rng.randrange(6)
        if what < 2:
            data = rng.choice(list(hostile.PACKERS.values()))(data)
        elif what == 2:
            data = hostile.nested(data, rng.randint(1, 6))
        if rng.random() < 0.4:
            data = data[: rng.randint(1, len(data))]
        elif rng.random() < 0.4:
            broken = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            data = bytes(broken)
        path = folder / rng.choice(("x.tar.gz", "x.tar", "x.zip", "x.log"))
        path.write_bytes(data)
        return path

    def document(self, rng: random.Random, folder: Path) -> Path:
        make = rng.choice((hostile.json_bomb, hostile.json_bomb, hostile.xml_bomb, hostile.yaml_bomb))
        text = make(rng, rng.choice((10, 100, 1000, 20_000)))
        if rng.random() < 0.2:
            text = damage(rng, text[:20_000])
        path = folder / "document"
        path.write_bytes(encode(rng, text))
        return path

    def pickle(self, rng: random.Random, folder: Path) -> Path:
        data = rng.choice(
            (
                hostile.pickle_bomb(rng, rng.choice((10, 1000, 50_000))),
                hostile.pickle_that_runs(str(folder / "owned"), rng.randint(2, 4)),
                pickle.dumps(
                    {
                        "version": "2.0",
                        "rank": rng.choice((0, "x", 1 << 70, None)),
                        "entries": [{"profiling_name": "nccl:all_reduce"}],
                    },
                    2,
                ),
            )
        )
        if rng.random() < 0.5:
            broken = bytearray(data)
            broken[rng.randrange(len(broken))] = rng.randrange(256)
            data = bytes(broken)[: rng.choice((len(data), rng.randint(1, len(data))))]
        path = folder / "nccl_trace_rank_0"
        path.write_bytes(data)
        return path

    def names(self, rng: random.Random, folder: Path) -> Path:
        top = folder / rng.choice(("plain", *(name for name in hostile.NAMES if name.strip())))
        top.mkdir()
        for _ in range(rng.randint(1, 3)):
            (top / rng.choice(hostile.NAMES)).write_bytes(self.capture(rng)[1])
        os.symlink("..", top / "loop")
        os.symlink("/etc/passwd", top / "passwd.log")
        os.mkfifo(top / "fifo.log")
        return top


class Broken(AssertionError):
    """Something that must hold does not."""


def _plain(what: str, text: str) -> None:
    if match := CONTROL.search(text):
        raise Broken(f"{what} holds a control character: {text[max(match.start() - 60, 0) : match.end() + 20]!r}")


def _fits(what: str, text: str) -> None:
    _plain(what, text)
    for line in text.split("\n"):
        if len(line) > COLUMNS:
            raise Broken(f"{what} has a line of {len(line)} columns: {line!r}")


def _no_constant(name: str) -> None:
    raise Broken(f"{name} in JSON")


def _json(what: str, text: str) -> Any:
    _plain(what, text)
    return json.loads(text, parse_constant=_no_constant)


def check(path: Path, *, twice: bool, commands: bool) -> None:
    """Reading ends with a case or one line of explanation; no reader fails; the report is plain text of 100 columns, and JSON; nothing runs."""
    try:
        case = read_paths([str(path)])
    except UnusableInput:
        if commands:
            every_command(path)
        return
    for item in case.inputs:
        if any("failed at line" in note for note in item.notes):
            raise Broken(f"{item.notes}")
        if item.unrecognised_lines > item.lines:
            raise Broken(f"{item.unrecognised_lines} of {item.lines} lines not understood")
        if (
            item.name == str(path)
            and item.lines
            and not item.tools
            and not item.notes
            and not item.unrecognised_lines
            and not _is_blank(path)
        ):
            raise Broken("nothing was read, and nothing says so")
    diagnosis = diagnose(case)
    if failures := [(one.rule, one.failures) for one in diagnosis.checks if one.failures]:
        raise Broken(f"a check failed itself: {failures}")
    _fits("the report", diagnosis_text(case, diagnosis))
    document = diagnosis_json(case, diagnosis)
    _json("--json", document)
    if twice:
        again = read_paths([str(path)])
        if diagnosis_json(again, diagnose(again)) != document:
            raise Broken("reading twice gives two results")
    if commands:
        every_command(path)
    if any((parent / "owned").exists() for parent in (path.parent, Path.cwd())):
        raise Broken("something ran")


def _is_blank(path: Path) -> bool:
    return path.is_dir() or is_packed(path.read_bytes()) or not decode(path.read_bytes()).strip()


def every_command(path: Path) -> None:
    """What a user may do with the input: each command ends with a documented code and prints plain text."""
    from click.testing import CliRunner

    from kilter.cli.main import cli

    out = path.parent / "out"
    out.mkdir()
    for arguments in (
        ["diagnose", "-v", "--html", str(out / "x.html"), "--report", str(out / "x.md"), "--"],
        ["diagnose", "--json", "--"],
        ["timeline", "--"],
        ["timeline", "--json", "--"],
        ["compare-nodes", "--"],
        ["compare-nodes", "--json", "--"],
        ["topo", "--"],
        ["topo", "--json", "--"],
        ["redact", "-o", str(out / "x.tar.gz"), "--"],
        ["tune", "plan", "--"],
        ["tune", "plan", "-v", "--json", "--"],
        ["tune", "export", "sh", "--json", "--"],
        ["lint", "--nccl", "2.30.7", "--"],
        ["lint", "--sarif", "--"],
        ["workload", "show", "--"],
        ["workload", "init", "--"],
    ):
        done = CliRunner().invoke(cli, [*arguments, str(path)], prog_name="kilter")
        what = "kilter " + " ".join(arguments[:2])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise Broken(what) from done.exception
        if done.exit_code not in (0, 1, 2):
            raise Broken(f"{what} ends with {done.exit_code}")
        loose = {"redact", "timeline", "export", "lint", "init"} & set(arguments)
        (_plain if loose or done.exit_code == 2 else _fits)(what, "" if {"--json", "--sarif"} & set(arguments) else done.output)
        if {"--json", "--sarif"} & set(arguments) and done.exit_code != 2:
            _json(what, done.stdout)
    for written in out.iterdir():
        if written.suffix in (".md", ".html"):
            _plain(written.name, written.read_text(encoding="utf-8").replace("\t", " "))


class Told(NamedTuple):
    """What a worker says of one input."""

    seed: int
    kind: str
    seconds: float
    failure: str


def one(maker: Maker, seed: int) -> Told:
    with tempfile.TemporaryDirectory(prefix="kilter-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        failure = ""
        kind, path = maker.make(seed, Path(folder))
        start = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        try:
            check(path, twice=seed % 16 == 0, commands=False)
            if seed % 40 == 0:
                signal.setitimer(signal.ITIMER_VIRTUAL, 10 * LIMIT_S)
                every_command(path)
        except (Exception, TooSlow):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            failure = traceback.format_exc()[-3000:]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return Told(seed, kind, time.process_time() - start, failure)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def _work(seeds: range, results: Any) -> None:
    signal.signal(signal.SIGVTALRM, _too_slow)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    maker = Maker()
    batch: list[Told] = []
    for seed in seeds:
        batch.append(one(maker, seed))
        if len(batch) == 50 or batch[-1].failure:
            results.put((batch, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
            batch = []
    results.put((batch, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    results.put(None)


class Stopped(BaseException):
    """A signal or the time limit."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def run(count: int, seed: int, *, jobs: int = 1, seconds: float = 0, quiet: bool = False) -> tuple[int, list[Told], str]:
    """(inputs done, the failures, summary line). Workers are processes, so that a crash or a full memory ends one of them only."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(range(seed + n, seed + count, jobs), results), daemon=True) for n in range(jobs)
    ]
    done = 0
    kinds: Counter[str] = Counter()
    failures: list[Told] = []
    slowest = Told(-1, "", 0.0, "")
    total, peak, finished = 0.0, 0, 0
    start = said = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _stop)
    end = "finished"
    try:
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        for worker in workers:
            worker.start()
        while finished < len(workers):
            if results.empty():
                if not any(w.is_alive() for w in workers) and results.empty():
                    failures.append(Told(-1, "", 0, "a worker died: killed, or out of memory\n"))
                    break
                time.sleep(0.05)
                continue
            told = results.get()
            if told is None:
                finished += 1
                continue
            batch, memory = told
            peak = max(peak, memory)
            for item in batch:
                done += 1
                total += item.seconds
                kinds[item.kind] += 1
                slowest = max(slowest, item, key=lambda t: t.seconds)
                if item.failure:
                    failures.append(item)
                    if not quiet and len(failures) <= 20:
                        print(f"seed {item.seed} ({item.kind}):\n{item.failure}", file=sys.stderr, flush=True)
            if not quiet and time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{done} inputs, {len(failures)} failures, {said - start:.0f} s", file=sys.stderr, flush=True)
    except Stopped:
        end = "stopped"
        for worker in workers:
            worker.kill()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    text = (
        f"{end}: {done} inputs from seed {seed} ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}), {len(failures)} failures, "
        f"{1000 * total / max(done, 1):.1f} ms of CPU each, slowest {slowest.seconds:.2f} s (seed {slowest.seed}), peak {peak >> 10} MiB"
    )
    return done, failures, text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    arguments = parser.parse_args()
    done, failures, text = run(arguments.count, arguments.seed, jobs=arguments.jobs, seconds=arguments.seconds)
    print(text, flush=True)
    sys.exit(1 if failures or not done else 0)


if __name__ == "__main__":
    main()
