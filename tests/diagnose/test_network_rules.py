"""RDMA ports, interfaces and NCCL jobs."""

from collections.abc import Callable

import pytest

from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.host import Host, Kernel, Limits, Module, Software
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort
from kilter.facts.pci import PciDevice

Make = Callable[..., "Verdict"]  # noqa: F821 - the fixture's class lives in conftest


def ports(count: int = 8, **odd: object) -> list[RdmaDevice]:
    """Healthy NDR ports; the fields of ``odd`` are set on mlx5_2."""
    devices = []
    for n in range(count):
        port = RdmaPort(
            number=1,
            link_layer="InfiniBand",
            state="ACTIVE",
            physical_state="LinkUp",
            rate_gbps=400.0,
            rate_text="4X NDR",
            counters={"link_downed": 1, "symbol_error": 0, "link_error_recovery": 0, "port_rcv_errors": 0},
        )
        devices.append(RdmaDevice(name=f"mlx5_{n}", pci_address=f"0000:{0x40 + n:02x}:00.0", hca_type="MT4129", ports=[port]))
    for field, value in odd.items():
        setattr(devices[2].ports[0], field, value)
    return devices


def test_eight_ndr_ports_are_silent(facts: Make) -> None:
    assert facts(Snapshot(rdma=ports())).loud == set()


@pytest.mark.parametrize(
    ("finding", "severity", "odd"),
    [
        ("ib.port_down", "error", {"state": "DOWN", "physical_state": "Polling"}),
        ("ib.port_down", "info", {"state": "DOWN", "physical_state": "Disabled"}),
        ("ib.port_stuck_init", "error", {"state": "INIT"}),
        ("ib.rate_degraded", "error", {"rate_gbps": 200.0, "rate_text": "4X HDR"}),
        ("ib.rate_degraded", "error", {"rate_gbps": 100.0, "rate_text": "1X NDR"}),
        ("ib.link_flapping", "error", {"counters": {"link_downed": 40}}),
        ("ib.counter_saturated.link_downed", "warning", {"counters": {"link_downed": 255}}),
        ("ib.errors_above_siblings", "warning", {"counters": {"link_downed": 1, "symbol_error": 5000}}),
    ],
)
def test_each_fault_of_one_port_is_found_on_it(facts: Make, finding: str, severity: str, odd: dict[str, object]) -> None:
    verdict = facts(Snapshot(rdma=ports(**odd)))
    hits = [f for f in verdict.diagnosis.findings if f.id == finding]
    assert [(f.subject.name, f.severity.value) for f in hits] == [("mlx5_2", severity)]


def test_all_ports_down_alike_is_information(facts: Make) -> None:
    devices = ports()
    for device in devices:
        device.ports[0].state, device.ports[0].physical_state = "DOWN", "Polling"
    assert facts(Snapshot(rdma=devices)).loud == set()


def test_slow_fabric_of_all_ports_is_information(facts: Make) -> None:
    devices = ports()
    for device in devices:
        device.ports[0].rate_gbps, device.ports[0].rate_text = 200.0, "4X HDR"
    assert facts(Snapshot(rdma=devices)).ids == {"ib.rate_degraded": "info"}


def test_equal_flaps_of_all_ports_are_a_reboot_of_the_switch(facts: Make) -> None:
    devices = ports()
    for device in devices:
        device.ports[0].counters["link_downed"] = 12
    assert facts(Snapshot(rdma=devices)).loud == set()


def test_interface_down_on_an_active_port(capture: Make) -> None:
    verdict = capture("s048-ib-netdev-down-port-active/sysfs.json")
    assert verdict.ids == {"ib.netdev_down": "error", "ib.link_flapping": "error"}
    assert "ib4" in verdict.one("ib.netdev_down").what


def test_real_captures_of_ports(capture: Make) -> None:
    assert capture("s050-ib-8x-hdr-good/sysfs.json").ids == {}
    assert capture("s047-ib-8x-edr-instead-of-hdr/sysfs.json").ids == {"ib.rate_degraded": "error"}
    assert capture("s049-ib-two-ports-stuck-init/sysfs.json").ids == {"ib.port_stuck_init": "error"}
    assert capture("s017-h100-ib-linkdowned-saturated/sysfs-class-infiniband.txt").ids == {
        "ib.link_flapping": "error",
        "ib.counter_saturated.link_downed": "warning",
    }


def test_few_drops_in_many_packets_are_silent(facts: Make) -> None:
    quiet = NetInterface(
        name="eth0",
        statistics={
            "rx_discards_phy": 100,
            "rx_packets_phy": 10**10,
            "rx_out_of_buffer": 50,
            "tx_pause_ctrl_phy": 10,
            "rx_crc_errors_phy": 2,
            "link_down_events_phy": 1,
            "bw_in_allowance_exceeded": 0,
        },
    )
    assert facts(Snapshot(nics=[quiet])).loud == set()


