"""CPUs and NUMA nodes: ``/proc/cpuinfo``, ``/sys/devices/system/{cpu,node}`` (Linux
``Documentation/ABI/testing/sysfs-devices-system-cpu``).
"""

from __future__ import annotations

from collections.abc import Callable

from kilter.facts.base import Reason
from kilter.facts.host import IdleState, NumaNode
from kilter.intake.captures.interrupts import device_cpus
from kilter.intake.live.places import Folder, Places, integer, kibibytes, list_length, mask_to_list, word

TOP = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"

#: Implementer codes of ``/proc/cpuinfo`` on arm64 (Linux ``arch/arm64/include/asm/cputype.h``), as lscpu names them.
_ARM_VENDORS = {
    "0x41": "ARM",
    "0x42": "Broadcom",
    "0x43": "Cavium",
    "0x46": "Fujitsu",
    "0x48": "HiSilicon",
    "0x4e": "NVIDIA",
    "0x51": "Qualcomm",
    "0xc0": "Ampere",
}


def _numbered(names: list[str], prefix: str) -> list[int]:
    return sorted(int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdecimal())


def _listed(text: str) -> str | None:
    """A CPU list; an empty file is an empty list, ``"(null)"`` is what old kernels print for none."""
    text = text.strip()
    return "" if text in ("", "(null)") else text


def _cpuinfo(places: Places) -> dict[str, set[str]]:
    """Fills what the first processor's block says; returns all values of the topology keys."""
    cpu = places.snapshot.cpu
    text = places.tree.read("/proc/cpuinfo")
    keys: dict[str, set[str]] = {}
    if text is None:
        return keys
    ref = places.ref("/proc/cpuinfo", "/proc/cpuinfo")
    count = 0
    package = "0"
    convert: dict[str, tuple[str, Callable[[str], object]]] = {
        "vendor_id": ("vendor", word),
        "CPU implementer": ("vendor", lambda value: _ARM_VENDORS.get(value, value)),
        "model name": ("model", word),
        "cpu family": ("family", integer),
        "model": ("model_number", integer),
        "stepping": ("stepping", integer),
        "flags": ("flags", str.split),
        "Features": ("flags", str.split),
    }
    for number, line in enumerate(text.splitlines()):
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon:
            continue
        if name == "processor":
            count += 1
        elif name == "physical id":
            package = value
        if name == "core id":
            keys.setdefault("core", set()).add(f"{package}/{value}")
        elif name in ("physical id", "cpu cores", "siblings"):
            keys.setdefault(name, set()).add(value)
        if count <= 1 and name in convert:
            field, read_value = convert[name]
            cpu.put(field, read_value(value), (ref[0], ref[1] + number) if ref[1] else ref)
    if count:
        cpu.put("logical", count, ref)
    return keys


