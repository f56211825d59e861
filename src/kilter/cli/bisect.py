"""``kilter bisect``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilter.cli.common import fail, width

if TYPE_CHECKING:
    from kilter.diagnose.fleet.search import State


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise fail(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _load(path: str) -> State:
    import msgspec

    from kilter.diagnose.fleet.search import SCHEMA, State

    try:
        state = msgspec.json.decode(_read(path).encode(), type=State)
    except msgspec.MsgspecError as error:
        raise fail(f"{path} is no state of kilter bisect ({error}); 'kilter bisect start NODES_FILE -o FILE' makes one") from None
    if state.schema > SCHEMA or len(state.nodes) < 2:
        raise fail(f"{path}: a state of version {state.schema} with {len(state.nodes)} nodes; this kilter reads version {SCHEMA}")
    known = set(state.nodes)
    for result in state.results:
        if (
            not result.nodes
            or not known.issuperset(result.nodes)
            or (result.value is not None and not 0 < result.value < float("inf"))
        ):
            raise fail(f"{path}: a result that does not belong to this search: {' '.join(result.nodes)} {result.value}")
    return state


def _save(path: str, state: State, *, new: bool = False) -> None:
    """Write beside and rename: a crash leaves the old state or the new one, never half of one."""
    import msgspec

    target = Path(path)
    data = msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"
    try:
        if new and target.exists():
            raise fail(f"{path} exists and may hold results; name another file or remove it")
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise fail(f"cannot write {path}: {error.strerror or error}; nothing was changed") from None


@click.group("bisect")
def command() -> None:
    """Find the guilty nodes, or the guilty path between two nodes, by rounds of pair or group tests.

    kilter says what to run and reads the results; running the tests (nccl-tests, ib_write_bw, a small job) is yours.
    """


@command.command("start")
@click.argument("nodes_file", metavar="NODES_FILE")
@click.option("--test", type=click.Choice(["pair", "group"]), default="pair", show_default=True, help="What a test runs on.")
@click.option(
    "--plan", type=click.Choice(["circle", "quick"]), help="Every pair, or few rounds [default: circle up to 32 nodes]."
)
@click.option("--reference", multiple=True, metavar="NODE", help="A node of the list that is known to be good.")
@click.option("--effect", default=0.05, show_default=True, metavar="PART", help="Least slowdown that matters.")
@click.option("--lower-is-better", is_flag=True, help="Results are times, not bandwidths.")
@click.option("--min-group", default=1, show_default=True, metavar="N", help="Fill group tests up to N nodes with references.")
@click.option("--seed", default=1, show_default=True, help="Of the random pairs.")
@click.option("-o", "--output", default="bisect.json", show_default=True, metavar="FILE", help="State file to create.")
def begin(
    nodes_file: str,
    test: str,
    plan: str | None,
    reference: tuple[str, ...],
    effect: float,
    lower_is_better: bool,
    min_group: int,
    seed: int,
    output: str,
) -> None:
    """Begin a search over the nodes named in NODES_FILE, one a line ("-" = standard input)."""
    from kilter.diagnose.fleet.bisect import start

    names = [line.split("#")[0].strip() for line in _read(nodes_file).splitlines()]
    try:
        state = start(
            [name for name in names if name],
            test=test,
            plan=plan or "",
            seed=seed,
            references=reference,
            lower_is_better=lower_is_better,
            effect=effect,
            min_group=min_group,
        )
    except ValueError as error:
        raise fail(f"{nodes_file}: {error}") from None
    _save(output, state, new=True)
    sys.stdout.write(f"{len(state.nodes)} nodes, {state.test} tests; next: kilter bisect next {output}\n")


@command.command("next")
@click.argument("state_file", metavar="STATE")
@click.option("--skip-missing", is_flag=True, help="Go on without the results that the last round still lacks.")
def following(state_file: str, skip_missing: bool) -> None:
    """Print the tests of the next round, one a line; all of them may run at one time."""
    from kilter.diagnose.fleet.bisect import next_round

    state = _load(state_file)
    found = next_round(state, skip_missing=skip_missing)
    if found is None:
        sys.stdout.write(f"# nothing left to test; kilter bisect verdict {state_file}\n")
        return
    if not found.is_repeat:
        _save(state_file, state)
    lines = [f"# round {found.number}: {found.why}", *(" ".join(test) for test in found.tests)]
    sys.stdout.write("\n".join(lines) + "\n")


@command.command("record")
@click.argument("state_file", metavar="STATE")
@click.argument("results", metavar="RESULTS")
def record(state_file: str, results: str) -> None:
    """Add results: "node-a node-b 312.5", "node-a node-b fail", or node names with pass or fail; "-" = standard input.

    Lines that can be read are kept even when others cannot; then the exit code is 2. A line that is already known for this round is not counted
    twice.
    """
    from kilter.diagnose.fleet.bisect import parse_results

    state = _load(state_file)
    found, complaints = parse_results(state, _read(results).splitlines())
    known = {(tuple(r.nodes), r.value, r.failed, r.round) for r in state.results}
    new = [r for r in found if (tuple(r.nodes), r.value, r.failed, r.round) not in known]
    state.results += new
    if new:
        _save(state_file, state)
    repeated = f", {len(found) - len(new)} already known" if len(new) < len(found) else ""
    sys.stdout.write(f"{len(new)} results recorded{repeated}, {len(state.results)} in all\n")
    if complaints:
        raise fail(f"{results}: " + "\n".join(complaints[:10]) + ("\n..." if len(complaints) > 10 else ""))


@command.command("verdict")
@click.argument("state_file", metavar="STATE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def judge(state_file: str, as_json: bool) -> None:
    """Say which nodes or paths are guilty, how sure that is, and what to run next.

    Exit code: 0 nobody is guilty, 1 somebody is, 2 unusable input.
    """
    from kilter.diagnose.fleet.bisect import verdict

    state = _load(state_file)
    found = verdict(state)
    if as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text(found))
    else:
        from kilter.report.fleet_text import verdict_text

        accused = [(a.kind, a.confidence, a.text) for a in found.accused]
        sys.stdout.write(
            verdict_text(
                accused,
                suspects=found.suspects,
                good=found.good,
                spread=found.spread,
                tests=found.tests,
                not_tested=found.not_tested,
                following=found.next,
                width=width(),
            )
        )
    sys.exit(1 if found.accused else 0)
