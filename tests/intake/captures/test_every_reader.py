"""What must hold for every reader of CAPTURES, whatever its tool: no text makes it fail, and cited lines exist.

Samples are what stands in tests/data, or in the tests themselves, behind a line that the reader's ``start`` recognises.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilter.facts.base import Source
from kilter.intake.captures import CAPTURES, STARTS, Capture, capture_of
from kilter.intake.fragment import Block, Fragment
from kilter.intake.paste import read_text
from mangle import PIECES, check_references, mangled, written_samples

DATA = Path(__file__).parents[2] / "data"
LONGEST = 6000
#: Tools whose outputs are built by the tests or have no three lines.
SHORT = {
    "xpu-smi -m": "00000000:03:00.0 0 0 KL0201A180000000 45 0 1300 80 0 32768 0 0 0\n00000000:83:00.0 1 1 N/A 46 0 1300 81 0 32768 0 0 0\n",
    "xpu-smi -L": "XPU 0: Kunlun R200 (UUID: 02K00Y6228V00045)\nXPU 1: Kunlun R200 (UUID: 02K00Y6228V00046)\n",
    "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-5.15.0-91-generic root=UUID=1 ro iommu=pt intel_iommu=on pci=realloc=off\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc\n",
    "uname -a": "Linux gpu-1 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023 x86_64 GNU/Linux\n",
    "kilter collector": "kilter collector 1\nepoch: 1772600000\nuptime: 1234.5\nuid: 1000\n0\t1.5\ta\tlspci\nhung\t60\tb\tnvidia-smi -q\n",
    "services": "nvidia-fabricmanager: failed\nnvidia-persistenced: unknown\ndocker: active\n",
    "nv-fabricmanager --version": "Fabric Manager version is : 535.129.03\n",
    "cma_roce_mode": "RoCE v2\n",
    "Redfish log": '{"@odata.id": "/redfish/v1/Systems/1/LogServices/SEL/Entries", "@odata.type": "#LogEntryCollection.LogEntryCollection",\n'
    ' "Members": [{"Id": "1", "EntryType": "SEL", "Severity": "Critical", "Created": "2026-01-02T03:04:05Z",\n'
    ' "Message": "Bus Fatal Error", "SensorType": "Critical Interrupt"}]}\n',
    "dcgmi -j": '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "GPU Memory", "results":\n'
    ' [{"gpu_id": "0", "status": "Fail", "warnings": [{"warning": "x", "error_id": 1}]}]}]}]}}\n',
}


def _samples() -> dict[str, list[str]]:
    """tool -> beginnings of outputs, the first of each file."""
    found: dict[str, list[str]] = {}
    paths = [path for path in sorted(DATA.rglob("*")) if path.is_file() and path.suffix != ".yaml"]
    texts = [path.read_bytes()[:100_000].decode("utf-8", "replace") for path in paths]
    for text in (*texts, *(sample for _, sample in written_samples())):
        seen = set()
        for match in STARTS.finditer(text):
            tool = capture_of(match).tool
            if tool not in seen:
                seen.add(tool)
                found.setdefault(tool, []).append(text[match.start() :][:LONGEST])
    return found


SAMPLES = _samples()


def samples_of(capture: Capture) -> list[str]:
    return SAMPLES.get(capture.tool, [])[:8] or [SHORT[capture.tool]]


def read(capture: Capture, text: str) -> Fragment:
    source = Source(name="capture.txt", tool=capture.tool)
    fragment = Fragment(source)
    capture.parser()(Block(source=source, lines=text.split("\n")), fragment)
    check_references(fragment, text)
    return fragment


def test_every_reader_has_a_sample() -> None:
    for capture in CAPTURES:
        for sample in samples_of(capture):
            match = STARTS.match(sample)
            assert match is not None, capture.tool
            assert capture_of(match).module == capture.module


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.tool.replace("/", "-"))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_text_makes_a_reader_fail(capture: Capture, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(samples_of(capture)))
    read(capture, data.draw(mangled(sample) | st.text(max_size=200)))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.tool.replace("/", "-"))
def test_a_reader_takes_cut_and_shuffled_outputs(capture: Capture) -> None:
    rng = random.Random(capture.tool)
    for sample in samples_of(capture)[:3]:
        for _ in range(8):
            read(capture, sample[: rng.randrange(len(sample) + 1)])
        lines = sample.split("\n")
        rng.shuffle(lines)
        read(capture, "\n".join(lines))
        read(capture, sample.replace("\n", "\r\n"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.tool.replace("/", "-"))
def test_a_reader_takes_long_lines_and_numbers(capture: Capture) -> None:
    """The whole text is read, so that what is kept from the readers (numbers that no tool prints) is kept here too."""
    rng = random.Random(capture.tool)
    sample = samples_of(capture)[0]
    head = sample.split("\n", 1)[0]
    texts = [
        f"{head}\n{rng.choice(sample.split(chr(10)))[: rng.randrange(40)]}{piece * (4000 // len(piece))}\n{sample}"
        for piece in PIECES
    ]
    texts += [sample.replace(str(digit), "9" * length) for digit in range(3) for length in (20, 40, 290, 400)]
    for text in texts:
        _, summary = read_text("capture.txt", text, year=2026)
        assert not [note for note in summary.notes if "failed at line" in note]


#: Readers of logs and of long descriptions, most of whose lines say nothing of hardware: what they pass over is not counted.
PASSES_OVER = {
    "container log",
    "Fabric Manager log",
    "kubectl describe",
    "sdiag",
    "Slurm log",
    "dmidecode",
    "mlxlink",
    "smartctl",
}


@pytest.mark.parametrize("capture", [c for c in CAPTURES if c.tool not in PASSES_OVER], ids=lambda c: c.tool.replace("/", "-"))
def test_a_foreign_line_is_counted(capture: Capture) -> None:
    lines = samples_of(capture)[0].split("\n")
    _, before = read_text("capture.txt", "\n".join(lines), year=2026)
    at = max(len(lines) // 2, 1)
    _, after = read_text("capture.txt", "\n".join([*lines[:at], "~~ zqx quux marker of nothing ~~", *lines[at:]]), year=2026)
    assert after.unrecognised_lines > before.unrecognised_lines or after.notes != before.notes


def test_a_line_is_counted_once_however_many_elements_stand_on_it() -> None:
    text = "<!DOCTYPE nvidia_smi_log><nvidia_smi_log>" + "<gpu>x<uuid>GPU-1</uuid>y</gpu>z" * 20 + "</nvidia_smi_log>"
    _, summary = read_text("capture.txt", text, year=2026)
    assert summary.unrecognised_lines == 1
