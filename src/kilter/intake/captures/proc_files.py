"""Text files of ``/proc`` and small commands that print one screen: memory, CPU, boot line, modules, limits, system, /dev/shm.

The first line of a block says which of them it shows. Sources of the formats: Linux, fs/proc/*.c and kernel/module/procfs.c;
kmod, tools/lsmod.c; coreutils, uname.c and df.c; freedesktop, os-release(5); NVIDIA/open-gpu-kernel-modules,
kernel-open/nvidia/nv-procfs.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kilter.facts.base import Missing, Reason
from kilter.facts.host import UNLIMITED, Module
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

# --- /proc/meminfo

_MEMINFO = re.compile(r"([A-Za-z0-9_()]+):\s+(\d+)(?: (kB))?$")
_MEMORY_FIELDS = {
    "MemTotal": "total_bytes",
    "MemFree": "free_bytes",
    "MemAvailable": "available_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
    "HugePages_Total": "hugepages_total",
    "HugePages_Free": "hugepages_free",
    "Hugepagesize": "hugepage_bytes",
}


def _meminfo(block: Block, fragment: Fragment) -> None:
    for line, raw in lines(block, fragment):
        match = _MEMINFO.match(raw.strip())
        if match is None:
            fragment.unparsed(line, raw)
        elif field := _MEMORY_FIELDS.get(match[1]):
            fragment.snapshot.memory.put(field, int(match[2]) * (1024 if match[3] else 1), fragment.ref(line))


# --- /proc/cpuinfo

_CPUINFO = re.compile(r"([A-Za-z][\w /()-]{0,60}?)\s{0,64}:(?: (.*)|)$")
_CPU_NUMBERS = {"cpu family": "family", "model": "model_number", "stepping": "stepping"}


def _cpuinfo(block: Block, fragment: Fragment) -> None:
    cpu = fragment.snapshot.cpu
    per_package: dict[str, int] = {}
    siblings: dict[str, int] = {}
    processors, package = 0, ""
    for line, raw in lines(block, fragment):
        match = _CPUINFO.match(raw.strip())
        ref = fragment.ref(line)
        if match is None:
            fragment.unparsed(line, raw)
            continue
        key, value = match[1].strip(), (match[2] or "").strip()
        if key == "processor" and value.isdecimal():
            processors += 1
            package = ""
        elif key == "physical id":
            package = value
            per_package[package] = per_package.get(package, 0) + 1
        elif key == "siblings" and value.isdecimal():
            siblings[package] = int(value)
        elif key == "cpu cores" and value.isdecimal():
            cpu.put("cores_per_socket", int(value), ref)
        elif cpu.model is None and key == "model name":
            cpu.put("model", value or None, ref)
        elif cpu.vendor is None and key == "vendor_id":
            cpu.put("vendor", value or None, ref)
        elif key in _CPU_NUMBERS and value.isdecimal() and getattr(cpu, _CPU_NUMBERS[key]) is None:
            cpu.put(_CPU_NUMBERS[key], int(value), ref)
        elif cpu.flags is None and key in ("flags", "Features"):
            cpu.put("flags", value.split(), ref)
    ref = fragment.ref(block.first_line)
    # "cat /proc/cpuinfo | head" is common: counts are taken only when each package shows as many processors as it says it has.
    if per_package and siblings == per_package:
        cpu.put("logical", processors, ref)
        cpu.put("sockets", len(per_package), ref)
        if cpu.cores_per_socket:
            cpu.put("threads_per_core", max(siblings.values()) // cpu.cores_per_socket or None, ref)
    else:
        cpu.lacks(
            "logical",
            Reason.NOT_COLLECTED,
            "/proc/cpuinfo is not shown in full, or does not say how many processors there are",
            "lscpu",
        )


# --- /proc/cmdline


def _cmdline(block: Block, fragment: Fragment) -> None:
    for line, raw in lines(block, fragment):
        if line == block.first_line:
            fragment.snapshot.kernel.put("cmdline", raw.strip(), fragment.ref(line))
        else:
            fragment.unparsed(line, raw)


# --- modules

_LSMOD = re.compile(r"([\w-]+)\s+(\d+)\s+(-?\d+)(?:\s+([\w,-]+))?$")
_MODULE = re.compile(r"([\w-]+) (\d+) (-?\d+) (-|[\w,-]+?,?) (Live|Loading|Unloading) 0x[0-9a-f]+(?: \([A-Z]+\))?$")


def _modules(block: Block, fragment: Fragment) -> None:
    kernel = fragment.snapshot.kernel
    modules: dict[str, Module] = {}
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if re.match(r"Module\s+Size\s+Used by", text):
            continue
        match = _MODULE.match(text) or _LSMOD.match(text)
        if match is None:
            fragment.unparsed(line, raw)
            continue
        module = modules[match[1]] = Module(name=match[1], origin={"": fragment.ref(line)})
        module.put("size_bytes", int(match[2]))
        users = (match[4] or "").strip("-")
        module.put("used_by", [user for user in users.split(",") if user])
    kernel.put("modules", modules, fragment.ref(block.first_line))
    if "grep" in block.source.command or not re.match(r"Module\s+Size\s+Used by|\S+ \d+ \d+ \S+ [LU]", block.lines[0].strip()):
        kernel.missing["modules"] = Missing(
            Reason.NOT_COLLECTED, "the list was filtered: a module that is not in it may be loaded", "lsmod"
        )
        fragment.note("the module list was filtered: a module that is not in it may be loaded")


# --- /proc/driver/nvidia/version

_NVRM = re.compile(r"NVRM version: (.{0,160}?)\s{1,32}(\d{1,6}\.\d{1,6}(?:\.\d{1,6}){0,3})(?:\s|$)")


def _nvidia_version(block: Block, fragment: Fragment) -> None:
    for line, raw in lines(block, fragment):
        match = _NVRM.match(raw.strip())
        if match:
            software = fragment.snapshot.software
            software.put("driver_version", match[2], fragment.ref(line))
            # "Open" is in the name since 515; without it the module is the closed one.
            software.put("driver_flavour", "open" if "Open Kernel Module" in match[1] else "proprietary", fragment.ref(line))
        elif not raw.strip().startswith("GCC version:"):
            fragment.unparsed(line, raw)


# --- /proc/<pid>/limits

_LIMIT = re.compile(r"Max ([a-z ]{1,40}?)\s{2,64}(\d+|unlimited)\s+(\d+|unlimited)(?:\s+\S+)?$")
_LIMIT_FIELDS = {
    "locked memory": "memlock_bytes",
    "stack size": "stack_bytes",
    "open files": "nofile",
    "processes": "nproc",
    "core file size": "core_bytes",
}


def _limits(block: Block, fragment: Fragment) -> None:
    limits = fragment.snapshot.limits
    pid = re.search(r"/proc/(\d+|self|thread-self)/limits", block.source.command)
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if text.startswith("Limit "):
            scope = "a process" if pid is None else f"pid {pid[1]}" if pid[1].isdecimal() else "shell"
            limits.put("scope", scope, fragment.ref(line))
        elif match := _LIMIT.match(text):
            if field := _LIMIT_FIELDS.get(match[1]):
                limits.put(field, UNLIMITED if match[2] == "unlimited" else int(match[2]), fragment.ref(line))
        else:
            fragment.unparsed(line, raw)


# --- uname -a

_UNAME = re.compile(r"Linux (\S+) (\S+) (#.*)$")
_MACHINE = re.compile(r"(?:x86_64|aarch64|arm64|ppc64le|riscv64|loongarch64|s390x|i[3-6]86)$")


def _uname(block: Block, fragment: Fragment) -> None:
    for line, raw in lines(block, fragment):
        match = _UNAME.match(raw.strip())
        if match is None:
            fragment.unparsed(line, raw)
            continue
        ref = fragment.ref(line)
        kernel = fragment.snapshot.kernel
        words = match[3].removesuffix(" GNU/Linux").removesuffix(" Linux").split(" ")
        machines: list[str] = []
        while words and (_MACHINE.match(words[-1]) or words[-1] == "unknown"):
            machines.append(words.pop())
        fragment.snapshot.host.put("hostname", match[1], ref)
        kernel.put("release", match[2], ref)
        kernel.put("version", " ".join(words).strip() or None, ref)
        known = [machine for machine in machines if machine != "unknown"]
        kernel.put("arch", known[-1] if known else None, ref)  # machine, processor, platform: the machine comes first


# --- /etc/os-release

_OS_RELEASE = re.compile(r"""([A-Z][A-Z0-9_]*)=(?:"(.*)"|'(.*)'|(\S*))$""")
_OS_FIELDS = {"ID": "os_id", "VERSION_ID": "os_version", "PRETTY_NAME": "os_name"}
_OS_KEYS = re.compile(
    r"NAME|VERSION.*|ID_LIKE|.*_URL|.*_CODENAME|ANSI_COLOR|VARIANT.*|CPE_NAME|BUILD_ID|IMAGE_.*|LOGO|PLATFORM_ID|.*_PRODUCT.*|.*SUPPORT.*"
    r"|DISTRIB_.*|DEFAULT_HOSTNAME|SYSEXT_.*|ALIBABA.*|DGX_.*|RELEASE_TYPE|DOCUMENTATION.*|VENDOR_.*|OSTREE_.*|EDITION"
)


def _os_release(block: Block, fragment: Fragment) -> None:
    for line, raw in lines(block, fragment):
        match = _OS_RELEASE.match(raw.strip())
        if match is None:
            if not raw.startswith("#"):
                fragment.unparsed(line, raw)
        elif field := _OS_FIELDS.get(match[1]):
            value = next((text for text in match.groups()[1:] if text is not None), "")
            fragment.snapshot.host.put(field, value or None, fragment.ref(line))
        elif not _OS_KEYS.fullmatch(match[1]):
            fragment.unparsed(line, raw)


# --- df

_DF_UNIT = re.compile(r"(\d{1,9})([kKMGTPE]?)(iB|B)?-blocks$")
_DF_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTPE]?)(?:iB|B)?$")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def _df_unit(heading: str) -> int | None:
    """Bytes of one unit of the size column: 1024 for ``1K-blocks``, 10**6 for ``1MB-blocks``, 1 for ``Size``; None for inodes."""
    if match := _DF_UNIT.match(heading):
        return int(match[1]) * int((1000 if match[3] == "B" else 1024) ** _POWERS[match[2].upper()])
    return None if heading in ("Inodes", "Inode", "I\u8282\u70b9") else 1


def _df_bytes(text: str, unit: int, base: int) -> int | None:
    match = _DF_SIZE.match(text)
    if match is None:
        return None
    power = _POWERS[match[2]]
    return int(float(match[1]) * (base**power if power else unit))


def _df(block: Block, fragment: Fragment) -> None:
    """Size and free space of /dev/shm. ``df -h`` rounds; ``df -H`` counts in powers of 1000, which only the command tells."""
    limits = fragment.snapshot.limits
    base = 1000 if re.search(r"\bdf\b.*(?:-\w*H|--si)", block.source.command) else 1024
    unit: int | None = 1
    for line, raw in lines(block, fragment):
        words = raw.split()
        if line == block.first_line:
            headings = [word for word in words[1:] if word not in ("Type", "\u7c7b\u578b")]
            unit = _df_unit(headings[0] if headings else "")
            continue
        if not words:
            continue
        if words[-1].endswith("dev/shm") and len(words) >= 5:
            ref = fragment.ref(line)
            if unit is not None:
                limits.put("shm_bytes", _df_bytes(words[-5], unit, base), ref)
                limits.put("shm_free_bytes", _df_bytes(words[-3], unit, base), ref)
        elif not (words[-1].startswith("/") and len(words) >= 5) and len(words) != 1:
            fragment.unparsed(line, raw)


_Reader = Callable[[Block, Fragment], None]

_FIRST_LINES: list[tuple[re.Pattern[str], _Reader]] = [
    (re.compile(r"Mem(?:Total|Free):\s+\d+"), _meminfo),
    (re.compile(r"processor\s*: \d+"), _cpuinfo),
    (re.compile(r"NVRM version: "), _nvidia_version),
    (re.compile(r"Limit\s+Soft Limit"), _limits),
    (re.compile(r"Module\s+Size\s+Used by"), _modules),
    (_MODULE, _modules),
    (_LSMOD, _modules),
    (re.compile(r"Linux \S{1,255} \d{1,4}\.\d"), _uname),
    (re.compile(r"(?:PRETTY_NAME|NAME|ID|VERSION|DISTRIB_ID)="), _os_release),
    (re.compile(r"(?:Filesystem|文件系统|Dateisystem|Sys\. de fichiers)\s"), _df),
    (re.compile(r"BOOT_IMAGE=|(?:root|console|ro|quiet|initrd)\b[= ]|.*\b(?:root|console)="), _cmdline),
]
#: for first lines that were cut or start unusually
_TOOLS: dict[str, _Reader] = {
    "/proc/meminfo": _meminfo,
    "/proc/cpuinfo": _cpuinfo,
    "/proc/cmdline": _cmdline,
    "/proc/driver/nvidia/version": _nvidia_version,
    "/proc/limits": _limits,
    "lsmod": _modules,
    "/proc/modules": _modules,
    "uname -a": _uname,
    "/etc/os-release": _os_release,
    "df /dev/shm": _df,
}


def parse(block: Block, fragment: Fragment) -> None:
    """The facts of one such file; the first line says which file it is."""
    first = block.lines[0].strip() if block.lines else ""
    reader = next((reader for pattern, reader in _FIRST_LINES if pattern.match(first)), None)
    reader = reader or _TOOLS.get(block.source.tool)
    if reader is not None:
        reader(block, fragment)
        return
    for line, raw in lines(block, fragment):
        fragment.unparsed(line, raw)
