"""Ten scenarios end to end: captures and a workload in, the required answer out, the forbidden one not.

Each is a story that people told in public (issue numbers stand at the entries of decisions.yaml that they led to).
"""

from __future__ import annotations

from kilter.facts.plan import Cost, Verdict
from kilter.facts.workload import Layout, Workload
from outputs import nccl, ports, smi

GB200 = {"Product Name": "NVIDIA GB200", "PCI/Device Id": "0x294110DE", "FB Memory Usage/Total": "189471 MiB"}


def shell(*pairs: tuple[str, str], node: str = "n1") -> str:
    """Commands at a prompt with what they print."""
    return "".join(f"root@{node}:~# {command}\n{text.rstrip()}\n" for command, text in pairs)


def cmdline(text: str) -> tuple[str, str]:
    return "cat /proc/cmdline", f"BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro {text}".rstrip()


def sysctl(**values: object) -> tuple[str, str]:
    return "sysctl -a", "\n".join(f"{name.replace('__', '.')} = {value}" for name, value in values.items())


def ulimits(stack: str = "8192", lock: str = "unlimited") -> tuple[str, str]:
    return (
        "ulimit -a",
        f"core file size              (blocks, -c) 0\nmax locked memory           (kbytes, -l) {lock}\n"
        f"open files                          (-n) 1048576\nstack size                  (kbytes, -s) {stack}",
    )


def env(**values: str) -> tuple[str, str]:
    """The environment of a job's shell."""
    return "env", "\n".join(f"{name}={value}" for name, value in {"HOME": "/root", **values}.items())


def vendor(name: str) -> tuple[str, str]:
    return "cat /sys/class/dmi/id/sys_vendor", name


VM = ("systemd-detect-virt", "microsoft")
BARE = ("systemd-detect-virt", "none")
AZURE_LINE = "isolcpus=0,1,48,49 hugepagesz=2M hugepages=8192 iommu=pt pci=realloc=off init_on_alloc=0"
SERVING = {"kind": "inference", "framework": "vllm", "workers": 8, "gpus": 8, "gpus_per_node": 8, "nodes": 1, "concurrency": 2048}


# --- S1: isolcpus kills serving


def test_s1_isolcpus_is_the_first_finding(planned) -> None:
    found = planned(
        shell(VM, cmdline(AZURE_LINE), vendor("Microsoft Corporation")) + smi(8),
        workload=Workload(**SERVING),
        workload__latency_sensitive=True,
    )
    first = found.plan.advice[0]
    assert first.id == "cpu.isolcpus"
    assert first.cost is Cost.REBOOT
    assert [(c.mechanism, c.key, c.value) for c in first.changes] == [("cmdline", "isolcpus", None)]
    said = " ".join(benefit.text for benefit in first.benefits)
    for number in ("148,344", "614 ms", "146,452", "547 ms"):
        assert number in said
    assert "one at a time" in first.verify
    # The rest of the line stays, and nothing popular is put before the finding.
    assert {c.key for c in found.changes if c.mechanism == "cmdline"} == {"isolcpus"}
    assert not {"cpu.governor", "cpu.cstate_limit", "cpu.min_perf_pct"} & set(found.to_do)


def test_s1_without_isolcpus_there_is_nothing_to_mend_on_the_line(planned) -> None:
    line = AZURE_LINE.replace("isolcpus=0,1,48,49 ", "")
    found = planned(shell(VM, cmdline(line), vendor("Microsoft Corporation")) + smi(8), workload=Workload(**SERVING))
    assert found["cpu.isolcpus"].verdict is Verdict.NOT_APPLICABLE
    assert not [c for c in found.changes if c.mechanism == "cmdline"]


# --- S2: keys that newer kernels no longer have


