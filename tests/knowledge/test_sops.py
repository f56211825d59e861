from __future__ import annotations

import re

import pytest

from kilter.knowledge import sops

IDS = ["APP", "BUS", "CONG", "GSP", "HOST", "IB", "MEM", "NCCL", "NVL", "PWR", "SLOW", "SW", "THERM"]
SECTIONS = ["Purpose", "Use when", "Save first", "Steps", "Stop and", "Return to service", "Do not", "Sources"]


def test_all_thirteen_procedures_are_there():
    assert sops.all_ids() == tuple(f"SOP-{i}" for i in IDS)


@pytest.mark.parametrize("sop_id", sops.all_ids())
def test_a_procedure_has_every_part(sop_id):
    sop = sops.load(sop_id)
    assert sop.title
    assert sop.text.startswith(f"# {sop_id}: {sop.title}\n")
    assert all(sop.section(name) for name in SECTIONS), [n for n in SECTIONS if not sop.section(n)]
    assert 55 <= sop.text.count("\n") <= 120
    assert sop.purpose.count("\n") == 0


@pytest.mark.parametrize("sop_id", sops.all_ids())
def test_the_steps_are_numbered_and_carry_commands_and_what_good_looks_like(sop_id):
    steps = sops.load(sop_id).section("Steps")
    assert [int(n) for n in re.findall(r"^(\d+)\. ", steps, re.MULTILINE)] == list(range(1, steps.count("\n") + 1))[
        : len(re.findall(r"^\d+\. ", steps, re.MULTILINE))
    ]
    assert steps.count("`") >= 10
    assert steps.count("`") % 2 == 0
    assert "Good:" in steps


@pytest.mark.parametrize("sop_id", sops.all_ids())
def test_only_listed_placeholders_are_used(sop_id):
    code = "".join(re.findall(r"`[^`]*`", sops.load(sop_id).text))
    used = set(re.findall(r"(?<!prio)\{(\w+)\}", code))
    assert used - {"print"} <= set(sops.PLACEHOLDERS)


def test_the_readme_lists_the_placeholders():
    from pathlib import Path

    readme = (Path(sops.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `\{(\w+)\}`", readme, re.MULTILINE)) == set(sops.PLACEHOLDERS)


@pytest.mark.parametrize("sop_id", sops.all_ids())
def test_commands_that_bring_a_node_back_or_down_are_marked(sop_id):
    for line in sops.load(sop_id).text.splitlines():
        if re.search(r"`[^`]*(systemctl reboot|--gpu-reset|modprobe nvidia-peermem)[^`]*`", line):
            block = sops.load(sop_id).text
            start = block.index(line)
            assert "changes state" in block[max(0, start - 200) : start + len(line) + 300], line


def test_after_a_gsp_timeout_nobody_polls():
    assert "do not poll" in sops.load("sop-gsp").section("Do not")


def test_names_are_taken_in_any_case_and_unknown_ones_refused():
    assert sops.load(" sop-bus ").id == "SOP-BUS"
    with pytest.raises(KeyError, match="SOP-BUS"):
        sops.load("SOP-NONE")
    with pytest.raises(KeyError):
        sops.load("../README")


def test_known_values_are_filled_in_and_others_stay_visible():
    text = sops.fill("lspci -s {address} on {node}", address="0000:9b:00.0")
    assert text == "lspci -s 0000:9b:00.0 on {node}"
    assert sops.fill("-i {gpu}", gpu=4) == "-i 4"


@pytest.mark.parametrize("value", ["a; rm -rf /", "$(id)", "-rf", "", "a b", "x\ny", "`id`"])
def test_what_is_no_plain_name_never_gets_into_a_command(value):
    assert sops.fill("lspci -s {address}", address=value) == "lspci -s {address}"


def test_a_wrong_placeholder_is_an_error():
    with pytest.raises(TypeError, match="placeholder"):
        sops.fill("x", nodes="a")
