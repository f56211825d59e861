"""Who failed first: cases with one clear answer, cases without one, and generated incidents with a known truth."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kilter.diagnose.first_cause import Incident, find
from kilter.diagnose.timeline import build
from kilter.facts.case import Case
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text

sys.path.insert(0, str(Path(__file__).parents[1]))
import incidents

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=9, name=python, GPU has fallen off the bus."


def case_of(files: dict[str, str]) -> Case:
    fragments, inputs = [], []
    for name, text in files.items():
        found, info = read_text(name, text, year=2026)
        for one in found:
            one.group = name.split("/")[0] if "/" in name else ""
        fragments += found
        inputs.append(info)
    return assemble(fragments, inputs)


def kernel(node: str, clock: str, text: str) -> str:
    return f"2026-03-04T{clock}+00:00 {node} kernel: {text}\n"


def gone(node: str, clock: str, peer: str) -> str:
    return f"[2026-03-04 {clock}] {node}:4000:5000 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer {peer}<51234>\n"


def test_one_node_with_one_fault_needs_no_verdict() -> None:
    assert find(case_of({"kern.log": kernel("a", "10:00:00.000000", XID79)})) is None


def test_root_before_the_complaints_is_accused_and_victims_are_told_apart() -> None:
    incident = find(
        case_of(
            {
                "a/kern.log": kernel("a", "10:00:00.000000", XID79),
                "b/kern.log": kernel("b", "09:00:00.000000", "usb 1-1: new high-speed USB device"),
                "job.log": gone("b", "10:00:30", "a") + gone("c", "10:00:31", "a"),
            }
        )
    )
    assert incident is not None
    assert (incident.node, incident.kind, incident.confidence) == ("a", "gpu or bus", "high")
    assert incident.victims == ["b", "c"]
    assert any("c" in missing for missing in incident.missing)


def test_fault_of_last_week_accuses_nobody() -> None:
    old = kernel("a", "10:00:00.000000", XID79).replace("2026-03-04", "2026-02-25")
    incident = find(case_of({"a/kern.log": old, "job.log": gone("b", "10:00:30", "x") + gone("c", "10:00:31", "y")}))
    assert incident is not None
    assert incident.node == ""
    assert incident.kind == "unknown"


def test_many_that_complain_of_one_accuse_it() -> None:
    incident = find(
        case_of({"job.log": "".join(gone(n, f"10:00:3{i}", "z") for i, n in enumerate("bcd")) + gone("z", "10:00:35", "b")})
    )
    assert incident is not None
    assert (incident.node, incident.confidence) == ("z", "medium")


def test_complaints_in_a_circle_accuse_nobody() -> None:
    incident = find(case_of({"job.log": gone("a", "10:00:30", "b") + gone("b", "10:00:31", "c") + gone("c", "10:00:32", "a")}))
    assert incident is not None
    assert incident.node == ""
    assert "cannot be known" in incident.what


def test_faults_within_the_clocks_uncertainty_accuse_nobody() -> None:
    incident = find(
        case_of({"a/kern.log": kernel("a", "10:00:00.000000", XID79), "b/kern.log": kernel("b", "10:00:02.000000", XID79)})
    )
    assert incident is not None
    assert incident.node == ""
    assert "uncertainty" in incident.what


def test_one_moment_on_most_nodes_is_something_shared() -> None:
    down = "mlx5_core 0000:1a:00.0 ib0: Link down"
    incident = find(case_of({f"n{i}/kern.log": kernel(f"n{i}", f"10:00:0{i}.000000", down) for i in range(4)}))
    assert incident is not None
    assert incident.node == ""
    assert "share" in incident.what


def test_boot_clocks_order_only_their_own_node() -> None:
    line_up = build(case_of({"a/dmesg": f"[  100.000000] {XID79}\n", "b/dmesg": f"[   50.000000] {XID79}\n"}))
    assert all(m.time is None for m in line_up.moments)
    assert line_up.moments[0].before(line_up.moments[1]) is None
    assert any("since boot" in note for note in line_up.notes)


def _solve(seed: int, script: str, nodes: int) -> tuple[str, Incident | None]:
    files, truth, _ = incidents.make(seed, script, nodes)
    return truth, find(case_of(files))


@pytest.mark.parametrize("script", sorted(incidents.SCRIPTS))
def test_generated_incidents(script: str) -> None:
    """Lines of real logs, clocks up to 5 s apart, a tenth of the lines lost. benchmarks/incidents.py runs more of them."""
    wrong, right, total = [], 0, 0
    for seed, nodes in ((1, 8), (2, 16), (3, 32), (4, 64)):
        truth, incident = _solve(seed, script, nodes)
        accused = incident.node if incident is not None else ""
        total += 1
        right += accused == truth
        if accused and accused != truth:
            wrong.append((seed, accused, truth, incident))
    assert not wrong
    assert right >= total - 1
