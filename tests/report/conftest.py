"""Machines to draw, built by hand from what real captures say (see each function)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kilter.facts.accelerator import Accelerator, NvLink, NvSwitch, Reading, TopologyMatrix
from kilter.facts.case import Snapshot
from kilter.facts.host import NumaNode
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort
from kilter.facts.pci import GENERATION_GTS, PciDevice

SWITCH = "Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)"
CX7 = "Mellanox Technologies MT2910 Family [ConnectX-7]"


class Tree:
    """Adds functions to a PCI listing as sysfs knows them."""

    def __init__(self, domain: int = 0) -> None:
        self.functions: dict[str, PciDevice] = {}
        self.domain = domain

    def bridge(self, where: str, secondary: int, last: int, port: str, parent: str = "", **facts: object) -> str:
        return self.add(where, 0x0604, parent=parent, secondary_bus=secondary, subordinate_bus=last, port_type=port, **facts)

    def add(
        self, where: str, code: int, gen: int = 5, width: int = 16, gen_max: int = 0, parent: str = "", **facts: object
    ) -> str:
        address = where if where.count(":") == 2 else f"{self.domain:04x}:{where}"
        device = PciDevice(address=address, class_code=code, parent=parent, link_width=width, link_width_max=width)
        device.link_speed_gts, device.link_speed_max_gts = GENERATION_GTS[gen], GENERATION_GTS[gen_max or gen]
        device.vendor_id = {0x0302: 0x10DE, 0x0300: 0x10DE, 0x0680: 0x10DE, 0x0207: 0x15B3}.get(code)
        for name, value in facts.items():
            setattr(device, name, value)
        self.functions[address] = device
        return address


def dgx_h100() -> Snapshot:
    """8 x H100 with one PEX890xx above each GPU and its ConnectX-7, four NVSwitches behind a switch with ACS redirection.

    Bus numbers and ACS bits of the kept part follow corpus case s016 (leptonai/gpud: pkg/pci/testdata/lspci-vvv).
    """
    tree = Tree()
    snapshot = Snapshot(node="gpu-node-07", pci=tree.functions, accelerators=[], rdma=[], nics=[], nvswitches=[])
    snapshot.host.dmi_vendor, snapshot.host.dmi_product = "Dell Inc.", "PowerEdge XE9680"
    snapshot.cpu.sockets, snapshot.cpu.model = 2, "Intel(R) Xeon(R) Platinum 8480+"
    snapshot.cpu.numa = [
        NumaNode(id=0, cpus="0-55,112-167", memory_total_bytes=1081 * 10**9),
        NumaNode(id=1, cpus="56-111,168-223", memory_total_bytes=1082 * 10**9),
    ]
    names = []
    for index, bus in enumerate((0x15, 0x37, 0x48, 0x59, 0x97, 0xB7, 0xC7, 0xD7)):
        numa = index // 4
        root = tree.bridge(
            f"{bus:02x}:01.0", bus + 1, bus + 7, "root port", numa_node=numa, description="Intel Corporation Device 352a"
        )
        up = tree.bridge(f"{bus + 1:02x}:00.0", bus + 2, bus + 7, "upstream port", root, numa_node=numa, description=SWITCH)
        a = tree.bridge(
            f"{bus + 2:02x}:01.0",
            bus + 4,
            bus + 4,
            "downstream port",
            up,
            numa_node=numa,
            slot=str(20 + index),
            description=SWITCH,
        )
        b = tree.bridge(
            f"{bus + 2:02x}:02.0",
            bus + 5,
            bus + 5,
            "downstream port",
            up,
            numa_node=numa,
            slot=str(30 + index),
            description=SWITCH,
        )
        c = tree.bridge(f"{bus + 2:02x}:03.0", bus + 6, bus + 6, "downstream port", up, numa_node=numa, description=SWITCH)
        gpu = tree.add(
            f"{bus + 4:02x}:00.0", 0x0302, parent=a, numa_node=numa, description="NVIDIA Corporation Device 2330 (rev a1)"
        )
        nic = tree.add(f"{bus + 5:02x}:00.0", 0x0200, parent=b, numa_node=numa, vendor_id=0x15B3, description=CX7)
        tree.add(
            f"{bus + 6:02x}:00.0",
            0x0108,
            4,
            4,
            parent=c,
            numa_node=numa,
            description="Samsung Electronics Co Ltd NVMe SSD Controller PM9A1/PM9A3/980PRO",
        )
        snapshot.accelerators.append(
            Accelerator(
                index=index,
                uuid=f"GPU-00000000-0000-4000-8000-{index:012d}",
                pci_address=gpu,
                name="NVIDIA H100 80GB HBM3",
                nvlinks=[NvLink(id=n, state="active", speed_gb_s=26.562) for n in range(18)],
                power_limit_w=700.0,
                memory_total_mib=81559,
                ecc_mode=True,
                fabric_state="Completed",
                fabric_status="Success",
                readings=[
                    Reading(temperature_c=34 + index, power_w=118.4, memory_temperature_c=45, link_generation=5, link_width=16)
                ],
            )
        )
        name = f"mlx5_{index if index < 4 else index + 2}"
        names.append(name)
        port = RdmaPort(number=1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=400)
        snapshot.rdma.append(RdmaDevice(name=name, pci_address=nic, numa_node=numa, ports=[port]))
        snapshot.nics.append(NetInterface(name=f"ibp{bus + 5}s0", pci_address=nic, numa_node=numa))
    root = tree.bridge("27:01.0", 0x28, 0x28, "root port", numa_node=0, description="Intel Corporation Device 352a")
    for function in (0, 1):
        nic = tree.add(
            f"28:00.{function}",
            0x0200,
            4,
            16,
            parent=root,
            numa_node=0,
            vendor_id=0x15B3,
            description="Mellanox Technologies MT28841",
        )
        port = RdmaPort(number=1, link_layer="Ethernet", state="ACTIVE" if function == 0 else "DOWN", rate_gbps=100)
        snapshot.rdma.append(RdmaDevice(name=f"mlx5_{4 + function}", pci_address=nic, ports=[port]))
    root = tree.bridge(
        "80:01.0", 0x81, 0x86, "root port", numa_node=1, gen=4, width=2, description="Intel Corporation Device 352a"
    )
    up = tree.bridge(
        "81:00.0", 0x82, 0x86, "upstream port", root, numa_node=1, gen=4, width=2, description="PMC-Sierra Inc. Device 4128"
    )
    for number in range(4):
        acs = ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
        down = tree.bridge(
            f"82:{number:02x}.0",
            0x83 + number,
            0x83 + number,
            "downstream port",
            up,
            numa_node=1,
            gen=4,
            width=2,
            acs_enabled=acs,
            slot=str(number + 1),
        )
        address = tree.add(
            f"{0x83 + number:02x}:00.0",
            0x0680,
            4,
            2,
            parent=down,
            numa_node=1,
            description="NVIDIA Corporation Device 22a3 (rev a1)",
        )
        snapshot.nvswitches.append(NvSwitch(pci_address=address))
    tree.bridge("00:0c.0", 1, 1, "root port", numa_node=0, gen=3, width=1)
    tree.add("01:00.0", 0x0300, 2, 1, parent="0000:00:0c.0", numa_node=0, vendor_id=0x102B, description="Matrox G200eW3")
    for number in range(40):
        tree.add(f"7e:{number // 8:02x}.{number % 8}", 0x0880, parent="", numa_node=0, class_name="System peripheral")
    gpus = [f"GPU{n}" for n in range(8)]
    nics = [f"NIC{n}" for n in range(10)]
    by_name = sorted([*names, "mlx5_4", "mlx5_5"], key=lambda name: int(name[5:]))
    matrix = TopologyMatrix(devices=gpus + nics, nic_names=dict(zip(nics, by_name, strict=True)))
    for at, gpu in enumerate(gpus):
        row = {other: "X" if other == gpu else "NV18" for other in gpus}
        for nic, name in matrix.nic_names.items():
            number = int(name[5:])
            numa = 0 if number < 6 else 1
            row[nic] = "PIX" if name == names[at] else "NODE" if numa == at // 4 else "SYS"
        matrix.links[gpu] = row
        matrix.numa_affinity[gpu] = str(at // 4)
    snapshot.topology = matrix
    return snapshot


def v100_cube_mesh() -> Snapshot:
    """``nvidia-smi topo -m`` and ``nvlink -s`` of corpus case s061, and nothing else."""
    text = """GPU0 X NV1 NV1 NV2 NV2 SYS SYS SYS NODE 0-19,40-59 0