def _topology(places: Places, numbers: list[int], cpuinfo: dict[str, set[str]]) -> None:
    """Sockets, cores, threads of the CPUs that are online: by sysfs, else by ``/proc/cpuinfo``."""
    cpu = places.snapshot.cpu
    packages: set[str] = set()
    cores: set[str] = set()
    threads = 0
    first = ""
    for number in numbers:
        folder = places.folder(f"{TOP}/cpu{number}/topology")
        package = folder.text("physical_package_id")
        siblings = folder.text("thread_siblings_list") or folder.text("core_cpus_list")
        if package is None or siblings is None:
            continue
        first = first or folder.path("physical_package_id")
        packages.add(package)
        cores.add(siblings)
        threads = max(threads, list_length(siblings) or 1)
    if packages and cores:
        ref = places.ref(first, TOP)
        cpu.put("sockets", len(packages), ref)
        cpu.put("cores_per_socket", len(cores) // len(packages), ref)
        cpu.put("threads_per_core", threads, ref)
        return
    ref = places.ref("/proc/cpuinfo", "/proc/cpuinfo")
    cores_each, siblings_each = (integer(next(iter(cpuinfo.get(key, {"0"})))) or 0 for key in ("cpu cores", "siblings"))
    if cpuinfo.get("physical id") and cores_each:
        cpu.put("sockets", len(cpuinfo["physical id"]), ref)
        cpu.put("cores_per_socket", cores_each, ref)
        cpu.put("threads_per_core", max(siblings_each // cores_each, 1), ref)


def _frequency(places: Places, numbers: list[int]) -> None:
    """Governors and energy preferences, counted in CPUs: a policy stands for its ``affected_cpus``."""
    cpu, tree = places.snapshot.cpu, places.tree
    policies = [f"{TOP}/cpufreq/{name}" for name in tree.names(f"{TOP}/cpufreq") if name.startswith("policy")]
    if not policies:
        policies = [path for number in numbers if tree.names(path := f"{TOP}/cpu{number}/cpufreq")]
    if not policies:
        if not places.is_text and numbers:
            detail = f"no policy in {TOP}/cpufreq: no cpufreq driver, as in most virtual machines"
            for field in ("governors", "epp", "scaling_driver", "max_mhz"):
                cpu.lacks(field, Reason.NOT_SUPPORTED, detail)
        return
    counts: dict[str, dict[str, int]] = {"governors": {}, "epp": {}}
    highest: tuple[int, Folder] | None = None
    for path in policies:
        folder = places.folder(path)
        weight = len((folder.text("affected_cpus") or "0").split()) if "/policy" in path else 1
        for field, file in (("governors", "scaling_governor"), ("epp", "energy_performance_preference")):
            value = folder.text(file)
            if value:
                known = counts[field]
                if not known:
                    cpu.origin[field] = places.ref(folder.path(file), TOP)
                known[value] = known.get(value, 0) + max(weight, 1)
        khz = integer(folder.text("cpuinfo_max_freq") or "")
        if khz is not None and (highest is None or khz > highest[0]):
            highest = (khz, folder)
    first = places.folder(policies[0])
    cpu.put("scaling_driver", first.text("scaling_driver"), places.ref(first.path("scaling_driver"), TOP))
    for field, known in counts.items():
        if known:
            cpu.put(field, known)
        elif not places.is_text:
            cpu.lacks(field, Reason.NOT_SUPPORTED, f"{first.dirs[0]} does not offer it")
    if highest is not None:
        cpu.put("max_mhz", highest[0] / 1000, places.ref(highest[1].path("cpuinfo_max_freq"), TOP))


def _idle(places: Places, numbers: list[int]) -> None:
    """C-states of the first CPU that shows them."""
    cpu = places.snapshot.cpu
    for number in numbers[:1]:
        folder = places.folder(f"{TOP}/cpu{number}/cpuidle")
        states = []
        for index in _numbered(folder.names(), "state"):
            name = folder.text(f"state{index}/name")
            if name is None:
                continue
            off = integer(folder.text(f"state{index}/disable") or "")
            states.append(
                IdleState(
                    name=name,
                    latency_us=integer(folder.text(f"state{index}/latency") or ""),
                    disabled=None if off is None else off != 0,
                )
            )
        if states:
            cpu.put("idle_states", states, places.ref(folder.path("state0/name"), TOP))
        elif not places.is_text:
            cpu.lacks("idle_states", Reason.NOT_SUPPORTED, f"no state below {folder.dirs[0]}: no cpuidle driver")


def _numa(places: Places) -> None:
    top = places.folder(NODES)
    numbers = _numbered(top.names(), "node")
    nodes = []
    for number in numbers:
        folder = places.folder(f"{NODES}/node{number}")
        node = NumaNode(id=number, origin={"": folder.ref("cpulist")})
        folder.take(node, "cpus", "cpulist", _listed)
        distances = [integer(part) for part in (folder.text("distance") or "").split()]
        if distances and None not in distances:
            node.put("distances", distances, folder.ref("distance"))
        for line in (folder.text("meminfo") or "").splitlines():
            name, _, value = line.partition(":")
            field = {"MemTotal": "memory_total_bytes", "MemFree": "memory_free_bytes"}.get(name.rpartition(" ")[2])
            if field:
                node.put(field, kibibytes(value), folder.ref("meminfo"))
        pages = {}
        for name in folder.names("hugepages"):
            count = integer(folder.text(f"hugepages/{name}/nr_hugepages") or "")
            if name.startswith("hugepages-") and count is not None:
                pages[name.removeprefix("hugepages-")] = count
        if pages:
            node.put("hugepages", pages, folder.ref(f"hugepages/hugepages-{next(iter(pages))}/nr_hugepages"))
        nodes.append(node)
    if nodes:
        places.snapshot.cpu.put("numa", nodes, top.ref("online"))


def read(places: Places) -> None:
    """Fill ``snapshot.cpu``."""
    cpu, tree = places.snapshot.cpu, places.tree
    cpuinfo = _cpuinfo(places)
    top = places.folder(TOP)
    numbers = _numbered(top.names(), "cpu")
    if numbers:
        top.take(cpu, "online", "online", _listed)
        top.take(cpu, "offline", "offline", _listed)
        top.take(cpu, "isolated", "isolated", _listed)
        top.take(cpu, "nohz_full", "nohz_full", _listed)
        top.take(cpu, "smt", "smt/control")
        present = top.text("present")
        if present:
            cpu.put("logical", list_length(present), top.ref("present"))
        elif not places.is_text:
            cpu.put("logical", len(numbers), top.ref(""))
    _topology(places, numbers, cpuinfo)
    _frequency(places, numbers)
    _idle(places, numbers)
    mitigations = {name: text for name in top.names("vulnerabilities") if (text := top.text(f"vulnerabilities/{name}"))}
    if mitigations:
        cpu.put("mitigations", mitigations, top.ref(f"vulnerabilities/{next(iter(mitigations))}"))
    mask = tree.read("/proc/irq/default_smp_affinity")
    if mask is not None:
        cpu.put("irq_default_affinity", mask_to_list(mask), places.ref("/proc/irq/default_smp_affinity", "/proc/irq"))
    table = tree.read("/proc/interrupts")
    if table is not None and (found := device_cpus(table)):
        cpu.put("device_interrupts", found, places.ref("/proc/interrupts", "/proc"))
    _numa(places)
