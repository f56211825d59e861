"""The 52 failure modes: true lines in, and the finding, its first cause, its action and its procedure out; beside each a near miss.

The number in a test's id is the row of the failure-mode inventory (its 52 rows: symptom, what to correlate, root cause, action, procedure).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from asked import Files, log, of, verdict
from kilter.facts.finding import Severity
from kilter.knowledge import sops
from outputs import (
    FM,
    PEER,
    SXID,
    acs,
    addresses,
    aer,
    at,
    bus,
    ethtool,
    gsp_timeout,
    hcas,
    lspci,
    nccl,
    off_bus,
    pauses,
    ports,
    sel,
    smi,
    watchdog,
    xid,
)


class Mode(NamedTuple):
    """``cause``, ``action`` and ``says`` are expressions that the first hypothesis, the action and the finding's text must meet."""

    row: int
    name: str
    files: Files
    finding: str
    severity: str
    cause: str = ""
    action: str = ""
    sop: str = ""
    says: str = ""


class Miss(NamedTuple):
    """Not this finding at warning or worse; with ``cause``: the finding may be there, but not with this as its first cause."""

    row: int
    name: str
    files: Files
    finding: str
    cause: str = ""


def fault(name: str, address: str = "0000:1a:00.0") -> str:
    return f"mlx5_core {address}: {name}"


QUIET = at("09:00:00", "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP PREEMPT_DYNAMIC")
SMART = """root@n1:~# smartctl -a /dev/nvme1
smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.8.0] (local build)
=== START OF SMART DATA SECTION ===
SMART overall-health self-assessment test result: {health}

SMART/Health Information (NVMe Log 0x02)
Critical Warning:                   {warning}
Temperature:                        41 Celsius
Available Spare:                    100%
Available Spare Threshold:          10%
Percentage Used:                    3%
Media and Data Integrity Errors:    {media}
"""
NVME = """root@n1:~# nvme smart-log /dev/nvme2
Smart Log for NVME device:nvme2n1 namespace-id:ffffffff
critical_warning\t\t\t: {warning}
temperature\t\t\t\t: 35 C
available_spare\t\t\t\t: 100%
available_spare_threshold\t\t: 10%
percentage_used\t\t\t\t: 1%
media_errors\t\t\t\t: {media}
"""
SMI_MISMATCH = "root@n1:~# nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n"
HANDLE = "root@n1:~# nvidia-smi\nUnable to determine the device handle for GPU0000:5D:00.0: Unknown Error\n"
HOT = {
    "Clocks Event Reasons/HW Slowdown": "Active",
    "HW Slowdown/HW Thermal Slowdown": "Active",
    "Temperature/GPU Current Temp": "88 C",
}
WARM = {"Clocks Event Reasons/SW Thermal Slowdown": "Active", "Temperature/GPU Current Temp": "85 C"}
BRAKE = {"Clocks Event Reasons/HW Slowdown": "Active", "HW Slowdown/HW Power Brake Slowdown": "Active"}


def steps(slow: dict[int, float], count: int = 300) -> str:
    """A Megatron-LM log with the time of each step."""
    return "".join(
        f" [2026-03-04 10:{n // 60:02d}:{n % 60:02d}] iteration {n:8d}/  500000 | consumed samples: {n * 512:12d} | "
        f"elapsed time per iteration (ms): {slow.get(n, 5100.0 + n % 7):.1f} | throughput per GPU (TFLOP/s/GPU): 402.1 | learning rate: 1.0E-04 |\n"
        for n in range(1, count)
    )