GPU1 NV1 X NV2 NV1 SYS NV2 SYS SYS NODE 0-19,40-59 0
GPU2 NV1 NV2 X NV2 SYS SYS NV1 SYS NODE 0-19,40-59 0
GPU3 NV2 NV1 NV2 X SYS SYS SYS NV1 NODE 0-19,40-59 0
GPU4 NV2 SYS SYS SYS X NV1 NV1 NV2 SYS 20-39,60-79 1
GPU5 SYS NV2 SYS SYS NV1 X NV2 NV1 SYS 20-39,60-79 1
GPU6 SYS SYS NV1 SYS NV1 NV2 X NV2 SYS 20-39,60-79 1
GPU7 SYS SYS SYS NV1 NV2 NV1 NV2 X SYS 20-39,60-79 1
NIC0 NODE NODE NODE NODE SYS SYS SYS SYS X"""
    devices = [f"GPU{n}" for n in range(8)] + ["NIC0"]
    matrix = TopologyMatrix(devices=devices, nic_names={"NIC0": "mlx5_2"})
    for line in text.splitlines():
        name, *words = line.split()
        matrix.links[name] = dict(zip(devices, words[:9], strict=True))
        if name != "NIC0":
            matrix.cpu_affinity[name], matrix.numa_affinity[name] = words[9:]
    links = [NvLink(id=n, speed_gb_s=25.781) for n in range(6)]
    gpus = [Accelerator(index=n, uuid=f"GPU-{n:08d}-0000", name="Tesla V100-SXM2-32GB", nvlinks=links) for n in range(8)]
    return Snapshot(topology=matrix, accelerators=gpus)


def azure_nd_a100() -> Snapshot:
    """``lspci -nn`` of corpus case s014 (Azure ND A100 v4): each device has its own PCI domain, nothing says which NUMA node."""
    functions: dict[str, PciDevice] = {}

    def add(domain: int, code: int, vendor: int, description: str, device: int = 0) -> None:
        address = f"{domain:04x}:00:{device:02x}.0"
        functions[address] = PciDevice(address=address, class_code=code, vendor_id=vendor, description=description)

    for domain in (1, 2, 3, 4, 0xB, 0xC, 0xD, 0xE):
        add(domain, 0x0302, 0x10DE, "NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)")
    for domain in range(5, 0xB):
        add(domain, 0x0680, 0x10DE, "NVIDIA Corporation Device [10de:1af1] (rev a1)")
    for domain in range(0x101, 0x109):
        add(domain, 0x0207, 0x15B3, "Mellanox Technologies MT28908 Family [ConnectX-6 Virtual Function] [15b3:101c]")
    for domain in (0x30C3, 0x60E0, 0x7367, 0x8565, 0x9144, 0xB717, 0xD7ED, 0xF392):
        add(domain, 0x0108, 0x1414, "Microsoft Corporation Device [1414:b111]")
    add(0xC941, 0x0200, 0x15B3, "Mellanox Technologies MT27710 Family [ConnectX-4 Lx Virtual Function] [15b3:1016] (rev 80)", 2)
    snapshot = Snapshot(pci=functions)
    snapshot.host.virtualization = "microsoft"
    return snapshot


def workstation() -> Snapshot:
    """One GPU, one NVMe, one 2.5GbE port on a desktop chipset."""
    tree = Tree()
    peg = tree.bridge("00:01.0", 1, 1, "root port", description="Intel Corporation Device a70d", gen=4, gen_max=5)
    tree.add("01:00.0", 0x0300, 1, 16, 4, parent=peg, description="NVIDIA Corporation AD103 [GeForce RTX 4080 SUPER] (rev a1)")
    tree.add("01:00.1", 0x0403, 1, 16, 4, parent=peg, description="NVIDIA Corporation Device 22bb (rev a1)")
    m2 = tree.bridge("00:06.0", 2, 2, "root port", gen=4, width=4)
    tree.add("02:00.0", 0x0108, 4, 4, parent=m2, description="Sandisk Corp WD Black SN850X NVMe SSD")
    lan = tree.bridge("00:1c.0", 3, 3, "root port", gen=2, width=1)
    tree.add(
        "03:00.0", 0x0200, 2, 1, parent=lan, vendor_id=0x8086, description="Intel Corporation Ethernet Controller I226-V (rev 04)"
    )
    for function in ("14.0", "14.2", "1f.0", "1f.3", "1f.4", "1f.5"):
        tree.add(f"00:{function}", 0x0C03)
    gpu = Accelerator(
        index=0, pci_address="0000:01:00.0", name="NVIDIA GeForce RTX 4080 SUPER", link_generation_max=4, link_width_max=16
    )
    snapshot = Snapshot(
        node="desk",
        pci=tree.functions,
        accelerators=[gpu],
        nics=[NetInterface(name="enp3s0", pci_address="0000:03:00.0", operstate="up", speed_mbps=2500)],
    )
    snapshot.cpu.numa = [NumaNode(id=0, cpus="0-31")]
    return snapshot


def pcie_server() -> Snapshot:
    """Four L40S: two below one switch, one on a root port beside it, one on the other socket; two NICs, no NVLink."""
    tree = Tree()
    snapshot = Snapshot(node="l40s-03", pci=tree.functions, accelerators=[], rdma=[], topology=None)
    snapshot.cpu.numa = [NumaNode(id=0, cpus="0-31,64-95"), NumaNode(id=1, cpus="32-63,96-127")]
    root = tree.bridge("20:01.0", 0x21, 0x25, "root port", numa_node=0, gen=4)
    up = tree.bridge(
        "21:00.0", 0x22, 0x25, "upstream port", root, numa_node=0, gen=4, description="Broadcom / LSI PEX880xx PCIe Gen 4 Switch"
    )
    places = []
    for number in range(3):
        acs = ["ReqRedir"] if number == 2 else []
        down = tree.bridge(
            f"22:{number:02x}.0", 0x23 + number, 0x23 + number, "downstream port", up, numa_node=0, gen=4, acs_enabled=acs
        )
        places.append((down, f"{0x23 + number:02x}:00.0"))
    side = tree.bridge("20:03.0", 0x26, 0x26, "root port", numa_node=0, gen=4)
    far = tree.bridge("a0:01.0", 0xA1, 0xA1, "root port", numa_node=1, gen=4)
    far_nic = tree.bridge("b0:01.0", 0xB1, 0xB1, "root port", numa_node=1, gen=4)
    for index, (parent, where) in enumerate([*places[:2], (side, "26:00.0"), (far, "a1:00.0")]):
        numa = 1 if index == 3 else 0
        address = tree.add(
            where,
            0x0302,
            4,
            16 if index != 1 else 8,
            parent=parent,
            numa_node=numa,
            link_width_max=16,
            description="NVIDIA Corporation AD102GL [L40S] (rev a1)",
        )
        snapshot.accelerators.append(Accelerator(index=index, pci_address=address, name="NVIDIA L40S", numa_node=numa))
    for name, parent, where, numa in (("mlx5_0", places[2][0], places[2][1], 0), ("mlx5_1", far_nic, "b1:00.0", 1)):
        address = tree.add(
            where, 0x0207, 4, parent=parent, numa_node=numa, description="Mellanox Technologies MT28908 Family [ConnectX-6]"
        )
        snapshot.rdma.append(
            RdmaDevice(
                name=name, pci_address=address, ports=[RdmaPort(number=1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=200)]
            )
        )
    return snapshot


MACHINES: dict[str, Callable[[], Snapshot]] = {
    "dgx_h100": dgx_h100,
    "v100_cube_mesh": v100_cube_mesh,
    "azure_nd_a100": azure_nd_a100,
    "workstation": workstation,
    "pcie_server": pcie_server,
}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Snapshot:
    return MACHINES[request.param]()


@pytest.fixture
def machines() -> dict[str, Callable[[], Snapshot]]:
    return MACHINES


@pytest.fixture
def tree() -> Tree:
    return Tree()
