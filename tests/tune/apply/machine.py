"""A machine in a folder: the files that mechanisms read and write, and the commands that they call, which really change the folder."""

from __future__ import annotations

import os
import re
import signal
import stat
from pathlib import Path

from kilter.tune.apply.host import Done, Host
from kilter.tune.apply.sh import written

GRUB_CFG = """\
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
else
   set default="0"
fi
menuentry 'Debian GNU/Linux' --class debian {{
\tlinux\t/boot/vmlinuz-6.1.0-1-amd64 root=UUID=1234 ro {line}
\tinitrd\t/boot/initrd.img-6.1.0-1-amd64
}}
if [ -f  ${{config_directory}}/custom.cfg ]; then
  source ${{config_directory}}/custom.cfg
fi
"""
FILES = {
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/net/core/somaxconn": "128\n",
    "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    "/proc/sys/kernel/osrelease": "6.1.0-1-amd64\n",
    "/proc/sys/kernel/hostname": "n1\n",
    "/proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
    "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.1.0-1-amd64 root=UUID=1234 ro isolcpus=0,1 quiet\n",
    "/proc/driver/nvidia/params": "EnableGpuFirmware: 18\n",
    "/proc/irq/30/smp_affinity_list": "0-7\n",
    "/proc/irq/31/smp_affinity_list": "0-7\n",
    "/sys/class/net/ens1/device/msi_irqs/30": "msix\n",
    "/sys/class/net/ens1/device/msi_irqs/31": "msix\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "/etc/default/grub": '# Debian\nGRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="isolcpus=0,1 quiet"\nGRUB_CMDLINE_LINUX=""\n',
    "/etc/default/grub.d/50-cloud.cfg": "GRUB_TIMEOUT=0\n",
    "/boot/grub/grub.cfg": GRUB_CFG.format(line="isolcpus=0,1 quiet"),
    "/boot/grub/grubenv": "# GRUB Environment Block\n" + "#" * 999,
    "/boot/initrd.img-6.1.0-1-amd64": "initrd with nvidia.ko\n",
    "/etc/sysctl.d/99-sysctl.conf": "vm.swappiness = 70\n",
    "/etc/modprobe.d/nvidia.conf": "options nvidia NVreg_EnableGpuFirmware=0 NVreg_Other=1\n",
    "/etc/nccl.conf": "# by hand\nNCCL_NVLS_ENABLE=0\nNCCL_DEBUG=WARN\n",
    "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\n',
    "/etc/security/limits.conf": "* soft stack unlimited\n",
    "/etc/tuned/active_profile": "hpc\n",
    "/usr/lib/tuned/hpc/tuned.conf": "[main]\ninclude=base\n[sysctl]\nvm.swappiness=10\n",
    "/usr/lib/tuned/base/tuned.conf": "[cpu]\ngovernor=performance\n[bootloader]\ncmdline_hpc=+skew_tick=1\n",
    "/usr/lib/tuned/quick/tuned.conf": "[main]\n",
    "/etc/systemd/system/keep": "",
    "/run/systemd/system/keep": "",
}
BDF = "0000:3b:00.0"


def config_space() -> bytes:
    """4096 bytes with a PCI Express capability at 0x60 (MRRS 512) and ACS at 0x148 (control 0x001d)."""
    space = bytearray(4096)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x01, 0x60])  # power management, next 0x60
    space[0x60:0x62] = bytes([0x10, 0x00])
    space[0x68:0x6A] = (0x2936).to_bytes(2, "little")
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # AER, next 0x148
    space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x14E:0x150] = (0x001D).to_bytes(2, "little")
    return bytes(space)


def build(root: Path) -> None:
    for path, text in FILES.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    device = root / f"sys/bus/pci/devices/{BDF}"
    device.mkdir(parents=True)
    (device / "config").write_bytes(config_space())
    (root / "boot/grub/grub.cfg").chmod(0o444)
    (root / "etc/nccl.conf").chmod(0o640)


