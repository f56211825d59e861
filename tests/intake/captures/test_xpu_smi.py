"""Claims about reading Kunlunxin's xpu-smi. The layouts are those of public captures; serial numbers and UUIDs are made up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Reason, Source
from kilter.intake.captures.xpu_smi import parse
from kilter.intake.fragment import Block, Fragment

# `xpu-smi -q` of a P800 PCIe, driver 5.0.21.26 (layout: docstring of zstack's Kunlunxin agent, 2026-02-03)
DEVICE = """\
XPU 00000000:{bus}:00.0
    Product Name                          : P800 PCIe
    Product Brand                         : KUNLUNXIN
    Product Architecture                  : KL3
    Serial Number                         : 02K0MA0000000{minor}00
    XPU UUID                              : GPU-00000000-0000-5000-8000-00000000000{minor}
    Minor Number                          : {minor}
    PCIe Id                               : 3
    XPU Part Number                       : B00100300110211
    Firmware Version
        PBL Version                       : 1.0
        PCIE Version                      : 2.14
        SBL Version                       : 1.54
        ALL Version                       : 1.0.2.14.1.54
        CPLD Version                      : 2.0
    PCI
        Bus                               : 0x{bus}
        Device                            : 0x00
        Function                          : 0x0
        Domain                            : 0x0000
        Device Id                         : 0x36862057
        Bus Id                            : 00000000:{bus}:00.0
        Sub System Id                     : 0x00010001
        XPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 3
            Link Width
                Max                       : 16x
                Current                   : 16x
    Memory Usage
        Total                             : 98304 MiB
        Reserved                          : 0 MiB
        Used                              : 12 MiB
        Free                              : 98292 MiB
    L3 Usage
        Total                             : 96 MiB
        Reserved                          : 0 MiB
        Used                              : 0 MiB
        Free                              : 96 MiB
    Utilization
        Xpu                               : 7 %
    Ecc Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            DRAM Correctable              : 1
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Correctable              : 3
            DRAM Uncorrectable            : N/A
    Temperature
        XPU Current Temp                  : 46 C
    Power Readings
        Enforced Power Limit              : 350.00 W
        Power Draw                        : 76.00 W
    Clocks
        Cluster                           : 1450 MHz
        CDNN                              : 1450 MHz
    Processes                             : None
"""
QUERY = (
    """\
==============XPUSMI LOG==============

Timestamp                                 : Tue Feb  3 18:20:01 2026
Driver Version                            : 5.0.21.26
XPU-RT Version                            : 10.2

Attached XPUs                             : 2
"""
    + DEVICE.format(bus="01", minor=0)
    + DEVICE.format(bus="A1", minor=1)
)

# default table of P800 OAM (layout: yunionio/cloudpods kunlunxin_xpu_test.go, driver 5.19)
TABLE = """\
Thu Sep 10 08:18:37 2026       
+-----------------------------------------------------------------------------+
| XPU-SMI               Driver Version: 5.19.0.0     XPU-RT Version: 5.19.0   |
|-------------------------------+----------------------+----------------------+
| XPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | XPU-Util  Compute M. |
|                               |             L3-Usage |            SR-IOV M. |
|===============================+======================+======================|
|   0  P800 OAM           N/A   | 00000000:03:00.0 N/A |                    0 |
| N/A   35C  N/A     87W / 400W |   84504MiB / 98304MiB |     98%      Default |
|                               |      0MiB /    96MiB |             Disabled |
+-------------------------------+----------------------+----------------------+
|   7  P800 OAM           N/A   | 00000000:A5:00.0 N/A |                  N/A |
| N/A   37C  N/A     84W / 400W |      0MiB / 98304MiB |      0%      Default |
|                               |      0MiB /    96MiB |              Enabled |
+-------------------------------+----------------------+----------------------+
                                                                               
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  XPU   XI   CI        PID   Type   Process name                  XPU Memory |
|        ID   ID                                                   Usage      |
|=============================================================================|
|    0   N/A  N/A     24811      C   python3 train.py                84502MiB |
+-----------------------------------------------------------------------------+
"""  # noqa: W291, W293 - as printed

# `xpu_smi -m` of P800 OAM (layout: the tool's help, and a capture of 2026-09)
MACHINE = """\
00000000:03:00.0 0 0 02K15K000CV00300 36 0 0 0 86 1450 1450 1450 1450 1450 1450 2 96 90440 98304 0 1.0:2.6:1.39.1.7 "P800 OAM" 0 0 0 0 0 0 0 0 0 0
00000000:05:00.0 1 1 02K15K000CV00301 39 0 41 0 86 1450 1450 1450 1450 1450 1450 2 96 0 98304 5 1.0:2.6:1.39.1.7 P800 OAM 0 0 0 0 0 0 0 0 0 0
"""

# the older `xpu_smi` of generations 1 and 2 (layout: PaddlePaddle guides, runtime 4.0)
OLD = """\
Runtime Version: 4.0
Driver Version: 4.0
  DEVICES
