"""The 20 ambiguous cases: both sides of each decider, with hypotheses in order, what speaks against them, what is missing, what to test next.

The number in a test's id is the case's place in the list of ambiguous cases (job against GPU, noise against loss, my end against the peer's, ...).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from asked import Files, log, of, verdict
from kilter.facts.finding import Diagnosis, Finding
from outputs import (
    DATA,
    FM,
    PEER,
    SXID,
    addresses,
    aer,
    at,
    ethtool,
    gsp_timeout,
    hcas,
    nccl,
    off_bus,
    pauses,
    ports,
    sel,
    smi,
    watchdog,
    xid,
)

_ORDER = {"likely": 0, "possible": 1, "unlikely": 2}


class Side(NamedTuple):
    """One side of a decider. ``first``: words of the first hypothesis ("" = no finding at warning or worse); ``likelihood`` of it."""

    case: int
    name: str
    files: Files
    finding: str
    first: str
    likelihood: str = ""
    severity: str = ""
    missing: str = ""
    against: str = ""


def ranks(count: int) -> str:
    """NCCL's lines of ``count`` ranks on one node."""
    shape = f"nRanks {count} nNodes 1 localRanks {count}"
    return "".join(
        nccl("n1", f"comm 0x1 rank {r} {shape} localRank {r} MNNVL 0", gpu=r, pid=4000 + r, level="INFO") for r in range(count)
    )


def enqueued(rank: int, last: int) -> str:
    """A rank's answer to the dump signal (ProcessGroupNCCL.cpp)."""
    return (
        f"[rank{rank}]:[E304 10:10:01.000000000 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a "
        f"collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: {last}, last completed NCCL work: {last}.\n"
    )


def stuck(rank: int, sequence: int = 808) -> str:
    """A watchdog line that names its group."""
    return watchdog(rank, sequence).replace(f"[Rank {rank}]", f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]")


def retries(*complaints: tuple[str, int]) -> str:
    """(node that complains, number of the node it names): completion status 12."""
    return "".join(
        nccl(node, PEER.format(peer=f"10.0.0.{peer}", status=12, vendor=129), clock=f"10:00:{n:02d}")
        for n, (node, peer) in enumerate(complaints)
    )


def metric(name: str, gpu: int, value: float) -> str:
    return f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"}} {value}\n'


def scrape(lost: int | None) -> str:
    """dcgm-exporter of eight GPUs, of which one may have no series."""
    names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED")
    rows = []
    for name in names:
        rows.append(f"# HELP {name} x\n# TYPE {name} gauge\n")
        rows += [metric(name, g, 50.0) for g in range(8) if g != lost]
    return "".join(rows)


def bench(node: str, busbw: float, settings: str) -> str:
    """nccl-tests of one node with the environment it ran in."""
    text = (DATA / "s027-nccl-tests-8xa100-healthy" / "all_reduce_perf.txt").read_text()
    lines = text.replace("localhost", node).split("\n")
    rows = [n for n, line in enumerate(lines) if line.split()[:1] and line.split()[0].isdigit() and len(line.split()) >= 12]
    last = lines[rows[-1]].split()
    last[6] = last[10] = f"{busbw:.2f}"
    kept = [*lines[: rows[0]], "   " + "   ".join(last), *lines[rows[-1] + 1 :]]
    return f"root@{node}:~# env\nNCCL_DEBUG=WARN\n{settings}\nroot@{node}:~# all_reduce_perf -b 8G\n" + "\n".join(kept)


MMU = "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34567000"
LINK6 = "NVLink: fatal error detected on link 6({}, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
IDLE_WAIT = {"Utilization/GPU": "100 %", "Utilization/Memory": "0 %", "GPU Power Readings/Average Power Draw": "190.00 W"}
CAPPED = {"GPU Power Readings/Average Power Draw": "410.00 W", "Clocks Event Reasons/SW Power Cap": "Active"}
NVL = {"Product Name": "NVIDIA H100 NVL"}


