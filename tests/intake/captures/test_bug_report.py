"""nvidia-bug-report.sh: the form of public reports, with the project's real captures as sections."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.intake.captures import bug_report
from kilter.intake.paste import read_text
from mangle import mangled

DATA = Path(__file__).parents[2] / "data"
LINE = "_" * 44
LS = "*** ls: -r--r--r-- 1 root root 0 2026-05-03 10:00:00.000000000 +0200"


def section(head: str, body: str, *, listed: bool = False) -> str:
    title = f"*** {head}\n{LS} {head}" if listed else head
    return f"{LINE}\n\n{title}\n{'' if listed else chr(10)}{body.rstrip()}\n\n"


DMESG = (DATA / "s018-xid119-gsp-timeout-h100" / "dmesg.txt").read_text()
LSPCI = (DATA / "s016-h100-xe9680-lspci-acs-harmless" / "lspci-vvv.txt").read_text()[:20_000]
PROLOGUE = (
    f"{LINE}\n\nStart of NVIDIA bug report log file.  Please include this file, along\nwith a detailed description of your problem.\n\n"
    "nvidia-bug-report.sh Version: 34275571\n\nDate: Sun May  3 10:00:00 CEST 2026\n"
    "uname: Linux gpu-b12 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023 x86_64 GNU/Linux\ncommand line flags: \n\n"
)
REPORT = (
    PROLOGUE
    + section("/etc/issue", "Ubuntu 22.04.3 LTS \\n \\l", listed=True)
    + f"{LINE}\n\n*** /var/log/nvidia-installer.log does not exist\n\n"
    + section("/proc/meminfo", "MemTotal:       1056305344 kB\nMemFree:        1000000000 kB", listed=True)
    + section("/sbin/lspci -nnDvvvxxx", LSPCI)
    + section("/usr/bin/dmesg", DMESG)
)


def test_sections_are_cut_with_command_and_line() -> None:
    sections = bug_report.split(REPORT)
    assert [name for name, _, _ in sections] == [
        "nvidia-bug-report.sh",
        "/etc/issue",
        "/proc/meminfo",
        "/sbin/lspci -nnDvvvxxx",
        "/usr/bin/dmesg",
    ]
    lines = REPORT.split("\n")
    for _, first, text in sections:
        assert lines[first - 1] == text.split("\n", 1)[0]


def test_the_prologue_names_the_host() -> None:
    assert bug_report.is_bug_report(REPORT)
    assert bug_report.node(REPORT) == "gpu-b12"
    assert bug_report.node(DMESG) == ""


def test_each_section_is_read_like_the_capture_itself() -> None:
    sections = {name: text for name, _, text in bug_report.split(REPORT)}
    for name, alone in (("/sbin/lspci -nnDvvvxxx", LSPCI), ("/usr/bin/dmesg", DMESG)):
        fragments, _ = read_text("x", sections[name], year=2026)
        expected, _ = read_text("x", alone, year=2026)
        assert [len(f.events) for f in fragments] == [len(f.events) for f in expected]
        assert [set(f.snapshot.pci or {}) for f in fragments] == [set(f.snapshot.pci or {}) for f in expected]


def test_the_whole_report_is_recognised_by_content() -> None:
    _, summary = read_text("nvidia-bug-report.log", REPORT, year=2026)
    assert {"lspci", "kernel log", "/proc/meminfo"} <= set(summary.tools)


def test_what_is_no_report_is_one_section() -> None:
    assert bug_report.split("hello\n") == [("", 1, "hello\n")]
    assert bug_report.split("") == []


@settings(max_examples=40, deadline=None)
@given(mangled(PROLOGUE + section("/usr/bin/dmesg", DMESG[:2000])) | st.just("_" * 100_000) | st.just(f"{LINE}\n\n" * 3000))
def test_damaged_reports_keep_their_text(text: str) -> None:
    count = text.count("\n") + 1
    for _, first, _body in bug_report.split(text):
        assert 1 <= first <= count
