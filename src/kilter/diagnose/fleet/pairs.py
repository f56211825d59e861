"""What the results of pair tests say: nodes whose whole row is slow, paths whose single cell is.

A pair is as fast as the slower of its two nodes and of the path between them. Nodes are taken out one after the other, the one with most slow
pairs first; what is slow among the rest is a path.
"""

from __future__ import annotations

import math
import statistics

from kilter.diagnose.fleet.search import Result, State

Pair = tuple[str, str]
#: Logarithm that stands for a failed test: far below any slow one.
FAILED = -5.0
#: Spread of a pair test that is assumed until the results tell it (3 %: bandwidth tests on a quiet fabric).
DEFAULT_SPREAD = 0.03
LEAST_SPREAD = 0.003
#: Chance of a false accusation that a verdict allows, shared by all nodes (or paths) that it looks at.
FALSE_ALARM = 0.005
#: A suspect is not tested more often than this.
MAX_REPEATS = 6


def log_of(state: State, result: Result) -> float | None:
    """Logarithm of a result, more is better; None without a number."""
    if result.value is None:
        return None
    return -math.log(result.value) if state.lower_is_better else math.log(result.value)


class PairAnalysis:
    """What the pair results say: ``guilty`` nodes, ``slow_paths``, ``doubtful`` pairs.

    A residual is the logarithm of a result less that of good pairs.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.raw: dict[Pair, list[Result]] = {}
        for result in state.results:
            if len(result.nodes) == 2:
                self.raw.setdefault((result.nodes[0], result.nodes[1]), []).append(result)
        self.level: dict[Pair, float | None] = {pair: self._level(results) for pair, results in self.raw.items()}
        self.rows: dict[str, list[Pair]] = {name: [] for name in state.nodes}
        for pair in self.raw:
            for name in pair:
                self.rows[name].append(pair)
        self.peers: dict[str, list[tuple[str, float | None]]] = {name: [] for name in state.nodes}
        for (a, b), level in self.level.items():
            self.peers[a].append((b, level))
            self.peers[b].append((a, level))
        self.active = set(state.nodes)
        self.guilty: list[tuple[str, float, int, float]] = []  # node, residual, tests, z
        self.slow_paths: list[tuple[Pair, float, int, float]] = []
        self.centre = self.spread = 0.0
        self._peel()
        self._paths()

    def _level(self, results: list[Result]) -> float | None:
        """Median of a pair's repeats; None where it passed without a number."""
        if len(results) == 1:
            return FAILED * 100 if results[0].failed else log_of(self.state, results[0])
        numbers = [FAILED * 100 if r.failed else log_of(self.state, r) for r in results]
        known = [n for n in numbers if n is not None]
        return statistics.median(known) if known and len(known) * 2 >= len(numbers) else None

    def residual(self, pair: Pair) -> float:
        level = self.level[pair]
        return 0.0 if level is None else max(FAILED, level - self.centre)

    def _again(self, pair: Pair) -> float:
        """Residual of all results of a pair but the first."""
        level = self._level(self.raw[pair][1:])
        return 0.0 if level is None else max(FAILED, level - self.centre)

    def _measure(self) -> None:
        """Level of good pairs, from the nodes still in (references only, where they have results), and the spread above it."""
        refs = set(self.state.references)
        middles = {}
        for name in self.active:
            values = [level for other, level in self.peers[name] if level is not None and other in self.active]
            if values:
                middles[name] = statistics.median(values)
        numbers = [v for v in middles.values() if v > FAILED * 10] or [0.0]
        good = [v for p in self.raw if refs.issuperset(p) and (v := self.level[p]) is not None and v > FAILED * 10]
        self.centre = statistics.median(good or numbers)
        # Guilt only lowers results: the half above the centre shows the noise alone.
        above = [r for p in self.raw if self.inside(p) and (r := self.residual(p)) > 0]
        # Few results may show too little of it by chance.
        seen = 1.4826 * statistics.median(above) * (1 + 1 / math.sqrt(len(above))) if len(above) >= 4 else DEFAULT_SPREAD
        self.spread = max(LEAST_SPREAD, seen)

    def inside(self, pair: Pair) -> bool:
        return pair[0] in self.active and pair[1] in self.active

    def row(self, name: str) -> list[float]:
        """Residuals of a node's pairs with the nodes that are still in."""
        active, lowest = self.active, FAILED + self.centre
        return [
            0.0 if level is None else (level if level > lowest else lowest) - self.centre
            for other, level in self.peers[name]
            if other in active
        ]

    def _peel(self) -> None:
        refs = set(self.state.references)
        bar = bar_of(len(self.state.nodes))
        least = math.log(1 - self.state.effect)
        while True:
            self._measure()
            best: tuple[tuple[int, float], str, float, int, float] | None = None
            if len(self.guilty) >= len(self.state.nodes) // 2 and not refs:
                return  # with half of the nodes guilty, nobody can say which half
            for name in self.active - refs:
                row = self.row(name)
                if len(row) < 3:
                    continue
                middle = statistics.median(row)
                slow = sum(1 for r in row if r <= least / 2)
                z = -middle * math.sqrt(len(row)) / (1.2533 * self.spread)
                if middle <= least and z >= bar and slow >= 0.6 * len(row):
                    rank = ((slow, -middle), name, middle, len(row), z)
                    if best is None or (rank[0], rank[1]) > (best[0], best[1]):
                        best = rank
            if best is None:
                return
            self.active.discard(best[1])
            self.guilty.append(best[1:])

    def _paths(self) -> None:
        pairs = [p for p in self.raw if self.inside(p)]
        bar = bar_of(max(len(pairs), 1))
        least = math.log(1 - self.state.effect)
        # Small lasting differences between good nodes are no matter of the path (one sweep of a median polish).
        own = {name: statistics.median(row) if len(row := self.row(name)) >= 5 else 0.0 for name in self.active}
        self.doubtful: list[Pair] = []
        self.cell: dict[Pair, float] = {}
        for pair in pairs:
            count = len(self.raw[pair])
            value = self.cell[pair] = self.residual(pair) - own[pair[0]] - own[pair[1]]
            if value > least:
                continue
            z = -value * math.sqrt(count) / (self.spread * (1.2533 if count > 2 else 1.0))
            # The first result made it a suspect, the worst of many; only the repeats are evidence.
            again = self._again(pair) - own[pair[0]] - own[pair[1]]
            if count >= 2 and again <= least and -again * math.sqrt(count - 1) / (self.spread * 1.2533) >= bar:
                self.slow_paths.append((pair, value, count, z))
            elif z >= 3 and count < MAX_REPEATS:
                self.doubtful.append(pair)

    def undecided(self) -> list[str]:
        """Nodes that look slow, or that have met no good node, and that more tests can decide."""
        least = math.log(1 - self.state.effect)
        refs = set(self.state.references)
        found = []
        for name in self.state.nodes:
            if name in self.active and name not in refs and len(row := self.row(name)) < MAX_REPEATS:
                middle = statistics.median(row) if row else 0.0
                looks_slow = bool(row) and middle <= least and -middle * math.sqrt(len(row)) / (1.2533 * self.spread) >= 2
                if looks_slow or (not row and self.state.results):
                    found.append(name)
        return found


def bar_of(count: int) -> float:
    """Standard deviations that ``count`` looks at pure noise pass with the chance FALSE_ALARM."""
    return statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / count)