def links(count: int, total: int = 18) -> str:
    """``nvidia-smi nvlink -s`` of one GPU: ``count`` of ``total`` links up."""
    rows = [f"\t Link {n}: {'26.562 GB/s' if n < count else '<inactive>'}" for n in range(total)]
    return (
        "root@n1:~# nvidia-smi nvlink -s\nGPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
        + "\n".join(rows)
        + "\n"
    )


SIDES: list[Side] = [
    Side(1, "13-one-job-many-gpus", log(*(xid(f"10:00:0{g}", 13, "Graphics Exception: ESR 0x504730=0x1", gpu=g, pid=5000 + g) for g in range(4))), "gpu.xid.13", "the program", "likely"),
    Side(1, "31-one-gpu-many-jobs", log(*(xid(f"1{h}:00:00", 31, MMU, gpu=5, pid=7000 + h, name=("python3", "namd3")[h % 2]) for h in range(4))), "gpu.xid.31", "this GPU", "likely"),
    Side(1, "31-once", log(xid("10:00:00", 31, MMU)), "gpu.xid.31", "the program", "likely", missing="other jobs on this GPU"),
    Side(1, "31-many-runs-of-one-program", log(*(xid(f"1{h}:00:00", 31, MMU, pid=7000 + h) for h in range(3))), "gpu.xid.31", "this GPU", "possible", missing="different programs"),
    Side(2, "45-names-its-cause", log(xid("10:00:00", 45, "channel 0x00000008 caused by previous Xid 94")), "gpu.xid.45", "", severity="info"),
    Side(2, "45-just-after-another", log(xid("10:00:00", 94, "Contained: CE User Channel"), xid("10:00:04", 45, "Ch 00000008")), "gpu.xid.45", "", severity="info"),
    Side(2, "45-at-a-jobs-end", {"n1/kern.log": "".join(xid("10:00:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(8)), "n1/job.log": "srun: error: n1: tasks 0-7: Killed\n"}, "gpu.xid.45", "", severity="info"),
    Side(2, "45-with-switch-errors", log(*(xid(f"10:0{m}:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(6)), at("10:00:01", SXID.format(code=20001, word="Non-fatal", link=3, text="TX Replay Error"))), "gpu.xid.45", "Fabric Manager or an NVSwitch port", "likely", severity="warning"),
    Side(2, "45-repeated-and-nothing-else", log(*(xid(f"10:0{m}:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(6))), "gpu.xid.45", "jobs killed", "likely", severity="warning", missing="Fabric Manager's log"),
    Side(3, "94-after-48", log(xid("10:00:00", 48, "DBE"), xid("10:00:20", 94, "Contained: CE User Channel")), "gpu.xid.48", "contained", "likely"),
    Side(3, "95-outranks-48", log(xid("10:00:00", 48, "DBE"), xid("10:00:05", 95, "Uncontained: LTC TAG")), "gpu.xid.95", "uncontained", "likely", severity="critical"),
    Side(3, "64-outranks-95", log(xid("10:00:00", 95, "Uncontained: LTC TAG"), xid("10:00:05", 64, "Row Remapper: Error")), "gpu.xid.64", "spare rows", "likely", severity="critical"),
    Side(3, "another-day-is-another-event", log(xid("01:00:00", 63, "Row Remapper: New row marked"), xid("10:00:00", 94, "Contained: CE User Channel")), "gpu.xid.94", "contained", "likely"),
    Side(4, "63-pending", {"n1/kern.log": xid("10:00:00", 63, "Row Remapper: New row marked"), "n1/smi.txt": smi(changes={0: {"Remapped Rows/Pending": "Yes"}})}, "gpu.row_remap.pending", "", severity="warning"),
    Side(4, "63-done", {"n1/kern.log": xid("10:00:00", 63, "Row Remapper: New row marked"), "n1/smi.txt": smi()}, "gpu.xid.63", "", severity="info"),
    Side(4, "63-flags-not-given", log(xid("10:00:00", 63, "Row Remapper: New row marked")), "gpu.xid.63", "", severity="warning", missing="remap pending"),
    Side(5, "79-bus", log(aer("10:00:00", "DLP", 4), off_bus("10:00:30")), "gpu.xid.79", "PCIe link", "likely", missing="BMC"),
    Side(5, "79-power", {"n1/kern.log": off_bus("10:00:20"), "n1/sel.txt": sel("Power Unit #0x01 | AC lost")}, "gpu.xid.79", "power", "likely"),
    Side(5, "79-firmware", log(gsp_timeout("10:00:00"), off_bus("10:00:50")), "gpu.xid.79", "GSP", "likely"),
    Side(5, "79-nothing-known", log(off_bus("10:00:00")), "gpu.xid.79", "PCIe link", "possible", missing="BMC", against="no AER"),
    Side(6, "74-signal", log(xid("10:00:00", 74, LINK6.format("0x400000"), pid=None)), "gpu.xid.74", "signal integrity", "likely", missing="far end"),
    Side(6, "74-parity", log(xid("10:00:00", 74, LINK6.format("0x20"), pid=None)), "gpu.xid.74", "inside the GPU", "likely"),
    Side(6, "74-victim", log(gsp_timeout("10:00:00", gpu=3), xid("10:00:20", 74, LINK6.format("0x10000"), pid=None)), "gpu.xid.74", "peer died first: XID 119", "likely"),
    Side(6, "74-first-then-the-peer", log(xid("10:00:00", 74, LINK6.format("0x200000"), pid=None), off_bus("10:00:30", 3)), "gpu.xid.74", "signal integrity", "likely"),
    Side(6, "149-victim", log(off_bus("10:00:00", 3), xid("10:00:02", 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x004505c6 0x00000000)", pid=None)), "gpu.xid.149", "peer died first: XID 79", "likely"),
    Side(7, "119-on-many-nodes", {f"n{n}/kern.log": gsp_timeout(f"1{n}:00:00", node=f"n{n}") for n in range(1, 5)}, "gpu.xid.119", "driver bug: the same on 4 nodes", "likely", missing="driver version"),
    Side(7, "119-here-alone-and-again", {**{f"n{n}/kern.log": at("09:00:00", "Linux version 6.8.0", f"n{n}") for n in range(2, 6)}, "n1/kern.log": gsp_timeout("10:00:00") + gsp_timeout("14:00:00")}, "gpu.xid.119", "this GPU", "likely"),
    Side(7, "119-one-log", log(gsp_timeout("10:00:00")), "gpu.xid.119", "GSP firmware or driver bug", "possible", missing="other nodes"),
    Side(7, "119-after-bus-errors", log(aer("10:00:00", "BadTLP", 6, severity="Correctable"), gsp_timeout("10:00:30")), "gpu.xid.119", "PCIe link", "likely"),
    Side(8, "109-with-13", log(xid("10:00:00", 13, "Graphics Exception: ESR"), xid("10:00:03", 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x1c00e")), "gpu.xid.109", "the program", "likely", severity="warning"),
    Side(8, "109-again-and-again", log(*(xid(f"1{h}:00:00", 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x1c00e", pid=5000 + h) for h in range(3))), "gpu.xid.109", "this GPU", "likely", severity="error"),
    Side(8, "109-once", log(xid("10:00:03", 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x1c00e")), "gpu.xid.109", "the program", "possible", missing="repeats"),
    Side(9, "one-rank-behind", {"job.log": ranks(4) + "".join(stuck(r) for r in (1, 2, 3)) + enqueued(0, 807)}, "torch.watchdog_timeout", "rank 0 stopped before", "likely"),
    Side(9, "one-rank-silent", {"job.log": ranks(8) + "".join(watchdog(r) for r in range(7))}, "torch.watchdog_timeout", "rank 7 died or hangs", "likely"),
    Side(9, "all-in-one-operation", {"job.log": ranks(8) + "".join(watchdog(r) for r in range(8)) + retries(("n1", 2))}, "torch.watchdog_timeout", "transport stands still", "likely"),
    Side(9, "different-operations", {"job.log": ranks(8) + "".join(watchdog(r) for r in range(7)) + watchdog(7, operation="BROADCAST", elements=4)}, "torch.watchdog_timeout", "different order", "likely"),
    Side(10, "my-link", {"job.log": addresses("n1", "n2", "n3") + retries(("n1", 2), ("n1", 3)), "n1/kern.log": at("09:59:50", "mlx5_core 0000:1a:00.0 ib0: Link down"), "n2/kern.log": at("09:00:00", "Linux version 6.8.0", "n2")}, "nccl.net.ib.completion_error_12", "link or NIC of n1", "likely"),
    Side(10, "my-link-by-its-counter", {"job.log": addresses("n1", "n2", "n3") + retries(("n1", 2), ("n1", 3)), "n1/sys.txt": ports(hcas(link_downed=30)), "n2/sys.txt": ports(hcas(), node="n2")}, "nccl.net.ib.completion_error_12", "link or NIC of n1", "likely"),
    Side(10, "the-peer", {"job.log": addresses("n1", "n2", "n3", "n4") + retries(("n2", 1), ("n3", 1), ("n4", 1)), "n1/kern.log": at("09:59:50", "mlx5_core 0000:1a:00.0: device's health compromised - reached miss count")}, "nccl.net.ib.completion_error_12", "peer or link dead: n1", "likely"),
    Side(10, "both-sick", {"job.log": addresses("n1", "n2") + retries(("n2", 1)), "n1/kern.log": at("09:59:50", "mlx5_core 0000:1a:00.0 ib0: Link down"), "n2/kern.log": at("09:59:51", "mlx5_core 0000:1a:00.0 ib0: Link down", "n2")}, "nccl.net.ib.completion_error_12", "peer or link dead", "possible"),
    Side(10, "nothing-of-either-end", {"job.log": retries(("n2", 1))}, "nccl.net.ib.completion_error_12", "peer or link dead", "likely", missing="both ends"),
    Side(11, "spinning", {"n1/smi.txt": smi(every=IDLE_WAIT)}, "nccl.hang.spinning", "", severity="warning"),
    Side(11, "busy", {"n1/smi.txt": smi()}, "nccl.hang.spinning", "", severity="absent"),
    Side(12, "cap-at-full-power", {"n1/smi.txt": smi(every={"GPU Power Readings/Average Power Draw": "698.00 W"})}, "gpu.throttle.power_cap_early", "", severity="absent"),
    Side(12, "cap-far-below-on-one", {"n1/smi.txt": smi(changes={2: CAPPED})}, "gpu.throttle.power_cap_early", "power delivery or sensor of this board", "likely", severity="warning", missing="over time"),
    Side(12, "cap-far-below-on-all", {"n1/smi.txt": smi(every=CAPPED)}, "gpu.throttle.power_cap_early", "another limit", "likely", severity="info", missing="over time"),
    Side(12, "siblings-faster-at-like-power", {"n1/smi.txt": smi(changes={2: {"Clocks/SM": "1290 MHz"}})}, "gpu.slower_than_siblings", "this GPU", "likely", severity="warning"),
    Side(12, "slower-with-less-power", {"n1/smi.txt": smi(changes={2: {"Clocks/SM": "1290 MHz", "GPU Power Readings/Average Power Draw": "480.00 W", "Clocks Event Reasons/SW Power Cap": "Not Active"}})}, "gpu.slower_than_siblings", "", severity="absent"),
    Side(13, "one-end-reports", log(*(aer(f"10:00:{s:02d}", "RxErr", 0, severity="Correctable", layer="Physical Layer") for s in range(0, 60, 3))), "pcie.aer.corrected_storm", "RxErr", ""),
    Side(14, "pre-fec-bits-are-normal", {"n1/e.txt": ethtool({"rx_packets_phy": 10**9, "rx_corrected_bits_phy": 88_000_000, "rx_pcs_symbol_err_phy": 0, "rx_symbol_err_phy": 0})}, "net.link_errors", "", severity="absent"),
    Side(14, "symbols-after-fec", {"n1/e.txt": ethtool({"rx_packets_phy": 10**9, "rx_corrected_bits_phy": 88_000_000, "rx_symbol_err_phy": 52_000})}, "net.link_errors", "", severity="warning"),
    Side(15, "this-host-pauses", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": 250_000, "rx_prio3_pause": 3})}, "net.pfc_pause_sent", "PCIe", "possible", missing="second reading"),
    Side(15, "this-host-is-paused", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": 3, "rx_prio3_pause": 250_000})}, "net.pfc_pause_sent", "", severity="absent"),
    Side(15, "both", {"n1/e.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": 250_000, "rx_prio3_pause": 90_000})}, "net.pfc_pause_sent", "PCIe", "possible", against="received too"),
    Side(15, "the-one-among-many", pauses(n1=(400_000, 10), n2=(0, 90_000), n3=(3, 70_000), n4=(0, 88_000)), "net.congestion_target", "slow receiver", "likely"),
    Side(16, "reordering", {"n1/sys.txt": ports(hcas(hw_out_of_sequence=4_000_000, hw_packet_seq_err=2))}, "rdma.packet_loss", "", severity="absent"),
    Side(16, "loss", {"n1/sys.txt": ports({name: {**values, "hw:out_of_sequence": 5, "hw:packet_seq_err": 0} for name, values in hcas().items()} | {"mlx5_3": {"hw:out_of_sequence": 4_000_000, "hw:packet_seq_err": 90_000, "hw:local_ack_timeout_err": 800}})}, "rdma.packet_loss", "drops at a switch", "possible", severity="warning", missing="second reading"),
    Side(17, "nvl-has-twelve", {"n1/smi.txt": smi(1, every=NVL), "n1/nvlink.txt": links(12, 12)}, "nvlink.inactive", "", severity="absent"),
    Side(17, "sxm-has-eighteen", {"n1/smi.txt": smi(1), "n1/nvlink.txt": links(17)}, "nvlink.inactive", "signal integrity", "likely", severity="error"),
    Side(18, "set-up-of-the-test", {**{f"n{n}/b.txt": bench(f"n{n}", 230 + n, "NCCL_TOPO_FILE=/opt/topo.xml") for n in range(2, 6)}, "n1/b.txt": bench("n1", 118, "NCCL_IB_HCA=mlx5")}, "bench.below_peers", "the test's set-up: NCCL_TOPO_FILE", "likely", severity="warning"),
    Side(18, "the-node", {**{f"n{n}/b.txt": bench(f"n{n}", 230 + n, "NCCL_TOPO_FILE=/opt/topo.xml") for n in range(2, 6)}, "n1/b.txt": bench("n1", 118, "NCCL_TOPO_FILE=/opt/topo.xml")}, "bench.below_peers", "this node", "likely", severity="warning"),
    Side(18, "alike", {f"n{n}/b.txt": bench(f"n{n}", 230 + n, "NCCL_TOPO_FILE=/opt/topo.xml") for n in range(1, 6)}, "bench.below_peers", "", severity="absent"),
    Side(19, "series-of-one-gpu-ended", {"n1/m.txt": scrape(3)}, "gpu.metric_missing_for_one", "fell off the bus", "likely", severity="warning"),
    Side(19, "series-of-all", {"n1/m.txt": scrape(None)}, "gpu.metric_missing_for_one", "", severity="absent"),
    Side(20, "order-is-sure", {"n1/kern.log": off_bus("10:00:00"), "n2/kern.log": at("10:05:00", "Kernel panic - not syncing: softlockup: hung tasks", "n2"), "job.log": nccl("n3", "socketProgress: Connection closed by remote peer n1<51234>", clock="10:00:20", file="misc/socket.cc:58")}, "incident.first_cause", "gpu or bus", ""),
]  # fmt: skip


def _first(diagnosis: Diagnosis, finding: str) -> Finding:
    found = of(diagnosis, finding)
    assert found, f"only {[(f.id, f.severity.value) for f in diagnosis.findings]}"
    return found[0]


@pytest.mark.parametrize("side", SIDES, ids=lambda s: f"case{s.case:02d}-{s.name}")
def test_each_side_of_the_decider(side: Side) -> None:
    diagnosis = verdict(side.files)
    if side.severity == "absent":
        assert not [f.what for f in of(diagnosis, side.finding) if f.severity.rank >= 1]
        return
    finding = _first(diagnosis, side.finding)
    if side.severity:
        assert finding.severity.value == side.severity, finding.what
    if side.first:
        assert side.first in finding.causes[0].text, finding.causes
        assert finding.causes[0].likelihood == side.likelihood or not side.likelihood, finding.causes
    text = {role: " ".join(e.text for e in finding.evidence if e.role == role) for role in ("supports", "contradicts", "missing")}
    assert text["supports"]
    assert side.missing in text["missing"]
    assert side.against in text["contradicts"]


@pytest.mark.parametrize("side", [s for s in SIDES if s.first and s.likelihood], ids=lambda s: f"case{s.case:02d}-{s.name}")
def test_hypotheses_are_ranked_and_told_apart(side: Side) -> None:
    finding = _first(verdict(side.files), side.finding)
    order = [_ORDER[c.likelihood] for c in finding.causes if c.likelihood]
    assert order == sorted(order), finding.causes
    if len(finding.causes) > 1:
        assert finding.next_test or any(c.decider for c in finding.causes[:2]), finding


def test_case13_both_ends_report_so_the_lanes_between_them() -> None:
    tree = "root@n1:~# lspci -vvv\n17:01.0 PCI bridge: Intel Corporation Device 352a\n\tBus: primary=17, secondary=18, subordinate=18, sec-latency=0\n\n18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\n"
    lines = "".join(
        aer(f"10:00:{s:02d}", "RxErr", 0, severity="Correctable", layer="Physical Layer", address=address, driver=driver)
        for s in range(0, 60, 3)
        for address, driver in (("0000:18:00.0", "nvidia"), ("0000:17:01.0", "pcieport"))
    )
    both = of(verdict({"n1/kern.log": lines, "n1/lspci.txt": tree}), "pcie.aer.corrected_storm")
    assert all(any(c.text.startswith("lanes between") and c.likelihood == "likely" for c in f.causes) for f in both)
    assert len(both) == 2
    (one,) = of(
        verdict(
            {**log(*(aer(f"10:00:{s:02d}", "RxErr", 0, severity="Correctable", layer="Physical Layer") for s in range(0, 60, 3)))}
        ),
        "pcie.aer.corrected_storm",
    )
    assert not any(c.likelihood == "likely" for c in one.causes)
    assert "swap" in one.next_test
    assert {"lanes", "transmitter", "receiver"} <= {c.text.split()[0] for c in one.causes}


def test_case20_order_inside_the_clocks_uncertainty_accuses_nobody() -> None:
    files = {
        "n1/kern.log": "Mar  4 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.\n",
        "n2/kern.log": "Mar  4 10:00:00 n2 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.\n",
    }
    finding = _first(verdict(files), "incident.first_cause")
    assert "within the uncertainty of their clocks" in finding.what
    assert finding.subject.node == ""


def test_case03_codes_of_one_error_are_one_finding() -> None:
    text = (
        xid("10:00:00", 48, "DBE")
        + xid("10:00:05", 63, "Row Remapper: New row marked")
        + xid("10:00:20", 94, "Contained: CE User Channel")
    )
    assert [f.id for f in verdict(log(text)).findings] == ["gpu.xid.48"]
    apart = xid("01:00:00", 63, "Row Remapper: New row marked") + xid("10:00:00", 94, "Contained: CE User Channel")
    assert {f.id for f in verdict(log(apart)).findings} == {"gpu.xid.63", "gpu.xid.94"}


def test_case02_fabric_managers_own_log_is_a_witness() -> None:
    files = {
        "n1/kern.log": "".join(xid(f"10:0{m}:02", 45, f"Ch 0000000{m}", pid=4000 + m) for m in range(6)),
        "n1/fm.log": FM.format(n=3, level="ERROR", text="failed to communicate with NVSwitch device 0"),
    }
    assert "Fabric Manager" in _first(verdict(files), "gpu.xid.45").causes[0].text


def test_every_ambiguous_case_has_two_sides() -> None:
    sides: dict[int, int] = {}
    for side in SIDES:
        sides[side.case] = sides.get(side.case, 0) + 1
    sides[13] += 1  # the tests by themselves above
    sides[20] += 1
    assert set(sides) == set(range(1, 21))
    assert min(sides.values()) >= 2, sides
