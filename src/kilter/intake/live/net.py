"""Network interfaces of devices, and bonds of them (Linux ``Documentation/ABI/testing/sysfs-class-net``)."""

from __future__ import annotations

import ipaddress
import re

from kilter.facts.base import Reason
from kilter.facts.network import VIRTUAL_INTERFACE, NetInterface
from kilter.intake.live.guard import GuardedTree
from kilter.intake.live.pci import last_address
from kilter.intake.live.places import Folder, Places, integer

CLASS = "/sys/class/net"


def speed(text: str) -> int | None:
    """Mbit/s. -1, 0 and the old kernels' 4294967295 mean that there is none."""
    value = integer(text)
    return value if value is not None and 0 < value < 0xFFFFFFFF else None


def carrier(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text.strip())


def trust(text: str) -> str | None:
    """``"dscp"`` of ``"Priority trust state: dscp"`` or of the word alone."""
    word = text.strip().rpartition(":")[2].strip()
    return word or None


def _physical(places: Places, name: str, folder: Folder) -> bool:
    """Whether the interface belongs to a device, is a bond, or is InfiniBand."""
    if folder.link("device") is not None or last_address(folder.itself()) or folder.names("bonding"):
        return True
    if any(last_address(path) for path in folder.dirs):
        return True
    if not places.is_text:
        # Copied captures have directories in place of links.
        return bool(folder.names("device"))
    if folder.text("type") == "32":
        return True
    return "/virtual/" not in (folder.itself() or "") and not VIRTUAL_INTERFACE.match(name)


def _own_device(folder: Folder) -> bool:
    """False for what only hangs below a device: representors of virtual functions and IPoIB child interfaces."""
    port = folder.text("phys_port_name") or ""
    return re.match(r"(?:c\d+)?pf\d+(?:vf|sf)\d+$", port) is None


def _interface(places: Places, name: str, folder: Folder) -> NetInterface:
    interface = NetInterface(name=name, origin={"": folder.ref("operstate")})
    address = last_address(folder.link("device")) or last_address(folder.itself())
    if address is None:
        address = next((found for path in folder.dirs if (found := last_address(path)) is not None), None)
    interface.put("pci_address", address, folder.ref("device" if folder.link("device") else "operstate"))
    folder.take(interface, "operstate", "operstate")
    folder.take(interface, "mtu", "mtu", integer)
    folder.take(interface, "link_type", "type", integer)
    folder.take(interface, "mac", "address")
    folder.take(interface, "carrier_down_count", "carrier_down_count", integer)
    folder.take(interface, "carrier", "carrier", carrier)
    folder.take(interface, "speed_mbps", "speed", speed)
    if "speed_mbps" in interface.missing and integer(folder.text("speed") or "") in (-1, 0, 0xFFFFFFFF):
        interface.lacks(
            "speed_mbps", Reason.NOT_SUPPORTED, f"{folder.path('speed')} holds {folder.text('speed')}: the driver knows none"
        )
    if interface.operstate in ("down", "notpresent", "lowerlayerdown"):
        # The kernel answers EINVAL for both while the interface is down, and an old speed is none.
        for field in ("carrier", "speed_mbps"):
            if field in interface.missing:
                interface.lacks(
                    field, Reason.NOT_READABLE, f"{folder.path('operstate')} is {interface.operstate}", "bring the interface up"
                )
    device = places.snapshot.pci.get(address or "") if places.snapshot.pci else None
    driver = folder.link_name("device/driver")
    interface.put("driver", driver, folder.ref("device/driver"))
    if driver is None and device is not None and device.driver and folder.names("bonding") == []:
        interface.put("driver", device.driver, device.ref("driver"))
    if folder.names("bonding"):
        interface.put("driver", interface.driver or "bonding", folder.ref("bonding"))
    if folder.text("device/numa_node") is not None:
        folder.take(interface, "numa_node", "device/numa_node", integer)
    elif device is not None:
        interface.put("numa_node", device.numa_node, device.ref("numa_node"))
    _quality(interface, folder)
    return interface


