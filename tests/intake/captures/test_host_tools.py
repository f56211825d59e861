"""Small tools of a host: services, RDMA devices, the driver's files, firmware, link quality.

Layouts as in the tools' sources and manuals that the modules name and in public reports; values are invented.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.diagnose.engine import diagnose
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

SYSTEMCTL_STATUS = """\
× nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled; vendor preset: enabled)
     Active: failed (Result: exit-code) since Tue 2024-07-02 08:00:00 UTC; 3h ago
    Process: 1234 ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg (code=exited, status=1/FAILURE)
        CPU: 10ms

Jul 02 08:00:00 node01 nv-fabricmanager[1234]: fabric manager NVIDIA GPU driver interface version 550.54.15 don't match with driver version 550.54.14. Please update with matching NVIDIA driver package.
"""
SYSTEMCTL_LIST = """\
  UNIT                         LOAD   ACTIVE SUB     DESCRIPTION
  nvidia-fabricmanager.service loaded active running NVIDIA fabric manager service
  nvidia-persistenced.service  loaded active running NVIDIA Persistence Daemon
● openibd.service              loaded failed failed  openibd - configure Mellanox devices

LOAD   = Reflects whether the unit definition was properly loaded.
"""
RDMA_LINK = """\
link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 26 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\x20
link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 65535 sm_lid 0 lmc 0 state DOWN physical_state POLLING\x20
link mlx5_2/1 state ACTIVE physical_state LINK_UP netdev ens5f0np0\x20
"""
RDMA_STAT = """\
link mlx5_0/1 rx_write_requests 17 rx_read_requests 0 rx_atomic_requests 0 out_of_buffer 3 out_of_sequence 0 packet_seq_err 0 local_ack_timeout_err 12 rnr_nak_retry_err 0
"""
NETDEV = """\
mlx5_0 port 1 ==> ibp24s0 (Up)
mlx5_1 port 1 ==> ibp64s0 (Down)
"""
NETDEV_V = """\
0000:18:00.0 mlx5_0 (MT4129 - MCX75310AAS-NEAT) ConnectX-7 HHHL adapter card, 400GbE / NDR IB (default mode), Single-port OSFP, PCIe 5.0 x16, Crypto Disabled, Secure Boot Enabled fw 28.39.1002 port 1 (ACTIVE) ==> ibp24s0 (Up)
"""
MST = """\
MST modules:
------------
    MST PCI module is not loaded
    MST PCI configuration module loaded
