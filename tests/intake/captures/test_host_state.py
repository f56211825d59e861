"""Readers of /proc/interrupts, ps, chronyc and timedatectl, and of step times in training logs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kilter.intake.captures import step_log
from kilter.intake.captures.interrupts import device_cpus
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

INTERRUPTS = """\
            CPU0       CPU1       CPU2       CPU3
   8:          0          0          0          1  IR-IO-APIC    8-edge      rtc0
 120:          0     982211          0          0  IR-PCI-MSIX-0000:1a:00.0    1-edge      mlx5_comp0@pci:0000:1a:00.0
 121:          4          0     771233          0  IR-PCI-MSIX-0000:1a:00.0    2-edge      mlx5_comp1@pci:0000:1a:00.0
 140:          0          0          0       9931  IR-PCI-MSIX-0000:18:00.0    0-edge      nvidia
 NMI:          1          1          1          1   Non-maskable interrupts
 ERR:          0
"""
PS = """\
USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root           1  0.0  0.0 168340 13192 ?        Ss   Mar03   0:09 /sbin/init
root        8112  0.0  0.0  12345  2345 ?        D    10:00   0:00 /usr/bin/nvidia-smi -q
alice       9001 99.0  1.0  12345  2345 pts/0    R+   10:00   9:01 python3 train.py
"""
PS_WAIT = """\
    PID STAT WCHAN                            COMMAND
   8112 D    rwsem_down_write_slowpath        nvidia-smi
   8113 Ds   -                                dcgm
   8114 S    ep_poll                          sshd
"""
CHRONY = """\
Reference ID    : A9FEA97B (time.example)
Stratum         : 4
Ref time (UTC)  : Wed Mar 04 10:00:00 2026
System time     : 0.000012402 seconds slow of NTP time
Last offset     : +0.000004032 seconds
RMS offset      : 0.000010101 seconds
Frequency       : 12.345 ppm fast
Leap status     : Normal
"""
TIMEDATECTL = """\
               Local time: Wed 2026-03-04 10:00:00 UTC
           Universal time: Wed 2026-03-04 10:00:00 UTC
                 RTC time: Wed 2026-03-04 10:00:01
                Time zone: Etc/UTC (UTC, +0000)
System clock synchronized: no
              NTP service: active
          RTC in local TZ: no
"""
SMART = """\
smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.8.0] (local build)
Device Model:     SAMSUNG MZ7LH960
SMART overall-health self-assessment test result: PASSED
ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE
  5 Reallocated_Sector_Ct   0x0033   100   100   010    Pre-fail  Always       -       0
197 Current_Pending_Sector  0x0012   100   100   000    Old_age   Always       -       8
"""
READERS = {"interrupts": INTERRUPTS, "ps": PS, "clock": CHRONY, "smart": SMART}


def test_interrupts_name_the_cpus_that_serve_a_device() -> None:
    assert device_cpus(INTERRUPTS) == {"mlx5 0000:1a:00.0": "1-2", "nvidia": "3"}
    assert device_cpus("") == {}
    assert device_cpus("hello\nworld") == {}


def test_interrupts_are_recognised_in_a_paste() -> None:
    fragments, summary = read_text("x", f"root@n1:~# cat /proc/interrupts\n{INTERRUPTS}", year=2026)
    assert summary.tools == ["/proc/interrupts"]
    assert fragments[0].snapshot.cpu.device_interrupts["nvidia"] == "3"


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        (PS, ["8112 nvidia-smi"]),
        (PS_WAIT, ["8112 nvidia-smi (rwsem_down_write_slowpath)", "8113 dcgm"]),
        (PS_WAIT.split("   8112")[0], []),
    ],
)
def test_ps_keeps_tasks_in_d_with_where_they_wait(text: str, tasks: list[str]) -> None:
    fragments, summary = read_text("x", text, year=2026)
    assert summary.tools == ["ps"]
    assert summary.unrecognised_lines == 0
    assert fragments[0].snapshot.host.blocked_tasks == tasks


def test_table_of_processes_of_nvidia_smi_is_no_ps() -> None:
    _, summary = read_text(
        "x", "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n", year=2026
    )
    assert "ps" not in summary.tools


def test_clock_offset_and_synchronisation() -> None:
    host = parse_text("clock", CHRONY).snapshot.host
    assert (host.clock_offset_s, host.clock_synchronized) == (-0.000012402, True)
    assert parse_text("clock", CHRONY.replace("Normal", "Not synchronised")).snapshot.host.clock_synchronized is False
    fragments, summary = read_text("x", TIMEDATECTL, year=2026)
    assert (summary.tools, fragments[0].snapshot.host.clock_synchronized) == (["chronyc tracking"], False)


def test_smart_of_a_disk_with_pending_sectors() -> None:
    tests = parse_text("smart", SMART).snapshot.diagnostics or []
    assert [(t.name, t.result) for t in tests] == [("health", "pass"), ("media", "pass"), ("media", "fail")]


@pytest.mark.parametrize(
    ("line", "step", "ms"),
    [
        (
            " [2026-03-04 10:00:00] iteration      100/  500000 | consumed samples:       102400 | elapsed time per iteration (ms): 5123.4 | learning rate: 1.0E-04 |",
            "100",
            5123.4,
        ),
        ("iter 30: loss 3.1415, time 245.12ms, mfu 31.20%", "30", 245.12),
        (
            "Epoch 0: 1%| | 7/500 [00:40<47:00, reduced_train_loss=9.1, global_step=6.000, train_step_timing in s=5.120]",
            None,
            0.0,
        ),
        ("Epoch 0, global_step: 6 | reduced_train_loss: 9.1 | train_step_timing in s: 5.12", "6", 5120.0),
        ("connect to 10.0.0.1, time out after 30 s", None, 0.0),
    ],
)
def test_step_times(line: str, step: str | None, ms: float) -> None:
    log = step_log.StepLog("train.log")
    log.feed(7, line)
    found = [(s.conditions["step"], s.value, s.origin[""]) for s in log.samples]
    if step is not None:
        assert found == [(step, pytest.approx(ms), (0, 7))]
    else:
        assert all(value > 0 for _, value, _ in found)


@pytest.mark.parametrize("module", READERS)
@given(data=mangled(INTERRUPTS) | mangled(PS) | mangled(PS_WAIT) | mangled(CHRONY) | mangled(SMART))
@settings(max_examples=25, deadline=None)
def test_damaged_text_never_breaks_a_reader(module: str, data: str) -> None:
    check_references(parse_text(module, data), data)


@pytest.mark.parametrize("module", READERS)
@given(text=long_lines("", INTERRUPTS, PS, CHRONY, " 120: ", "System time     : "))
@settings(max_examples=25, deadline=None)
def test_long_lines_do_not_hang(module: str, text: str) -> None:
    check_references(parse_text(module, text), text)
    log = step_log.StepLog("x")
    log.feed(1, " iteration 1/ 2 | " + text[-5000:])
