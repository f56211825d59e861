"""dcgmi diag, health, discovery, and the host engine's log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import long_lines, mangled, parse_text

A10G = (Path(__file__).parents[2] / "data/s060-dcgmi-diag-a10g-targeted-power/dcgmi-diag.txt").read_text()
# Layout of 4.4.2 (NVIDIA/DCGM issue on error injection) with a failure as dcgmi/tests/DiagTests.cpp shows it.
FOUR = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.4.2                                          |
| Driver Version Detected   | 580.105.08                                     |
| GPU Device IDs Detected   | 2330, 2330                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Warn                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | A memory thing is not quite as it should be   |
|                           | on this card.                                  |
+-----  Integration  -------+------------------------------------------------+
| pcie                      | Fail                                           |
| Warning                   | global trouble                                 |
|                           | GPU0: Fail                                     |
| Warning: GPU0             | GPU 0 has replays                              |
|                           | GPU1: Pass                                     |
+---------------------------+------------------------------------------------+
"""
HEALTH = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Warning                                                  |
|                           | The car is red? Are you sure because that doesn't seem   |
|                           | like the color I ordered.                                |
| -> 1                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Failure                                                  |
|                           | green                                                    |
|       -> SM system        | Warning                                                  |
|                           | blue                                                     |
+---------------------------+----------------------------------------------------------+
"""
DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H200                                                    |
|        | PCI Bus ID: 00000000:8D:00.0                                         |
|        | Device UUID: GPU-65f8c655-bdb7-3246-468c-994c27fbb392                |
+--------+----------------------------------------------------------------------+
| 1      | Name: <<<NULL>>>                                                     |
|        | PCI Bus ID: 00000000:5D:00.0                                         |
|        | Device UUID: GPU-75c4ee16-a840-6f6c-9a7b-5ed8f41598b8                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
+-----------+
"""
V3 = {
    "DCGM GPU Diagnostic": {
        "version": "3.1.8",
        "Driver Version Detected": "535.1.2",
        "test_categories": [
            {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, None]},
            {
                "category": "Integration",
                "tests": [
                    {
                        "name": "PCIe",
                        "results": [
                            {"gpu_ids": "0", "status": "Pass", "info": ["GPU 0 fine"]},
                            {"gpu_ids": "1", "status": "Fail", "warnings": [{"warning": "slow", "error_id": 24}]},
                        ],
                    }
                ],
            },
        ],
    }
}
V4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {
                "category": "Integration",
                "tests": [
                    {
                        "name": "pcie",
                        "results": [
                            {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
                            {
                                "entity_group": "GPU",
                                "entity_group_id": 1,
                                "entity_id": 1,
                                "status": "Fail",
                                "warnings": [{"error_category": 7, "error_id": 24, "error_severity": 2, "warning": "replays"}],
                            },
                        ],
                        "test_summary": {"status": "Fail"},
                    }
                ],
            }
        ]
    },
    "entity_groups": [],
    "metadata": {"version": "4.2.3", "Driver Version Detected": "570.124.06"},
}


def results(text):
    fragment = parse_text("dcgmi", text)
    assert fragment.unplaced == []
    return fragment, {(t.name, t.device): t for t in fragment.snapshot.diagnostics or []}


def test_every_row_of_a_3x_table_is_a_result():
    fragment, tests = results(A10G)
    assert len(tests) == 9 + 4 + 4 + 2
    assert {n for n, t in tests.items() if t.result == "fail"} == {("Targeted Power", "GPU 1")}
    assert tests["EUD Test", ""].result == "skip"
    assert tests["PCIe", ""].result == "pass"
    assert fragment.snapshot.software.services["nvidia-dcgm"].version == "3.3.9"
    assert fragment.snapshot.software.driver_version == "570.195.03"


def test_a_message_cut_in_the_middle_of_words_is_whole_again():
    _, tests = results(A10G)
    assert tests["Targeted Power", "GPU 1"].message == (
        "GPU 1 Max power of 224.1 did not reach desired power minimum target_power_min_ratio of 224.2 for GPU 1 Verify that the clock"
        " speeds and GPU utilization are high."
    )
    assert tests["Targeted Power", "GPU 2"].message == "GPU 2 GPU 2 max power: 227.0 W average power usage: 224.0 W"
    assert tests["Targeted Power", "GPU 1"].origin[""] == (0, 27)


def test_4x_tables_name_the_entity_and_a_warning_is_not_a_failure():
    fragment, tests = results(FOUR)
    assert tests["memory", "GPU 1"].result == "warn"
    assert tests["memory", "GPU 1"].message.startswith("A memory thing")
    assert tests["pcie", "GPU 0"].result == "fail"
    assert "replays" in tests["pcie", "GPU 0"].message
    assert tests["pcie", "GPU 1"].result == "pass"
    assert ("pcie", "") not in tests
    assert fragment.source.version == "4.4.2"


