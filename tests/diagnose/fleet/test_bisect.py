"""Searches for guilty nodes and paths, against a simulated fabric with 3 % noise."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kilter.cli.bisect import command
from kilter.diagnose.fleet.bisect import (
    circle,
    circle_rounds,
    next_round,
    outstanding,
    parse_results,
    start,
    verdict,
)
from kilter.diagnose.fleet.search import State, Verdict


class Fabric:
    """A pair runs at the speed of the slower node and of the path between; 3 % noise."""

    def __init__(self, seed: int, slow: dict[str, float], paths: dict[frozenset[str], float]) -> None:
        self.random, self.slow, self.paths = random.Random(seed), slow, paths

    def measure(self, a: str, b: str) -> str:
        part = min(self.slow.get(a, 1.0), self.slow.get(b, 1.0), self.paths.get(frozenset((a, b)), 1.0))
        return f"{a} {b} fail" if part == 0 else f"{a} {b} {400 * part * self.random.gauss(1, 0.03):.2f}"

    def search(self, state: State, *, lost: float = 0.0) -> Verdict:
        rounds = 0
        while (found := next_round(state, skip_missing=True)) is not None:
            lines = [self.measure(a, b) for a, b in found.tests if self.random.random() >= lost]
            results, complaints = parse_results(state, lines)
            assert not complaints
            state.results += results
            rounds += 1
            assert rounds < 600
        return verdict(state)


def names(count: int) -> list[str]:
    return [f"node-{i:03}" for i in range(count)]


def guilty(found: Verdict) -> set[frozenset[str]]:
    return {frozenset(a.names) for a in found.accused}


def runs(seeds: range, sizes: tuple[int, ...], plan: str, bad_paths: bool) -> tuple[int, int, int]:
    """(right verdicts, runs with a false accusation, runs)"""
    right = false = 0
    for seed in seeds:
        rng = random.Random(seed)
        nodes = names(sizes[seed % len(sizes)])
        if bad_paths:
            slow: dict[str, float] = {}
            paths = {frozenset(rng.sample(nodes, 2)): rng.choice([0.0, 0.5, 0.7])}
        else:
            slow = {n: rng.choice([0.0, 0.5, 0.7, 0.8]) for n in rng.sample(nodes, rng.randint(1, 3))}
            paths = {}
        truth = {frozenset((n,)) for n in slow} | set(paths)
        found = guilty(Fabric(seed, slow, paths).search(start(nodes, plan=plan, seed=seed)))
        right += found == truth
        false += bool(found - truth)
    return right, false, len(seeds)


@pytest.mark.parametrize(
    ("plan", "sizes", "bad_paths", "count"),
    [
        ("quick", (8, 9, 16, 33, 64, 128, 256), False, 100),
        ("circle", (8, 9, 16, 33), False, 40),
        ("circle", (8, 11, 16, 24, 40), True, 55),
        ("circle", (128, 256), True, 5),
    ],
)
def test_verdicts_are_right_and_false_accusations_rare(plan: str, sizes: tuple[int, ...], bad_paths: bool, count: int) -> None:
    right, false, total = runs(range(count), sizes, plan, bad_paths)
    assert right >= 0.95 * total, (right, false, total)
    assert false <= 0.02 * total, (right, false, total)


def test_healthy_nodes_are_never_accused() -> None:
    accused = sum(bool(Fabric(s, {}, {}).search(start(names(8 + s % 40), seed=s)).accused) for s in range(40))
    assert accused <= 1


def test_missing_results_do_not_change_who_is_guilty() -> None:
    state = start(names(24), plan="quick", seed=7)
    found = Fabric(7, {"node-005": 0.6}, {}).search(state, lost=0.2)
    assert guilty(found) == {frozenset(["node-005"])}


def test_two_bad_nodes_in_every_pair_are_told_apart_by_known_good_ones() -> None:
    nodes = names(8)
    slow = dict.fromkeys(nodes[:5], 0.5)
    found = Fabric(3, slow, {}).search(start(nodes, references=nodes[5:], seed=3))
    assert guilty(found) == {frozenset((n,)) for n in slow}


def test_without_references_a_sick_third_is_no_sure_verdict() -> None:
    found = Fabric(3, dict.fromkeys(names(8)[:3], 0.5), {}).search(start(names(8), seed=3))
    assert {a.confidence for a in found.accused} == {"low"}
    assert "--reference" in found.next


def test_when_every_test_fails_the_test_is_the_suspect() -> None:
    found = Fabric(1, dict.fromkeys(names(8), 0.0), {}).search(start(names(8)))
    assert not found.accused
    assert "the test itself" in found.next


def test_two_nodes_alone_accuse_nobody() -> None:
    found = Fabric(1, {"node-000": 0.5}, {}).search(start(names(2)))
    assert not found.accused


def test_latencies_are_read_the_other_way_round() -> None:
    state = start(names(8), lower_is_better=True)
    while (found := next_round(state)) is not None:
        lines = [f"{a} {b} {9.0 if 'node-002' in (a, b) else 2.0 + 0.001 * int(a[-1])}" for a, b in found.tests]
        state.results += parse_results(state, lines)[0]
    assert guilty(verdict(state)) == {frozenset(["node-002"])}


@given(st.integers(2, 60))
def test_circle_lets_every_pair_meet_once_and_nobody_twice_a_round(count: int) -> None:
    nodes = names(count)
    met = [frozenset(pair) for r in range(circle_rounds(count)) for pair in circle(nodes, r)]
    assert len(met) == len(set(met)) == count * (count - 1) // 2
    for r in range(circle_rounds(count)):
        assert len(set(itertools.chain(*circle(nodes, r)))) == 2 * (count // 2)


def group_search(state: State, bad: set[str], together: frozenset[str] = frozenset()) -> tuple[Verdict, int]:
    rounds = 0
    while (found := next_round(state)) is not None:
        rounds += 1
        assert rounds < 60
        used = [n for test in found.tests for n in test]
        assert len(used) == len(set(used)), "tests of one round share no node"
        lines = [" ".join(t) + (" fail" if bad & set(t) or (together and together <= set(t)) else " pass") for t in found.tests]
        results, complaints = parse_results(state, lines)
        assert not complaints
        state.results += results
    return verdict(state), rounds


@given(st.integers(2, 200), st.data())
def test_group_halves_find_exactly_the_bad_nodes(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    bad = set(data.draw(st.lists(st.sampled_from(nodes), max_size=3)))
    found, rounds = group_search(start(nodes, test="group"), bad)
    assert guilty(found) == {frozenset((n,)) for n in bad}
    assert found.good == count - len(bad)
    assert rounds <= count.bit_length() + 4


def test_groups_are_filled_with_known_good_nodes_which_nobody_accuses() -> None:
    nodes = names(9)
    found, _ = group_search(start(nodes, test="group", references=["node-008"], min_group=2), {"node-003"})
    assert guilty(found) == {frozenset(["node-003"])}


def test_halves_that_pass_alone_accuse_the_path_between_them() -> None:
    found, _ = group_search(start(names(8), test="group"), set(), frozenset(["node-000", "node-007"]))
    assert [a.kind for a in found.accused] == ["together"]


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_line_is_a_result_or_a_complaint(lines: list[str]) -> None:
    results, complaints = parse_results(start(names(3)), lines)
    assert len(results) + len(complaints) <= len(lines)


def test_bad_lines_are_told_with_their_number() -> None:
    _, complaints = parse_results(
        start(names(3)), ["node-000 node-009 3", "node-000 node-000 3", "node-000 node-001", "node-000 node-001 nan"]
    )
    assert [c.split(":")[0] for c in complaints] == ["line 1", "line 2", "line 3", "line 4"]
    assert "node-009" in complaints[0]


def test_zero_throughput_is_a_failure() -> None:
    (result,), _ = parse_results(start(names(2)), ["node-000, node-001, 0 GB/s"])
    assert result.failed


def test_command_line_keeps_results_and_repeats_open_tests(tmp_path: Path) -> None:
    run = CliRunner().invoke
    state = str(tmp_path / "state.json")
    listing = tmp_path / "nodes"
    listing.write_text("# rack 1\n" + "\n".join(names(4)) + "\n")
    assert run(command, ["start", str(listing), "-o", state]).exit_code == 0
    assert run(command, ["start", str(listing), "-o", state]).exit_code == 2, "results are not overwritten"
    for _ in range(20):
        shown = run(command, ["next", state])
        assert shown.exit_code == 0
        assert run(command, ["next", state]).output.split("\n", 1)[1] == shown.output.split("\n", 1)[1]
        tests = [line.split() for line in shown.output.splitlines() if not line.startswith("#")]
        if not tests:
            break
        good = "\n".join(f"{a} {b} {'fail' if 'node-001' in (a, b) else '390.5'}" for a, b in tests)
        both = run(command, ["record", state, "-"], input=good + "\nnode-77 node-000 3\n")
        assert both.exit_code == 2
        assert "line 3" in both.output
        assert "already known" in run(command, ["record", state, "-"], input=good).output
    result = run(command, ["verdict", state])
    assert result.exit_code == 1
    assert "node-001" in result.output
    assert all(len(line) <= 100 for line in result.output.splitlines())
    assert json.loads(run(command, ["verdict", state, "--json"]).output)["accused"][0]["names"] == ["node-001"]
    assert not list(tmp_path.glob(".state*")), "no temporary file is left"


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"nodes": 3}', "\x00", '{"nodes": ["a", "b"], "results": [{"nodes": ["a", "z"], "value": 1}]}']
)
def test_a_file_that_is_no_state_ends_with_code_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    assert CliRunner().invoke(command, ["verdict", str(path)]).exit_code == 2


def test_state_survives_its_file() -> None:
    state = start(names(5), seed=9)
    next_round(state)
    again = msgspec.json.decode(msgspec.json.encode(state), type=State)
    assert again == state
    assert outstanding(again) == state.pending