def _quality(interface: NetInterface, folder: Folder) -> None:
    """Traffic classes, as the out-of-tree mlx5 driver shows them (``ecn/roce_{np,rp}/enable/<priority>``, ``qos/trust``)."""
    enabled: set[int] = set()
    seen = False
    for side in ("roce_np", "roce_rp"):
        for name in folder.names(f"ecn/{side}/enable"):
            priority, value = integer(name), folder.text(f"ecn/{side}/enable/{name}")
            if priority is not None and value in ("0", "1"):
                seen = True
                if value == "1":
                    enabled.add(priority)
    if seen:
        interface.put("ecn_priorities", sorted(enabled), folder.ref("ecn/roce_np/enable/0"))
    if folder.text("qos/trust") is not None:
        folder.take(interface, "trust", "qos/trust", trust)


def ipv6_addresses(text: str) -> dict[str, list[str]]:
    """``address/prefix`` by interface from ``/proc/net/if_inet6``."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) != 6:
            continue
        try:
            address = ipaddress.IPv6Address(bytes.fromhex(parts[0]))
            found.setdefault(parts[5], []).append(f"{address}/{int(parts[2], 16)}")
        except ValueError:
            continue
    return found


def _ask_driver(places: Places, tree: GuardedTree, interfaces: list[NetInterface]) -> None:
    """What only ioctl tells: driver and firmware versions, rings, pause, statistics, addresses."""
    ipv4 = tree.ethtool("")
    ipv6 = ipv6_addresses(tree.read("/proc/net/if_inet6") or "")
    for interface in interfaces:
        ref = places.ref("", f"ethtool {interface.name}")
        facts = tree.ethtool(interface.name)
        for field in ("driver", "driver_version", "firmware"):
            value = facts.get(field)
            if value and value != "N/A" and getattr(interface, field) is None:
                interface.put(field, value, ref)
        for field in ("rx_ring", "tx_ring", "pause_rx", "pause_tx", "statistics"):
            interface.put(field, facts.get(field), ref)
        errors = facts.get("errors")
        if isinstance(errors, dict):
            for part, fields in (("statistics", ("statistics",)), ("rings", ("rx_ring", "tx_ring")), ("driver", ("firmware",))):
                for field in fields:
                    if part in errors:
                        interface.lacks(field, Reason.NOT_READABLE, f"ethtool {interface.name}: {errors[part]}")
        if not facts:
            silent = tree.silent.get(f"{CLASS}/{interface.name}", "no answer")
            interface.lacks("statistics", Reason.NOT_READABLE, f"ethtool {interface.name}: {silent}")
        four = ipv4.get(interface.name)
        addresses = [*(four if isinstance(four, list) else []), *ipv6.get(interface.name, [])]
        interface.put("addresses", addresses, ref)


def _rdma_netdevs(places: Places, interfaces: dict[str, Folder]) -> None:
    """The interface of each RDMA port that has none by its GIDs: the one of the same function with the port's number."""
    by_function: dict[str, list[NetInterface]] = {}
    for interface in places.snapshot.nics or []:
        if interface.pci_address and "." not in interface.name:
            by_function.setdefault(interface.pci_address, []).append(interface)
    for device in places.snapshot.rdma or []:
        candidates = by_function.get(device.pci_address or "", [])
        for port in device.ports:
            if port.netdev is not None or not candidates:
                continue
            same = [i for i in candidates if integer(interfaces[i.name].text("dev_port") or "0") == port.number - 1]
            if len(same) == 1 or (same and len(device.ports) == 1):
                port.put("netdev", same[0].name, same[0].ref("pci_address"))


def read(places: Places, pci_folders: dict[str, list[str]]) -> None:
    """Fill ``snapshot.nics`` (interfaces with hardware, and bonds) and the interface names of RDMA ports."""
    tree, snapshot = places.tree, places.snapshot
    where: dict[str, list[str]] = {name: [f"{CLASS}/{name}"] for name in tree.names(CLASS)}
    if places.is_text or not where:
        for dirs in pci_folders.values():
            for path in dirs:
                for name in tree.names(f"{path}/net"):
                    where.setdefault(name, []).append(f"{path}/net/{name}")
    if not where and not (not places.is_text and tree.exists(CLASS)):
        return
    readers = {name: places.folder(*dirs) for name, dirs in sorted(where.items())}
    chosen = {
        name: folder
        for name, folder in readers.items()
        if name != "bonding_masters" and _physical(places, name, folder) and _own_device(folder)
    }
    snapshot.nics = [_interface(places, name, folder) for name, folder in chosen.items()]
    _rdma_netdevs(places, chosen)
    if isinstance(tree, GuardedTree) and snapshot.nics:
        _ask_driver(places, tree, snapshot.nics)