-------------------------------------------------------------------------------------------------------------------------------
| DevID |   PCI Addr   | Model |        SN        |    INODE   | State | UseRate |    L3     |    Memory    | Power(W) | Temp | Freq(MHz) | Firmware Version | CPLD Version |
-------------------------------------------------------------------------------------------------------------------------------
|     0 | 0000:01:00.0 | R200  | 02K00Y0000V00009 | /dev/xpu0  |     N |     3 % | 0 / 63 MB | 504 / 16384 MB |       25 |   49 |      1300 | 0001.0002.0022   |          103 |
|     1 | 0000:06:00.0 | K100  | 000000000000022f | /dev/xpu1  |     E |     0 % | 0 / 16 MB |  0 / 8064 MB |       22 |   51 |       900 | 0001.0015.0022   |       eb1302 |
-------------------------------------------------------------------------------------------------------------------------------
  VIDEO
-----------------------------------------------------------------------------------
| DevID | Model |         DEC         |         ENC         |       IMGPROC       |
-----------------------------------------------------------------------------------
|     0 |  R200 | 0 %, 0 fps, 800 MHz | 0 %, 0 fps, 800 MHz | 0 %, 0 fps, 800 MHz |
-----------------------------------------------------------------------------------
  PROCESSES
-------------------------------------------------
| DevID | PID | Streams | L3 | Memory | Command |
-------------------------------------------------
|     0 | 4711 | 2 | 0 | 504 MB | paddle_infer |
-------------------------------------------------
"""

LIST = """\
XPU 0: P800 OAM  GPU-00000000-0000-5000-8000-000000000000
XPU 1: 00000000:22:00.0
"""

INTEL = """\
+-----------+--------------------------------------------------------------------------------------+
| Device ID | Device Information                                                                   |
+-----------+--------------------------------------------------------------------------------------+
| 0         | Device Type: GPU                                                                     |
|           | Device Name: Intel(R) Data Center GPU Flex 170                                       |
+-----------+--------------------------------------------------------------------------------------+
"""


def read(text: str) -> Fragment:
    block = Block(source=Source(name="x.txt", tool="xpu-smi"), lines=text.splitlines())
    fragment = Fragment(block.source)
    parse(block, fragment)
    return fragment


def xpus(fragment: Fragment) -> list[Accelerator]:
    assert fragment.snapshot.accelerators is not None
    return fragment.snapshot.accelerators


def test_query_gives_every_fact_of_a_p800() -> None:
    fragment = read(QUERY)
    assert fragment.unplaced == []
    assert fragment.notes == []
    software = fragment.snapshot.software
    assert (software.driver_version, software.xpu_runtime_version) == ("5.0.21.26", "10.2")
    assert fragment.snapshot.accelerators_attached == 2
    first, second = xpus(fragment)
    assert second.label == "XPU1 0000:a1:00.0"
    expected = {
        "vendor": "kunlunxin", "index": 0, "minor": 0, "name": "P800 PCIe", "brand": "KUNLUNXIN", "architecture": "KL3",
        "serial": "02K0MA0000000000", "uuid": "GPU-00000000-0000-5000-8000-000000000000", "module_id": 3,
        "part_number": "B00100300110211", "firmware": "1.54", "pci_address": "0000:01:00.0", "pci_device_id": 0x3686,
        "pci_subsystem_id": 1, "link_generation_max": 4, "link_width_max": 16, "memory_total_mib": 98304, "ecc_mode": True,
        "ecc_mode_pending": True, "power_limit_w": 350.0, "processes": [],
    }  # fmt: skip
    assert {field: getattr(first, field) for field in expected} == expected
    [reading] = first.readings
    assert (reading.link_generation, reading.link_width, reading.memory_used_mib, reading.utilization_percent) == (3, 16, 12, 7)
    assert (reading.temperature_c, reading.power_w, reading.sm_clock_mhz) == (46, 76.0, 1450)
    assert reading.time is not None
    assert first.ecc_volatile is not None
    assert (first.ecc_volatile.dram_corrected, first.ecc_volatile.dram_uncorrected) == (1, 2)
    assert first.ecc_aggregate is not None
    assert first.ecc_aggregate.dram_corrected == 3
    assert first.ecc_aggregate.dram_uncorrected is None
    assert first.ecc_aggregate.missing["dram_uncorrected"].reason is Reason.NOT_SUPPORTED
    line = next(i for i, text in enumerate(QUERY.splitlines(), 1) if "Enforced Power Limit" in text)
    assert fragment.snapshot.where(first.ref("power_limit_w")) == f"x.txt:{line}"


def test_query_of_one_device_of_two_does_not_guess_its_index() -> None:
    [device] = xpus(read(QUERY[: QUERY.index("XPU 00000000:A1")]))
    assert device.index is None
    assert device.pci_address == "0000:01:00.0"


def test_query_lists_processes() -> None:
    text = DEVICE.format(bus="01", minor=0).replace(
        "    Processes                             : None\n",
        "    Processes\n        XPU instance ID                   : N/A\n        Compute instance ID               : N/A\n"
        "        Process ID                        : 24811\n            Type                          : C\n"
        "            Name                          : python3\n            Used XPU Memory               : 84502 MiB\n",
    )
    fragment = read("==============XPUSMI LOG==============\n" + text)
    [device] = xpus(fragment)
    assert device.processes is not None
    assert [(p.pid, p.type, p.name, p.memory_mib) for p in device.processes] == [(24811, "C", "python3", 84502)]
    assert fragment.unplaced == []


def test_query_cut_off_inside_a_device_is_noted() -> None:
    fragment = read(QUERY[: QUERY.rindex("    Power Readings")])
    assert fragment.notes == ["cut short inside XPU 0000:a1:00.0"]


def test_lines_that_mean_nothing_to_us_are_kept() -> None:
    fragment = read(QUERY.replace("Xpu                               : 7 %", "Xpu                               : lots"))
    assert [text.split() for _, text in fragment.unplaced] == [["Xpu", ":", "lots"]] * 2
    fragment = read(QUERY + "    Brand New Section                     : 5\n")
    assert len(fragment.unplaced) == 1


def test_table_gives_devices_and_their_processes() -> None:
    fragment = read(TABLE)
    assert fragment.unplaced == []
    assert fragment.notes == []
    assert fragment.snapshot.software.driver_version == "5.19.0.0"
    assert fragment.snapshot.software.xpu_runtime_version == "5.19.0"
    first, last = xpus(fragment)
    assert (first.label, last.label) == ("XPU0 0000:03:00.0", "XPU7 0000:a5:00.0")
    assert (first.name, first.memory_total_mib, first.power_limit_w, first.compute_mode) == ("P800 OAM", 98304, 400.0, "Default")
    reading = first.readings[0]
    assert (reading.memory_used_mib, reading.utilization_percent, reading.power_w, reading.temperature_c) == (84504, 98, 87.0, 35)
    assert first.ecc_volatile is not None
    assert first.ecc_volatile.total_uncorrected == 0
    assert last.ecc_volatile is not None
    assert last.ecc_volatile.total_uncorrected is None
    assert first.missing["persistence_mode"].reason is Reason.NOT_SUPPORTED
    assert (first.virtualization, last.virtualization) == (None, "SR-IOV")
    assert first.processes is not None
    assert [(p.pid, p.type, p.name, p.memory_mib) for p in first.processes] == [(24811, "C", "python3 train.py", 84502)]


def test_table_without_processes_says_so() -> None:
    head = TABLE[: TABLE.index("|    0   N/A  N/A")]
    fragment = read(head + "|  No running processes found                                                 |\n")
    assert [device.processes for device in xpus(fragment)] == [[], []]


def test_table_cut_off_inside_a_device_is_noted() -> None:
    fragment = read(TABLE[: TABLE.index("| N/A   37C")])
    assert fragment.notes == ["cut short inside XPU7 0000:a5:00.0"]


def test_a_tool_that_does_not_reach_the_driver_gives_no_version() -> None:
    fragment = read(TABLE.replace("5.19.0.0 ", "515.58   ").replace("5.19.0   |", "N/A      |"))
    software = fragment.snapshot.software
    assert software.driver_version is None
    assert software.missing["driver_version"].reason is Reason.NOT_READABLE
    assert software.driver_error is not None
    assert "515.58" in software.driver_error


def test_machine_rows_are_read_by_position_with_the_model_quoted_or_not() -> None:
    fragment = read(MACHINE)
    assert fragment.unplaced == []
    first, second = xpus(fragment)
    for device in (first, second):
        assert (device.name, device.firmware, device.memory_total_mib) == ("P800 OAM", "1.39", 98304)
    assert (first.index, first.pci_address, first.serial) == (0, "0000:03:00.0", "02K15K000CV00300")
    assert (first.readings[0].memory_used_mib, first.readings[0].power_w, first.readings[0].sm_clock_mhz) == (90440, 86.0, 1450)
    assert first.readings[0].memory_temperature_c is None
    assert first.readings[0].missing["memory_temperature_c"].reason is Reason.NOT_SUPPORTED
    assert second.readings[0].memory_temperature_c == 41
    assert second.readings[0].utilization_percent == 5


def test_machine_rows_of_old_runtimes_print_milliwatts() -> None:
    [device] = xpus(read(MACHINE.splitlines()[0].replace(" 86 ", " 37250 ")))
    assert device.readings[0].power_w == 37.25


def test_old_table_is_read_by_its_column_names() -> None:
    fragment = read(OLD)
    assert fragment.unplaced == []
    software = fragment.snapshot.software
    assert (software.driver_version, software.xpu_runtime_version) == ("4.0", "4.0")
    first, second = xpus(fragment)
    assert (first.index, first.minor, first.name, first.pci_address) == (0, 0, "R200", "0000:01:00.0")
    assert first.serial == "02K00Y0000V00009"
    assert (first.memory_total_mib, first.firmware, first.error) == (16384, "0001.0002.0022", None)
    reading = first.readings[0]
    assert (reading.memory_used_mib, reading.utilization_percent, reading.power_w, reading.sm_clock_mhz) == (504, 3, 25.0, 1300)
    assert second.error == "xpu_smi prints state E"
    assert first.processes is not None
    assert [(p.pid, p.name, p.memory_mib) for p in first.processes] == [(4711, "paddle_infer", 504)]


def test_list_gives_uuid_or_address() -> None:
    first, second = xpus(read(LIST))
    assert (first.name, first.uuid) == ("P800 OAM", "GPU-00000000-0000-5000-8000-000000000000")
    assert (second.index, second.pci_address) == (1, "0000:22:00.0")


@pytest.mark.parametrize(
    "text",
    [
        INTEL,
        "Intel(R) XPU System Management Interface -- v1.0 \n",
        "Intel XPU System Management Interface -- v1.2\n",
        "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\n18:38:50.000,    0,     , 43.72\n",
        "CLI:\n    Version: 1.2.43\nService:\n    Level Zero Version: 1.24.0\n",
    ],
)
def test_intels_tool_of_the_same_name_is_noted_and_not_read(text: str) -> None:
    fragment = read(text)
    assert fragment.snapshot.accelerators is None
    assert len(fragment.notes) == 1
    assert "Intel" in fragment.notes[0]


ALL = (QUERY, TABLE, MACHINE, OLD, LIST, QUERY + TABLE)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, 10_000), st.binary(max_size=40))
def test_truncation_and_binary_insertions_never_raise(text: str, position: int, junk: bytes) -> None:
    at = position % (len(text) + 1)
    read(text[:at])
    read(text[:at] + junk.decode("latin-1") + text[at:])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, 2**32))
def test_shuffled_lines_never_raise(text: str, seed: int) -> None:
    lines = text.splitlines()
    random.Random(seed).shuffle(lines)
    read("\n".join(lines))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_arbitrary_text_never_raises(text: str) -> None:
    read("==============XPUSMI LOG==============\n" + text)
    read("| XPU-SMI  Driver Version: 5.0  XPU-RT Version: 5.0 |\n" + text)


def test_huge_numbers_and_lines_do_no_harm() -> None:
    read("| XPU-SMI Driver Version: 1 XPU-RT Version: 1 |\n| " + "9" * 500 + "  P800  N/A | 00000000:03:00.0 N/A | 0 |\n")
    read("==============XPUSMI LOG==============\n" + "XPU 00000000:01:00.0\n" + "".join(" " * i + "a\n" for i in range(500)))
    fragment = read("XPU 0: " + " " * 100_000 + "x")
    assert len(fragment.unplaced) == 1