def test_s2_keys_that_left_proc_sys_are_skipped_with_the_reason(planned) -> None:
    values = {"vm__swappiness": 60, "net__ipv4__conf__all__arp_announce": 0, "net__ipv4__conf__all__arp_ignore": 0}
    rails = ports({f"mlx5_{n}": {} for n in range(8)}, layer="Ethernet")
    memory = ("cat /proc/meminfo", "MemTotal:       2113426356 kB\nSwapTotal:       8388604 kB\nSwapFree:        8388604 kB")
    found = planned(
        shell(("uname -r", "6.12.68-cos"), sysctl(**values), memory) + smi(8) + rails,
        workload=Workload(kind="inference", framework="vllm", multi_node=True, nodes=2),
        fabric__shared_subnet=True,
    )
    gone = found["cpu.sched_latency_ns"]
    assert gone.verdict is Verdict.NOT_APPLICABLE
    for word in ("5.13", "debugfs", "EEVDF", "6.6"):
        assert word in gone.why
    assert found["vm.swappiness"].verdict is Verdict.RECOMMEND
    assert {(c.key, c.value) for c in found["sysctl.arp_multirail"].changes} == {
        ("net.ipv4.conf.all.arp_announce", "2"),
        ("net.ipv4.conf.all.arp_ignore", "1"),
    }
    assert not [c for c in found.changes if "sched_" in c.key]


def test_s2_on_an_older_kernel_the_reason_is_the_older_one(planned) -> None:
    assert "EEVDF" not in planned(shell(("uname -r", "5.15.0-113-generic")))["cpu.sched_latency_ns"].why
    assert "kernel's values are right" in planned(shell(("uname -r", "5.4.0-1-generic")))["cpu.sched_latency_ns"].why


# --- S3: an unlimited stack in a large NVLink domain


def rack(version: str, stack: str = "unlimited"):
    return (
        shell(ulimits(stack)) + smi(4, every=GB200),
        Workload(kind="pretrain", framework="megatron", gpus=48, nodes=12, gpus_per_node=4, nccl_version=version),
    )


def test_s3_a_finite_stack_or_a_newer_nccl(planned) -> None:
    text, workload = rack("2.27.5")
    found = planned(text, workload=workload)
    stack = found["limits.stack"]
    assert found.to_do[0] == "limits.stack"
    assert (stack.verdict, stack.value, stack.current, stack.gain) == (Verdict.RECOMMEND, "8192", "unlimited", 3)
    assert "2 MB" in stack.why
    assert "2.28" in stack.why + stack.verify
    assert "Azure" in stack.disagreement
    assert "limits.conf" in stack.disagreement
    # Switching multi-node NVLink off is no way out, and taken back where somebody did.
    assert "nccl.NCCL_MNNVL_ENABLE" not in found.to_do
    off = planned(
        shell(ulimits()) + smi(4, every=GB200), workload=Workload(**{**WITH_ENV, "environment": {"NCCL_MNNVL_ENABLE": "0"}})
    )
    assert off["nccl.NCCL_MNNVL_ENABLE"].verdict is Verdict.RECOMMEND
    assert off["nccl.NCCL_MNNVL_ENABLE"].changes[0].value is None


WITH_ENV = {"kind": "pretrain", "framework": "megatron", "gpus": 48, "nodes": 12, "gpus_per_node": 4, "multi_node": True}


def test_s3_newer_nccl_makes_it_a_hint(planned) -> None:
    text, workload = rack("2.30.4")
    assert planned(text, workload=workload)["limits.stack"].gain == 0


def test_s3_a_finite_stack_is_fine(planned) -> None:
    text, workload = rack("2.27.5", "8192")
    assert planned(text, workload=workload)["limits.stack"].verdict is not Verdict.RECOMMEND


# --- S4: a setting that buys bandwidth with wrong results


