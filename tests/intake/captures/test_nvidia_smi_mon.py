"""nvidia-smi dmon and pmon."""

from __future__ import annotations

from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import long_lines, mangled, parse_text

# Layouts as drivers 595 (-s pucvmet -o DT), 535 and 450 print them.
FULL = """\
#Date        Time         gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260816    09:22:34       0    650     62     70     99     41      0      0      0      0   2619   1755     12      0  70000      2      0      0      1      5     20      2
 20260816    09:22:34       1    648     61      -     98     40      0      0      0      0   2619   1755      0      1  70000      2      0      -      -      0     20      2
#Date        Time         gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260816    09:22:35       0    651     62     70     99     41      0      0      0      0   2619   1755     14      0  70000      2      0      0      1      5     20      2
"""
PLAIN = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
# Idx      W      C      C      %      %      %      %    MHz    MHz
    0    119     59      -    100      0      0      0   6800   1665
    1      -     59      -      -      0      0      0   9251   1695
"""
PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0    2094147     C     92     52      -      -      -      -  90480      0    sglang::schedul
    1     377306   C+G      -      -      -      -      -      -    550      0    python3 -m x
    2          -     -      -      -      -      -      -      -      -      -    -
    0    2094147     C     91     52      -      -      -      -  90480      0    sglang::schedul
"""


def read(text):
    fragment = parse_text("nvidia_smi_mon", text)
    assert fragment.unplaced == []
    return fragment, {gpu.index: gpu for gpu in fragment.snapshot.accelerators}


def test_each_row_is_a_reading_of_its_gpu():
    fragment, gpus = read(FULL)
    assert [r.power_w for r in gpus[0].readings] == [650, 651]
    first = gpus[0].readings[0]
    assert (first.temperature_c, first.memory_temperature_c, first.utilization_percent, first.memory_utilization_percent) == (
        62,
        70,
        99,
        41,
    )
    assert (first.graphics_clock_mhz, first.memory_clock_mhz, first.memory_used_mib) == (1755, 2619, 70000)
    assert first.origin["power_w"] == (0, 3)
    assert gpus[0].readings[1].time - first.time == 1
    assert fragment.source.time == gpus[0].readings[1].time


def test_error_columns_are_counts_of_the_gpu():
    _, gpus = read(FULL)
    assert (gpus[0].ecc_volatile.total_corrected, gpus[0].ecc_volatile.total_uncorrected, gpus[0].replays) == (0, 1, 5)
    assert gpus[1].ecc_volatile is None


def test_a_dash_is_missing_and_not_zero():
    _, gpus = read(PLAIN)
    reading = gpus[1].readings[0]
    assert reading.power_w is None
    assert reading.missing["power_w"].reason is Reason.NOT_SUPPORTED
    assert reading.memory_utilization_percent == 0


def test_violations_are_metrics_with_their_highest_value():
    fragment, _ = read(FULL)
    assert fragment.snapshot.metrics["nvidia_smi_dmon_pviol"] == {'gpu="0"': 14, 'gpu="1"': 0}
    assert fragment.snapshot.metrics["nvidia_smi_dmon_tviol"] == {'gpu="0"': 0, 'gpu="1"': 1}


def test_processes_of_pmon():
    _, gpus = read(PMON)
    (process,) = gpus[0].processes
    assert (process.pid, process.type, process.name, process.memory_mib) == (2094147, "C", "sglang::schedul", 90480)
    assert gpus[1].processes[0].name == "python3 -m x"
    assert gpus[2].processes == []


def test_comma_separated_output():
    _, gpus = read("#gpu, pwr, gtemp, mtemp\n#Idx, W, C, C\n0, 70, 40, -\n")
    assert (gpus[0].readings[0].power_w, gpus[0].readings[0].temperature_c) == (70, 40)


def test_a_cut_row_is_not_placed():
    fragment = parse_text("nvidia_smi_mon", PLAIN + "    0    1")
    assert [line for line, _ in fragment.unplaced] == [5]


@settings(max_examples=150, deadline=None)
@given(mangled(FULL + PMON))
def test_damage_is_survived(text):
    parse_text("nvidia_smi_mon", text)


@settings(max_examples=20, deadline=None)
@given(long_lines("# gpu", "# gpu pwr\n 0 ", "#Date Time gpu a\n"))
def test_long_lines_are_survived(text):
    parse_text("nvidia_smi_mon", text)