NCCL = "h1:1:2 [0] NCCL INFO "
SHAPE = NCCL + "comm 0x1 rank 0 nRanks 16 nNodes {} localRanks 8 localRank 0 MNNVL 0\n"


def test_sockets_between_nodes_are_found_and_on_one_node_not(texts: Make) -> None:  # areal-project/AReaL#639
    line = NCCL + "Using network Socket\n"
    assert texts(SHAPE.format(2) + line).ids["nccl.net.fallback_to_socket"] == "warning"
    assert "nccl.net.fallback_to_socket" not in texts(SHAPE.format(1) + line).ids


def test_network_without_gpudirect_is_found(texts: Make) -> None:  # NVIDIA/nccl#1412, #897
    staged = NCCL + "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0\n"
    direct = NCCL + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
    assert texts(SHAPE.format(2) + staged + direct).ids["nccl.net.gdr_disabled"] == "warning"
    assert texts(SHAPE.format(2) + direct).loud == set()


def test_healthy_eight_gpu_job_is_silent(texts: Make) -> None:
    lines = "".join(NCCL + f"Channel 0{n}/0 : {n}[{n}] -> {n + 1}[{n + 1}] via P2P/CUMEM\n" for n in range(7))
    assert texts(SHAPE.format(1) + NCCL + "Using network Socket\n" + lines).loud == set()


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        (
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with error 12, opcode 0, len 0, vendor err 129",
            "nccl.net.ib.completion_error_12",
        ),  # NVIDIA/nccl#426
        (
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with error 4, opcode 0, len 0, vendor err 81",
            "nccl.net.ib.completion_error_4",
        ),  # NVIDIA/nccl#928
        (
            "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
            "nccl.net.ib.reg_mr_failed",
        ),  # NVIDIA/nccl-tests#206
        ("NCCL WARN NET/IB : Unable to open device erdma_1", "nccl.net.device_open_failed"),  # NVIDIA/nccl#2428
        ("NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", "nccl.duplicate_gpu"),
    ],
)
def test_warnings_become_errors_with_their_reading(texts: Make, line: str, finding: str) -> None:
    assert texts(f"h1:1:2 [0] {line}\n").ids[finding] == "error"


def test_variable_that_hides_a_mismatch_is_named(texts: Make) -> None:  # NVIDIA/nccl#2428
    verdict = texts(NCCL + "NCCL_IGNORE_NET_MISMATCH set by environment to 1.\n")
    assert verdict.ids == {"nccl.env.ignore_mismatch": "warning"}


def test_two_nccl_versions_in_one_job(texts: Make) -> None:
    assert texts("NCCL version 2.21.5+cuda12.4\nNCCL version 2.20.3+cuda12.3\n").ids == {"nccl.version_mismatch": "error"}


def gpu_and_nic() -> dict[str, PciDevice]:
    """Two GPUs and a NIC below one switch (three downstream ports)."""
    tree = {
        "0000:15:01.0": PciDevice(
            address="0000:15:01.0",
            class_code=0x0604,
            port_type="root port",
            parent="",
            secondary_bus=0x16,
            subordinate_bus=0x1C,
            acs_enabled=[],
        ),
        "0000:16:00.0": PciDevice(
            address="0000:16:00.0",
            class_code=0x0604,
            port_type="upstream port",
            parent="0000:15:01.0",
            secondary_bus=0x17,
            acs_enabled=None,
        ),
    }
    for n, (vendor, kind) in enumerate(((0x10DE, 0x0302), (0x10DE, 0x0302), (0x15B3, 0x0207))):
        port = f"0000:17:0{n}.0"
        tree[port] = PciDevice(
            address=port,
            class_code=0x0604,
            port_type="downstream port",
            parent="0000:16:00.0",
            secondary_bus=0x19 + n,
            acs_enabled=["SrcValid"],
        )
        tree[f"0000:{0x19 + n:02x}:00.0"] = PciDevice(
            address=f"0000:{0x19 + n:02x}:00.0", vendor_id=vendor, class_code=kind, parent=port
        )
    return tree


def test_acs_redirect_between_gpu_and_nic_is_a_warning(facts: Make) -> None:  # NVIDIA/nccl#304, #928, #949, #2079
    tree = gpu_and_nic()
    tree["0000:17:00.0"].acs_enabled = ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    verdict = facts(Snapshot(pci=tree))
    assert verdict.ids["pcie.acs_enabled"] == "warning"
    assert "0000:17:00.0" in verdict.one("pcie.acs_enabled").evidence[0].text


def test_source_validation_alone_redirects_nothing(facts: Make) -> None:
    assert "pcie.acs_enabled" not in facts(Snapshot(pci=gpu_and_nic())).ids


def test_acs_above_nvswitches_only_is_information(capture: Make) -> None:
    verdict = capture("s016-h100-xe9680-lspci-acs-harmless/lspci-vvv.txt")
    assert verdict.ids == {"pcie.acs_off_path": "info"}


