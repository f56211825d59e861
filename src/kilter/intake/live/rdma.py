"""RDMA devices and their ports (Linux ``Documentation/ABI/stable/sysfs-class-infiniband``)."""

from __future__ import annotations

import re

from kilter.facts.base import Entity, Reason
from kilter.facts.network import Gid, RdmaDevice, RdmaPort
from kilter.intake.live.pci import last_address
from kilter.intake.live.places import NO_VALUE, Folder, Places, integer

CLASS = "/sys/class/infiniband"

_RATE = re.compile(r"([\d.]+) Gb/sec(?: \((\d+X(?: [\w+-]+)?)\))?")

#: In ``hw_counters`` but no counter: how long the driver caches the values, in ms.
_NO_COUNTERS = frozenset({"lifespan"})


def after_colon(text: str) -> str | None:
    """The word of ``"4: ACTIVE"``; the whole text where no number stands before it."""
    number, colon, state = text.partition(":")
    if colon and number.strip().isdecimal():
        return state.strip() or None
    return text.strip() or None


def rate(text: str) -> tuple[float, str | None] | None:
    """``"400 Gb/sec (4X NDR)"`` -> (400.0, "4X NDR")."""
    match = _RATE.match(text.strip())
    if match is None:
        return None
    try:
        return float(match[1]), match[2]
    except ValueError:
        return None


def counters(folder: Folder, name: str, entity: Entity, field: str) -> None:
    """All integer files of the directory ``name``. "N/A (no PMA)" and unreadable ones are no values and are left out."""
    found: dict[str, int] = {}
    refused = []
    names = [counter for counter in folder.names(name) if counter not in _NO_COUNTERS]
    for counter in names:
        text = folder.text(f"{name}/{counter}")
        value = integer(text) if text is not None else None
        if value is None:
            refused.append(counter)
        else:
            found[counter] = value
    if found:
        entity.put(field, found, folder.ref(f"{name}/{next(iter(found))}"))
        # In a text every counter has its own line, and a finding about one cites that: ref("counters.link_downed").
        for counter in found if folder.places.is_text else ():
            entity.origin[f"{field}.{counter}"] = folder.ref(f"{name}/{counter}")
    if refused:
        detail = f"no value in {', '.join(refused[:5])}{' ...' if len(refused) > 5 else ''}"
        path = folder.path(f"{name}/{refused[0]}")
        text = (folder.tree.read(path) or "").strip()
        reason = Reason.NOT_SUPPORTED if text.lower() in NO_VALUE else Reason.NOT_READABLE
        entity.lacks(field, reason, f"{detail}: {text[:40]}" if text else detail)


def gids(folder: Folder) -> list[Gid]:
    """Entries in use of the port's GID table; an all-zero entry is unused."""
    found = []
    for name in folder.names("gids"):
        index = integer(name)
        gid = folder.text(f"gids/{name}")
        if index is None or not gid or not gid.strip("0:"):
            continue
        kind = folder.text(f"gid_attrs/types/{name}") or ""
        netdev = folder.text(f"gid_attrs/ndevs/{name}") or ""
        found.append(Gid(index=index, gid=gid, type=kind, netdev=netdev))
    return sorted(found, key=lambda entry: entry.index)


def _port(folder: Folder, number: int) -> RdmaPort:
    port = RdmaPort(number=number, origin={"": folder.ref("state")})
    folder.take(port, "link_layer", "link_layer")
    folder.take(port, "state", "state", after_colon)
    folder.take(port, "physical_state", "phys_state", after_colon)
    folder.take(port, "lid", "lid", integer)
    folder.take(port, "sm_lid", "sm_lid", integer)
    if folder.take(port, "rate_gbps", "rate", lambda text: (rate(text) or (None,))[0]):
        shown = rate(folder.text("rate") or "")
        if shown is not None:
            port.put("rate_text", shown[1], folder.ref("rate"))
    counters(folder, "counters", port, "counters")
    counters(folder, "hw_counters", port, "hw_counters")
    if folder.names("gids"):
        table = gids(folder)
        port.put("gids", table, folder.ref(f"gids/{table[0].index}" if table else "gids"))
        port.put("netdev", next((entry.netdev for entry in table if entry.netdev), None), folder.ref("gid_attrs/ndevs/0"))
    return port


def _device(places: Places, name: str, folder: Folder, pci_folders: dict[str, list[str]]) -> RdmaDevice:
    first = next(
        (file for file in ("node_guid", "fw_ver", "board_id", "node_desc", "hca_type") if places.tree.exists(folder.path(file))),
        "",
    )
    device = RdmaDevice(name=name, origin={"": folder.ref(first)})
    # A directory below the PCI function says it by its place; in /sys/class/infiniband the link "device" or the entry's own
    # link does.
    address = last_address(folder.link("device")) or last_address(folder.itself())
    if address is None:
        address = next((found for path in folder.dirs if (found := last_address(path)) is not None), None)
    device.put("pci_address", address, folder.ref("device" if folder.link("device") else first))
    for field, file in (
        ("firmware", "fw_ver"),
        ("board_id", "board_id"),
        ("hca_type", "hca_type"),
        ("node_guid", "node_guid"),
        ("node_desc", "node_desc"),
    ):
        folder.take(device, field, file)
    above = places.folder(*pci_folders.get(address or "", []), *(f"{path}/device" for path in folder.dirs))
    if above.text("numa_node") is not None:
        above.take(device, "numa_node", "numa_node", integer)
    for number in sorted(value for entry in folder.names("ports") if (value := integer(entry)) is not None):
        port = _port(places.folder(*(f"{path}/ports/{number}" for path in folder.dirs)), number)
        if not places.is_text:
            # One directory, one source: the port belongs to its device.
            port.origin = dict.fromkeys(port.origin, device.origin[""])
        device.ports.append(port)
    return device


def read(places: Places, pci_folders: dict[str, list[str]]) -> None:
    """Fill ``snapshot.rdma`` from the class directory or, in texts, from ``infiniband/`` below the PCI functions."""
    tree, snapshot = places.tree, places.snapshot
    where: dict[str, list[str]] = {name: [f"{CLASS}/{name}"] for name in tree.names(CLASS)}
    if places.is_text or not where:
        for dirs in pci_folders.values():
            for path in dirs:
                for name in tree.names(f"{path}/infiniband"):
                    where.setdefault(name, []).append(f"{path}/infiniband/{name}")
    if where:
        snapshot.rdma = [
            _device(places, name, places.folder(*dirs), pci_folders) for name, dirs in sorted(where.items(), key=_natural)
        ]
    elif places.is_live and tree.exists("/sys/class"):
        # ib_core registers the class when it loads: without the directory the kernel has no RDMA device.
        snapshot.rdma = []
        snapshot.put("rdma", [], places.ref(CLASS, "/sys/class"))
    elif not places.is_text and tree.exists(CLASS):
        snapshot.put("rdma", [], places.ref(CLASS, CLASS))


def _natural(item: tuple[str, list[str]]) -> list[tuple[int, str]]:
    """mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", item[0])]
