"""Settings that make good hardware slow or useless: each with the setting that is right, and a machine on which it does not matter."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from asked import Files, of, verdict
from outputs import DATA, acs, at, bus, lspci, nccl, smi

CPUINFO = "Vendor ID:                               {vendor}\n  Model name:                            {model}\n"


def sysfs(node: str = "n1", **files: str) -> str:
    """``grep -r .`` of files; ``__`` in a name stands for ``/``."""
    return f"root@{node}:~# grep -r . /sys\n" + "".join(
        f"/sys/{name.replace('__', '/')}:{value}\n" for name, value in files.items()
    )


def cpus(isolated: str, nohz: str = "", *, nodes: tuple[str, str] = ("0-31", "32-63")) -> str:
    """Two NUMA nodes of 32 CPUs with a GPU each."""
    text = sysfs(
        devices__system__cpu__online="0-63",
        devices__system__cpu__possible="0-63",
        devices__system__cpu__cpu0__online="1",
        devices__system__cpu__isolated=isolated,
        devices__system__cpu__nohz_full=nohz,
        devices__system__node__online="0-1",
        devices__system__node__node0__cpulist=nodes[0],
        devices__system__node__node1__cpulist=nodes[1],
    )
    for gpu, node in ((0, 0), (4, 1)):
        top = f"/sys/bus/pci/devices/0000:{bus(gpu)}:00.0"
        text += f"{top}/vendor:0x10de\n{top}/device:0x2330\n{top}/class:0x030200\n{top}/numa_node:{node}\n"
    return text


def interrupts(*served: int, total: int = 64) -> str:
    """``/proc/interrupts``: one vector of a NIC and one of the GPU driver a served CPU."""
    rows = ["".join(f"{f'CPU{n}':>11}" for n in range(total))]
    for number, cpu in enumerate(served, 100):
        counts = "".join(f"{(90000 if n == cpu else 0):>11}" for n in range(total))
        rows.append(
            f"{number:>4}:{counts}  IR-PCI-MSIX-0000:1a:00.0 {number - 99}-edge      mlx5_comp{number - 100}@pci:0000:1a:00.0"
        )
    return "root@n1:~# cat /proc/interrupts\n     " + "\n".join(rows) + "\n"


LIMITS = "Limit                     Soft Limit           Hard Limit           Units     \nMax stack size            {stack}              unlimited            bytes     \nMax locked memory         {lock}              {lock}              bytes     \n"


def ulimit(stack: str = "8192", lock: str = "unlimited") -> str:
    return (
        "root@n1:~# ulimit -a\nreal-time non-blocking time  (microseconds, -R) unlimited\ncore file size              (blocks, -c) 0\n"
        f"max locked memory           (kbytes, -l) {lock}\nopen files                          (-n) 1048576\n"
        f"stack size                  (kbytes, -s) {stack}\n"
    )


def lsmod(*rows: tuple[str, str]) -> str:
    return "root@n1:~# lsmod\nModule                  Size  Used by\n" + "".join(
        f"{name:<23} 16384  {len([u for u in used.split(',') if u])} {used}\n" for name, used in rows
    )


def table(mig: str, found: bool) -> str:
    """The default table of nvidia-smi with MIG on, from a real one; without instances it says so."""
    text = (DATA / "s002-h100-mig-590-idle-load" / "idle.nvidia-smi.txt").read_text()
    if found:
        return text
    lines = text.split("\n")
    first = next(n for n, line in enumerate(lines) if line.startswith("|==================+=="))
    last = next(n for n, line in enumerate(lines) if "Processes:" in line)
    none = [
        "|  No MIG devices found                                                                   |",
        "+-----------------------------------------------------------------------------------------+",
        "",
        lines[last - 1],
    ]
    return "\n".join(lines[: first + 1] + none + lines[last:]).replace("Enabled", mig)


AMD = "root@n1:~# lscpu\nArchitecture:                            x86_64\nCPU(s):                                  128\nVendor ID:                               AuthenticAMD\nModel name:                              AMD EPYC 9554 64-Core Processor\nSocket(s):                               2\n"


def numa(nodes: int, gpu: int, nic: int, lscpu: str = AMD) -> Files:
    """A GPU in one NUMA node and a NIC in another."""
    each = 128 // nodes
    text = sysfs(
        **{f"devices__system__node__node{n}__cpulist": f"{n * each}-{(n + 1) * each - 1}" for n in range(nodes)},
        devices__system__node__online=f"0-{nodes - 1}",
    )
    for address, vendor, device, kind, node in (
        ("0000:18:00.0", "0x10de", "0x2330", "0x030200", gpu),
        ("0000:1a:00.0", "0x15b3", "0x1021", "0x020700", nic),
    ):
        top = f"/sys/bus/pci/devices/{address}"
        text += f"{top}/vendor:{vendor}\n{top}/device:{device}\n{top}/class:{kind}\n{top}/numa_node:{node}\n"
    return {"n1/lscpu.txt": lscpu, "n1/sys.txt": text}


CORES = (
    ("nvidia_peermem", ""),
    ("nvidia", "nvidia_peermem,nvidia_uvm"),
    ("ib_uverbs", "{used}mlx5_ib"),
    ("ib_core", "{used}rdma_cm,mlx5_ib,ib_uverbs"),
    ("mlx5_ib", ""),
)


def peermem(used: str, *, loaded: bool = True) -> Files:
    rows = [(name, users.format(used=used)) for name, users in CORES if loaded or name != "nvidia_peermem"]
    return {"n1/lsmod.txt": lsmod(*rows), "n1/lspci.txt": lspci(0)}


class Case(NamedTuple):
    name: str
    files: Files
    finding: str
    severity: str  # "" = no finding
    says: str = ""


CASES: list[Case] = [
    Case("isolated-node-with-its-gpu", {"n1/s.txt": cpus("32-63")}, "host.isolated_cpus", "warning", "NUMA node 1"),
    Case("isolated-all-but-one", {"n1/s.txt": cpus("1-63")}, "host.isolated_cpus", "warning", "1 of 64 CPUs"),
    Case("isolated-cpus-take-interrupts", {"n1/s.txt": cpus("16-31,48-63"), "n1/i.txt": interrupts(17, 18)}, "host.isolated_cpus", "warning", "mlx5 0000:1a:00.0"),
    Case("isolated-and-interrupts-elsewhere", {"n1/s.txt": cpus("16-31,48-63"), "n1/i.txt": interrupts(2, 3)}, "host.isolated_cpus", ""),
    Case("some-of-each-node-isolated", {"n1/s.txt": cpus("16-31,48-63")}, "host.isolated_cpus", ""),
    Case("nothing-isolated", {"n1/s.txt": cpus("", "")}, "host.isolated_cpus", ""),
    Case("tickless-everywhere", {"n1/s.txt": cpus("", "1-63")}, "host.isolated_cpus", "warning", "housekeeping"),
    Case("boot-line-only", {"n1/c.txt": "root@n1:~# cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz ro isolcpus=managed_irq,domain,1-63 nohz_full=1-63\n", "n1/s.txt": cpus("", "").replace("/sys/devices/system/cpu/isolated:\n", "").replace("/sys/devices/system/cpu/nohz_full:\n", "")}, "host.isolated_cpus", "warning", "housekeeping"),
    Case("nps4-parts-gpu-and-nic", numa(8, gpu=1, nic=0), "topo.numa_parts_gpu_and_nic", "info", "NPS4"),
    Case("nps1-in-one-node", numa(2, gpu=0, nic=0), "topo.numa_parts_gpu_and_nic", ""),
    Case("nps4-in-one-node", numa(8, gpu=1, nic=1), "topo.numa_parts_gpu_and_nic", ""),
    Case("nic-under-the-other-socket-is-no-matter-of-nps", numa(8, gpu=1, nic=6), "topo.numa_parts_gpu_and_nic", ""),
    Case("iommu-translates-by-default", {"n1/kern.log": at("09:00:00", "iommu: Default domain type: Translated"), "n1/lspci.txt": lspci(0, 1)}, "pcie.iommu_translation", "info", "by default"),
    Case("iommu-passes-through-by-default", {"n1/kern.log": at("09:00:00", "iommu: Default domain type: Passthrough (set via kernel command line)"), "n1/lspci.txt": lspci(0, 1)}, "pcie.iommu_translation", ""),
    Case("mig-on-and-no-instance", {"n1/smi.txt": "root@n1:~# nvidia-smi\n" + table("Enabled", found=False)}, "gpu.mig_no_instances", "warning", "without any instance"),
    Case("mig-on-with-instances", {"n1/smi.txt": "root@n1:~# nvidia-smi\n" + table("Enabled", found=True)}, "gpu.mig_no_instances", ""),
    Case("mig-on-and-no-instance-in-q", {"n1/smi.txt": smi(1, every={"MIG Mode/Current": "Enabled", "MIG Mode/Pending": "Enabled"})}, "gpu.mig_no_instances", "warning"),
    Case("mig-off", {"n1/smi.txt": smi(1)}, "gpu.mig_no_instances", ""),
    Case("mig-waits-for-a-reset", {"n1/smi.txt": smi(1, every={"MIG Mode/Pending": "Enabled"})}, "gpu.mig_pending", "warning", "pending on"),
    Case("mig-in-force", {"n1/smi.txt": smi(1)}, "gpu.mig_pending", ""),
    Case("memlock-of-a-container", {"n1/u.txt": ulimit(lock="64"), "n1/lspci.txt": lspci(0), "n1/ib.txt": "root@n1:~# ibstat\nCA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"}, "host.memlock_limit_low", "warning", "64 KiB"),
    Case("memlock-without-rdma", {"n1/u.txt": ulimit(lock="64"), "n1/lspci.txt": lspci(0)}, "host.memlock_limit_low", ""),
    Case("stack-unlimited-in-a-rack", {"n1/u.txt": ulimit("unlimited"), "n1/smi.txt": smi(4, every={"Product Name": "NVIDIA GB200"})}, "host.stack_limit", "warning", "2 MiB"),
    Case("stack-unlimited", {"n1/u.txt": ulimit("unlimited"), "n1/smi.txt": smi(4)}, "host.stack_limit", "info", "2 MiB"),
    Case("stack-of-8-mib", {"n1/u.txt": ulimit("8192"), "n1/smi.txt": smi(4)}, "host.stack_limit", ""),
    Case("peermem-not-registered", peermem(""), "rdma.peermem.not_registered", "warning", "not registered"),
    Case("peermem-registered", peermem("nvidia_peermem,"), "rdma.peermem.not_registered", ""),
    Case("peermem-not-loaded", peermem("", loaded=False), "rdma.peermem.not_registered", ""),
    Case("library-of-another-version", {"n1/e.txt": "root@n1:~# nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n"}, "driver.error", "critical", "different versions"),
    Case("fabric-manager-of-another-version", {"n1/v.txt": "root@n1:~# nv-fabricmanager --version\nFabric Manager version is : 550.54.14\n", "n1/smi.txt": smi()}, "fabric.manager_version_mismatch", "critical", "550.54.14"),
    Case("fabric-manager-of-the-drivers-version", {"n1/v.txt": "root@n1:~# nv-fabricmanager --version\nFabric Manager version is : 590.48.01\n", "n1/smi.txt": smi()}, "fabric.manager_version_mismatch", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_setting(case: Case) -> None:
    diagnosis = verdict(case.files)
    found = of(diagnosis, case.finding)
    if not case.severity:
        assert not [f.what for f in found]
        return
    assert found, [(f.id, f.what) for f in diagnosis.findings]
    assert found[0].severity.value == case.severity, found[0].what
    assert case.says in found[0].what
    assert found[0].action
    assert found[0].evidence


@pytest.mark.parametrize(
    "printed", ["Recover IMEX Domain", "Unknown (5)", "Unknown (6)", "System Reboot", "Unknown (7)", "Unknown (12)", "8"]
)
def test_recovery_actions_above_four_are_not_healthy(printed: str) -> None:
    (finding,) = of(verdict({"n1/smi.txt": smi(1, every={"GPU Recovery Action": printed})}), "gpu.recovery_action")
    assert finding.severity.rank >= 2
    assert printed in finding.what
    assert finding.action


def test_recovery_action_none_is_healthy() -> None:
    assert not of(verdict({"n1/smi.txt": smi(1)}), "gpu.recovery_action")


def test_utilisation_that_reads_na_under_mig_is_no_fault() -> None:
    folder = DATA / "s002-h100-mig-590-idle-load"
    files = {
        f"n1/{name}": (folder / name).read_text()
        for name in ("load.nvidia-smi-q.txt", "load.nvidia-smi.txt", "nvidia-smi-L.txt", "nvidia-smi-nvlink-s.txt")
    }
    assert [f.id for f in verdict(files).findings if f.severity.rank >= 1] == []


def test_no_peer_to_peer_under_mig_is_explained_by_mig() -> None:
    via = "".join(
        nccl("n1", f"Channel 0{c}/0 : 0[0] -> 1[1] via SHM/direct/direct", level="INFO", pid=4000) for c in range(2)
    ) + nccl("n1", "comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0", level="INFO")
    shm = "nccl.transport.shm_instead_of_p2p"
    mig = smi(2, every={"MIG Mode/Current": "Enabled", "MIG Mode/Pending": "Enabled"})
    (under,) = of(verdict({"n1/smi.txt": mig, "n1/job.log": via}), shm)
    (whole,) = of(verdict({"n1/smi.txt": smi(2), "n1/job.log": via}), shm)
    assert under.causes[0].text.startswith("MIG is on")
    assert not any(c.text.startswith("MIG") for c in whole.causes)


def test_a_guest_does_not_see_the_acs_of_its_host() -> None:
    guest = smi(2, every={"GPU Virtualization Mode/Virtualization Mode": "Pass-Through"})
    for text, outcome in ((guest, "not checked"), (smi(2), "ok")):
        files = {"n1/smi.txt": text, **acs(False)}
        (check,) = [c for c in verdict(files).checks if c.rule == "pcie.acs_enabled"]
        assert check.outcome.value == outcome
        assert not of(verdict(files), "pcie.acs_enabled")
