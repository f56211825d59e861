"""Memory: ``/proc/meminfo``, transparent huge pages, EDAC."""

from __future__ import annotations

from kilter.facts.base import Reason
from kilter.intake.live.places import Places, integer, kibibytes, selected

_MEMINFO = {
    "MemTotal": "total_bytes",
    "MemAvailable": "available_bytes",
    "MemFree": "free_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
    "HugePages_Total": "hugepages_total",
    "HugePages_Free": "hugepages_free",
    "Hugepagesize": "hugepage_bytes",
}


def read(places: Places) -> None:
    """Fill ``snapshot.memory``. Error counts are the sum over all memory controllers that an EDAC driver handles."""
    memory, tree = places.snapshot.memory, places.tree
    text = tree.read("/proc/meminfo")
    if text is not None:
        ref = places.ref("/proc/meminfo", "/proc/meminfo")
        for number, line in enumerate(text.splitlines()):
            name, _, value = line.partition(":")
            if (field := _MEMINFO.get(name.strip())) is not None:
                memory.put(field, kibibytes(value), (ref[0], ref[1] + number) if ref[1] else ref)
    pages = places.folder("/sys/kernel/mm/transparent_hugepage")
    pages.take(memory, "thp_enabled", "enabled", selected)
    pages.take(memory, "thp_defrag", "defrag", selected)
    top = places.folder("/sys/devices/system/edac/mc")
    controllers = [name for name in top.names() if name.startswith("mc") and name[2:].isdecimal()]
    for field, file in (("edac_ce", "ce_count"), ("edac_ue", "ue_count")):
        counts = [count for name in controllers if (count := integer(top.text(f"{name}/{file}") or "")) is not None]
        if counts:
            memory.put(field, sum(counts), top.ref(f"{controllers[0]}/{file}"))
        elif not places.is_text:
            memory.lacks(
                field,
                Reason.NOT_SUPPORTED,
                "no memory controller below /sys/devices/system/edac/mc",
                "load the platform's EDAC driver",
            )
