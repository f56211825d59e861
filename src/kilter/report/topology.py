"""What a node looks like inside: NUMA nodes, the PCI tree with what matters in it, NVLinks, and all distances.

:func:`build` is a pure function of a :class:`~kilter.facts.case.Snapshot`, any part of which may be missing. It decides nothing:
a distance is what the PCI tree gives and what ``nvidia-smi topo -m`` said, both kept, and "?" where neither says it.
"""

from __future__ import annotations

from kilter.facts.accelerator import Accelerator, TopologyMatrix
from kilter.facts.case import Snapshot
from kilter.facts.network import NetInterface, RdmaDevice
from kilter.facts.pci import PciDevice, generation
from kilter.report.topology_model import (
    GPU_KINDS,
    NIC_KINDS,
    Distance,
    LinkState,
    Node,
    NumaGroup,
    RootBus,
    Topology,
)
from kilter.report.topology_pci import UNKNOWN, PciTree, bonded_links, kind_of, rank, short_address, short_title, split_address

#: More devices than this are drawn, but their distances are not computed pair by pair.
MAX_MATRIX = 128


def build(snapshot: Snapshot) -> Topology:
    """The topology of one node. Never raises for odd facts; what is not known stays "?" or empty."""
    return _Builder(snapshot).build()


class _Builder:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.matrix = snapshot.topology or TopologyMatrix(devices=[])
        self.result = Topology(node=snapshot.node, product=_product(snapshot), cpu=_cpu(snapshot))
        self.keys: set[str] = set()
        self.repeats: dict[str, int] = {}
        self.switch_addresses = {switch.pci_address for switch in snapshot.nvswitches or [] if switch.pci_address}
        self.listed = snapshot.pci or {}
        self.accelerators = {a.pci_address: a for a in snapshot.accelerators or [] if a.pci_address}
        self.rdma: dict[str, list[RdmaDevice]] = {}
        for device in snapshot.rdma or []:
            self.rdma.setdefault(device.pci_address or "", []).append(device)
        self.interfaces: dict[str, list[NetInterface]] = {}
        for interface in snapshot.nics or []:
            self.interfaces.setdefault(interface.pci_address or "", []).append(interface)
        self.nodes: dict[str, Node] = {}  # by PCI address
        self.placeless: list[Node] = []  # without PCI address
        self.alias: dict[str, str] = {}  # name in the matrix or of an interface -> key
        self.by_key: dict[str, Node] = {}

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def build(self) -> Topology:
        functions = dict(self.listed)
        for address in (
            *self.accelerators,
            *self.rdma,
            *self.interfaces,
            *self.switch_addresses,
        ):
            if address:
                functions.setdefault(address, PciDevice(address=address))
        self.tree = PciTree(functions)
        self.with_domain = any(not address.startswith("0000:") for address in functions)
        for address in sorted(functions, key=split_address):
            self._add(functions[address])
        self._add_placeless()
        self._match_matrix()
        self._numa_from_matrix()
        self._nvlinks()
        self._distances()
        self._nearest()
        self._groups()
        self._notes()
        return self.result

    def _unique(self, wanted: str) -> str:
        key = wanted
        while key in self.keys:
            self.repeats[wanted] = self.repeats.get(wanted, 1) + 1
            key = f"{wanted}#{self.repeats[wanted]}"
        self.keys.add(key)
        return key

    def _kind(self, device: PciDevice) -> str:
        address = device.address
        if address in self.accelerators:
            return "xpu" if self.accelerators[address].vendor == "kunlunxin" else "gpu"
        if address in self.rdma:
            return "hca"
        kind = kind_of(device)
        if kind in NIC_KINDS and self._is_folded(device):
            return ""
        if not kind and address in self.interfaces:
            return "nic"
        if not kind and address in self.switch_addresses:
            return "nvswitch"
        return kind

    def _is_folded(self, device: PciDevice) -> bool:
        """A virtual function whose physical one is drawn."""
        return bool(device.physical_function) and device.physical_function in self.listed

    def _add(self, device: PciDevice) -> None:
        kind = self._kind(device)
        if not kind or kind == "bridge":
            return
        address = device.address
        short = short_address(address, with_domain=self.with_domain)
        node = Node(key="", kind=kind, named=False, address=address, title=_title(device), slot=device.slot or "")
        node.link = _link(device)
        if self.snapshot.pci and address not in self.listed:
            node.details.append("not in the PCI listing")
        if device.config_readable is False:
            node.details.append("configuration space unreadable")
        node.numa = self._numa(address, device)
        wanted = {"gpu": "GPU ", "xpu": "XPU ", "nvme": "NVMe ", "nvswitch": "NVSwitch ", "hca": "", "nic": ""}.get(
            kind, "ACC "
        ) + short
        if kind in GPU_KINDS and (accelerator := self.accelerators.get(address)):
            wanted = self._fill_accelerator(node, accelerator, wanted)
        elif kind in NIC_KINDS:
            wanted = self._fill_nic(node, wanted)
            if device.vfs:
                node.details.append(f"{device.vfs} VFs")
        self._register(node, wanted)
        self.nodes[address] = node

    def _register(self, node: Node, wanted: str) -> None:
        node.key = self._unique(wanted)
        self.by_key[node.key] = node
        self.alias.setdefault(node.key, node.key)
        for name in node.names:
            self.alias.setdefault(name, node.key)

    def _fill_accelerator(self, node: Node, accelerator: Accelerator, wanted: str) -> str:
        if accelerator.name:
            node.title = short_title(accelerator.name)
        if accelerator.error:
            node.details.append(accelerator.error)
        if accelerator.mig_devices:
            node.details.append(f"{len(accelerator.mig_devices)} MIG devices")
        if not node.link.generation and not node.link.width:
            node.link = _accelerator_link(accelerator)
        prefix = "XPU" if accelerator.vendor == "kunlunxin" else "GPU"
        if accelerator.index is not None:
            node.named = True
            return f"{prefix}{accelerator.index}"
        node.named = False
        return wanted if node.address else f"{prefix} {(accelerator.uuid or '?').removeprefix('GPU-')[:8]}"

    def _fill_nic(self, node: Node, wanted: str) -> str:
        rdma = self.rdma.get(node.address, [])
        interfaces = self.interfaces.get(node.address, [])
        names = [device.name for device in rdma] + [interface.name for interface in interfaces]
        for device in rdma:
            node.title = node.title or device.hca_type or ""
            node.details += [text for port in device.ports if (text := _port(port.link_layer, port.rate_gbps, port.state))]
        if not rdma:
            for interface in interfaces:
                speed = interface.speed_mbps / 1000 if interface.speed_mbps and interface.speed_mbps > 0 else None
                node.details += [text for text in [_port(None, speed, interface.operstate)] if text]
        node.names = names[1:]
        node.named = bool(names)
        return names[0] if names else wanted

    def _numa(self, address: str, device: PciDevice) -> int | None:
        said: dict[int, list[str]] = {}
        accelerator = self.accelerators.get(address)
        for who, node in (
            ("PCI", self.tree.numa_node(address)),
            ("the accelerator's tool", accelerator.numa_node if accelerator else None),
            *((one.name, one.numa_node) for one in self.rdma.get(address, [])),
            *((one.name, one.numa_node) for one in self.interfaces.get(address, [])),
        ):
            if node is not None and node >= 0:
                said.setdefault(node, []).append(who)
        if len(said) > 1:
            text = ", ".join(f"{node} ({', '.join(who)})" for node, who in said.items())
            self.result.disagreements.append(f"{address}: NUMA node {text}")
        # The listing of PCI functions comes from the kernel and is the first to be believed.
        return next(iter(said), self._only_node())

    def _only_node(self) -> int | None:
        """The machine's only NUMA node, where it is known that there is one only."""
        nodes = self.snapshot.cpu.numa or []
        return nodes[0].id if len(nodes) == 1 else None

    def _add_placeless(self) -> None:
        """What other tools know and no PCI address is given for."""
        unnumbered = [node for node in self.nodes.values() if node.kind in GPU_KINDS and node.address not in self.accelerators]
        strays = [a for a in self.snapshot.accelerators or [] if not a.pci_address]
        if len(unnumbered) == len(strays) == 1:  # one GPU here, one GPU there: the same
            node, one = unnumbered[0], strays[0]
            del self.by_key[node.key], self.alias[node.key]
            self._register(node, self._fill_accelerator(node, one, node.key))
            return
        if unnumbered and strays:
            self.result.notes.append(
                f"{len(strays)} GPUs are listed without PCI address and are not matched with those of the PCI listing"
                " (nvidia-smi --query-gpu=index,pci.bus_id --format=csv tells which is which)"
            )
            strays = []
        for accelerator in strays:
            node = Node(key="", kind="xpu" if accelerator.vendor == "kunlunxin" else "gpu", numa=accelerator.numa_node)
            node.numa = self._only_node() if node.numa is None or node.numa < 0 else node.numa
            self._register(node, self._fill_accelerator(node, accelerator, ""))
            self.placeless.append(node)
        known = {name for node in self.nodes.values() for name in (node.key, *node.names)}
        for device in self.rdma.get("", []):
            if device.name not in known:
                self._add_named_nic("hca", device.name, device.numa_node, device.hca_type or "", device)

    def _add_named_nic(self, kind: str, name: str, numa: int | None, title: str = "", device: RdmaDevice | None = None) -> Node:
        node = Node(key="", kind=kind, title=title, numa=numa if numa is not None and numa >= 0 else self._only_node())
        if device is not None:
            node.details = [text for port in device.ports if (text := _port(port.link_layer, port.rate_gbps, port.state))]
        self._register(node, name)
        self.placeless.append(node)
        return node

    # -- the matrix ----------------------------------------------------------------------------------------------------

    def _match_matrix(self) -> None:
        names = [name for name in self.matrix.devices if isinstance(name, str)]
        in_matrix_gpus = [name for name in names if name.startswith(("GPU", "XPU"))]
        drawn = [node for node in self.by_key.values() if node.kind in GPU_KINDS]
        unnumbered = [node for node in drawn if not node.named]
        self.unmatched_gpus: list[str] = []
        for name in in_matrix_gpus:
            if name in self.alias:
                continue
            if len(in_matrix_gpus) == len(drawn) == 1:
                node = drawn[0]
                self.by_key.pop(node.key, None)
                self.alias.pop(node.key, None)
                node.named = True
                self._register(node, name)
            elif unnumbered:
                self.unmatched_gpus.append(name)
            else:
                node = Node(key="", kind="xpu" if name.startswith("XPU") else "gpu", numa=self._affinity(name))
                self._register(node, name)
                self.placeless.append(node)
        if self.unmatched_gpus:
            self.result.notes.append(
                "the GPU numbers of topo -m are not matched with PCI addresses"
                " (nvidia-smi --query-gpu=index,pci.bus_id --format=csv tells which is which)"
            )
        for name in names:
            if name in self.alias or name in self.unmatched_gpus or name.startswith(("CPU", "GPU", "XPU")):
                continue
            real = self.matrix.nic_names.get(name, name)
            if real in self.alias:
                self.alias[name] = self.alias[real]
            else:
                self.alias[name] = self._add_named_nic("hca", real, self._affinity(name)).key
        nics = [node for node in self.by_key.values() if node.kind in NIC_KINDS]
        if any(not node.address for node in nics) and any(not node.named for node in nics):
            self.result.notes.append(
                "network devices named without PCI address are not matched with those of the PCI listing"
                " (ls -l /sys/class/infiniband tells which is which)"
            )

    def _affinity(self, name: str) -> int | None:
        text = self.matrix.numa_affinity.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else self._only_node()

    def _reported(self, a: str, b: str) -> str:
        return self.matrix.links.get(a, {}).get(b, "")

    def _numa_from_matrix(self) -> None:
        """NODE and nearer mean, by definition, the same NUMA node: a NIC without affinity of its own gets the GPU's."""
        for name in self.matrix.devices:
            node = self.by_key.get(self.alias.get(name, ""))
            said = self._affinity(name)
            if node is None:
                continue
            if (
                node.numa is not None
                and said is not None
                and said != node.numa
                and node.address
                and name in self.matrix.numa_affinity
            ):
                self.result.disagreements.append(f"{node.key}: NUMA node {node.numa}, but topo -m says {said}")
            if node.numa is None:
                node.numa = said
        for name in self.matrix.devices:
            node = self.by_key.get(self.alias.get(name, ""))
            if node is None or node.numa is not None or node.kind not in NIC_KINDS:
                continue
            for other in self.matrix.devices:
                gpu = self.by_key.get(self.alias.get(other, ""))
                word = self._reported(other, name) or self._reported(name, other)
                if gpu is not None and gpu.kind in GPU_KINDS and gpu.numa is not None and word in ("PIX", "PXB", "PHB", "NODE"):
                    node.numa = gpu.numa
                    break

    # -- NVLink and distances ------------------------------------------------------------------------------------------

    def _nvlinks(self) -> None:
        links = self.result.nvlinks
        unmatched: dict[str, list[str]] = {}
        for accelerator in self.snapshot.accelerators or []:
            node = self.nodes.get(accelerator.pci_address or "")
            node = node or self.by_key.get(f"{'XPU' if accelerator.vendor == 'kunlunxin' else 'GPU'}{accelerator.index}")
            if not accelerator.nvlinks:
                continue
            up = [
                one for one in accelerator.nvlinks if (one.state or "").lower() == "active" or (not one.state and one.speed_gb_s)
            ]
            if node is None:  # a GPU that could not be matched with those drawn: said in a note, not lost
                unmatched.setdefault(f"{len(up)} of {len(accelerator.nvlinks)} NVLinks active", []).append(accelerator.label)
                continue
            known = [link for link in accelerator.nvlinks if link.state or link.speed_gb_s is not None]
            links.total[node.key] = len(accelerator.nvlinks)
            if known:
                links.active[node.key] = len(up)
                node.details.append(f"NVLink {len(up)}/{len(accelerator.nvlinks)} active")
            else:
                node.details.append(f"NVLink {len(accelerator.nvlinks)} links")
        self.result.notes += [f"{said}: {', '.join(labels[:16])}" for said, labels in unmatched.items()]
        drawn = [node for node in self.nodes.values() if node.kind == "nvswitch"]
        strays = [switch for switch in self.snapshot.nvswitches or [] if not switch.pci_address]
        if drawn or self.snapshot.nvswitches is not None or self.snapshot.pci:
            links.switches = max(len(drawn), len(strays))

    def _distances(self) -> None:
        order = sorted(self.by_key.values(), key=_gpu_order)
        fabric = [node for node in order if node.kind == "hca"]
        self.gpu_nodes = [node for node in order if node.kind in GPU_KINDS]
        self.nic_nodes = fabric or [node for node in order if node.kind == "nic"]
        gpus = self.unmatched_gpus or [node.key for node in self.gpu_nodes]
        nics = [node.key for node in self.nic_nodes]
        if max(len(gpus), len(nics)) > MAX_MATRIX:
            self.result.notes.append(f"distances are given for the first {MAX_MATRIX} GPUs and NICs only")
        gpus, nics = gpus[:MAX_MATRIX], nics[:MAX_MATRIX]
        self.result.gpus, self.result.nics = gpus, nics
        spelt: dict[str, str] = {}
        for name in self.matrix.devices:
            spelt.setdefault(self.alias.get(name, name), name)
        for at, one in enumerate(gpus):
            row = self.result.distances.setdefault(one, {})
            for other in gpus[at + 1 :] + nics:
                row[other] = self._distance(one, other, spelt)
        words = {self.result.distance(a, b).word for at, a in enumerate(gpus) for b in gpus[at + 1 :]}
        if len(words) == 1 and bonded_links(next(iter(words))):
            self.result.nvlinks.all_pairs = next(iter(words))
        for at, one in enumerate(gpus):
            for other in gpus[at + 1 :]:
                if bonds := bonded_links(self.result.distance(one, other).word):
                    self.result.nvlinks.pairs.setdefault(one, {})[other] = bonds

    def _distance(self, one: str, other: str, spelt: dict[str, str]) -> Distance:
        computed = UNKNOWN
        a, b = self.by_key.get(one), self.by_key.get(other)
        if a is not None and b is not None and a.address and b.address:
            computed = self.tree.distance(a.address, b.address, numa_a=a.numa, numa_b=b.numa)
        forth = self._reported(spelt.get(one, one), spelt.get(other, other))
        back = self._reported(spelt.get(other, other), spelt.get(one, one))
        if forth and back and forth != back:
            self.result.disagreements.append(f"{one} - {other}: topo -m says {forth} one way and {back} the other")
        reported = forth or back
        distance = Distance(reported or computed, computed, reported)
        if distance.disagrees:
            self.result.disagreements.append(f"{one} - {other}: {computed} by the PCI tree, {reported} by topo -m")
        return distance

    def _nearest(self) -> None:
        for out, rows, columns in (
            (self.result.nearest_nics, self.result.gpus, self.result.nics),
            (self.result.nearest_gpus, self.result.nics, self.result.gpus),
        ):
            for row in rows:
                known = [(rank(word), name) for name in columns if (word := self.result.distance(row, name).word) != UNKNOWN]
                out[row] = [name for value, name in known if value == min(known)[0]]

    # -- the tree ------------------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        bridges: dict[str, Node] = {}
        buses: dict[tuple[str, int] | None, list[Node]] = {}
        floating: dict[int | None, list[Node]] = {}
        seen: set[str] = set()
        for address, node in self.nodes.items():
            chain = self.tree.chain(address)
            below = node
            for bridge in reversed(chain[:-1]):
                below.gap = self.tree.places[below.address].gap
                parent = bridges.get(bridge)
                if parent is not None:
                    parent.children.append(below)
                    break
                parent = bridges[bridge] = self._bridge(bridge)
                parent.children.append(below)
                below = parent
            else:
                root = self.tree.root_bus(address)
                if root is None:
                    floating.setdefault(below.numa if below.numa is not None else node.numa, []).append(below)
                else:
                    buses.setdefault(root, []).append(below)
            seen.update(chain)
        groups: dict[int | None, NumaGroup] = {}
        for numa_node in self.snapshot.cpu.numa or []:
            groups[numa_node.id] = NumaGroup(
                node=numa_node.id, cpus=numa_node.cpus or "", memory_bytes=numa_node.memory_total_bytes
            )
        for root, nodes in buses.items():
            assert root is not None
            for numa, part in _by_numa(nodes).items():
                group = groups.setdefault(numa, NumaGroup(node=numa))
                group.buses.append(RootBus(name=f"{root[0]}:{root[1]:02x}", nodes=part))
        for node in self.placeless:
            floating.setdefault(node.numa, []).append(node)
        for numa, nodes in floating.items():
            groups.setdefault(numa, NumaGroup(node=numa)).buses.append(RootBus(nodes=nodes))
        for address in self.listed:
            if address not in seen:
                numa = self.tree.numa_node(address)
                group = groups.get(numa if numa is not None else self._only_node()) or groups.setdefault(None, NumaGroup())
                group.hidden += 1
        for name, text in self.matrix.cpu_affinity.items():
            node_of = self.by_key.get(self.alias.get(name, ""))
            if node_of is not None and node_of.numa in groups and not groups[node_of.numa].cpus:
                groups[node_of.numa].cpus = text
        # JSON-like order: known NUMA nodes first, what is not known last.
        self.result.numa = sorted(groups.values(), key=lambda group: (group.node is None, group.node or 0))

    def _bridge(self, address: str) -> Node:
        device = self.tree.functions[address]
        acs = bool({"ReqRedir", "CmpltRedir"} & {one.rstrip("+") for one in device.acs_enabled or []})
        return Node(
            key=self._unique(address),
            kind="bridge",
            address=address,
            title=_title(device),
            port=device.port_type or "",
            numa=self.tree.numa_node(address),
            link=_link(device),
            acs=acs,
            slot=device.slot or "",
        )

    def _notes(self) -> None:
        notes = self.result.notes
        if not self.snapshot.pci and not self.result.is_empty:
            notes.append(
                "no PCI listing was given: bridges and switches are not known (lspci -vvv as root or kilter snapshot shows them)"
            )
        elif any(not bus.name and any(node.address for node in bus.nodes) for group in self.result.numa for bus in group.buses):
            notes.append("the bridges above some devices are not in the listing (lspci -vvv without a filter shows them)")
        virtualization = self.snapshot.host.virtualization
        if virtualization and virtualization != "none" and not self.result.is_empty:
            notes.append(f"virtual machine ({virtualization}): this is the PCI tree that the hypervisor shows, not the machine's")