def test_a_run_that_ended_is_no_result():
    fragment = parse_text("dcgmi", "Successfully ran diagnostic for group.\n")
    assert fragment.snapshot.diagnostics is None
    assert any("cut short" in note for note in fragment.notes) or fragment.notes == []


def test_a_cut_table_says_so():
    fragment = parse_text("dcgmi", "\n".join(A10G.splitlines()[:20]))
    assert any("cut short" in note for note in fragment.notes)
    assert parse_text("dcgmi", A10G).notes == []


def test_health_is_a_tree_of_entities_and_systems():
    _, tests = results(HEALTH)
    assert tests["Overall Health", ""].result == "fail"
    assert tests["Memory system", "GPU 0"].result == "warn"
    assert tests["Memory system", "GPU 0"].message.endswith("doesn't seem like the color I ordered.")
    assert tests["SM system", "GPU 1"].result == "warn"


def test_health_that_is_not_watched_is_not_healthy():
    fragment, tests = results("Error: Health watches not enabled. Please enable watches. \n")
    assert tests["run", ""].result == "not run"
    assert fragment.notes


def test_the_host_engines_log_tells_of_health():
    line = (
        "2025-12-20 03:04:05.678 ERROR [1514002:1514004] [[Health]] Detected a WARNING in health system Thermal: 'Detected clocks event"
        " due to thermal violation in GPU 2. Verify that the cooling on this machine is functional.'"
    )
    _, tests = results(line)
    assert tests["Thermal system", "GPU 2"].result == "warn"
    assert tests["Thermal system", "GPU 2"].message.endswith("is functional.")


def test_discovery_lists_gpus():
    fragment = parse_text("dcgmi", DISCOVERY)
    first, second = fragment.snapshot.accelerators
    assert (first.index, first.pci_address, first.name) == (0, "0000:8d:00.0", "NVIDIA H200")
    assert second.name is None
    assert second.missing["name"].reason is Reason.NOT_READABLE
    assert fragment.snapshot.accelerators_attached == 2


@pytest.mark.parametrize(("document", "name", "version"), [(V3, "PCIe", "3.1.8"), (V4, "pcie", "4.2.3")])
def test_json_of_both_generations(document, name, version):
    fragment, tests = results(json.dumps(document, indent=3))
    assert tests[name, "GPU 0"].result == "pass"
    assert (tests[name, "GPU 1"].result, tests[name, "GPU 1"].code) == ("fail", "24")
    assert fragment.source.version == version
    assert fragment.snapshot.software.driver_version
    assert tests[name, "GPU 1"].origin[""][1] > 3


def test_a_runtime_error_is_not_a_pass():
    _, tests = results('{\n "DCGM Diagnostic" : { "runtime_error" : "Unable to run", "version": "4.0.0" }\n}')
    assert tests["run", ""].result == "not run"


def test_health_as_json():
    document = {
        "body": {
            "GPU": {
                "children": {
                    "0": {"children": {"Errors": {"children": {"Thermal system": {"value": "Warning", "overflow": ["hot"]}}}}}
                }
            },
            "Overall Health": {"value": "Warning"},
        },
        "header": ["Health Monitor Report"],
    }
    _, tests = results(json.dumps(document, indent=1))
    assert tests["Thermal system", "GPU 0"].message == "hot"
    assert tests["Overall Health", ""].result == "warn"


def test_cut_json_is_said_to_be_cut():
    fragment = parse_text("dcgmi", json.dumps(V4, indent=1)[:200])
    assert fragment.notes
    assert fragment.unplaced


@settings(max_examples=200, deadline=None)
@given(mangled(A10G) | mangled(FOUR) | mangled(HEALTH) | mangled(DISCOVERY) | mangled(json.dumps(V4, indent=1)))
def test_damage_is_survived(text):
    parse_text("dcgmi", text)


@settings(max_examples=30, deadline=None)
@given(long_lines("| a | ", "Successfully ran diagnostic for group.\n|", "{", "+-----  ", "| Diagnostic | Result |\n| a"))
def test_long_lines_are_survived(text):
    parse_text("dcgmi", text)


def test_version_of_both_forms():
    from kilter.intake.merge import assemble
    from kilter.intake.paste import read_text

    def version(text):
        fragments, _ = read_text("pasted", text, year=2026)
        snapshots = assemble(fragments, []).snapshots
        services = snapshots[0].software.services if snapshots else {}
        return services["nvidia-dcgm"].version if "nvidia-dcgm" in services else None

    assert version("# dcgmi -v\nVersion : 2.4.6\nBuild ID : 11\nBuild Date : 2022-07-06\n") == "2.4.6"
    assert version("Version : 2.4.6\nBuild ID : 11\n") == "2.4.6"
    assert version("root@n1:/# dcgmi --version\n\nversion: 3.3.5\n") == "3.3.5"
    assert version("version: 3.3.5\n") is None  # a line of that form can be anybody's
