"""The machine that QEMU makes: two NUMA nodes with a PCIe root bus each, a switch below one of them, two NICs, an NVMe disk.

::

    node 0: CPU 0-1, 512 MiB   bus 20: root port - switch x3130 - NIC e1000e
                                                            `- NVMe disk, once plugged in
    node 1: CPU 2-3, 512 MiB   bus 60: root port - NIC virtio
    no node (bus 0):           root disk (virtio), the test's serial port

Everything is emulated: KVM is not used even where it is there, since it may hang (seen with kvm_pvm, which cannot boot this kernel).
"""

from __future__ import annotations

from pathlib import Path

# Not "max": each further instruction set is more for the kernel to try out and more modules for udev to load.
CPU = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand,-svm"
NODES = 2
CPUS = 4
MEMORY_MIB = 1024
NVME_MIB = 64
NIC_MAC = "52:54:00:6b:6c:01"


def nodes() -> list[str]:
    size, cpus = MEMORY_MIB // NODES, CPUS // NODES
    argv = ["-m", f"{MEMORY_MIB}M", "-smp", f"{CPUS},sockets={NODES},cores={cpus},threads=1"]
    for node in range(NODES):
        argv += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        argv += ["-numa", f"node,nodeid={node},cpus={node * cpus}-{node * cpus + cpus - 1},memdev=m{node}"]
    return [*argv, "-numa", "dist,src=0,dst=1,val=21"]


def devices() -> list[str]:
    lines = [
        "pxb-pcie,id=pxb0,bus=pcie.0,bus_nr=32,numa_node=0",
        "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=96,numa_node=1",
        "pcie-root-port,id=rp0,bus=pxb0,chassis=1,slot=1",
        "x3130-upstream,id=up0,bus=rp0",
        "xio3130-downstream,id=dn0,bus=up0,chassis=2,slot=1",
        "xio3130-downstream,id=dn1,bus=up0,chassis=3,slot=2",
        "pcie-root-port,id=rp1,bus=pxb1,chassis=4,slot=1",
        f"e1000e,bus=dn0,netdev=n0,mac={NIC_MAC}",
        "virtio-net-pci,bus=rp1,netdev=n1,mac=52:54:00:6b:6c:02,romfile=",
        "virtio-blk-pci,bus=pcie.0,drive=root,bootindex=0",
        "virtio-rng-pci,bus=pcie.0",
        "virtio-serial-pci,bus=pcie.0",
        "virtserialport,chardev=agent,name=kilter.agent",
    ]
    return [part for line in lines for part in ("-device", line)]


def command(disk: Path, folder: Path, incoming: Path | None) -> list[str]:
    """QEMU's command line. Sockets and the console's log come to lie in ``folder``."""
    kind = "raw" if disk.suffix == ".raw" else "qcow2"
    return [
        *("setpriv", "--pdeathsig", "KILL"),  # no guest outlives a test that was killed
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"),
        *("-M", "q35,accel=tcg,hpet=off", "-cpu", CPU, "-rtc", "base=utc"),
        *nodes(),
        # A flush of the guest is a flush of the file, so that what it has synced survives a killed QEMU.
        *("-drive", f"if=none,id=root,file={disk},format={kind},cache=writeback,discard=unmap"),
        *("-drive", f"if=none,id=nvme,driver=null-co,size={NVME_MIB << 20},read-zeroes=on"),  # see Guest.plug_nvme
        *("-netdev", "hubport,id=n0,hubid=0", "-netdev", "hubport,id=n1,hubid=0"),
        *("-chardev", f"socket,id=agent,path={folder / 'agent'},server=on,wait=off"),
        *devices(),
        *("-qmp", f"unix:{folder / 'qmp'},server=on,wait=off"),
        *("-serial", f"file:{folder / 'console'}"),
        *(("-incoming", f"exec:cat {incoming}") if incoming else ()),
    ]
