"""Which node, or which path between two nodes, is guilty: rounds of tests, their results, and the verdict.

Pair tests: every pair once by the circle method (finds paths too), or a few random rounds with the slow regrouped with the fast as DLRover's
network check does, then suspects against good nodes. Group tests (a job that passes or fails): adaptive halves. A pair is as fast as the slower
of its two nodes and of the path between them, so a guilty node slows its whole row of the matrix and a guilty path a single cell. Nodes are
taken out one after the other, the one with most slow pairs first; what is slow in the rest is a path. Source of the methods: research section 7.

The state is one JSON document. Everything follows from it and its seed; results are only ever added.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

from kilter.diagnose.fleet.groups import GroupAnalysis
from kilter.diagnose.fleet.pairs import FAILED, PairAnalysis, log_of
from kilter.diagnose.fleet.search import Accused, Result, Round, State, Verdict

QUICK_ROUNDS = 3
#: So few nodes run every pair whatever the plan: three rounds of few pairs tell little.
FEW_NODES = 10
#: Pairs with good nodes that make a guilty node sure.
SURE = 4


def start(
    nodes: Sequence[str],
    *,
    test: str = "pair",
    plan: str = "",
    seed: int = 1,
    references: Iterable[str] = (),
    lower_is_better: bool = False,
    effect: float = 0.05,
    min_group: int = 1,
) -> State:
    """A new search. Raises ValueError with what is wrong with the input. Without ``plan``, up to 32 nodes run every pair."""
    names = list(dict.fromkeys(nodes))
    good = list(dict.fromkeys(references))
    if test not in ("pair", "group") or plan not in ("", "circle", "quick"):
        raise ValueError("expected test pair or group, and plan circle or quick")
    if unknown := [name for name in good if name not in set(names)]:
        raise ValueError(f"reference nodes that are not in the list: {', '.join(unknown[:5])}")
    if len(names) < 2:
        raise ValueError(f"expected two nodes or more, found {len(names)}")
    if bad := [name for name in names if len(name.split()) != 1 or "," in name or name.startswith("#")]:
        raise ValueError(f"a node name with a blank, comma or '#': {bad[0]!r}")
    if not 0 < effect < 1:
        raise ValueError("the least slowdown is a part between 0 and 1, such as 0.05")
    if min_group > 1 and len(good) < min_group - 1:
        raise ValueError(f"groups of at least {min_group} need {min_group - 1} reference node(s) to fill up")
    return State(
        test=test,
        plan=plan or ("circle" if len(names) <= 32 else "quick"),
        seed=seed,
        nodes=names,
        references=good,
        lower_is_better=lower_is_better,
        effect=effect,
        min_group=min_group,
    )


def circle(nodes: Sequence[str], number: int) -> list[list[str]]:
    """Round ``number`` of the round-robin of ``nodes``: n-1 rounds for even n, n for odd (one node rests)."""
    ring: list[str | None] = [*nodes] if len(nodes) % 2 == 0 else [*nodes, None]
    turn = number % (len(ring) - 1)
    rest = ring[1:]
    seats = [ring[0], *rest[len(rest) - turn :], *rest[: len(rest) - turn]]
    pairs = [(seats[i], seats[-1 - i]) for i in range(len(seats) // 2)]
    return [[a, b] for a, b in pairs if a is not None and b is not None]


def circle_rounds(count: int) -> int:
    return count - 1 if count % 2 == 0 else count


def parse_results(state: State, lines: Iterable[str]) -> tuple[list[Result], list[str]]:
    """Results and complaints of ``node-a node-b 312.5`` / ``... fail`` / ``... pass`` lines; ``#`` begins a comment."""
    known = set(state.nodes)
    found: list[Result] = []
    complaints: list[str] = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].replace(",", " ").split()
        if not words:
            continue
        names = []
        while words and words[0] in known:
            names.append(words.pop(0))
        what = _result_words(words)
        if what is None or (state.test == "group" and what[0] is not None):
            expected = "pass or fail" if state.test == "group" else "a number, pass or fail"
            unknown = f"; {words[0]!r} is no node of this search" if len(words) > 1 and words[0] not in known else ""
            complaints.append(f"line {number}: expected node names and {expected}, found {line.strip()[:80]!r}{unknown}")
        elif len(set(names)) != len(names) or not names or (state.test == "pair" and len(names) != 2):
            complaints.append(
                f"line {number}: expected {'two different' if state.test == 'pair' else 'different'} nodes: {line.strip()[:80]!r}"
            )
        else:
            found.append(Result(sorted(names), what[0], what[1], state.round))
    return found, complaints