class Machine:
    """Commands of the machine in ``root``. States of units, rings and GPUs are files below ``root/state``."""

    COMMANDS = [
        "systemctl",
        "grub-mkconfig",
        "grub-editenv",
        "grub-probe",
        "update-initramfs",
        "lsinitramfs",
        "udevadm",
        "ethtool",
        "mlnx_qos",
        "cma_roce_tos",
        "nvidia-smi",
        "tuned-adm",
        "rm",
    ]

    def __init__(self, root: Path, missing: tuple[str, ...] = (), failing: tuple[str, ...] = ()) -> None:
        self.root, self.missing, self.failing = root, missing, failing
        self.calls: list[list[str]] = []

    def state(self, name: str, default: str, new: str | None = None) -> str:
        path = self.root / "state" / name
        if new is not None and new != default:
            path.parent.mkdir(exist_ok=True)
            path.write_text(new)
        elif new is not None:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        return path.read_text() if path.exists() else default

    def __call__(self, argv: list[str]) -> Done:
        if argv[0] == "which":
            return Done(0 if argv[1] in self.COMMANDS and argv[1] not in self.missing else 1, "")
        self.calls.append(argv)
        if argv[0] in self.failing:
            return Done(1, f"{argv[0]}: broken on purpose")
        return getattr(self, argv[0].replace("-", "_"))(*argv[1:])

    def systemctl(self, verb: str, *rest: str) -> Done:
        unit = rest[-1] if rest else ""
        if verb == "daemon-reload":
            return Done(0, "")
        known = unit == "irqbalance.service" or (self.root / f"etc/systemd/system/{unit}").exists()
        if verb == "show":
            if not known:
                return Done(0, "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n")
            return Done(
                0,
                f"LoadState=loaded\nActiveState={self.state('active-' + unit, 'active')}\nUnitFileState={self.state('file-' + unit, 'enabled')}\n",
            )
        if not known:
            return Done(1, f"Failed to {verb} unit: Unit file {unit} does not exist.")
        if verb in ("enable", "disable") and unit != "irqbalance.service":
            link = self.root / f"etc/systemd/system/wants-{unit}"
            link.write_text("") if verb == "enable" else link.unlink(missing_ok=True)
        elif verb in ("enable", "disable", "mask", "unmask"):
            self.state(
                "file-" + unit,
                "enabled",
                {"enable": "enabled", "disable": "disabled", "mask": "masked", "unmask": "enabled"}[verb],
            )
        elif verb in ("start", "stop") and unit == "irqbalance.service":
            self.state("active-" + unit, "active", {"start": "active", "stop": "inactive"}[verb])
        return Done(0, "")

    def grub_mkconfig(self, *argv: str) -> Done:
        line = {"GRUB_CMDLINE_LINUX": "", "GRUB_CMDLINE_LINUX_DEFAULT": ""}
        for path in [self.root / "etc/default/grub", *sorted((self.root / "etc/default/grub.d").glob("*.cfg"))]:
            for text in path.read_text().splitlines():
                if (match := re.match(r'(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)="(.*)"$', text)) is not None:
                    line[match[1]] = match[2].replace("$GRUB_CMDLINE_LINUX", line["GRUB_CMDLINE_LINUX"]).strip()
        joined = " ".join(part for part in line.values() if part)
        target = self.root / argv[1].lstrip("/")
        temporary = target.with_suffix(".new")
        temporary.write_text(GRUB_CFG.format(line=joined))
        temporary.chmod(0o444)
        temporary.replace(target)
        return Done(0, "done")

    def grub_editenv(self, path: str, verb: str, *rest: str) -> Done:
        target = self.root / path.lstrip("/")
        if verb == "create":
            target.write_text(FILES["/boot/grub/grubenv"])
        elif verb == "set":
            text = f"# GRUB Environment Block\n{rest[0]}\n"
            target.write_text(text + "#" * (1024 - len(text)))
        else:
            target.write_text(FILES["/boot/grub/grubenv"])
        return Done(0, "")

    def grub_probe(self, *argv: str) -> Done:
        return Done(0, "")

    def lsinitramfs(self, path: str) -> Done:
        return Done(0, "usr/lib/modules/6.1.0-1-amd64/updates/nvidia.ko\n")

    def update_initramfs(self, *argv: str) -> Done:
        (self.root / "boot/initrd.img-6.1.0-1-amd64").write_text("initrd made anew\n")
        return Done(0, "")

    def udevadm(self, *argv: str) -> Done:
        return Done(0, "")

    def ethtool(self, flag: str, interface: str, *rest: str) -> Done:
        if interface != "ens1":
            return Done(75, "netlink error: No such device")
        if flag == "-g":
            now = self.state("ring-rx", "1024")
            maxima = "Pre-set maximums:\nRX:\t\t8192\nTX:\t\t8192\n"
            return Done(0, f"Ring parameters for ens1:\n{maxima}Current hardware settings:\nRX:\t\t{now}\nTX:\t\t1024\n")
        if flag == "-G":
            self.state("ring-rx", "1024", rest[1])
        return Done(0, "")

    def mlnx_qos(self, _: str, interface: str, *rest: str) -> Done:
        if rest[:1] == ("--trust",):
            self.state("trust", "pcp", rest[1])
        if rest[:1] == ("--pfc",):
            self.state("pfc", "0,0,0,0,0,0,0,0", rest[1])
        bits = self.state("pfc", "0,0,0,0,0,0,0,0").replace(",", "   ")
        return Done(
            0,
            f"Priority trust state: {self.state('trust', 'pcp')}\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {bits}   \n",
        )

    def cma_roce_tos(self, *argv: str) -> Done:
        if "-t" in argv:
            self.state("tos", "0", argv[-1])
        return Done(0, f"{self.state('tos', '0')}\n")

    def nvidia_smi(self, *argv: str) -> Done:
        names = {
            "-pm": ("persistence_mode", "Disabled", {"1": "Enabled", "0": "Disabled"}),
            "-e": ("ecc.mode.pending", "Disabled", {"1": "Enabled", "0": "Disabled"}),
        }
        names["-pl"] = ("power.limit", "700.00", {})
        for flag, (field, default, words) in names.items():
            if flag in argv:
                value = argv[argv.index(flag) + 1]
                self.state(field, default, words.get(value, value if "." in value else f"{value}.00"))
                return Done(0, "")
            if f"--query-gpu={field}" in argv:
                return Done(0, f"{self.state(field, default)}\n" * (1 if "-i" in argv else 8))
        return Done(2, "Field is not a valid field to query.")

    def tuned_adm(self, verb: str, *names: str) -> Done:
        (self.root / "etc/tuned/active_profile").write_text(" ".join(names) + "\n")
        return Done(0, "")

    def rm(self, _: str, path: str) -> Done:
        (self.root / path.lstrip("/")).unlink(missing_ok=True)
        return Done(0, "")


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below ``root`` but kilter's journal: path -> (mode, bytes); folders too."""
    found = {}
    for folder, names, files in os.walk(root):
        relative = ("/" + os.path.relpath(folder, root)).removesuffix("/.")
        for name in files:
            path = Path(folder) / name
            data = path.read_bytes()
            if relative.startswith(("/proc", "/sys")) and name != "config":
                data = written(data.decode().strip()).encode()  # a real kernel prints its values itself
            found[f"{relative}/{name}"] = (stat.S_IMODE(path.stat().st_mode), data)
        for name in names:
            found[f"{relative}/{name}/"] = (stat.S_IMODE((Path(folder) / name).stat().st_mode), b"")
    return {path: value for path, value in found.items() if not path.startswith("/var/")}


class Killed(Host):
    """A host whose process is killed before its ``at``-th write to disk: files of the journal count as all others."""

    def __init__(self, root: Path, runner: Machine, at: int) -> None:
        super().__init__(root, runner)
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(self, *args, **kwargs):
        self._count()
        super().replace(*args, **kwargs)
        self._count()

    def remove(self, *args):
        self._count()
        super().remove(*args)
        self._count()

    def poke(self, *args):
        self._count()
        super().poke(*args)
        self._count()

    def run(self, argv, **kwargs):
        self._count()
        done = super().run(argv, **kwargs)
        self._count()
        return done