MODES: list[Mode] = [
    Mode(1, "aer-surprise-down-first", log(aer("10:00:00", "SDES", 5), off_bus("10:00:03")), "gpu.xid.79", "critical", "riser", "reboot", "SOP-BUS"),
    Mode(1, "hot-plug-link-down-first", log(at("10:00:00", "pcieport 0000:17:01.0: pciehp: Slot(21): Link Down"), off_bus("10:00:20")), "gpu.xid.79", "critical", "slot or cable", "reboot", "SOP-BUS"),
    Mode(2, "bmc-tells-of-lost-input", {"n1/kern.log": off_bus("10:00:30"), "n1/sel.txt": sel("Power Supply PS2 Status | Power Supply AC lost")}, "gpu.xid.79", "critical", "power", "inspect power", "SOP-PWR"),
    Mode(2, "all-gpus-of-the-tray", log(*(off_bus(f"10:00:00.{g}", g) for g in range(8))), "gpu.xid.79", "critical", "power", "inspect power", "SOP-PWR"),
    Mode(3, "gsp-timeout-first", log(gsp_timeout("10:00:00"), off_bus("10:00:45")), "gpu.xid.79", "critical", "GSP", "(?=.*reboot)(?=.*driver)", "SOP-GSP"),
    Mode(3, "pmu-halt-first", log(xid("10:00:00", 62, "00000001 00000000 00000000"), off_bus("10:00:10")), "gpu.xid.79", "critical", "PMU", "driver", "SOP-GSP"),
    Mode(4, "seven-of-eight", {"n1/smi.txt": smi(lost=(3,)), "n1/lspci.txt": lspci(*range(8), revision={3: "ff"})}, "gpu.count_mismatch", "critical", "fell off the bus", "power cycle", "SOP-BUS"),
    Mode(4, "device-handle", {"n1/smi.txt": HANDLE}, "gpu.lost", "critical", "XID 79", "reboot", "SOP-BUS"),
    Mode(5, "48-63-94", {"n1/kern.log": xid("10:00:00", 48, "DBE (double bit error) ECC Error detected at address 0x7b") + xid("10:00:00.2", 63, "Row Remapper: New row marked for remapping, reset gpu to activate.") + xid("10:00:00.4", 94, "Contained: CE User Channel (0x9). RST: No, D-RST: No"), "n1/smi.txt": smi(changes={0: {"Remapped Rows/Pending": "Yes"}})}, "gpu.xid.48", "error", "contained", "(?=.*Restart the application)(?=.*next drain)", "SOP-MEM"),
    Mode(6, "48-64", log(xid("10:00:00", 48, "DBE (double bit error) ECC Error detected"), xid("10:00:01", 64, "Row Remapper: Error: All reserved rows for bank are remapped")), "gpu.xid.64", "critical", "spare rows", "RMA", "SOP-MEM"),
    Mode(6, "failure-flag", {"n1/smi.txt": smi(changes={2: {"Remapped Rows/Remapping Failure Occurred": "Yes"}})}, "gpu.row_remap.failure", "critical", "", "RMA", "SOP-MEM"),
    Mode(6, "48-with-failure-flag", {"n1/kern.log": xid("10:00:00", 48, "DBE (double bit error) ECC Error detected"), "n1/smi.txt": smi(changes={0: {"Remapped Rows/Remapping Failure Occurred": "Yes"}})}, "gpu.xid.48", "error", "spare rows", "RMA", "SOP-MEM"),
    Mode(7, "uncontained", log(*(xid(f"10:00:{s:02d}", 95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", pid=4000 + s) for s in range(6))), "gpu.xid.95", "critical", "uncontained", "reset", "SOP-MEM", "6 times"),
    Mode(8, "sram-threshold", {"n1/smi.txt": smi(changes={1: {"Aggregate/SRAM Threshold Exceeded": "Yes", "Aggregate/SRAM Uncorrectable SEC-DED": "12"}})}, "gpu.ecc.sram_threshold", "critical", "", "RMA", "SOP-MEM"),
    Mode(8, "172-over-threshold", {"n1/kern.log": xid("10:00:00", 172, "Uncorrectable SRAM error"), "n1/smi.txt": smi(changes={0: {"Aggregate/SRAM Threshold Exceeded": "Yes"}})}, "gpu.xid.172", "error", "SRAM", "RMA", "SOP-MEM"),
    Mode(9, "92", log(xid("10:00:00", 92, "High single-bit ECC error rate")), "gpu.xid.92", "warning", "HBM", "Watch", "SOP-MEM"),
    Mode(10, "pending-without-xid", {"n1/kern.log": QUIET, "n1/smi.txt": smi(changes={6: {"Remapped Rows/Pending": "Yes"}})}, "gpu.row_remap.pending", "warning", "", "reset the GPU", "SOP-MEM"),
    Mode(11, "one-job-on-many-gpus", log(*(xid(f"10:00:0{g}", 13, f"Graphics SM Warp Exception on (GPC {g}, TPC 0, SM 0): Out Of Range Address", gpu=g, pid=5000 + g) for g in range(4))), "gpu.xid.13", "warning", "program", "(?=.*Restart)(?=.*Do not drain)", "SOP-APP"),
    Mode(11, "one-sm-in-many-jobs", log(*(xid(f"1{h}:00:00", 13, "Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Illegal Instruction Encoding", gpu=2, pid=5000 + h, name=("python3", "vllm", "namd3")[h % 3]) for h in range(3))), "gpu.xid.13", "warning", "bad SM", "diag -r 3", "SOP-APP"),
    Mode(12, "one-job-on-many-gpus", log(*(xid("10:00:01", 31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34567000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ", gpu=g, pid=6000 + g) for g in range(8))), "gpu.xid.31", "warning", "program", "Restart", "SOP-APP"),
    Mode(12, "one-gpu-in-many-jobs", log(*(xid(f"1{h}:00:00", 31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE HOST0", gpu=5, pid=7000 + h, name=("python3", "gromacs")[h % 2]) for h in range(4))), "gpu.xid.31", "warning", "this GPU", "diag -r 3", "SOP-APP"),
    Mode(12, "memory-of-a-peer-vanished", log(off_bus("10:00:00", 1), xid("10:00:02", 31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS", gpu=0)), "gpu.xid.31", "warning", "peer", "Restart", "SOP-APP"),
    Mode(13, "43-after-13", log(xid("10:00:00", 13, "Graphics Exception: ESR 0x504730=0x1"), xid("10:00:01", 43, "Ch 00000010")), "gpu.xid.43", "info", "", "", "SOP-APP", "consequence"),
    Mode(13, "45-names-its-cause", log(xid("10:00:00", 45, "channel 0x00000008 caused by previous Xid 31")), "gpu.xid.45", "info", "", "", "SOP-APP", "follows XID 31"),
    Mode(13, "45-after-oom-kill", log(at("10:00:00", "Out of memory: Killed process 4242 (python3) total-vm:912345kB, anon-rss:812345kB, file-rss:0kB"), xid("10:00:01", 45, "Ch 00000008")), "gpu.xid.45", "info", "memory", "", "SOP-APP"),
    Mode(14, "45-repeated-and-fabric-manager", {"n1/kern.log": "".join(xid(f"10:0{m}:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(6)), "n1/fabricmanager.log": FM.format(n=1, level="ERROR", text="failed to communicate with NVSwitch device 0, closing session")}, "gpu.xid.45", "warning", "Fabric Manager", "Restart Fabric Manager", "SOP-NVL"),
    Mode(15, "74-signal-integrity", log(xid("10:00:00", 74, "NVLink: fatal error detected on link 6(0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", pid=None)), "gpu.xid.74", "critical", "signal integrity", "(?=.*[Rr]eset)(?=.*inspect)", "SOP-NVL", "link 6"),
    Mode(15, "74-ecc-of-the-gpu", log(xid("10:00:00", 74, "NVLink: fatal error detected on link 2(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", pid=None)), "gpu.xid.74", "critical", "inside the GPU", "inspect", "SOP-NVL"),
    Mode(15, "74-switch-port", log(xid("10:00:00", 74, "NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", pid=None), at("10:00:01", SXID.format(code=20001, word="Non-fatal", link=30, text="TX Replay Error"))), "gpu.xid.74", "critical", "NVSwitch port", "inspect", "SOP-NVL"),
    Mode(15, "74-peer-died", log(off_bus("10:00:00", 4), xid("10:00:01", 74, "NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", gpu=0, pid=None)), "gpu.xid.74", "critical", "peer died first: XID 79", "Follow XID 79", "SOP-BUS"),
    Mode(16, "switch-is-the-witness", log(off_bus("10:00:00", 2), at("10:00:01", SXID.format(code=20034, word="Fatal", link=30, text="LTSSM Fault Up"))), "nvswitch.sxid.20034", "error", "witness", "Follow XID 79", "SOP-BUS"),
    Mode(17, "partition-and-jobs-killed", log(at("10:00:00", SXID.format(code=12028, word="Non-fatal", link=44, text="egress nonposted PRIV error")), xid("10:00:01", 45, "Ch 00000008"), xid("10:00:01", 45, "Ch 00000009", gpu=1)), "nvswitch.sxid.12028", "warning", "partition", "(?=.*Drain)(?=.*restart Fabric Manager)", "SOP-NVL"),
    Mode(17, "invalid-command", log(at("10:00:00", SXID.format(code=11001, word="Fatal", link=12, text="ingress invalid command")), xid("10:00:01", 45, "Ch 00000008")), "nvswitch.sxid.11001", "error", "partition", "Drain", "SOP-NVL"),
    Mode(18, "crossbar", log(at("10:00:00", SXID.format(code=23001, word="Fatal", link=-1, text="ingress SRC-VC buffer overflow"))), "nvswitch.sxid.23001", "critical", "NVSwitch itself", "power-cycle", "SOP-NVL"),
    Mode(18, "sequence-id", log(at("10:00:00", SXID.format(code=12020, word="Fatal", link=10, text="egress sequence ID error"))), "nvswitch.sxid.12020", "critical", "NVSwitch", "power-cycle", "SOP-NVL"),
    Mode(18, "minion", log(at("10:00:00", SXID.format(code=22003, word="Fatal", link=10, text="Minion Halt"))), "nvswitch.sxid.22003", "critical", "NVSwitch", "inspect", "SOP-NVL"),
    Mode(19, "fatal", log(xid("10:00:00", 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)", pid=None)), "gpu.xid.149", "critical", "link", "Decode", "SOP-NVL", "NETIR_LINK_EVT link 04"),
    Mode(19, "nonfatal", log(xid("10:00:00", 145, "RLW_REMAP Nonfatal XC0 i0 Link 08 (0x00000004 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)", pid=None)), "gpu.xid.145", "warning", "", "Nonfatal means watch", "SOP-NVL"),
    Mode(20, "fabric-in-progress", {"n1/smi.txt": smi(every={"Fabric/State": "In Progress", "Fabric/Status": "N/A"})}, "fabric.state_in_progress", "error", "Fabric Manager is not running", "same version", "SOP-NVL"),
    Mode(20, "version-mismatch", {"n1/fm.log": FM.format(n=1, level="ERROR", text="Fabric Manager version 550.54.14 is not compatible with the current driver version 550.90.07")}, "fabric.manager_version_mismatch", "critical", "", "version", "SOP-NVL"),
    Mode(20, "cuda-802", {"job.log": "[rank3]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n"}, "cuda.error.system_not_ready", "error", "Fabric Manager", "", "SOP-NVL"),
    Mode(20, "136-and-dead-manager", {"n1/kern.log": xid("10:00:00", 136, "ALI training failed on links 0x3ffff", pid=None), "n1/services.txt": "root@n1:~# systemctl is-active\nnvidia-fabricmanager: failed\n"}, "gpu.xid.136", "critical", "Fabric Manager", "driver's version", "SOP-NVL"),
    Mode(21, "119", log(at("09:59:58", "NVRM: GPU0 GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x20801348."), gsp_timeout("10:00:00")), "gpu.xid.119", "critical", "GSP firmware", "reset", "SOP-GSP", "GSP_RM_CONTROL"),
    Mode(21, "119-on-three-nodes", {f"n{n}/kern.log": gsp_timeout(f"1{n}:00:00", node=f"n{n}") for n in range(1, 4)}, "gpu.xid.119", "critical", "3 nodes", "driver", "SOP-GSP"),
    Mode(22, "rm-init-adapter", log(at("00:00:20", "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"), at("00:00:20", "NVRM: GPU 0000:18:00.0: rm_init_adapter failed, device minor number 0")), "gpu.init_failed", "critical", "", "(?=.*[Cc]old)(?=.*inspect)", "SOP-GSP", "0x62"),
    Mode(23, "api-mismatch", log(at("10:00:00", "NVRM: API mismatch: the client 'nvidia-smi' (pid 8112)"), at("10:00:00", "NVRM: has the version 550.90.07, but this kernel module has"), at("10:00:00", "NVRM: the version 550.54.14.  Please make sure that this")), "driver.version_mismatch", "error", "", "[Rr]eload the module or reboot", "SOP-SW"),
    Mode(23, "nvml", {"n1/smi.txt": SMI_MISMATCH}, "driver.error", "critical", "packages updated", "reload or reboot", "SOP-SW", "without reload"),
    Mode(24, "62-back-after-a-reset", log(xid("10:00:00", 62, "2c3f(d) 00000000 00000000"), xid("12:00:00", 62, "2c3f(d) 00000000 00000000", pid=5000)), "gpu.xid.62", "critical", "hardware", "RMA", "SOP-GSP"),
    Mode(24, "62-once", log(xid("10:00:00", 62, "2c3f(d) 00000000 00000000")), "gpu.xid.62", "critical", "firmware", "reset the GPU", "SOP-GSP"),
    Mode(25, "one-gpu-in-thermal-slowdown", {"n1/smi.txt": smi(changes={4: HOT})}, "gpu.throttle.thermal", "error", "this GPU", "inspect", "SOP-THERM"),
    Mode(25, "one-gpu-in-software-slowdown", {"n1/smi.txt": smi(changes={4: WARM})}, "gpu.throttle.thermal", "warning", "this GPU", "heat sink", "SOP-THERM"),
    Mode(25, "hotter-than-siblings", {"n1/smi.txt": smi(changes={4: {"Temperature/GPU Current Temp": "82 C"}})}, "gpu.hotter_than_siblings", "warning", "", "heat sink", "SOP-THERM"),
    Mode(26, "several-nodes-of-a-rack", {f"r7n{n}/smi.txt": smi(every=WARM, node=f"r7n{n}") for n in range(1, 4)}, "facility.cooling", "error", "rack or room", "facility", "SOP-THERM"),
    Mode(26, "with-the-inlet", {**{f"r7n{n}/smi.txt": smi(every=WARM, node=f"r7n{n}") for n in range(1, 3)}, "r7n1/sel.txt": sel("Temperature Inlet Temp | Upper Critical going high", node="r7n1")}, "facility.cooling", "error", "rack or room", "facility", "SOP-THERM"),
    Mode(27, "brake-and-psu", {"n1/smi.txt": smi(every=BRAKE), "n1/sel.txt": sel("Power Supply PS1 Status | Failure detected", day="07/14/2026", clock="08:12")}, "power.psu_failed", "error", "", "supply", "SOP-PWR", "8 GPUs"),
    Mode(27, "brake-alone", {"n1/smi.txt": smi(every=BRAKE)}, "gpu.throttle.power_brake", "error", "power supply", "BMC", "SOP-PWR"),
    Mode(28, "low-clock-without-reason", {"n1/smi.txt": smi(changes={1: {"Clocks/SM": "345 MHz", "Clocks Event Reasons/SW Power Cap": "Not Active", "GPU Power Readings/Average Power Draw": "152.10 W"}})}, "gpu.clock_low", "warning", "locked clocks", "-rgc", "SOP-THERM"),
    Mode(29, "power-limit", {"n1/smi.txt": smi(changes={7: {"GPU Power Readings/Current Power Limit": "500.00 W"}})}, "gpu.siblings_differ.power_limit_w", "warning", "", "in line", "SOP-SW"),
    Mode(30, "gen1-under-load", {"n1/smi.txt": smi(changes={2: {"PCIe Generation/Current": "1"}})}, "pcie.link.gen_degraded", "error", "contact", "reseat", "SOP-BUS"),
    Mode(30, "eight-lanes", {"n1/smi.txt": smi(changes={2: {"Link Width/Current": "8x"}})}, "pcie.link.width_degraded", "error", "lane", "[Rr]eseat", "SOP-BUS"),
    Mode(31, "corrected-storm", log(*(aer(f"10:{s // 60:02d}:{s % 60:02d}", "RxErr", 0, severity="Correctable", layer="Physical Layer") for s in range(0, 120, 3))), "pcie.aer.corrected_storm", "warning", "RxErr", "reseat", "SOP-BUS"),
    Mode(32, "completion-timeout-at-the-root-port", log(off_bus("10:00:00"), aer("10:00:01", "CmpltTO", 14, address="0000:17:01.0", driver="pcieport", severity="Uncorrectable (Non-Fatal)", layer="Transaction Layer", agent="Requester ID")), "pcie.aer.uncorrected", "warning", "XID 79", "", "SOP-BUS"),
    Mode(32, "completion-timeout-and-sick-nic", log(at("10:00:00", fault("poll_health:803:(pid 0): device's health compromised - reached miss count")), aer("10:00:02", "CmpltTO", 14, address="0000:17:01.0", driver="pcieport", severity="Uncorrectable (Non-Fatal)", layer="Transaction Layer", agent="Requester ID")), "pcie.aer.uncorrected", "warning", "0000:1a:00.0", "", "SOP-BUS"),
    Mode(34, "link-downed", {"n1/sys.txt": ports(hcas(link_downed=42))}, "ib.link_flapping", "error", "cable", "cable", "SOP-IB"),
    Mode(34, "flaps-in-the-log", log(*(at(f"10:0{m}:00", fault("ib3: Link down")) + at(f"10:0{m}:09", fault("ib3: Link up")) for m in range(0, 9, 2))), "ib.link_flapping", "warning", "", "cable", "SOP-IB"),
    Mode(35, "health-compromised", log(at("10:00:00", fault("poll_health:803:(pid 0): device's health compromised - reached miss count"))), "nic.mlx5.health", "error", "", "(?=.*Reset the NIC)(?=.*reboot)", "SOP-IB"),
    Mode(35, "command-timeout", log(at("10:00:00", fault("wait_func:1155:(pid 1967079): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource"))), "nic.mlx5.timeout", "error", "", "PCIe errors of the NIC", "SOP-IB"),
    Mode(36, "symbol-errors", {"n1/sys.txt": ports(hcas(symbol_error=60000, port_rcv_errors=900))}, "ib.errors_above_siblings", "warning", "", "clean", "SOP-IB"),
    Mode(37, "half-rate", {"n1/sys.txt": ports(hcas(), rates={"mlx5_3": "200 Gb/sec (4X HDR)"})}, "ib.rate_degraded", "error", "bad lane", "reseat", "SOP-IB"),
    Mode(37, "two-lanes", {"n1/sys.txt": ports(hcas(), rates={"mlx5_3": "200 Gb/sec (2X NDR)"})}, "ib.rate_degraded", "error", "lane", "[Rr]eseat", "SOP-IB"),
    Mode(38, "pfc-pause-sent", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": 250000, "rx_prio3_pause": 12, "outbound_pci_stalled_wr": 61})}, "net.pfc_pause_sent", "warning", "PCIe", "IOMMU", "SOP-CONG"),
    Mode(38, "discards", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "rx_discards_phy": 2 * 10**6, "rx_out_of_buffer": 900})}, "net.rx_discards_phy", "warning", "slow receiver", "PCIe", "SOP-CONG"),
    Mode(39, "one-target", pauses(n1=(400000, 10), n2=(0, 90000), n3=(3, 70000), n4=(0, 88000), n5=(0, 20)), "net.congestion_target", "warning", "slow receiver", "Mend the host", "SOP-CONG", "3 hosts"),
    Mode(41, "many-nodes-to-one", {"job.log": addresses("n1", "n2", "n3", "n4", "n5") + "".join(nccl(f"n{n}", PEER.format(peer="10.0.0.1", status=12, vendor=129), clock=f"10:00:0{n}") for n in range(2, 6))}, "incident.first_cause", "error", "dead peer", "", "SOP-IB", "n1"),
    Mode(42, "retry-exceeded", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=12, vendor=129))}, "nccl.net.ib.completion_error_12", "error", "[Pp]eer or link dead", "both ends", "SOP-NCCL"),
    Mode(43, "receiver-not-ready", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=13, vendor=135))}, "nccl.net.ib.completion_error_13", "error", "slow or restarted", "", "SOP-NCCL"),
    Mode(43, "remote-access", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=10, vendor=136))}, "nccl.net.ib.completion_error_10", "error", "peer restarted", "", "SOP-NCCL"),
    Mode(43, "remote-operation", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=11, vendor=137))}, "nccl.net.ib.completion_error_11", "error", "peer", "", "SOP-NCCL"),
    Mode(44, "one-rank-missing", {"job.log": "".join(nccl("n1", f"comm 0x1 rank {r} nRanks 8 nNodes 1 localRanks 8 localRank {r} MNNVL 0", gpu=r, pid=4000 + r, level="INFO") for r in range(8)) + "".join(watchdog(r) for r in range(7))}, "torch.watchdog_timeout", "error", "rank 7", "behind or silent", "SOP-NCCL"),
    Mode(45, "desync", {"job.log": "".join(watchdog(r) for r in range(7)) + watchdog(7, operation="BROADCAST", elements=64)}, "torch.desync", "error", "program", "branch", "SOP-NCCL"),
    Mode(46, "connection-refused", {"job.log": nccl("n2", "socketStartConnect: Connect to 10.0.0.1<51234> failed : Software caused connection abort", file="misc/socket.cc:484") + nccl("n3", "Net : Call to recv from 10.0.0.1<51234> failed : Connection reset by peer", file="misc/socket.cc:538")}, "nccl.peer_gone", "warning", "crashed or was killed first", "first", "SOP-NCCL"),
    Mode(47, "sockets-between-nodes", {"job.log": "".join(nccl(f"n{n}", "NET/IB : No device found.", level="INFO") + nccl(f"n{n}", "Using network Socket", level="INFO") + nccl(f"n{n}", f"comm 0x1 rank {n - 1} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0", level="INFO") for n in (1, 2))}, "nccl.net.fallback_to_socket", "warning", "HCA not visible", "NCCL_IB_HCA", "SOP-NCCL"),
    Mode(48, "slow-clock-on-one-node", {f"n{n}/smi.txt": smi(1, changes={0: {"Clocks/SM": "1100 MHz" if n == 3 else f"{1750 + n} MHz"}}, node=f"n{n}") for n in range(1, 9)}, "fleet.outlier.sm_clock", "warning", "", "swap", "SOP-SLOW", "1,100"),
    Mode(49, "every-fiftieth-step", {"train.log": steps(dict.fromkeys(range(50, 300, 50), 21000.0))}, "job.slow_steps_periodic", "warning", "checkpoint", "asynchronous", "SOP-SLOW", "every 50 steps"),
    Mode(50, "oom-killer", log(at("10:00:00", "Out of memory: Killed process 4003 (python3) total-vm:912345kB, anon-rss:812345kB, file-rss:0kB, shmem-rss:0kB, UID:0")), "host.oom_kill", "warning", "", "memory limit", "SOP-HOST", "whole host"),
    Mode(50, "cgroup", log(at("10:00:00", "Memory cgroup out of memory: Killed process 4003 (python3) total-vm:912345kB, anon-rss:812345kB")), "host.oom_kill", "warning", "", "memory limit", "SOP-HOST", "cgroup"),
    Mode(50, "exit-137", {"job.log": "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : n1\n  rank      : 5 (local_rank: 5)\n  exitcode  : -9 (pid: 14750)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 14750\n"}, "torch.rank_failed", "error", "OOM killer", "", "SOP-APP"),
    Mode(51, "hung-task-beside-119", log(gsp_timeout("10:00:00"), at("10:02:10", "INFO: task nvidia-smi:8112 blocked for more than 120 seconds.")), "host.hung_task", "warning", "GSP", "[Rr]eboot", "SOP-HOST"),
    Mode(51, "soft-lockup", log(at("10:00:00", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4242]")), "host.lockup", "error", "", "[Rr]eboot", "SOP-HOST"),
    Mode(51, "d-state", {"n1/ps.txt": "root@n1:~# ps -eo pid,stat,wchan:32,comm\n    PID STAT WCHAN                            COMMAND\n      1 Ss   ep_poll                          systemd\n   8112 D    rwsem_down_write_slowpath        nvidia-smi\n   9001 D+   os_acquire_rwlock_read           python3\n"}, "host.d_state", "warning", "GPU driver", "reboot", "SOP-HOST", "2 GPU task"),
    Mode(52, "read-only", log(at("10:00:00", "nvme nvme1: I/O 12 QID 3 timeout, aborting"), at("10:00:30", "EXT4-fs (nvme1n1p1): Remounting filesystem read-only")), "host.storage_error", "error", "", "disk", "SOP-HOST"),
    Mode(52, "edac", log(at("10:00:00", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x12 offset:0x0 grain:32)")), "host.hardware_error", "error", "", "DIMM", "SOP-HOST"),
    Mode(52, "machine-check", log(at("10:00:00", "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400")), "host.machine_check", "error", "CPU", "CPU", "SOP-HOST"),
    Mode(52, "clock", {"n1/c.txt": "root@n1:~# chronyc tracking\nReference ID    : 0A000001 (ntp1)\nStratum         : 3\nRef time (UTC)  : Wed Mar 04 10:00:00 2026\nSystem time     : 12.402911234 seconds slow of NTP time\nLast offset     : -0.000012 seconds\nLeap status     : Normal\n"}, "host.clock_skew", "warning", "", "time service", "SOP-HOST", "12.4 s slow"),
    Mode(1, "containment-by-the-port-first", log(at("10:00:00", "pcieport 0000:17:01.0: DPC: containment event, status:0x1f01 source:0x0000"), off_bus("10:00:02")), "gpu.xid.79", "critical", "riser", "reboot", "SOP-BUS"),
    Mode(27, "several-nodes-of-a-rack", {f"r7n{n}/smi.txt": smi(every=BRAKE, node=f"r7n{n}") for n in range(1, 4)}, "facility.power", "error", "rack", "facility", "SOP-PWR"),
    Mode(41, "all-count-time-outs-but-the-dead-one", {f"n{n}/sys.txt": ports({"mlx5_0": {"hw:local_ack_timeout_err": 0 if n == 3 else 4000 + n, "link_downed": 0}}, node=f"n{n}") for n in range(1, 7)}, "rdma.ack_timeout_vote", "warning", "died", "Drain", "SOP-IB", "5 nodes"),
    Mode(52, "smart-fails", {"n1/d.txt": SMART.format(health="FAILED!", warning="0x04", media=0)}, "host.disk_health", "error", "", "replace the drive", "SOP-HOST", "nvme1"),
    Mode(52, "media-errors", {"n1/d.txt": NVME.format(warning=0, media=12)}, "host.disk_health", "warning", "", "replace the drive", "SOP-HOST", "nvme2"),
    Mode(51, "file-server-silent", log(at("10:00:00", "nfs: server 10.0.0.9 not responding, still trying"), at("10:02:10", "INFO: task python3:4242 blocked for more than 120 seconds.")), "host.hung_task", "warning", "file server 10.0.0.9", "[Rr]eboot", "SOP-HOST"),
    Mode(52, "xfs-shut-down", log(at("10:00:33", "XFS (nvme1n1p1): log I/O error -5"), at("10:00:33", "XFS (nvme1n1p1): Filesystem has been shut down due to log error (0x2).")), "host.storage_error", "error", "", "disk", "SOP-HOST"),
]  # fmt: skip

MODES.append(
    Mode(
        33,
        "acs-redirect-between-gpu-and-nic",
        acs(True),
        "pcie.acs_enabled",
        "warning",
        "firmware or IOMMU",
        "(?=.*ACS)(?=.*off)",
        "SOP-SW",
    )
)
MODES.append(
    Mode(
        33,
        "iommu-translates",
        {
            "n1/c.txt": "root@n1:~# cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro intel_iommu=on\n",
            "n1/lspci.txt": lspci(*range(8)),
        },
        "pcie.iommu_translation",
        "warning",
        "",
        "iommu=pt",
        "SOP-SW",
    )
)

MISSES: list[Miss] = [
    Miss(1, "aer-after-the-loss", log(off_bus("10:00:00"), aer("10:00:20", "SDES", 5)), "gpu.xid.79", "riser"),
    Miss(1, "aer-of-a-nic-elsewhere", log(aer("10:00:00", "RxErr", 0, address="0000:1a:00.0", driver="mlx5_core", severity="Correctable", layer="Physical Layer"), off_bus("10:00:03")), "gpu.xid.79", "riser"),
    Miss(1, "aer-an-hour-before", log(aer("09:00:00", "SDES", 5), off_bus("10:00:00")), "gpu.xid.79", "riser"),
    Miss(2, "power-event-of-last-week", {"n1/kern.log": off_bus("10:00:00"), "n1/sel.txt": sel("Power Supply PS2 Status | Power Supply AC lost", day="02/25/2026")}, "gpu.xid.79", "power"),
    Miss(2, "one-gpu-alone", log(off_bus("10:00:00")), "gpu.xid.79", "power"),
    Miss(3, "gsp-of-another-gpu", log(gsp_timeout("10:00:00", gpu=5), off_bus("10:00:45", gpu=0)), "gpu.xid.79", "GSP"),
    Miss(3, "gsp-after-the-loss", log(off_bus("10:00:00"), gsp_timeout("10:00:45")), "gpu.xid.79", "GSP"),
    Miss(4, "all-eight", {"n1/smi.txt": smi(), "n1/lspci.txt": lspci(*range(8))}, "gpu.count_mismatch"),
    Miss(5, "uncontained", log(xid("10:00:00", 48, "DBE"), xid("10:00:00.3", 95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")), "gpu.xid.48"),
    Miss(6, "63-alone", log(xid("10:00:00", 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")), "gpu.xid.64"),
    Miss(6, "remapped-rows-are-wear", {"n1/smi.txt": smi(changes={2: {"Remapped Rows/Uncorrectable Error": "3"}})}, "gpu.row_remap.failure"),
    Miss(7, "contained", log(xid("10:00:00", 94, "Contained: CE User Channel (0x9). RST: No, D-RST: No")), "gpu.xid.95"),
    Miss(8, "below-the-threshold", {"n1/smi.txt": smi(changes={1: {"Aggregate/SRAM Uncorrectable SEC-DED": "1"}})}, "gpu.ecc.sram_threshold"),
    Miss(9, "corrected-errors-of-a-life", {"n1/smi.txt": smi(changes={1: {"Aggregate/DRAM Correctable": "9"}})}, "gpu.ecc.uncorrected"),
    Miss(10, "remap-done", {"n1/smi.txt": smi(changes={1: {"Remapped Rows/Uncorrectable Error": "1"}}), "n1/kern.log": xid("10:00:00", 63, "Row Remapper: New row marked", gpu=1)}, "gpu.xid.63"),
    Miss(11, "one-job-many-gpus-is-no-bad-sm", log(*(xid(f"10:00:0{g}", 13, "Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address", gpu=g, pid=5000 + g) for g in range(4))), "gpu.xid.13", "bad SM"),
    Miss(12, "one-process-once-is-undecided", log(xid("10:00:00", 31, "Ch 00000008, intr 00000000. MMU Fault")), "gpu.xid.31", "this GPU"),
    Miss(13, "45-beside-79", log(off_bus("10:00:00"), xid("10:00:01", 45, "Ch 00000008")), "gpu.xid.45"),
    Miss(14, "repeated-and-the-job-ended", {"n1/kern.log": "".join(xid("10:00:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(6)), "n1/job.log": "srun: error: n1: tasks 0-7: Killed\n[2026-03-04T10:00:01+00:00] n1: slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-03-04T10:00:01 ***\n"}, "gpu.xid.45", "Fabric Manager"),
    Miss(15, "no-link-error", log(xid("10:00:00", 13, "Graphics Exception: ESR 0x504730=0x1")), "gpu.xid.74"),
    Miss(15, "peer-died-later", log(xid("10:00:00", 74, "NVLink: fatal error detected on link 2(0x200000, 0x0, 0x0)", gpu=0, pid=None), off_bus("10:05:00", 4)), "gpu.xid.74", "peer died"),
    Miss(16, "no-gpu-died", log(at("10:00:01", SXID.format(code=20034, word="Fatal", link=30, text="LTSSM Fault Up"))), "nvswitch.sxid.20034", "witness"),
    Miss(17, "another-nonfatal-sxid", log(at("10:00:00", SXID.format(code=20001, word="Non-fatal", link=44, text="TX Replay Error"))), "nvswitch.sxid.20001", "partition"),
    Miss(18, "corrected-ecc-of-a-switch", log(at("10:00:00", "nvidia-nvswitch3: SXid (PCI:0000:a9:00.0): 11012, Single bit ECC errors")), "nvswitch.sxid.11012"),
    Miss(19, "an-nvlink5-word-outside-its-codes", log(at("10:00:00", "nvidia-nvlink: Nvlink Core is being initialized, major device number 234")), "gpu.xid.149"),
    Miss(20, "registered", {"n1/smi.txt": smi()}, "fabric.state_in_progress"),
    Miss(20, "nothing-to-do", {"n1/fm.log": FM.format(n=1, level="ERROR", text="NV_WARN_NOTHING_TO_DO: no NVSwitch devices found")}, "fabric.manager_version_mismatch"),
    Miss(21, "slow-answer", log(at("10:00:00", "NVRM: _kgspLogXid119: ********************* Slow RPC response from GPU0 GSP (5000000us) ********")), "gpu.xid.119"),
    Miss(21, "two-nodes-prove-no-driver-bug", {f"n{n}/kern.log": gsp_timeout(f"1{n}:00:00", node=f"n{n}") for n in range(1, 3)}, "gpu.xid.119", "nodes"),
    Miss(22, "driver-loads", log(at("00:00:20", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:30:47 UTC 2024")), "gpu.init_failed"),
    Miss(23, "equal-versions", {"n1/v.txt": "root@n1:~# nvidia-smi --version\nNVIDIA-SMI version  : 550.90.07\nNVML version        : 550.90\nDRIVER version      : 550.90.07\nCUDA Version        : 12.4\n"}, "driver.error"),
    Miss(24, "no-halt", log(xid("10:00:00", 61, "PMU breakpoint")), "gpu.xid.62"),
    Miss(25, "all-gpus-are-not-one-heat-sink", {"n1/smi.txt": smi(every=WARM)}, "gpu.throttle.thermal", "this GPU"),
    Miss(25, "power-cap-at-full-power", {"n1/smi.txt": smi()}, "gpu.throttle.thermal"),
    Miss(26, "one-node", {"r7n1/smi.txt": smi(every=WARM, node="r7n1"), "r7n2/smi.txt": smi(node="r7n2")}, "facility.cooling"),
    Miss(26, "one-gpu-of-each-node", {f"r7n{n}/smi.txt": smi(changes={2: WARM}, node=f"r7n{n}") for n in range(1, 4)}, "facility.cooling"),
    Miss(27, "supply-came-back", {"n1/smi.txt": smi(), "n1/sel.txt": sel("Power Supply PS1 Status | Failure detected") + "   2 | 03/04/2026 | 10:05:02 UTC | Power Supply PS1 Status | Failure detected | Deasserted\n"}, "power.psu_failed"),
    Miss(28, "idle", {"n1/smi.txt": smi(every={"Clocks/SM": "345 MHz", "Utilization/GPU": "0 %", "Clocks Event Reasons/Idle": "Active", "Clocks Event Reasons/SW Power Cap": "Not Active"})}, "gpu.clock_low"),
    Miss(28, "at-the-power-limit", {"n1/smi.txt": smi(every={"Clocks/SM": "900 MHz", "GPU Power Readings/Average Power Draw": "699.00 W"})}, "gpu.clock_low"),
    Miss(29, "all-capped-alike", {"n1/smi.txt": smi(every={"GPU Power Readings/Current Power Limit": "500.00 W"})}, "gpu.siblings_differ.power_limit_w"),
    Miss(30, "gen1-at-idle", {"n1/smi.txt": smi(every={"PCIe Generation/Current": "1", "Performance State": "P8", "Utilization/GPU": "0 %"})}, "pcie.link.gen_degraded"),
    Miss(31, "a-few-in-a-day", log(aer("01:00:00", "RxErr", 0, severity="Correctable", layer="Physical Layer"), aer("09:00:00", "RxErr", 0, severity="Correctable", layer="Physical Layer")), "pcie.aer.corrected_storm"),
    Miss(32, "nothing-hung", log(aer("10:00:01", "CmpltTO", 14, address="0000:17:01.0", driver="pcieport", severity="Uncorrectable (Non-Fatal)", layer="Transaction Layer", agent="Requester ID")), "pcie.aer.uncorrected", "XID 79"),
    Miss(33, "no-redirect", acs(False), "pcie.acs_enabled"),
    Miss(33, "passthrough", {"n1/c.txt": "root@n1:~# cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro intel_iommu=on iommu=pt\n", "n1/lspci.txt": lspci(*range(8))}, "pcie.iommu_translation"),
    Miss(34, "all-ports-once", {"n1/sys.txt": ports({f"mlx5_{n}": {"link_downed": 2} for n in range(8)})}, "ib.link_flapping"),
    Miss(34, "one-reboot-of-the-switch", log(at("10:00:00", fault("ib3: Link down")), at("10:00:40", fault("ib3: Link up"))), "ib.link_flapping"),
    Miss(35, "firmware-line", log(at("10:00:00", fault("firmware version: 28.41.1000"))), "nic.mlx5.health"),
    Miss(36, "a-few-errors", {"n1/sys.txt": ports(hcas(symbol_error=12))}, "ib.errors_above_siblings"),
    Miss(37, "all-alike", {"n1/sys.txt": ports(hcas(), rate="200 Gb/sec (4X HDR)")}, "ib.rate_degraded"),
    Miss(38, "paused-by-the-network", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": 40, "rx_prio3_pause": 250000})}, "net.pfc_pause_sent"),
    Miss(39, "all-pause-all", pauses(n1=(40000, 50000), n2=(30000, 90000), n3=(35000, 70000), n4=(42000, 88000)), "net.congestion_target"),
    Miss(39, "one-host-pauses-and-none-waits", pauses(n1=(400000, 0), n2=(0, 3), n3=(0, 0), n4=(0, 8)), "net.congestion_target"),
    Miss(40, "reordered-by-adaptive-routing", {"n1/sys.txt": ports(hcas(hw_out_of_sequence=4_000_000, hw_packet_seq_err=0, hw_local_ack_timeout_err=0))}, "rdma.packet_loss"),
    Miss(41, "each-node-names-another", {"job.log": addresses("n1", "n2", "n3", "n4") + "".join(nccl(f"n{n}", PEER.format(peer=f"10.0.0.{n % 4 + 1}", status=12, vendor=129), clock=f"10:00:0{n}") for n in range(1, 5))}, "incident.first_cause", "dead peer"),
    Miss(42, "flushed-requests-follow", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=5, vendor=244))}, "nccl.net.ib.completion_error_12"),
    Miss(43, "another-status", {"job.log": nccl("n2", PEER.format(peer="10.0.0.1", status=12, vendor=129))}, "nccl.net.ib.completion_error_13"),
    Miss(44, "all-ranks-wait", {"job.log": "".join(nccl("n1", f"comm 0x1 rank {r} nRanks 8 nNodes 1 localRanks 8 localRank {r} MNNVL 0", gpu=r, pid=4000 + r, level="INFO") for r in range(8)) + "".join(watchdog(r) for r in range(8))}, "torch.watchdog_timeout", "rank 7"),
    Miss(45, "same-operation", {"job.log": "".join(watchdog(r) for r in range(8))}, "torch.desync"),
    Miss(46, "no-broken-connection", {"job.log": nccl("n2", "Connected all rings", level="INFO")}, "nccl.peer_gone"),
    Miss(47, "one-node-needs-no-network", {"job.log": nccl("n1", "Using network Socket", level="INFO") + nccl("n1", "comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0", level="INFO")}, "nccl.net.fallback_to_socket"),
    Miss(48, "equal-nodes", {f"n{n}/smi.txt": smi(1, changes={0: {"Clocks/SM": f"{1740 + 3 * n} MHz"}}, node=f"n{n}") for n in range(1, 9)}, "fleet.outlier.sm_clock"),
    Miss(49, "slow-steps-without-period", {"train.log": steps({7: 21000.0, 23: 19000.0, 151: 20000.0, 163: 21000.0, 270: 22000.0})}, "job.slow_steps_periodic"),
    Miss(49, "equal-steps", {"train.log": steps({})}, "job.slow_steps_periodic"),
    Miss(50, "gpu-memory-is-not-host-memory", {"job.log": "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.02 GiB is free.\n"}, "host.oom_kill"),
    Miss(51, "one-disk-thread-in-d", {"n1/ps.txt": "root@n1:~# ps aux\nUSER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nroot         812  0.0  0.0      0     0 ?        D    Mar03   0:02 [jbd2/nvme0n1p2-8]\nroot        8112  1.0  0.1 123456 23456 ?        Sl   10:00   0:01 nvidia-smi dmon\n"}, "host.d_state"),
    Miss(52, "in-step", {"n1/c.txt": "root@n1:~# chronyc tracking\nReference ID    : 0A000001 (ntp1)\nStratum         : 3\nSystem time     : 0.000012402 seconds slow of NTP time\nLeap status     : Normal\n"}, "host.clock_skew"),
    Miss(52, "corrected-machine-check", log(at("10:00:00", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x12)")), "host.memory_corrected"),
    Miss(1, "boot-line-of-containment", log(at("10:00:00", "pcieport 0000:17:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 4, DL_ActiveErr+"), off_bus("10:00:02")), "gpu.xid.79", "riser"),
    Miss(27, "one-node-under-the-brake", {"r7n1/smi.txt": smi(every=BRAKE, node="r7n1"), "r7n2/smi.txt": smi(node="r7n2")}, "facility.power"),
    Miss(41, "all-nodes-count-time-outs", {f"n{n}/sys.txt": ports({"mlx5_0": {"hw:local_ack_timeout_err": 4000 + n, "link_downed": 0}}, node=f"n{n}") for n in range(1, 7)}, "rdma.ack_timeout_vote"),
    Miss(51, "tasks-that-read-files", {"n1/ps.txt": "root@n1:~# ps -eo pid,stat,wchan:32,comm\n    PID STAT WCHAN                            COMMAND\n" + "".join(f"   90{n:02d} D    folio_wait_bit_common            python3\n" for n in range(8))}, "host.d_state"),
    Miss(52, "smart-passes", {"n1/d.txt": SMART.format(health="PASSED", warning="0x00", media=0) + NVME.format(warning=0, media=0)}, "host.disk_health"),
    Miss(51, "file-server-came-back", log(at("10:00:00", "nfs: server 10.0.0.9 not responding, still trying"), at("10:00:40", "nfs: server 10.0.0.9 OK")), "host.file_server_silent"),
    Miss(52, "xfs-mounts", log(at("09:00:00", "XFS (nvme1n1p1): Mounting V5 Filesystem 0f"), at("09:00:01", "XFS (nvme1n1p1): Ending clean mount")), "host.storage_error"),
]  # fmt: skip

#: Rows whose right answer is silence.
SILENT = {40}


@pytest.mark.parametrize("mode", MODES, ids=lambda m: f"row{m.row:02d}-{m.name}")
def test_failure_mode_is_named_with_its_cause_and_procedure(mode: Mode) -> None:
    diagnosis = verdict(mode.files)
    found = of(diagnosis, mode.finding)
    assert found, f"only {[(f.id, f.severity.value) for f in diagnosis.findings]}"
    finding = found[0]
    assert finding.severity.value == mode.severity
    first = finding.causes[0].text if finding.causes else ""
    if mode.cause:
        assert re.search(mode.cause, first), finding.causes
    assert re.search(mode.action, finding.action), finding.action
    assert re.search(mode.says, finding.what), finding.what
    assert finding.action
    assert finding.evidence
    assert finding.sop == mode.sop
    assert finding.sop in sops.all_ids()


@pytest.mark.parametrize("miss", MISSES, ids=lambda m: f"row{m.row:02d}-not-{m.name}")
def test_near_miss_is_told_apart(miss: Miss) -> None:
    diagnosis = verdict(miss.files)
    loud = [f for f in of(diagnosis, miss.finding) if f.severity.rank >= Severity.WARNING.rank]
    if miss.cause:
        assert not [
            f for f in loud if f.causes and re.search(miss.cause, f.causes[0].text) and f.causes[0].likelihood == "likely"
        ]
        assert not [f for f in loud if not f.causes]
    else:
        assert not loud, [(f.id, f.what) for f in loud]


@pytest.mark.parametrize("row", sorted(SILENT))
def test_normal_behaviour_is_silent(row: int) -> None:
    (miss,) = [m for m in MISSES if m.row == row]
    assert not [f for f in verdict(miss.files).findings if f.severity.rank >= Severity.WARNING.rank]


def test_a_healthy_node_with_all_its_outputs_is_silent() -> None:
    files = {
        "n1/smi.txt": smi(),
        "n1/lspci.txt": lspci(*range(8)),
        "n1/kern.log": QUIET,
        "n1/sys.txt": ports(hcas()),
        "n1/e.txt": ethtool({"rx_packets_phy": 10**9, "tx_prio3_pause": 3, "rx_prio3_pause": 900, "rx_discards_phy": 0}),
        "train.log": steps({1: 60000.0}),
    }
    assert [(f.id, f.what) for f in verdict(files).findings if f.severity is not Severity.INFO] == []


def test_a_switch_that_is_a_witness_does_not_hide_the_gpu() -> None:
    (mode,) = [m for m in MODES if m.row == 16]
    (gpu,) = of(verdict(mode.files), "gpu.xid.79")
    assert gpu.subject.name.endswith(f"0000:{bus(2)}:00.0")


def test_every_row_has_a_mode_and_a_near_miss() -> None:
    rows = set(range(1, 53))
    assert {m.row for m in MODES} | SILENT == rows
    assert {m.row for m in MISSES} == rows