PCI devices:
------------
DEVICE_TYPE             MST                           PCI       RDMA            NET                       NUMA \x20
ConnectX7(rev:0)        /dev/mst/mt4129_pciconf0      18:00.0   mlx5_0          net-ib0                   0    \x20
ConnectX7(rev:0)        /dev/mst/mt4129_pciconf1      2a:00.0   mlx5_3          net-ib1                   0    \x20
"""
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 18
GPU UUID: \t GPU-aaaaaaaa-bbbb-cccc-dddd-000000000001
Video BIOS: \t 96.00.74.00.0d
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t 0000:3b:00.0
Device Minor: \t 0
GPU Firmware: \t 550.54.15
GPU Excluded:\t No
"""
PARAMS = """\
ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
EnableStreamMemOPs: 0
EnableGpuFirmware: 18
EnablePCIeRelaxedOrderingMode: 0
GrdmaPciTopoCheckOverride: 0
RegistryDwords: "PeerMappingOverride=1;"
"""
MODINFO = """\
filename:       /lib/modules/5.15.0-113-generic/updates/dkms/nvidia.ko
alias:          char-major-195-*
version:        550.54.15
supported:      external
license:        NVIDIA
firmware:       nvidia/550.54.15/gsp_tu10x.bin
srcversion:     2E0D1A5B3A6F6B5A6C0E1F2
depends:       \x20
retpoline:      Y
name:           nvidia
vermagic:       5.15.0-113-generic SMP mod_unload modversions\x20
parm:           NvSwitchRegDwords:NvSwitch regkey (charp)
"""
DMI = """\
# dmidecode 3.3
Getting SMBIOS data from sysfs.
SMBIOS 3.4.0 present.

Handle 0x0000, DMI type 0, 26 bytes
BIOS Information
\tVendor: American Megatrends International, LLC.
\tVersion: 1.8
\tRelease Date: 05/03/2024

Handle 0x0001, DMI type 1, 27 bytes
System Information
\tManufacturer: Supermicro
\tProduct Name: SYS-821GE-TNHR
\tSerial Number: S1234567890

Handle 0x0002, DMI type 2, 15 bytes
Base Board Information
\tManufacturer: Supermicro
\tProduct Name: X13DEG-OAD

Handle 0x0029, DMI type 17, 92 bytes
Memory Device
\tArray Handle: 0x0027
\tTotal Width: 80 bits
\tData Width: 64 bits
\tSize: 64 GB
\tForm Factor: DIMM
\tSet: None
\tLocator: P1-DIMMA1
\tBank Locator: P0_Node0_Channel0_Dimm0
\tType: DDR5
\tType Detail: Synchronous Registered (Buffered)
\tSpeed: 4800 MT/s
\tManufacturer: Samsung
\tSerial Number: 8001234
\tConfigured Memory Speed: 4400 MT/s

Handle 0x002A, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
\tLocator: P1-DIMMA2
\tBank Locator: P0_Node0_Channel0_Dimm1
"""
MLXLINK = """\
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Standard_RS-FEC - (544,514)
Loopback Mode                      : No Loopback
Auto Negotiation                   : ON

Supported Info
--------------
Enabled Link Speed                 : 0x00000080 (NDR)
Supported Cable Speed              : 0x000000f1 (NDR,HDR,EDR,FDR,SDR)

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 1428.4
Symbol Errors                      : 0
Symbol BER                         : 15E-255
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical Errors Per Lane       : 2245,4124,3131,222
Raw Physical BER                   : 1E-8
Link Down Counter                  : 12
Link Error Recovery Counter        : 0
"""
P2P = """\
 \tGPU0\tGPU1\tGPU2\tGPU3\t
 GPU0\tX\tOK\tOK\tOK\t
 GPU1\tOK\tX\tOK\tCNS\t
 GPU2\tOK\tOK\tX\tOK\t
 GPU3\tOK\tCNS\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""
NVLINK_NEW = """\
GPU 0: NVIDIA B200 (UUID: GPU-aaaaaaaa-bbbb-cccc-dddd-000000000001)
\t Link 0: Tx packets: 200
\t Link 0: Tx bytes: 9600
\t Link 0: Rx packets: 200
\t Link 0: Rx bytes: 9600
\t Link 0: Malformed packet Errors: 0
\t Link 0: Buffer overrun Errors: 0
\t Link 0: Rx Errors: 0
\t Link 0: Rx remote Errors: 0
\t Link 0: Rx General Errors: 0
\t Link 0: Local link integrity Errors: 0
\t Link 0: Tx discards: 0
\t Link 0: Link recovery successful events: 3
\t Link 0: Link recovery failed events: 1
\t Link 0: Total link recovery events: 4
\t Link 0: Effective Errors: 12
\t Link 0: Effective BER: 15e-255
\t Link 0: Symbol Errors: 5
\t Link 0: Symbol BER: 1e-9
\t Link 0: FEC Errors - 0: 0
\t Link 0: FEC Errors - 1: 0
"""
NVLINK_C = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-bbbb-cccc-dddd-000000000001)
\t Link 0, P2P is supported: true
\t Link 0, Access to system memory supported: true
\t Link 0, P2P atomics supported: true
\t Link 0, System memory atomics supported: true
\t Link 0, SLI is supported: true
\t Link 0, Link is supported: true
"""
BARE_CSV = """\
0, NVIDIA H100 80GB HBM3, 550.54.15, 45, 120.30 W, 0 %
1, NVIDIA H100 80GB HBM3, 550.54.15, 47, 121.30 W, 0 %
"""


def read(module: str, text: str, **more: str):
    fragment = parse_text(module, text, **more)
    check_references(fragment, text)
    return fragment


def case_of(*texts: str):
    return assemble([one for n, text in enumerate(texts) for one in read_text(f"f{n}", text, year=2026)[0]], [])


def found(*texts: str) -> set[str]:
    return {f.id for f in diagnose(case_of(*texts)).findings}


def test_services_of_status_and_lists() -> None:
    states = {name: s.state for name, s in read("systemctl", SYSTEMCTL_LIST).snapshot.software.services.items()}
    assert states == {"nvidia-fabricmanager": "active", "nvidia-persistenced": "active", "openibd": "failed"}
    (one,) = read("systemctl", SYSTEMCTL_STATUS).snapshot.software.services.values()
    assert (one.name, one.state) == ("nvidia-fabricmanager", "failed")
    gone = read("systemctl", "Unit dcgm.service could not be found.\n").snapshot.software.services["dcgm"]
    assert gone.state == "not-found"