def _result_words(words: list[str]) -> tuple[float | None, bool] | None:
    """(value, failed) of the words behind the node names: one word, and a unit behind a number."""
    if not words:
        return None
    word = words[0].lower()
    if word in ("fail", "failed", "timeout", "error", "pass", "passed", "ok"):
        return (None, word not in ("pass", "passed", "ok")) if len(words) == 1 else None
    try:
        value = float(word)
    except ValueError:
        return None
    if not math.isfinite(value) or len(words) > 2:
        return None
    return (value, False) if value > 0 else (None, True)  # no throughput at all is a failure


def outstanding(state: State) -> list[list[str]]:
    """Tests of the last round without a result."""
    # Results are added in the order of rounds: those of the last one are at the end.
    last = itertools.takewhile(lambda r: r.round == state.round, reversed(state.results))
    done = {tuple(r.nodes) for r in last}
    return [test for test in state.pending if tuple(sorted(test)) not in done]


def next_round(state: State, *, skip_missing: bool = False) -> Round | None:
    """The next round of tests, kept in ``state``; None when nothing is left to decide. Outstanding tests come first."""
    missing = outstanding(state)
    if missing and not skip_missing:
        return Round(state.round, missing, "no result yet for these tests of the last round", True)
    tests, why, planned = _group_round(state) if state.test == "group" else _pair_round(state)
    if not tests:
        return None
    state.round += 1
    state.planned += planned
    state.pending = tests
    return Round(state.round, tests, why)


def _pair_round(state: State) -> tuple[list[list[str]], str, bool]:
    every = state.plan == "circle" or len(state.nodes) <= FEW_NODES
    total = circle_rounds(len(state.nodes)) if every else QUICK_ROUNDS
    if state.planned < total:
        if every:
            order = list(state.nodes)
            random.Random(state.seed).shuffle(order)  # noqa: S311 - a schedule, no secret
            return circle(order, state.planned), f"every pair once: round {state.planned + 1} of {total}", True
        return (
            _quick(state),
            f"{'fast with slow' if state.planned == 1 else 'random pairs'}: round {state.planned + 1} of {total}",
            True,
        )
    return _confirm(state), "suspects with good nodes, suspect paths again", False


def _quick(state: State) -> list[list[str]]:
    order = list(state.nodes)
    random.Random(f"{state.seed}/{state.planned}").shuffle(order)  # noqa: S311 - a schedule, no secret
    met = {tuple(r.nodes) for r in state.results}
    if state.planned == 1:  # slow with fast, by the first round's results
        score = dict.fromkeys(order, 0.0)
        for r in state.results:
            for name in r.nodes:
                score[name] = FAILED * 100 if r.failed else log_of(state, r) or 0.0
        order.sort(key=lambda name: score[name])
        half = len(order) // 2
        slow, fast = order[:half], order[half:]
    else:
        half = len(order) // 2
        slow, fast = order[:half], order[half:]
    # Shift the fast side until no pair meets again; a shift that has repeats everywhere is taken as it is.
    for shift in range(min(len(fast), 50)):
        turned = fast[shift:] + fast[:shift]
        pairs = [[a, b] for a, b in zip(slow, turned, strict=False)]
        if not any(tuple(sorted(p)) in met for p in pairs):
            break
    return pairs