def test_iommu_forced_on_bare_metal_and_allowed_in_guests_or_passthrough(facts: Make) -> None:  # NVIDIA/nccl#257
    def snap(cmdline: str, virtualization: str = "none") -> Snapshot:
        return Snapshot(pci=gpu_and_nic(), kernel=Kernel(cmdline=cmdline), host=Host(virtualization=virtualization))

    assert facts(snap("root=/dev/sda1 intel_iommu=on")).ids["pcie.iommu_translation"] == "warning"
    for fine in ("root=/dev/sda1", "intel_iommu=on iommu=pt", "intel_iommu=off", "amd_iommu=off"):
        assert "pcie.iommu_translation" not in facts(snap(fine)).ids, fine
    assert "pcie.iommu_translation" not in facts(snap("intel_iommu=on", "kvm")).ids


def test_nic_below_its_best_with_a_capable_port_above(facts: Make) -> None:
    tree = gpu_and_nic()
    nic, port = tree["0000:1b:00.0"], tree["0000:17:02.0"]
    nic.link_speed_gts, nic.link_width, nic.link_speed_max_gts, nic.link_width_max = 16.0, 8, 32.0, 16
    port.link_speed_max_gts, port.link_width_max = 32.0, 16
    assert facts(Snapshot(pci=tree)).ids["pcie.link.degraded"] == "warning"
    port.link_speed_max_gts, port.link_width_max = 16.0, 8  # the slot offers no more
    assert "pcie.link.degraded" not in facts(Snapshot(pci=tree)).ids


def test_payload_above_what_the_port_accepts_is_an_error(facts: Make) -> None:
    tree = gpu_and_nic()
    tree["0000:1b:00.0"].max_payload_bytes, tree["0000:17:02.0"].max_payload_bytes = 512, 256
    assert facts(Snapshot(pci=tree)).ids["pcie.max_payload_mismatch"] == "error"


def test_aer_counters_uncorrectable_and_at_a_rate(facts: Make) -> None:
    tree = gpu_and_nic()
    tree["0000:19:00.0"].aer_counts = {
        "correctable/RxErr": 0,
        "nonfatal/CmpltTO": 3,
        "fatal/DLP": 0,
        "nonfatal/TOTAL_ERR_NONFATAL": 3,
    }
    assert facts(Snapshot(pci=tree)).ids["pcie.aer_errors"] == "warning"
    tree["0000:19:00.0"].aer_counts = {"correctable/RxErr": 100_000}
    assert facts(Snapshot(pci=tree, host=Host(uptime_s=3600.0))).ids["pcie.aer_corrected_rate"] == "warning"
    tree["0000:19:00.0"].aer_counts = {"correctable/RxErr": 20}
    assert facts(Snapshot(pci=tree, host=Host(uptime_s=86400.0))).loud == set()


def test_memlock_matters_where_there_is_rdma(facts: Make) -> None:  # NVIDIA/nccl-tests#206
    low = Limits(memlock_bytes=8192 * 1024, scope="shell")
    assert facts(Snapshot(rdma=ports(), limits=low)).ids["host.memlock_limit_low"] == "warning"
    assert "host.memlock_limit_low" not in facts(Snapshot(limits=low)).ids
    assert "host.memlock_limit_low" not in facts(Snapshot(rdma=ports(), limits=Limits(memlock_bytes=-1))).ids


def test_peermem_is_missed_only_with_the_proprietary_driver(facts: Make) -> None:
    def snap(flavour: str, *modules: str) -> Snapshot:
        return Snapshot(
            rdma=ports(),
            accelerators=[Accelerator(index=0)],
            kernel=Kernel(modules={m: Module(name=m) for m in ("nvidia", *modules)}),
            software=Software(driver_flavour=flavour),
        )

    assert facts(snap("proprietary")).ids["module.nvidia_peermem.not_loaded"] == "warning"
    assert facts(snap("open")).ids["module.nvidia_peermem.not_loaded"] == "info"
    assert "module.nvidia_peermem.not_loaded" not in facts(snap("proprietary", "nvidia_peermem")).ids


def test_container_default_of_shared_memory(facts: Make) -> None:
    assert (
        facts(Snapshot(accelerators=[Accelerator(index=0)], limits=Limits(shm_bytes=64 << 20))).ids["container.shm_small"]
        == "warning"
    )
    assert "container.shm_small" not in facts(Snapshot(limits=Limits(shm_bytes=64 << 30, shm_free_bytes=60 << 30))).ids


def test_container_that_lost_its_devices_is_no_broken_driver(texts: Make) -> None:  # NVIDIA/nvidia-container-toolkit#48
    verdict = texts("Failed to initialize NVML: Unknown Error\n")
    assert verdict.ids == {"container.device_cgroup_lost": "error"}


def test_library_and_module_of_different_versions(texts: Make) -> None:
    assert texts("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n").ids == {
        "driver.error": "critical"
    }