def _by_numa(nodes: list[Node]) -> dict[int | None, list[Node]]:
    """Devices of one root bus by NUMA node: one node for nearly all machines, several in some virtual ones."""
    parts: dict[int | None, list[Node]] = {}
    for node in nodes:
        numa, below = node.numa, node.children
        while numa is None and below:
            numa = next((child.numa for child in below if child.numa is not None), None)
            below = [grandchild for child in below for grandchild in child.children]
        parts.setdefault(numa, []).append(node)
    if len(parts) == 2 and None in parts:  # a root bus belongs to one node; some functions just do not say it
        known = next(numa for numa in parts if numa is not None)
        return {known: nodes}
    return parts


def _gpu_order(node: Node) -> tuple[str, int, tuple[str, int, str], str]:
    letters = node.key.rstrip("0123456789")
    digits = node.key[len(letters) :]
    return letters, int(digits) if 0 < len(digits) < 9 and digits.isascii() else -1, split_address(node.address), node.key


def _title(device: PciDevice) -> str:
    """Short name; a device that the PCI ids file did not know is called by its number."""
    title = short_title(device.description or "")
    return f"{title} {device.device_id:04x}" if title.endswith("Device") and device.device_id is not None else title


def _link(device: PciDevice) -> LinkState:
    return LinkState(
        generation(device.link_speed_gts), device.link_width, generation(device.link_speed_max_gts), device.link_width_max
    )


def _accelerator_link(accelerator: Accelerator) -> LinkState:
    reading = accelerator.readings[-1] if accelerator.readings else None
    return LinkState(
        reading.link_generation if reading else None,
        reading.link_width if reading else None,
        accelerator.link_generation_device_max or accelerator.link_generation_max,
        accelerator.link_width_max,
    )


def _port(layer: str | None, rate: float | None, state: str | None) -> str:
    short = {"InfiniBand": "IB", "Ethernet": "Eth"}.get(layer or "", layer or "")
    return " ".join(part for part in (short, f"{rate:g} Gbit/s" if rate else "", state or "") if part)


def _product(snapshot: Snapshot) -> str:
    return " ".join(part for part in (snapshot.host.dmi_vendor, snapshot.host.dmi_product) if part)


def _cpu(snapshot: Snapshot) -> str:
    cpu = snapshot.cpu
    return f"{cpu.sockets} x {cpu.model}" if cpu.sockets and cpu.model else cpu.model or ""
