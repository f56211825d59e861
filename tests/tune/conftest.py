"""Plans from captures: texts as the tools print them, read by the real readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kilter.facts.plan import Advice, Change, Plan, Verdict
from kilter.facts.workload import Workload
from kilter.intake.read import read_paths
from kilter.tune.recommend import plan

TO_DO = (Verdict.RECOMMEND, Verdict.REFUSE, Verdict.CONFLICT)


class Planned:
    """A plan with the questions tests ask of it."""

    def __init__(self, made: Plan) -> None:
        self.plan = made
        self.by_id = {advice.id: advice for advice in made.advice}

    def __getitem__(self, id_: str) -> Advice:
        return self.by_id[id_]

    @property
    def to_do(self) -> list[str]:
        """Ids of what is to be changed or refused, the most important first."""
        return [advice.id for advice in self.plan.advice if advice.verdict in TO_DO]

    @property
    def changes(self) -> list[Change]:
        return [change for advice in self.plan.advice if advice.verdict in TO_DO for change in advice.changes]

    def boot_line(self) -> set[str]:
        """What would be put on the kernel command line."""
        return {f"{c.key}={c.value}" for c in self.changes if c.mechanism == "cmdline" and c.value is not None}


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Planned]:
    def run(*texts: str, workload: Workload | None = None, **answers: object) -> Planned:
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.txt"
            path.write_text(text, encoding="utf-8")
            paths.append(str(path))
        case = read_paths(paths)
        work = workload or Workload()
        work.answers |= {name.replace("__", "."): value for name, value in answers.items()}
        assert all(i.tools for i in case.inputs), [i for i in case.inputs if not i.tools]
        (snapshot,) = list(case.snapshots)
        return Planned(plan(case, snapshot, work))

    return run
