from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.host import UNLIMITED
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data/host-commands"
MEMINFO = (DATA / "meminfo.txt").read_text()
CPUINFO = (DATA / "cpuinfo.txt").read_text()
LIMITS = (DATA / "limits.txt").read_text()
DF = (DATA / "df-h.txt").read_text()

LSMOD = """\
Module                  Size  Used by
nvidia_uvm           4694016  12
nvidia_peermem         16384  0
nvidia_modeset       1482752  0
nvidia              56705024  467 nvidia_uvm,nvidia_peermem,nvidia_modeset
ib_core               442368  3 nvidia_peermem,ib_uverbs,mlx5_ib
"""
MODULES = """\
nvidia_uvm 4694016 12 - Live 0x0000000000000000 (POE)
nvidia 56705024 467 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)
mlx5_core 2195456 1 mlx5_ib, Live 0xffffffffc0a30000
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder@host)  Fri Jan 24 UTC 2025\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
CLOSED += "GCC version:  gcc version 12.3.0 (Ubuntu)\n"
OS_RELEASE = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\n'
OS_RELEASE += 'VERSION_ID="22.04"\nVERSION="22.04 LTS (Jammy Jellyfish)"\nID=ubuntu\nID_LIKE=debian\n'
UNAME = "Linux gpu-07 5.15.0-1042-nvidia #42-Ubuntu SMP Wed Nov 15 20:28:30 UTC 2023 x86_64 x86_64 x86_64 GNU/Linux\n"


def read(text, **more):
    fragment = parse_text("proc_files", text, **more)
    assert fragment.unplaced == []
    return fragment.snapshot


def test_meminfo_is_in_bytes():
    memory = read(
        "MemTotal:       2113417288 kB\nMemAvailable:   2050000000 kB\nHugePages_Total:    16\nHugepagesize:    1048576 kB\n"
    ).memory
    assert (memory.total_bytes, memory.available_bytes) == (2113417288 << 10, 2050000000 << 10)
    assert (memory.hugepages_total, memory.hugepage_bytes) == (16, 1 << 30)
    assert read(MEMINFO).memory.swap_total_bytes == 0


def test_cpuinfo_counts_when_it_is_whole():
    cpu = read(CPUINFO).cpu
    assert (cpu.logical, cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == (2, 1, 2, 1)
    assert cpu.vendor == "AuthenticAMD"


def test_the_head_of_cpuinfo_is_no_machine_with_one_cpu():
    cpu = read(CPUINFO.split("\n\n")[0]).cpu
    assert cpu.model == "AMD EPYC"
    assert (cpu.logical, cpu.sockets) == (None, None)
    assert "not shown in full" in cpu.missing["logical"].detail


@pytest.mark.parametrize(
    "line", ["BOOT_IMAGE=/boot/vmlinuz-5.15.0 root=UUID=x ro iommu=pt pci=realloc=off", "root=/dev/sda1 ro quiet iommu=pt"]
)
def test_boot_line(line):
    assert read(line + "\n").kernel.cmdline_options()["iommu"] == "pt"


def test_boot_line_known_by_the_tool_alone():
    assert read("mitigations=auto quiet\n", tool="/proc/cmdline").kernel.cmdline == "mitigations=auto quiet"


def test_lsmod_and_proc_modules():
    modules = read(LSMOD).kernel.modules
    assert modules["nvidia"].used_by == ["nvidia_uvm", "nvidia_peermem", "nvidia_modeset"]
    assert modules["nvidia_peermem"].used_by == []
    assert modules["nvidia"].size_bytes == 56705024
    modules = read(MODULES).kernel.modules
    assert list(modules) == ["nvidia_uvm", "nvidia", "mlx5_core"]
    assert modules["nvidia"].used_by == ["nvidia_uvm", "nvidia_modeset"]


def test_a_filtered_module_list_says_so():
    kernel = read(MODULES, command="grep nvidia /proc/modules").kernel
    assert "may be loaded" in kernel.missing["modules"].detail


def test_a_list_without_its_header_was_filtered():
    text = "nvidia_peermem         16384  0\nib_core               507904  2 nvidia_peermem,mlx5_ib\n"
    kernel = parse_text("proc_files", text, tool="lsmod").snapshot.kernel
    assert set(kernel.modules) == {"nvidia_peermem", "ib_core"}
    assert "may be loaded" in kernel.missing["modules"].detail
    assert "modules" not in read(LSMOD).kernel.missing
    assert "modules" not in read(MODULES).kernel.missing


def test_open_and_proprietary_driver():
    assert (read(OPEN).software.driver_version, read(OPEN).software.driver_flavour) == ("570.86.15", "open")
    assert (read(CLOSED).software.driver_version, read(CLOSED).software.driver_flavour) == ("535.129.03", "proprietary")


def test_limits_of_a_process():
    limits = read(
        LIMITS.replace("Max locked memory         8388608 ", "Max locked memory         unlimited"),
        command="cat /proc/4711/limits",
    ).limits
    assert limits.scope == "pid 4711"
    assert (limits.memlock_bytes, limits.stack_bytes, limits.nofile, limits.core_bytes) == (UNLIMITED, 8 << 20, 20000, 0)
    assert read(LIMITS, command="cat /proc/self/limits").limits.scope == "shell"


def test_uname():
    snapshot = read(UNAME)
    assert (snapshot.kernel.release, snapshot.kernel.arch) == ("5.15.0-1042-nvidia", "x86_64")
    assert snapshot.kernel.version == "#42-Ubuntu SMP Wed Nov 15 20:28:30 UTC 2023"
    assert snapshot.host.hostname == "gpu-07"
    assert snapshot.node == ""


def test_os_release():
    host = read(OS_RELEASE).host
    assert (host.os_id, host.os_version, host.os_name) == ("ubuntu", "22.04", "Ubuntu 22.04.4 LTS")


def test_shm_in_every_unit():
    assert read(DF).limits.shm_bytes == 24 << 30
    container = "Filesystem      Size  Used Avail Use% Mounted on\n"
    container += "overlay         879G  320G  515G  39% /\nshm              64M     0   64M   0% /dev/shm\n"
    assert (read(container).limits.shm_bytes, read(container).limits.shm_free_bytes) == (64 << 20, 64 << 20)
    kilobytes = "Filesystem     1K-blocks  Used Available Use% Mounted on\ntmpfs           65536 1024 64512 0% /dev/shm\n"
    assert (read(kilobytes).limits.shm_bytes, read(kilobytes).limits.shm_free_bytes) == (64 << 20, 63 << 20)
    megabytes = "Filesystem     1M-blocks  Used Available Use% Mounted on\ntmpfs           64 1 63 0% /dev/shm\n"
    assert read(megabytes).limits.shm_bytes == 64 << 20
    decimal = container.replace("64M", "64M")
    assert read(decimal, command="df -H").limits.shm_bytes == 64_000_000
    posix = "Filesystem     1024-blocks  Used Available Capacity Mounted on\ntmpfs           65536 0 65536 0% /dev/shm\n"
    assert read(posix).limits.shm_bytes == 64 << 20
    chinese = "文件系统        容量  已用  可用 已用% 挂载点\ntmpfs            64M     0   64M    0% /dev/shm\n"
    assert read(chinese).limits.shm_bytes == 64 << 20


def test_inodes_are_no_bytes():
    inodes = "Filesystem     Inodes IUsed  IFree IUse% Mounted on\ntmpfs          246028     5 246023    1% /dev/shm\n"
    assert read(inodes).limits.shm_bytes is None


def test_df_with_types_and_decimal_blocks():
    text = "Filesystem     Type  1MB-blocks  Used Available Use% Mounted on\ntmpfs          tmpfs 64 1 63 2% /dev/shm\n"
    assert read(text).limits.shm_bytes == 64_000_000


def test_what_is_no_known_file_is_not_lost():
    fragment = parse_text("proc_files", "something else\nentirely\n")
    assert len(fragment.unplaced) == 2


@settings(max_examples=150, deadline=None)
@given(
    mangled(MEMINFO)
    | mangled(CPUINFO)
    | mangled(LIMITS)
    | mangled(DF)
    | mangled(LSMOD)
    | mangled(MODULES)
    | mangled(OPEN + CLOSED)
    | mangled(OS_RELEASE)
    | mangled(UNAME)
)
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("proc_files", text), text)


STARTS = [
    "MemTotal: 1 kB\nMemFree: ",
    "processor : 0\nsiblings : ",
    "Module Size Used by\na ",
    "Limit Soft Limit\nMax open files ",
    "Linux ",
    "Filesystem Size Used\ntmpfs ",
    "NVRM version: ",
    "Filesystem ",
    "BOOT_IMAGE=",
]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("proc_files", text)
