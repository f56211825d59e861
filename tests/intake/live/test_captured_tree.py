"""A captured root directory: a bridge, a GPU, a ConnectX, as /sys and /proc lay them out."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from kilter.facts.base import Reason
from kilter.facts.case import Snapshot
from kilter.intake import live
from kilter.intake.live.limits import _upwards
from kilter.intake.live.software import cuda_version, kunlun_version, nvidia_version

PORT = "/sys/devices/pci0000:15/0000:15:01.0"
GPU = f"{PORT}/0000:16:00.0"
NIC = f"{PORT}/0000:16:00.1"


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content if content.endswith("\n") or not content else content + "\n")


def link(root: Path, path: str, target: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, place)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "capture"
    bridge = bytearray(4096)
    bridge[:4] = bytes.fromhex("86802a35")
    bridge[0x0A:0x0C] = bytes.fromhex("0406")
    bridge[0x0E], bridge[0x19], bridge[0x1A] = 1, 0x16, 0x16
    write(
        root,
        {
            f"{PORT}/vendor": "0x8086",
            f"{PORT}/device": "0x352a",
            f"{PORT}/class": "0x060400",
            f"{PORT}/config": bytes(bridge),
            f"{PORT}/numa_node": "0",
            f"{PORT}/power_state": "D0",
            f"{PORT}/aer_dev_correctable": "RxErr 0\nBadTLP 12\nBadDLLP 0\nTOTAL_ERR_COR 12",
            f"{PORT}/aer_rootport_total_err_cor": "40",
            f"{GPU}/vendor": "0x10de",
            f"{GPU}/device": "0x2330",
            f"{GPU}/class": "0x030200",
            f"{GPU}/config": b"\xff" * 4096,
            f"{GPU}/numa_node": "0",
            f"{GPU}/local_cpulist": "0-3",
            f"{GPU}/current_link_speed": "Unknown",
            f"{GPU}/resource": "0x00000000e0000000 0x00000000e0ffffff 0x0000000000040200\n"
            "0x0000003000000000 0x0000003fffffffff 0x000000000014220c\n"
            "0x0000000000000000 0x0000000000000000 0x0000000000000000",
            f"{NIC}/vendor": "0x15b3",
            f"{NIC}/device": "0x1021",
            f"{NIC}/class": "0x020700",
            f"{NIC}/current_link_speed": "16.0 GT/s PCIe",
            f"{NIC}/current_link_width": "8",
            f"{NIC}/max_link_speed": "32.0 GT/s PCIe",
            f"{NIC}/max_link_width": "16",
            f"{NIC}/sriov_numvfs": "0",
            f"{NIC}/infiniband/mlx5_0/fw_ver": "28.41.1000",
            f"{NIC}/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
            f"{NIC}/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
            f"{NIC}/infiniband/mlx5_0/ports/1/counters/link_downed": "0",
            f"{NIC}/net/ibp22s0/operstate": "up",
            f"{NIC}/net/ibp22s0/type": "32",
            f"{NIC}/net/ibp22s0/speed": "-1",
            f"{NIC}/net/ibp22s0/carrier": "1",
            f"{NIC}/net/ibp22s0/dev_port": "0",
            "/sys/devices/virtual/net/docker0/operstate": "up",
            "/sys/devices/virtual/net/lo/operstate": "unknown",
            "/sys/devices/virtual/net/bond0/operstate": "up",
            "/sys/devices/virtual/net/bond0/bonding/mode": "802.3ad 4",
            "/sys/kernel/iommu_groups/7/type": "DMA-FQ",
            "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "/sys/devices/system/cpu/online": "0-3",
            "/sys/devices/system/cpu/present": "0-3",
            "/sys/devices/system/cpu/isolated": "",
            "/sys/devices/system/cpu/smt/control": "on",
            "/sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected",
            "/sys/devices/system/cpu/cpu0/cpuidle/state0/name": "POLL",
            "/sys/devices/system/cpu/cpu0/cpuidle/state1/name": "C6",
            "/sys/devices/system/cpu/cpu0/cpuidle/state1/latency": "170",
            "/sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "1",
            "/sys/devices/system/node/node0/cpulist": "0-3",
            "/sys/devices/system/node/node0/distance": "10 21",
            "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       131072 kB\nNode 0 MemFree:        1024 kB",
            "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "512",
            "/sys/devices/system/edac/mc/mc0/ce_count": "3",
            "/sys/devices/system/edac/mc/mc1/ce_count": "4",
            "/sys/devices/system/edac/mc/mc0/ue_count": "0",
            "/sys/class/dmi/id/sys_vendor": "Dell Inc.",
            "/sys/class/dmi/id/product_name": "PowerEdge XE9680",
            "/sys/module/nvidia/version": "570.124.06",
            "/sys/module/nvidia/parameters/NVreg_EnableGpuFirmware": "18",
            "/sys/module/mlx5_core/version": "24.10-1.1.4",
            "/sys/module/pcie_aspm/parameters/policy": "[default] performance powersave powersupersave",
            "/sys/module/printk/parameters/time": "Y",
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64"
            "  570.124.06  Release Build  (dvs@x)\nGCC",
            "/proc/driver/nvidia/params": 'EnableStreamMemOPs: 0\nRegistryDwords: ""\nGrdmaPciTopoCheckOverride: 1',
            "/proc/modules": "nvidia 11530240 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n"
            "nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)\nmlx5_core 2400256 1 mlx5_ib, Live 0x0000000000000000",
            "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
            "model name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\n"
            "physical id\t: 0\nsiblings\t: 2\ncpu cores\t: 1\nflags\t\t: fpu vme\n\n"
            "processor\t: 1\nmodel name\t: other\nphysical id\t: 0\nsiblings\t: 2\ncpu cores\t: 1\n",
            "/proc/meminfo": "MemTotal:       2113442304 kB\nMemAvailable:   2000000000 kB\nHugePages_Total:     512\n"
            "Hugepagesize:       2048 kB",
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz ro iommu=pt iommu=off",
            "/proc/sys/kernel/osrelease": "5.15.0-119-generic",
            "/proc/sys/kernel/tainted": "12288",
            "/proc/sys/vm/swappiness": "60",
            "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
            "/proc/sys/net/ipv4/conf/all/arp_ignore": "0",
            "/proc/irq/default_smp_affinity": "ff,00000000",
            "/proc/uptime": "86400.12 1000.0",
            "/proc/1/cgroup": "0::/init.scope",
            "/proc/config.gz": gzip.compress(
                b"CONFIG_PCI_P2PDMA=y\n# CONFIG_NUMA_BALANCING is not set\nCONFIG_FOO=y\nCONFIG_HZ=250\n"
            ),
            "/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"',
            "/etc/hostname": "gpu-node-7",
        },
    )
    for cpu in range(4):
        top = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        write(
            root,
            {f"{top}/physical_package_id": str(cpu // 2), f"{top}/thread_siblings_list": f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"},
        )
        policy = f"/sys/devices/system/cpu/cpufreq/policy{cpu}"
        governor = "powersave" if cpu == 3 else "performance"
        write(
            root,
            {
                f"{policy}/scaling_governor": governor,
                f"{policy}/affected_cpus": str(cpu),
                f"{policy}/cpuinfo_max_freq": "3800000",
            },
        )
    for address, place in (("0000:15:01.0", PORT), ("0000:16:00.0", GPU), ("0000:16:00.1", NIC)):
        link(root, f"/sys/bus/pci/devices/{address}", f"../../../{place.removeprefix('/sys/')}")
    link(root, f"{GPU}/driver", "../../../../bus/pci/drivers/nvidia")
    link(root, f"{GPU}/iommu_group", "../../../../kernel/iommu_groups/7")
    link(root, f"{NIC}/driver", "../../../../bus/pci/drivers/mlx5_core")
    link(root, "/sys/class/infiniband/mlx5_0", f"../../{NIC.removeprefix('/sys/')}/infiniband/mlx5_0")
    link(root, f"{NIC}/infiniband/mlx5_0/device", "../../../0000:16:00.1")
    link(root, "/sys/class/net/ibp22s0", f"../../{NIC.removeprefix('/sys/')}/net/ibp22s0")
    link(root, f"{NIC}/net/ibp22s0/device", "../../../0000:16:00.1")
    for name in ("docker0", "lo", "bond0"):
        link(root, f"/sys/class/net/{name}", f"../../devices/virtual/net/{name}")
    return root


@pytest.fixture
def snapshot(root: Path) -> Snapshot:
    return live.snapshot(str(root))


def test_pci_functions_know_place_driver_and_group(snapshot: Snapshot) -> None:
    assert snapshot.pci is not None
    assert set(snapshot.pci) == {"0000:15:01.0", "0000:16:00.0", "0000:16:00.1"}
    port, gpu, nic = (snapshot.pci[address] for address in sorted(snapshot.pci))
    assert (port.parent, gpu.parent, nic.parent) == ("", "0000:15:01.0", "0000:15:01.0")
    assert (port.secondary_bus, port.is_bridge) == (0x16, True)
    assert (port.driver, gpu.driver, nic.driver) == ("", "nvidia", "mlx5_core")
    assert (gpu.iommu_group, gpu.local_cpus, gpu.numa_node) == (7, "0-3", 0)
    assert port.missing["iommu_group"].reason is Reason.ABSENT
    assert (nic.link_speed_gts, nic.link_width, nic.link_speed_max_gts, nic.link_width_max) == (16.0, 8, 32.0, 16)
    assert nic.vfs == 0
    assert port.aer_counts == {"correctable/BadTLP": 12, "rootport/correctable": 40}
    assert nic.aer_counts == {}
    assert nic.missing["aer_counts"].reason is Reason.NOT_SUPPORTED


def test_gpu_that_reads_all_ones_keeps_its_name_and_has_no_link(snapshot: Snapshot) -> None:
    assert snapshot.pci is not None
    gpu = snapshot.pci["0000:16:00.0"]
    assert gpu.config_readable is False
    assert (gpu.vendor_id, gpu.device_id, gpu.class_code) == (0x10DE, 0x2330, 0x0302)
    assert gpu.link_speed_gts is None
    assert gpu.is_accelerator
    assert gpu.bars is not None
    assert [(bar.index, bar.size_bytes, bar.is_64bit, bar.prefetchable) for bar in gpu.bars] == [
        (0, 16 << 20, False, False),
        (1, 64 << 30, True, True),
    ]


def test_evidence_names_the_directory_of_the_entity(snapshot: Snapshot, root: Path) -> None:
    assert snapshot.pci is not None
    gpu = snapshot.pci["0000:16:00.0"]
    assert snapshot.where(gpu.ref("driver")) == f"{root}/sys/bus/pci/devices/0000:16:00.0"
    assert snapshot.where(snapshot.kernel.ref("cmdline")) == f"{root}/proc/cmdline"


def test_hca_and_interfaces(snapshot: Snapshot) -> None:
    assert snapshot.rdma is not None
    assert snapshot.nics is not None
    device = snapshot.rdma[0]
    assert (device.name, device.pci_address, device.firmware) == ("mlx5_0", "0000:16:00.1", "28.41.1000")
    assert (device.ports[0].rate_gbps, device.ports[0].netdev) == (400.0, "ibp22s0")
    assert [nic.name for nic in snapshot.nics] == ["bond0", "ibp22s0"]
    nic = snapshot.nics[1]
    assert (nic.pci_address, nic.driver, nic.carrier, nic.link_type) == ("0000:16:00.1", "mlx5_core", True, 32)
    assert nic.missing["speed_mbps"].reason is Reason.NOT_SUPPORTED
    assert (snapshot.nics[0].driver, snapshot.nics[0].pci_address) == ("bonding", None)


def test_host_and_cpu(snapshot: Snapshot) -> None:
    host, cpu = snapshot.host, snapshot.cpu
    assert (host.hostname, snapshot.node, host.os_version, host.dmi_product) == ("gpu-node-7",) * 2 + (
        "22.04",
        "PowerEdge XE9680",
    )
    assert (host.virtualization, host.container, host.uptime_s) == ("none", "none", 86400.12)
    assert (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core, cpu.logical) == (2, 1, 2, 4)
    assert (cpu.model, cpu.model_number, cpu.isolated) == ("Intel(R) Xeon(R) Platinum 8480+", 143, "")
    assert cpu.governors == {"performance": 3, "powersave": 1}
    assert cpu.missing["epp"].reason is Reason.NOT_SUPPORTED
    assert cpu.irq_default_affinity == "32-39"
    assert cpu.idle_states is not None
    assert [(state.name, state.latency_us, state.disabled) for state in cpu.idle_states] == [
        ("POLL", None, None),
        ("C6", 170, True),
    ]
    assert cpu.numa is not None
    assert (cpu.numa[0].distances, cpu.numa[0].memory_free_bytes, cpu.numa[0].hugepages) == ([10, 21], 1 << 20, {"2048kB": 512})


def test_memory_kernel_and_software(snapshot: Snapshot) -> None:
    memory, kernel, software = snapshot.memory, snapshot.kernel, snapshot.software
    assert (memory.total_bytes, memory.thp_enabled, memory.edac_ce, memory.edac_ue) == (2113442304 * 1024, "madvise", 7, 0)
    assert kernel.cmdline_options()["iommu"] == "off"
    assert (kernel.release, kernel.tainted, kernel.iommu_groups) == ("5.15.0-119-generic", 12288, 1)
    assert kernel.sysctls["vm.swappiness"] == "60"
    assert kernel.sysctls["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    assert kernel.config == {"CONFIG_PCI_P2PDMA": "y", "CONFIG_NUMA_BALANCING": "n", "CONFIG_HZ": "250"}
    assert kernel.modules is not None
    assert set(kernel.modules) == {"nvidia", "nvidia_peermem", "mlx5_core", "pcie_aspm"}
    assert kernel.modules["nvidia"].used_by == ["nvidia_uvm", "nvidia_modeset"]
    assert kernel.modules["nvidia"].parameters["NVreg_EnableGpuFirmware"] == "18"
    assert kernel.modules["nvidia"].parameters["GrdmaPciTopoCheckOverride"] == "1"
    assert kernel.modules["pcie_aspm"].size_bytes is None
    assert (software.driver_version, software.driver_flavour, software.ofed_version) == ("570.124.06", "open", "24.10-1.1.4")


def test_limits_of_this_process_are_not_those_of_a_capture(snapshot: Snapshot) -> None:
    assert snapshot.limits.memlock_bytes is None
    assert snapshot.environment.variables is None


def test_root_without_pci_devices_has_none_and_a_root_without_sys_was_not_collected(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    assert live.snapshot(str(tmp_path)).pci == {}
    assert live.snapshot(str(tmp_path)).nvswitches == []
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = live.snapshot(str(empty))
    assert (nothing.pci, nothing.rdma, nothing.nics, nothing.nvswitches) == (None, None, None, None)


def test_sleeping_function_is_not_read(root: Path) -> None:
    write(root, {f"{NIC}/power_state": "D3cold", f"{NIC}/config": b"\x00" * 4096, f"{GPU}/power_state": "D0"})
    pci = live.snapshot(str(root)).pci
    assert pci is not None
    nic = pci["0000:16:00.1"]
    assert nic.power_state == "D3cold"
    assert nic.link_speed_gts is None
    assert nic.missing["link_speed_gts"].reason is Reason.NOT_READABLE
    assert "wake" in nic.missing["config_readable"].detail


def test_function_below_a_sleeping_port_is_not_read(root: Path) -> None:
    write(root, {f"{PORT}/power/runtime_status": "suspended"})
    pci = live.snapshot(str(root)).pci
    assert pci is not None
    assert pci["0000:16:00.0"].config_readable is None
    assert "0000:15:01.0" in pci["0000:16:00.0"].missing["config_readable"].detail
    assert pci["0000:15:01.0"].config_readable is True  # itself it is in D0 and can be asked


def test_links_that_leave_the_capture_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0x1234\n")
    (root / GPU.lstrip("/") / "vendor").unlink()
    link(root, f"{GPU}/vendor", "/".join([".."] * 12) + str(tmp_path / "secret"))
    (root / "proc/cmdline").unlink()
    link(root, "/proc/cmdline", str(tmp_path / "secret"))
    snapshot = live.snapshot(str(root))
    assert snapshot.kernel.cmdline is None
    assert snapshot.pci is not None
    assert snapshot.pci["0000:16:00.0"].vendor_id is None
    assert snapshot.pci["0000:16:00.0"].missing["vendor_id"].reason is Reason.NOT_READABLE


def test_fifo_in_a_capture_does_not_block(root: Path) -> None:
    for path in (f"{GPU}/vendor", f"{NIC}/infiniband/mlx5_0/fw_ver", f"{NIC}/infiniband/mlx5_0/ports/1/counters/link_downed"):
        (root / path.lstrip("/")).unlink()
        os.mkfifo(root / path.lstrip("/"))
    snapshot = live.snapshot(str(root))
    assert snapshot.rdma is not None
    assert snapshot.rdma[0].firmware is None
    assert snapshot.rdma[0].missing["firmware"].reason is Reason.NOT_READABLE
    assert snapshot.rdma[0].ports[0].counters == {}


def test_unreadable_file_says_run_as_root(root: Path) -> None:
    file = root / GPU.lstrip("/") / "device"
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("root reads every file")
    pci = live.snapshot(str(root)).pci
    assert pci is not None
    why = pci["0000:16:00.0"].missing["device_id"]
    assert (why.reason, why.hint) == (Reason.NOT_READABLE, "run as root")


def test_binary_and_endless_contents_do_not_raise(root: Path) -> None:
    noise = bytes(range(256)) * 64
    for path in (
        "/proc/modules",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/config.gz",
        "/etc/os-release",
        "/proc/1/cgroup",
        f"{GPU}/resource",
    ):
        (root / path.lstrip("/")).write_bytes(noise)
    live.snapshot(str(root))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
            ("535.104.05", "proprietary"),
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs)", ("570.124.06", "open")),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build", ("580.65.06", "open")),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed", ("390.157", "proprietary")),
        ("NVRM version: garbage", None),
        ("", None),
    ],
)
def test_nvidia_driver_version_and_flavour(text: str, expected: tuple[str, str] | None) -> None:
    assert nvidia_version(text) == expected


def test_kunlun_version_is_the_tenth_word() -> None:
    assert kunlun_version("KUNLUN driver: a b c d e f g 5.0.21.24 rest") == "5.0.21.24"
    assert kunlun_version("nothing 1.2.3") is None


def test_cuda_toolkit_version() -> None:
    assert cuda_version('{"cuda": {"name": "CUDA SDK", "version": "12.2.2"}}') == "12.2.2"
    assert cuda_version("[]") is None
    assert cuda_version('{"cuda": 3}') is None


def test_limits_of_all_groups_above_count() -> None:
    assert _upwards("/m", "/a/b") == ["/m/a/b", "/m/a", "/m"]
    assert _upwards("/m", "/../../other") == ["/m"]