def test_a_failed_service_speaks_a_stopped_one_and_fabric_manager_without_switches_do_not() -> None:
    assert "host.service_failed" in found(SYSTEMCTL_LIST)
    assert "host.service_failed" not in found(SYSTEMCTL_LIST.replace("loaded failed failed", "loaded inactive dead"))
    assert found(SYSTEMCTL_STATUS) & {"host.service_failed", "fabric.manager_down"} == set()


def test_rdma_link_has_states_lids_and_netdevs() -> None:
    fragment = read("rdma_tool", RDMA_LINK)
    assert fragment.unplaced == []
    ports = {device.name: device.ports[0] for device in fragment.snapshot.rdma}
    assert (ports["mlx5_0"].state, ports["mlx5_0"].physical_state, ports["mlx5_0"].lid, ports["mlx5_0"].link_layer) == (
        "ACTIVE",
        "LinkUp",
        26,
        "InfiniBand",
    )
    assert (ports["mlx5_1"].state, ports["mlx5_1"].physical_state, ports["mlx5_1"].lid) == ("DOWN", "Polling", None)
    assert (ports["mlx5_2"].netdev, ports["mlx5_2"].link_layer) == ("ens5f0np0", "Ethernet")


def test_rdma_statistic_fills_the_counters_of_sysfs() -> None:
    (device,) = read("rdma_tool", RDMA_STAT).snapshot.rdma
    assert device.ports[0].hw_counters["local_ack_timeout_err"] == 12
    assert device.ports[0].state is None
    assert not read("rdma_tool", "link mlx5_0/1 lqpn 5 cntn 4 out_of_sequence 9\n").snapshot.rdma


def test_ibdev2netdev_and_mst_name_pci_and_netdev() -> None:
    fragment = read("rdma_tool", NETDEV_V)
    (device,) = fragment.snapshot.rdma
    assert (device.pci_address, device.firmware, device.hca_type, device.ports[0].netdev, device.ports[0].state) == (
        "0000:18:00.0",
        "28.39.1002",
        "MT4129",
        "ibp24s0",
        "ACTIVE",
    )
    nics = {nic.name: nic.operstate for nic in read("rdma_tool", NETDEV).snapshot.nics}
    assert nics == {"ibp24s0": "up", "ibp64s0": "down"}
    mst = {d.name: (d.pci_address, d.numa_node) for d in read("rdma_tool", MST).snapshot.rdma}
    assert mst == {"mlx5_0": ("0000:18:00.0", 0), "mlx5_3": ("0000:2a:00.0", 0)}


def test_one_device_of_three_tools() -> None:
    case = case_of(NETDEV_V, RDMA_LINK, MST)
    device = next(d for d in case.snapshots[0].rdma if d.name == "mlx5_0")
    assert (device.pci_address, device.ports[0].lid, device.ports[0].netdev) == ("0000:18:00.0", 26, "ibp24s0")


def test_information_of_a_gpu() -> None:
    (gpu,) = read("nvidia_proc", INFORMATION).snapshot.accelerators
    assert (gpu.pci_address, gpu.name, gpu.minor, gpu.firmware, gpu.gsp_firmware) == (
        "0000:3b:00.0",
        "NVIDIA H100 80GB HBM3",
        0,
        "96.00.74.00.0d",
        "550.54.15",
    )
    lost = INFORMATION.replace("GPU-aaaaaaaa-bbbb-cccc-dddd-000000000001", "GPU-????????-????-????-????-????????????").replace(
        "96.00.74.00.0d", "??.??.??.??.??"
    )
    (gone,) = read("nvidia_proc", lost).snapshot.accelerators
    assert (gone.uuid, gone.firmware) == (None, None)


def test_parameters_do_not_make_a_list_of_modules() -> None:
    kernel = read("nvidia_proc", PARAMS).snapshot.kernel
    assert kernel.modules["nvidia"].parameters["EnableGpuFirmware"] == "18"
    assert "modules" in kernel.missing


def test_a_driver_that_was_updated_without_a_reboot() -> None:
    loaded = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Mar  5 22:15:33 UTC 2024\n"
    assert "driver.module_on_disk_differs" in found(MODINFO, loaded.format("535.104.05"))
    assert "driver.module_on_disk_differs" not in found(MODINFO, loaded.format("550.54.15"))