def test_s4_corruption_is_refused_whatever_its_metric(planned) -> None:
    job = Workload(
        kind="pretrain", framework="megatron", multi_node=True, nodes=2, gpus=16, environment={"NCCL_CHUNK_SIZE": "1048576"}
    )
    found = planned(
        smi(8) + ports({f"mlx5_{n}": {} for n in range(8)}, layer="Ethernet"), workload=job, measure__gain_proven=True
    )
    refused = found["nccl.NCCL_CHUNK_SIZE"]
    assert refused.verdict is Verdict.REFUSE
    assert found.to_do[0] == "nccl.NCCL_CHUNK_SIZE"
    assert refused.changes[0].value is None
    for word in ("wrong results", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_BUFFSIZE"):
        assert word in refused.why
    assert "49 GB/s" in refused.verify
    assert "-c 1" in refused.verify


# --- S5: peer-to-peer broken by ACS and the IOMMU


def acs_tree(
    control: str = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-", *, driver: str = "nvidia"
) -> str:
    """``lspci -vvv``: a switch with two GPUs below it."""

    def bridge(address: str, port: str, first: str, last: str, primary: str, bits: str) -> str:
        return (
            f"{address} PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0) (prog-if 00 [Normal decode])\n"
            f"\tBus: primary={primary}, secondary={first}, subordinate={last}, sec-latency=0\n"
            f"\tCapabilities: [68] Express (v2) {port}, MSI 00\n"
            f"\tCapabilities: [170 v1] Access Control Services\n\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n\t\tACSCtl:\t{bits}\n\n"
        )

    off = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
    gpu = "{address} 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)\n\tNUMA node: 0\n\tKernel driver in use: {driver}\n\n"
    return (
        bridge("15:01.0", "Root Port (Slot+)", "16", "19", "15", off)
        + bridge("16:00.0", "Upstream Port", "17", "19", "16", off)
        + bridge("17:00.0", "Downstream Port (Slot+)", "18", "18", "17", control)
        + bridge("17:01.0", "Downstream Port (Slot+)", "19", "19", "17", control)
        + gpu.format(address="18:00.0", driver="nvidia")
        + gpu.format(address="19:00.0", driver=driver)
    )


DMESG = ("dmesg", "[    0.412345] iommu: Default domain type: Translated\n[    0.412399] Linux version 6.8.0-45-generic (x) #45")
SFT = {"kind": "sft", "framework": "trl", "multi_node": False, "nodes": 1, "gpus": 8, "environment": {"NCCL_P2P_DISABLE": "1"}}


def test_s5_bare_metal(planned) -> None:
    found = planned(shell(BARE, ("lspci -vvvnn", acs_tree()), DMESG), workload=Workload(**SFT))
    assert found["pcie.iommu_mode"].verdict is Verdict.RECOMMEND
    assert found["pcie.iommu_mode"].cost is Cost.REBOOT
    assert found.boot_line() == {"iommu=pt"}
    acs = found["pcie.acs"]
    assert acs.verdict is Verdict.RECOMMEND
    assert sorted(c.key for c in acs.changes) == ["0000:17:00.0/acs", "0000:17:01.0/acs"]
    assert "p2pBandwidthLatencyTest" in acs.verify
    p2p = found["nccl.NCCL_P2P_DISABLE"]
    assert p2p.verdict is Verdict.RECOMMEND
    assert "pcie.acs" in p2p.risk
    assert found.to_do.index("pcie.acs") < found.to_do.index("nccl.NCCL_P2P_DISABLE")


def test_s5_in_a_guest_acs_stays_and_ats_is_the_way(planned) -> None:
    rails = ports({f"mlx5_{n}": {} for n in range(8)})
    found = planned(
        shell(("systemd-detect-virt", "kvm"), ("lspci -vvvnn", acs_tree()), DMESG) + rails,
        workload=Workload(**{**SFT, "multi_node": True, "nodes": 2}),
    )
    assert found["pcie.acs"].verdict is Verdict.NOT_APPLICABLE
    assert "isolates" in found["pcie.acs"].why
    assert not [c for c in found.changes if c.mechanism == "pci"]
    assert found["pcie.ats"].verdict is Verdict.RECOMMEND
    assert "iommu=pt" not in found.boot_line()


def test_s5_with_a_device_passed_to_a_guest(planned) -> None:
    found = planned(shell(BARE, ("lspci -vvvnn", acs_tree(driver="vfio-pci")), DMESG), workload=Workload(**SFT))
    assert found["pcie.acs"].verdict is Verdict.NOT_APPLICABLE
    assert not [c for c in found.changes if c.mechanism == "pci"]


# --- S6: GPUDirect RDMA off without a word


def log(*lines: str, version: str = "2.27.5") -> str:
    said = [f"NCCL version {version}+cuda12.9", *lines]
    return "".join(nccl("n1", line, level="INFO") for line in said)


LSMOD = (
    "lsmod",
    "Module                  Size  Used by\nnvidia_peermem         16384  0\nnvidia              56717312  5 nvidia_peermem\nib_core               458752  9 rdma_cm\nmlx5_ib               450560  0",
)
VERSION = (
    "cat /proc/driver/nvidia/version",
    "NVRM version: NVIDIA UNIX {kind}x86_64 Kernel Module  570.133.20  Release Build  (dvs-builder@U22)\nGCC version:  gcc version 12.3.0",
)


def gdr(kind: str, config: str = "CONFIG_PCI_P2PDMA=y") -> str:
    driver = VERSION[0], VERSION[1].format(kind=kind)
    text = shell(LSMOD, driver, ("uname -r", "6.8.0-45-generic"), ("zcat /proc/config.gz", f"CONFIG_NUMA=y\n{config}"))
    return text + smi(8) + ports({f"mlx5_{n}": {} for n in range(8)})


def job_log(via: str) -> str:
    return log(
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "Using network IB",
        f"Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0{via}",
    )


TRAINING = {"kind": "pretrain", "framework": "megatron", "multi_node": True, "nodes": 2, "gpus": 16}


def test_s6_open_driver_takes_dma_buf(planned) -> None:
    found = planned(gdr("Open Kernel Module for "), job_log(""), workload=Workload(**TRAINING))
    dmabuf = found["pcie.dmabuf"]
    assert dmabuf.verdict is Verdict.RECOMMEND
    assert "GDRDMA" in dmabuf.verify
    assert '"DMA-BUF is available" alone proves nothing' in dmabuf.verify
    assert "nccl.NCCL_NET_GDR_LEVEL" not in found.to_do


def test_s6_loaded_is_not_registered(planned) -> None:
    found = planned(gdr("", "# CONFIG_PCI_P2PDMA is not set"), job_log(""), workload=Workload(**TRAINING))
    peermem = found["pcie.nvidia_peermem"]
    assert peermem.verdict is Verdict.RECOMMEND
    assert "Loaded is not registered" in peermem.why
    assert "openibd" in peermem.by_hand
    assert "nv_mem" in peermem.by_hand
    assert "GDRDMA" in peermem.verify
    assert found["pcie.dmabuf"].verdict is Verdict.NOT_APPLICABLE


def test_s6_in_use_is_left_alone(planned) -> None:
    found = planned(gdr("Open Kernel Module for "), job_log("/GDRDMA"), workload=Workload(**TRAINING))
    assert found["pcie.nvidia_peermem"].verdict is Verdict.NOT_APPLICABLE
    assert any("GDRDMA" in line.text for line in found["pcie.nvidia_peermem"].evidence)
    assert found["pcie.dmabuf"].verdict is Verdict.NOT_APPLICABLE


# --- S7: RoCE at half speed where the fabric routes adaptively


def roce(**answers: object):
    text = smi(4, every={"Product Name": "NVIDIA GB300", "PCI/Device Id": "0x31C210DE", "FB Memory Usage/Total": "284208 MiB"})
    text += ports({f"mlx5_{n}": {} for n in range(4)}, layer="Ethernet", rate="800 Gb/sec (4X XDR)")
    text += shell(vendor("Oracle Corporation"))
    job = job_log("/GDRDMA").replace("/IB [RO]", "/RoCE [RO]")
    variables = {"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_SPLIT_DATA_ON_QPS": "0"}
    workload = Workload(kind="pretrain", framework="megatron", multi_node=True, nodes=36, gpus=144, environment=variables)
    return (text, job), workload, answers


def test_s7_adaptive_routing(planned) -> None:
    texts, workload, answers = roce(fabric__adaptive_routing=True)
    found = planned(*texts, workload=workload, **answers)
    for name in ("NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_SPLIT_DATA_ON_QPS"):
        advice = found[f"nccl.{name}"]
        assert (advice.verdict, advice.value) == (Verdict.RECOMMEND, "1")
        assert any("+70 %" in b.text and "GB300" in b.on for b in advice.benefits)
    assert found["nccl.NCCL_IB_QPS_PER_CONNECTION"].verdict is Verdict.ALREADY


def test_s7_unknown_fabric_is_asked_about(planned) -> None:
    texts, workload, answers = roce()
    found = planned(*texts, workload=workload, **answers)
    for name in ("NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_SPLIT_DATA_ON_QPS"):
        advice = found[f"nccl.{name}"]
        assert advice.verdict is Verdict.ASK
        assert advice.answer_key == "fabric.adaptive_routing"
        assert advice.question.endswith("?")


def test_s7_without_adaptive_routing_nothing_of_it(planned) -> None:
    texts, workload, answers = roce(fabric__adaptive_routing=False)
    found = planned(*texts, workload=workload, **answers)
    for name in ("NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_SPLIT_DATA_ON_QPS"):
        assert found[f"nccl.{name}"].verdict is Verdict.NOT_APPLICABLE


# --- S9: one variable, five answers

CONNECTIONS = "fw.CUDA_DEVICE_MAX_CONNECTIONS"
B200 = {"Product Name": "NVIDIA B200", "PCI/Device Id": "0x290110DE", "FB Memory Usage/Total": "183359 MiB"}


def connections(planned, workload: Workload, every: dict[str, str] | None = None):
    return planned(smi(8, every=every or {}), workload=workload)[CONNECTIONS]


def test_s9_five_answers(planned) -> None:
    def job(framework: str, value: str | None, **layout: object) -> Workload:
        variables = {} if value is None else {"CUDA_DEVICE_MAX_CONNECTIONS": value}
        kind = "rl" if framework == "verl" else "pretrain"
        return Workload(kind=kind, framework=framework, layout=Layout(**layout), environment=variables)

    megatron = connections(planned, job("megatron", None, tp=8, sharding="distributed_optimizer"))
    assert (megatron.verdict, megatron.value) == (Verdict.RECOMMEND, "1")
    blackwell = connections(planned, job("megatron", None, tp=8, sharding="distributed_optimizer"), B200)
    assert blackwell.verdict is Verdict.NOT_APPLICABLE
    assert "Not required on Blackwell" in blackwell.why
    fsdp2 = connections(planned, job("torchtitan", "1", tp=8, sharding="fsdp2"))
    assert (fsdp2.verdict, fsdp2.value, fsdp2.current) == (Verdict.RECOMMEND, "32", "1")
    assert "16 to 32" in fsdp2.why
    megatron_fsdp = connections(planned, job("megatron", "1", tp=8, sharding="megatron_fsdp"))
    assert megatron_fsdp.verdict is Verdict.REFUSE
    assert megatron_fsdp.changes[0].value is None
    rl = job("verl", "1", sharding="fsdp2")
    rl.rollout_engine = "vllm"
    trainer = connections(planned, rl)
    assert trainer.verdict is Verdict.RECOMMEND
    assert trainer.changes[0].value is None
    assert len({a.why for a in (megatron, blackwell, fsdp2, megatron_fsdp, trainer)}) == 5


def test_s9_already_right(planned) -> None:
    right = Workload(
        kind="pretrain",
        framework="megatron",
        layout=Layout(tp=8, sharding="ddp"),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )
    assert connections(planned, right).verdict is Verdict.ALREADY


def test_s9_cumem_in_the_rollout_engine(planned) -> None:
    rl = Workload(
        kind="rl",
        framework="verl",
        rollout_engine="vllm",
        cuda_graphs=True,
        layout=Layout(sharding="fsdp2"),
        environment={"NCCL_CUMEM_ENABLE": "1"},
    )
    advice = planned(smi(8), workload=rl)["nccl.NCCL_CUMEM_ENABLE"]
    assert (advice.verdict, advice.value) == (Verdict.RECOMMEND, "0")
    assert "/dev/nvidia-caps-imex-channels" in advice.why
    assert "1 to 2 GiB" in advice.why
    rack_mounted = planned(smi(4, every=GB200), workload=rl)["nccl.NCCL_CUMEM_ENABLE"]
    assert rack_mounted.value != "0"


# --- S10: in-switch reduction pays by the number of GPUs


def nvls(planned, gpus: int, every: dict[str, str], extra: str = ""):
    workload = Workload(
        kind="pretrain", framework="megatron", nodes=1, multi_node=False, gpus=gpus, environment={"NCCL_NVLS_ENABLE": "0"}
    )
    return planned(smi(8, every=every), *([extra] if extra else []), workload=workload)["nccl.NCCL_NVLS_ENABLE"]


H200 = {"Product Name": "NVIDIA H200", "PCI/Device Id": "0x233510DE", "FB Memory Usage/Total": "143771 MiB"}


def test_s10_eight_h200(planned) -> None:
    advice = nvls(planned, 8, H200)
    assert advice.verdict is Verdict.RECOMMEND
    assert advice.changes[0].value is None
    text = advice.benefits[0].text
    assert "473" in text
    assert "1.29x" in text


def test_s10_a_leftover_in_nccl_conf_is_taken_out_there(planned) -> None:
    """With the job's log as evidence, and nothing said of its environment."""
    leftover = shell(("cat /etc/nccl.conf", "# tuned by hand\nNCCL_NVLS_ENABLE=0\nNCCL_NVLS_ENABLE=1"))
    found = planned(smi(8, every=H200), leftover, workload=Workload(kind="pretrain", nodes=1, multi_node=False, gpus=8))
    advice = found["nccl.NCCL_NVLS_ENABLE"]
    assert [(c.mechanism, c.key, c.value, c.was) for c in advice.changes] == [("nccl_conf", "NCCL_NVLS_ENABLE", None, "0")]
    assert advice.evidence[0].where.endswith("1.txt:3")
    assert any(line.startswith("gpu.sm 90") for line in advice.expires_with)


def test_s10_four_gpus_gain_nothing(planned) -> None:
    advice = nvls(planned, 4, H200)
    assert advice.gain == 0
    assert "1.00x" in advice.why


def test_s10_b200_from_six_gpus(planned) -> None:
    assert "838" in nvls(planned, 8, B200).benefits[0].text
    assert nvls(planned, 6, B200).gain == 2
    assert nvls(planned, 5, B200).gain == 0


def test_s10_google_demands_it(planned) -> None:
    plugin = log("NET/FasTrak plugin initialized", "Using network FasTrak")
    advice = nvls(planned, 8, H200, plugin)
    assert advice.verdict is Verdict.NOT_APPLICABLE
    assert "FasTrak" in advice.why


# --- further regressions


def test_grace_blackwell_tray_gets_its_boot_line_in_one_reboot(planned) -> None:
    """Exactly these three, all of one cost; and none of them on an x86 guest."""
    tray = shell(BARE, ("uname -r", "6.8.0-1021-nvidia-64k"), ("uname -m", "aarch64"), cmdline("")) + smi(4, every=GB200)
    found = planned(tray, workload=Workload(kind="pretrain", framework="megatron", gpus=72, nodes=18))
    assert found.boot_line() == {"init_on_alloc=0", "numa_balancing=disable", "iommu.passthrough=1"}
    costs = {a.cost for a in found.plan.of(Verdict.RECOMMEND) if any(c.mechanism == "cmdline" for c in a.changes)}
    assert costs == {Cost.REBOOT}
    assert found["cpu.kernel_page_size"].verdict is Verdict.NOT_APPLICABLE
    guest = shell(VM, ("uname -m", "x86_64"), cmdline("")) + smi(8)
    assert planned(guest, workload=Workload(kind="pretrain", framework="megatron")).boot_line() == set()


def test_protocol_and_tuner_of_aws_do_not_go_together(planned) -> None:
    job = Workload(kind="pretrain", framework="megatron", multi_node=True, nodes=4, environment={"NCCL_PROTO": "Simple"})
    advice = planned(smi(8), log("NET/OFI Selected Provider is efa", "Using network AWS Libfabric"), workload=job)[
        "nccl.NCCL_PROTO"
    ]
    assert advice.verdict is Verdict.RECOMMEND
    assert "tuner" in advice.why