def _confirm(state: State) -> list[list[str]]:
    """Suspects with good nodes that they have not met, and doubtful paths again; each node once."""
    found = PairAnalysis(state)
    # A guilty node is confirmed by one more good partner than the least that accuses it.
    suspects = found.undecided() + [name for name, _, count, _ in found.guilty if count < SURE]
    doubtful = set(suspects)
    refs = set(state.references)
    order = random.Random(f"{state.seed}/good/{state.round}")  # noqa: S311 - a schedule, no secret
    good = [n for n in state.nodes if n in found.active and n not in doubtful]
    order.shuffle(good)
    good.sort(key=lambda n: n not in refs)
    used: set[str] = set()
    tests: list[list[str]] = []
    for name in suspects:
        met = {other for pair in found.rows[name] for other in pair}
        partner = next((n for n in good if n not in used and n not in met), None)
        if partner is not None:
            used |= {name, partner}
            tests.append([name, partner])
    for a, b in sorted(found.doubtful, key=lambda p: found.cell[p]):
        if a not in used and b not in used:
            used |= {a, b}
            tests.append([a, b])
    return tests


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _pair_verdict(state: State) -> Verdict:
    if len(state.nodes) > 2 and state.results and all(r.failed for r in state.results):
        everything = "every test fails: look at the test itself, or at what all nodes share, before any node"
        return Verdict(tests=len(state.results), suspects=list(state.nodes), next=everything)
    found = PairAnalysis(state)
    result = Verdict(tests=len(state.results), spread=found.spread if state.results else None)
    many = len(found.guilty) * 3 > len(state.nodes) and not state.references
    for name, middle, count, _ in sorted(found.guilty, key=lambda g: g[1]):
        fails = middle <= FAILED * 0.9
        slowdown = None if fails else 1 - math.exp(middle)
        how = "fails" if slowdown is None else f"is {_percent(slowdown)} slower"
        text = f"{name} {how} with its good partners ({count} pairs): the node, its NICs or its own links"
        confidence = "low" if many else "high" if count >= SURE else "medium"
        result.accused.append(
            Accused(kind="node", names=[name], slowdown=slowdown, tests=count, confidence=confidence, text=text)
        )
    ends: dict[str, int] = {}
    for (a, b), *_ in found.slow_paths:
        ends[a], ends[b] = ends.get(a, 0) + 1, ends.get(b, 0) + 1
    for (a, b), value, count, _ in sorted(found.slow_paths, key=lambda p: p[1]):
        slowdown = None if value <= FAILED * 0.9 else 1 - math.exp(value)
        how = "fails" if slowdown is None else f"is {_percent(slowdown)} slower"
        alone = min(len(found.row(a)), len(found.row(b))) >= 3
        text = f"{a} - {b} {how} in {count} tests, while both are good with others: the path between them (uplink, route, cable)"
        if most := max((a, b), key=lambda n: ends[n]) if max(ends[a], ends[b]) >= 3 else "":
            text += f"; {ends[most]} such paths meet in {most}: one of its rails or its leaf's uplink"
        confidence = "high" if alone and count >= 3 else "medium" if alone else "low"
        result.accused.append(
            Accused(kind="path", names=[a, b], slowdown=slowdown, tests=count, confidence=confidence, text=text)
        )
    suspects = found.undecided()
    result.suspects = suspects + [f"{a} - {b}" for a, b in found.doubtful if not {a, b} & set(suspects)]
    result.good = sum(1 for n in found.active if found.row(n) and n not in suspects)
    possible = len(state.nodes) * (len(state.nodes) - 1) // 2
    if len(found.raw) < possible:
        result.not_tested = f"{possible - len(found.raw):,} of {possible:,} paths have not been tested"
    alone_nodes = [n for n in state.nodes if not found.rows[n]]
    if alone_nodes:
        result.not_tested += f"; no result of {', '.join(alone_nodes[:5])}" + (" ..." if len(alone_nodes) > 5 else "")
    result.not_tested = result.not_tested.removeprefix("; ")
    if many:
        result.next = (
            "more than a third of the nodes look guilty: name nodes that are known to be good (--reference) and test against them"
        )
    elif missing := outstanding(state):
        result.next = (
            f"{len(missing)} test(s) of round {state.round} have no result: record them, or kilter bisect next --skip-missing"
        )
    elif _pair_round(state)[0]:
        result.next = "kilter bisect next"
    elif len(state.nodes) == 2 and result.suspects:
        result.next = "two nodes alone cannot tell node from path: add a third"
    elif result.accused:
        result.next = "run the accused against a known-good node once more, then drain; for a path, check routes and cables of the switches between"
    return result


def _group_round(state: State) -> tuple[list[list[str]], str, bool]:
    tests = []
    for group in GroupAnalysis(state).run:
        fill = state.references[: max(0, state.min_group - len(group))]
        tests.append([*group, *fill])
    if state.min_group > 1:
        # Groups that need the same reference nodes cannot run at one time.
        kept: list[list[str]] = []
        used: set[str] = set()
        for test in tests:
            own = set(test) & set(state.references)
            if not own & used:
                used |= own
                kept.append(test)
        tests = kept
    return tests, "groups that may run at one time", False


def _group_verdict(state: State) -> Verdict:
    found = GroupAnalysis(state)
    result = Verdict(tests=len(state.results), good=max(found.cleared, 0))
    for name, count in found.guilty:
        text = f"{name} fails alone in {count} tests"
        result.accused.append(
            Accused(
                kind="node", names=[name], slowdown=None, tests=count, confidence="high" if count >= 2 else "medium", text=text
            )
        )
    for group, count in found.together:
        who = f"{group[0]} ... {group[-1]} ({len(group)} nodes)"
        text = f"{who} fail together in {count} tests, each half passes: a path between the halves, or the size"
        result.accused.append(Accused(kind="together", names=group, slowdown=None, tests=count, confidence="medium", text=text))
    result.suspects = [n for group in found.run for n in group] if state.results else []
    if missing := outstanding(state):
        result.next = (
            f"{len(missing)} test(s) of round {state.round} have no result: record them, or kilter bisect next --skip-missing"
        )
    elif found.run:
        result.next = "kilter bisect next"
    return result


def verdict(state: State) -> Verdict:
    """What the results so far say."""
    return _group_verdict(state) if state.test == "group" else _pair_verdict(state)