DKMS = """\
nvidia/550.54.15, 5.15.0-113-generic, x86_64: installed
mlnx-ofed-kernel/24.01, 5.15.0-112-generic, x86_64: installed (original_module exists)
nvidia/550.54.15, 5.15.0-119-generic, x86_64: built
"""
UNAME = "Linux node01 5.15.0-{}-generic #123-Ubuntu SMP Mon Jun 10 08:16:17 UTC 2024 x86_64 x86_64 x86_64 GNU/Linux\n"


def test_a_driver_that_dkms_did_not_install_for_this_kernel() -> None:
    assert "driver.dkms_not_installed" not in found(DKMS, UNAME.format(113))
    for release in (119, 120):
        assert "driver.dkms_not_installed" in found(DKMS, UNAME.format(release))
    old = "nvidia, 550.54.15, 5.15.0-113-generic, x86_64: installed\n"
    assert "driver.dkms_not_installed" not in found(old, UNAME.format(113))
    assert found("mlnx-ofed-kernel/24.01, 5.15.0-112-generic, x86_64: installed\n", UNAME.format(113)) == set()


def test_firmware_of_the_machine() -> None:
    host = read("dmidecode", DMI).snapshot.host
    assert (host.dmi_vendor, host.dmi_product, host.dmi_board, host.bios_version) == (
        "Supermicro",
        "SYS-821GE-TNHR",
        "X13DEG-OAD",
        "1.8",
    )


def test_link_quality_is_judged() -> None:
    fragment = read("mlxlink", MLXLINK, command="mlxlink -d mlx5_0 -c")
    (node,) = fragment.fabric
    (port,) = node.ports
    assert (node.name, port.state, port.speed, port.width) == ("mlx5_0", "ACTIVE", "NDR", "4x")
    assert (port.ber["symbol"], port.counters["link_downed"]) == (15e-255, 12)
    assert fragment.snapshot.rdma[0].ports[0].physical_state == "LinkUp"
    assert found(MLXLINK.replace("Link Down Counter                  : 12", "Link Down Counter                  : 0")) == set()
    assert "ib.ber" in found(
        MLXLINK.replace("Symbol BER                         : 15E-255", "Symbol BER                         : 3E-9")
    )


def test_p2p_capabilities_are_no_distances() -> None:
    fragment = read("nvidia_smi_topo", P2P)
    assert (fragment.snapshot.topology, fragment.unplaced) == (None, [])
    assert fragment.notes == ["nvidia-smi topo -p2p: CNS between GPU1-GPU3"]


def test_counters_of_blackwell_links_and_capabilities() -> None:
    fragment = read("nvidia_smi_list", NVLINK_NEW)
    assert fragment.unplaced == []
    (link,) = fragment.snapshot.accelerators[0].nvlinks
    assert (link.errors["Link recovery failed events"], link.errors["Symbol"]) == (1, 5)
    assert read("nvidia_smi_list", NVLINK_C).unplaced == []


def test_rows_without_a_header_are_not_guessed() -> None:
    fragments, summary = read_text("x", BARE_CSV, year=2026)
    assert all(not f.snapshot.accelerators for f in fragments)
    assert any("without a header" in note for note in summary.notes)


def test_a_boot_line_without_boot_image() -> None:
    (fragment,) = read_text("x", "root=/dev/mapper/vg-root ro iommu=pt intel_iommu=on quiet\n", year=2026)[0]
    assert fragment.snapshot.kernel.cmdline_options()["iommu"] == "pt"


TEXTS = {
    "systemctl": SYSTEMCTL_LIST + SYSTEMCTL_STATUS,
    "rdma_tool": RDMA_LINK + RDMA_STAT + NETDEV + NETDEV_V + MST,
    "nvidia_proc": INFORMATION + PARAMS + MODINFO + DKMS,
    "dmidecode": DMI,
    "mlxlink": MLXLINK,
    "nvidia_smi_topo": P2P,
    "nvidia_smi_list": NVLINK_NEW + NVLINK_C,
}


@pytest.mark.parametrize("module", sorted(TEXTS))
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_damaged_texts_raise_nothing(module: str, data: st.DataObject) -> None:
    text = data.draw(mangled(TEXTS[module]))
    check_references(parse_text(module, text), text)


@pytest.mark.parametrize("module", sorted(TEXTS))
@given(
    text=long_lines(
        "",
        "link mlx5_0/1 ",
        "x.service loaded ",
        "Model: ",
        "Symbol BER : ",
        "mlx5_0 port 1 ==> ",
        "0000:18:00.0 mlx5_0 (MT4129",
        "X(rev:0) ",
    )
)
@settings(max_examples=25, deadline=2000)
def test_long_lines_take_no_time(module: str, text: str) -> None:
    parse_text(module, text)
