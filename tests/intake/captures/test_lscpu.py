from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data/host-commands"
PLAIN = (DATA / "lscpu-2.38.txt").read_text()
JSON = (DATA / "lscpu-2.38.json").read_text()
TERMINAL = (DATA / "lscpu-tty80.txt").read_text()

CHINESE = """\
架构：                   x86_64
  CPU 运行模式：         32-bit, 64-bit
  Address sizes:         46 bits physical, 48 bits virtual
  字节序：               Little Endian
CPU:                     128
  在线 CPU 列表：        0-127
厂商 ID：                GenuineIntel
  型号名称：             Intel(R) Xeon(R) Platinum 8358P CPU @ 2.60GHz
    CPU 系列：           6
    型号：               106
    每个核的线程数：     2
    每个座的核数：       32
    座：                 2
    步进：               6
    CPU 最大 MHz：       3400.0000
    CPU 最小 MHz：       800.0000
    BogoMIPS：           5200.00
    标记：               fpu vme de pse
NUMA 节点：              2
NUMA 节点0 CPU：         0-31,64-95
NUMA 节点1 CPU：         32-63,96-127
"""

EPYC = """\
Architecture:                    x86_64
CPU op-mode(s):                  32-bit, 64-bit
Byte Order:                      Little Endian
CPU(s):                          256
On-line CPU(s) list:             0-254
Off-line CPU(s) list:            255
Thread(s) per core:              2
Core(s) per socket:              64
Socket(s):                       2
NUMA node(s):                    3
Vendor ID:                       AuthenticAMD
CPU family:                      25
Model:                           1
Model name:                      AMD EPYC 7763 64-Core Processor
Stepping:                        1
Frequency boost:                 enabled
CPU MHz:                         1796.600
CPU max MHz:                     3529.0520
CPU min MHz:                     1500.0000
Virtualization:                  AMD-V
L3 cache:                        512 MiB
NUMA node0 CPU(s):               0-63,128-191
NUMA node1 CPU(s):               64-127,192-254
NUMA node2 CPU(s):
Vulnerability Spec store bypass: Mitigation; Speculative Store Bypass disabled via prctl and seccomp
Vulnerability Spectre v2:        Mitigation; Full AMD retpoline, IBPB conditional
"""


def cpu_of(text):
    fragment = parse_text("lscpu", text)
    assert fragment.unplaced == []
    return fragment.snapshot.cpu


def values(cpu):
    skip = ("origin", "missing", "numa", "mitigations")
    return {
        name: getattr(cpu, name) for name in cpu.__struct_fields__ if name not in skip and getattr(cpu, name) not in (None, {})
    }


def test_text_json_and_a_terminal_of_80_columns_tell_the_same():
    plain = cpu_of(PLAIN)
    assert values(cpu_of(JSON)) == values(plain)
    assert values(cpu_of(TERMINAL)) == values(plain)
    assert cpu_of(TERMINAL).mitigations == plain.mitigations
    assert cpu_of(JSON).mitigations == plain.mitigations


def test_words_of_the_flags_survive_the_wrap_even_without_trailing_blanks():
    stripped = "\n".join(line.rstrip() for line in TERMINAL.splitlines())
    assert cpu_of(stripped).flags == cpu_of(PLAIN).flags


def test_a_two_socket_server():
    fragment = parse_text("lscpu", EPYC)
    cpu = fragment.snapshot.cpu
    assert (cpu.logical, cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == (256, 2, 64, 2)
    assert (cpu.online, cpu.offline, cpu.max_mhz) == ("0-254", "255", 3529.052)
    assert [(node.id, node.cpus) for node in cpu.numa] == [(0, "0-63,128-191"), (1, "64-127,192-254"), (2, "")]
    assert cpu.mitigations["spectre_v2"].startswith("Mitigation; Full AMD retpoline")
    assert fragment.snapshot.kernel.arch == "x86_64"
    assert fragment.snapshot.host.virtualization is None


def test_chinese_labels():
    cpu = cpu_of(CHINESE)
    assert (cpu.logical, cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == (128, 2, 32, 2)
    assert (cpu.vendor, cpu.family, cpu.model_number, cpu.stepping, cpu.max_mhz) == ("GenuineIntel", 6, 106, 6, 3400.0)
    assert [node.cpus for node in cpu.numa] == ["0-31,64-95", "32-63,96-127"]
    assert cpu.flags == ["fpu", "vme", "de", "pse"]


def test_a_guest_names_its_hypervisor():
    assert parse_text("lscpu", PLAIN).snapshot.host.virtualization == "kvm"


def test_a_dash_is_no_socket_count():
    cpu = cpu_of("Architecture:         aarch64\nSocket(s):            -\nStepping:             0x1\nModel:                0\n")
    assert (cpu.sockets, cpu.stepping, cpu.model_number) == (None, 1, 0)
    assert cpu.missing["sockets"].reason is Reason.NOT_SUPPORTED


def test_foreign_lines_are_kept():
    fragment = parse_text("lscpu", EPYC + "Mem:            1007          12         990\nSwap: 0\n")
    assert len(fragment.unplaced) == 2


@pytest.mark.parametrize("cut", [10, 200, 900])
def test_cut_json_is_noted(cut):
    assert any("cut short" in note for note in parse_text("lscpu", JSON[:cut]).notes)


@settings(max_examples=80, deadline=None)
@given(mangled(PLAIN) | mangled(TERMINAL) | mangled(CHINESE) | mangled(JSON))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("lscpu", text), text)


STARTS = ["Architecture: ", "", "Flags:       ", "NUMA node", "CPU max MHz: "]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("lscpu", text)
