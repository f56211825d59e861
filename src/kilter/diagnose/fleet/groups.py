"""What the results of group tests (pass or fail) say: halves to run next, the guilty, the cleared."""

from __future__ import annotations

from kilter.diagnose.fleet.search import State


class GroupAnalysis:
    """What group results say: the halves to run next, the guilty, the cleared."""

    def __init__(self, state: State) -> None:
        self.refs = set(state.references)
        self.votes: dict[tuple[str, ...], list[int]] = {}
        for result in state.results:
            key = tuple(sorted(n for n in result.nodes if n not in self.refs)) or tuple(result.nodes)
            vote = self.votes.setdefault(key, [0, 0])
            vote[result.failed] += 1
        self.run: list[list[str]] = []
        self.guilty: list[tuple[str, int]] = []
        self.together: list[tuple[list[str], int]] = []
        self.cleared = 0
        candidates = [n for n in state.nodes if n not in self.refs]
        if candidates:
            self._walk(candidates)

    def _walk(self, group: list[str]) -> str:
        """Follow ``group`` down; returns pass, fail or open."""
        passes, fails = self.votes.get(tuple(sorted(group)), (0, 0))
        if passes == fails:
            self.run.append(group)
            return "open"
        if passes > fails:
            self.cleared += len(group)
            return "pass"
        if len(group) == 1:
            if fails - passes < 2:
                self.run.append(group)
                return "open"
            self.guilty.append((group[0], fails))
            return "fail"
        half = (len(group) + 1) // 2
        outcomes = {self._walk(group[:half]), self._walk(group[half:])}
        if outcomes == {"pass"}:
            # Both halves are fine, the whole was not: noise, or something between the halves. The whole runs again.
            self.cleared -= len(group)
            if fails - passes < 2:
                self.run.append(group)
                return "open"
            self.together.append((group, fails))
        return "fail"
