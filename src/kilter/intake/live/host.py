"""The machine and its operating system: os-release, DMI, virtualization and container, uptime, load."""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import Host
from kilter.intake import nccl_conf
from kilter.intake.live.places import Places

DMI = "/sys/class/dmi/id"

#: DMI texts that name a hypervisor, by prefix, and what systemd-detect-virt calls it (systemd man page and src/basic/virt.c).
_DMI_HYPERVISORS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("HVM domU", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
_CLOCKS = {"kvm-clock": "kvm", "xen": "xen", "hyperv_clocksource_tsc_page": "microsoft", "hyperv_clocksource_msr": "microsoft"}

_CONTAINER_CGROUPS = (
    (re.compile(r"/kubepods|kubelet"), "kubernetes"),
    (re.compile(r"/docker[-/]"), "docker"),
    (re.compile(r"/libpod|/machine\.slice/libpod"), "podman"),
    (re.compile(r"/lxc[./]"), "lxc"),
    (re.compile(r"/cri-containerd|/containerd"), "containerd"),
    (re.compile(r"/garden/"), "garden"),
)


def os_release(text: str) -> dict[str, str]:
    """Assignments of an os-release file (``man os-release``): values may be quoted and hold backslash escapes."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name.strip()] = re.sub(r"\\(.)", r"\1", value)
    return found


def virtualization(*, hypervisor_flag: bool | None, dmi: list[str], clocks: str, xen: str | None) -> str | None:
    """What systemd-detect-virt calls the hypervisor; "none" on bare metal; None if nothing tells.

    ``hypervisor_flag`` is CPUID's bit as a flag of ``/proc/cpuinfo`` (x86 only, None elsewhere); ``dmi`` the texts of DMI;
    ``clocks`` the available clock sources, which name the hypervisor that offers a clock.
    """
    if hypervisor_flag is False and not xen:
        return "none"  # cloud bare-metal instances carry the cloud's name in DMI
    named = next((name for text in dmi for prefix, name in _DMI_HYPERVISORS if text.startswith(prefix)), None)
    if "Microsoft Corporation" in dmi and "Virtual Machine" in dmi:
        named = named or "microsoft"
    clock = next((name for word, name in _CLOCKS.items() if word in clocks.split()), None)
    if named == "qemu" and clock == "kvm":
        return "kvm"
    if named or clock or xen:
        return named or clock or xen
    if hypervisor_flag:
        return "vm-other"
    return "none" if dmi else None


def container(places: Places) -> str | None:
    """The container manager that this tree is seen from, "none" outside; None when a text does not say."""
    tree = places.tree
    named = (tree.read("/run/systemd/container") or "").strip()
    if named:
        return named
    cgroup = tree.read("/proc/1/cgroup") or ""
    by_cgroup = next((name for pattern, name in _CONTAINER_CGROUPS if pattern.search(cgroup)), None)
    if tree.exists("/run/secrets/kubernetes.io") or tree.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if by_cgroup:
        return by_cgroup
    if tree.exists("/.dockerenv"):
        return "docker"
    if tree.exists("/run/.containerenv"):
        return "podman"
    return "none" if cgroup and not places.is_text else None


def _detect(places: Places, host: Host) -> None:
    tree = places.tree
    flags = places.snapshot.cpu.flags
    x86 = places.snapshot.cpu.vendor in ("GenuineIntel", "AuthenticAMD", "HygonGenuine", "CentaurHauls", "Shanghai")
    folder = places.folder(DMI)
    texts = [
        text
        for name in ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
        if (text := folder.text(name))
    ]
    xen = tree.read("/sys/hypervisor/type")
    found = virtualization(
        hypervisor_flag="hypervisor" in flags if flags is not None and x86 else None,
        dmi=texts,
        clocks=tree.read("/sys/devices/system/clocksource/clocksource0/available_clocksource") or "",
        xen="xen" if xen == "xen" else None,
    )
    path = "/proc/cpuinfo" if flags is not None else f"{DMI}/sys_vendor"
    host.put("virtualization", found, places.ref(path, "/proc/cpuinfo" if flags is not None else DMI))
    held = container(places)
    host.put("container", held, places.ref("/proc/1/cgroup", "/proc/1/cgroup"))


def _nccl_conf(places: Places) -> None:
    path = "/etc/nccl.conf"
    text = places.tree.read(path)
    if text is None and not places.is_live:
        return
    found = nccl_conf.variables(text or "")
    places.snapshot.environment.put("nccl_conf", {name: value for name, (value, _) in found.items()}, places.ref(path, path))


def read(places: Places) -> None:
    """Fill ``snapshot.host`` and what /etc/nccl.conf says; call it after the CPU's reader, whose flags it needs."""
    host, tree, snapshot = places.snapshot.host, places.tree, places.snapshot
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = tree.read(path)
        if text:
            release = os_release(text)
            ref = places.ref(path, path)
            for field, key in (("os_id", "ID"), ("os_version", "VERSION_ID"), ("os_name", "PRETTY_NAME")):
                host.put(field, release.get(key) or None, ref)
            break
    for path in ("/proc/sys/kernel/hostname", "/etc/hostname"):
        name = (tree.read(path) or "").strip()
        if name and host.hostname is None:
            host.put("hostname", name, places.ref(path, path))
    snapshot.node = snapshot.node or host.hostname or ""
    _nccl_conf(places)
    folder = places.folder(DMI)
    dmi = (
        ("dmi_vendor", "sys_vendor"),
        ("dmi_product", "product_name"),
        ("dmi_board", "board_name"),
        ("bios_version", "bios_version"),
        ("bios_date", "bios_date"),
    )
    for field, name in dmi:
        if tree.exists(DMI):
            folder.take(host, field, name)
        elif not places.is_text:
            host.lacks(field, Reason.NOT_SUPPORTED, f"{DMI} does not exist: the firmware gives no DMI table")
    uptime = (tree.read("/proc/uptime") or "").split()
    host.put("uptime_s", _number(uptime), places.ref("/proc/uptime", "/proc/uptime"))
    boot = (tree.read("/proc/sys/kernel/random/boot_id") or "").strip()
    host.put("boot_id", boot or None, places.ref("/proc/sys/kernel/random/boot_id", "/proc/sys/kernel"))
    load = (tree.read("/proc/loadavg") or "").split()
    host.put("load_1m", _number(load), places.ref("/proc/loadavg", "/proc/loadavg"))
    _detect(places, host)


def _number(parts: list[str]) -> float | None:
    try:
        return float(parts[0]) if parts else None
    except ValueError:
        return None
