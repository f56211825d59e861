"""Builds the guest's disk: Debian with its real kernel, GRUB and systemd. Needs root, mmdebstrap and QEMU; neither KVM nor loop devices.

Debian's packages are unpacked into a folder, ``mke2fs -d`` makes the file system of it, GRUB's images are put in front of it, and the first boot runs the
guest's own ``grub-install`` and ``update-grub``, so that what later tests see was written by the programs that write it on a real machine.
What is built is kept below ``$KILTER_TEST_CACHE`` (or ``~/.cache/kilter-tests``) under a name made of all that went into it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.guest import program

HERE = Path(__file__).parent
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "sfdisk": "fdisk",
    "setpriv": "util-linux",
}
PACKAGES = (
    "linux-image-amd64",
    "initramfs-tools",
    "grub-pc",
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "procps",
    "iproute2",
    "ethtool",
    "pciutils",
    "numactl",
    "python3",
    "libpam-modules",
    "login",
)
# Of the kernel's 380 MB of modules, those that this guest cannot use; documents and translations.
LEFT_OUT = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    *(f"/lib/modules/*/kernel/{part}/*" for part in ("sound", "net/wireless", "net/bluetooth", "net/mac80211")),
    *(
        f"/lib/modules/*/kernel/drivers/{part}/*"
        for part in (
            "gpu",
            "media",
            "iio",
            "staging",
            "usb",
            "input",
            "hid",
            "hwmon",
            "mtd",
            "isdn",
            "bluetooth",
            "net/wireless",
            "net/usb",
            "scsi",
            "ata",
        )
    ),
    *(
        f"/lib/modules/*/kernel/fs/{part}/*"
        for part in ("xfs", "btrfs", "ocfs2", "nfs", "nfsd", "cifs", "ceph", "f2fs", "gfs2", "ubifs")
    ),
)
SIZE_MIB = 2048
START_MIB = 1  # of the partition; GRUB's core image lies before it
ROOT_UUID = "5b3a1f2e-6f0d-4f59-9d0a-6b696c746572"

FILES = {
    "/etc/hostname": "guest\n",
    "/etc/hosts": "127.0.0.1 localhost guest\n",
    "/etc/fstab": f"UUID={ROOT_UUID} / ext4 errors=remount-ro 0 1\n",
    "/etc/default/grub": (
        "GRUB_DEFAULT=saved\nGRUB_TIMEOUT=0\nGRUB_TIMEOUT_STYLE=menu\nGRUB_RECORDFAIL_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\n"
        'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="console=ttyS0"\n'
        'GRUB_TERMINAL="serial console"\nGRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"\nGRUB_DISABLE_OS_PROBER=true\n'
    ),
    "/usr/lib/systemd/system/guest-agent.service": (
        "[Unit]\nDescription=Commands of the test\nDefaultDependencies=no\nAfter=systemd-remount-fs.service systemd-tmpfiles-setup.service\n"
        "Conflicts=shutdown.target\nBefore=shutdown.target\n"
        "[Service]\nExecStart=/usr/bin/python3 -u /usr/lib/guest-agent.py\nRestart=always\nRestartSec=1\nKillMode=process\n"
        "[Install]\nWantedBy=sysinit.target\n"
    ),
}
INITRAMFS = "MODULES=list\nFSTYPE=ext4\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n"
INITRAMFS_MODULES = "virtio_pci\nvirtio_blk\next4\n"


def missing() -> str:
    """Why no guest can be built or run here; empty if one can."""
    if os.uname().machine != "x86_64":
        return f"the guest is an x86_64 Debian; this machine is {os.uname().machine}"
    absent = sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=search_path()) is None})
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "building the guest's file system needs root"


def search_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def cache() -> Path:
    folder = os.environ.get("KILTER_TEST_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "kilter-tests")
    return Path(folder).expanduser()


def run(*argv: str | Path, text: str = "", env: dict[str, str] | None = None) -> str:
    """Output of a command. Raises with the end of what it said when it fails."""
    environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})}
    done = subprocess.run(
        [str(a) for a in argv], input=text, capture_output=True, text=True, check=False, env=environment, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def recipe() -> str:
    """Names all that goes into the image: these files, and QEMU's version, since a saved machine belongs to it."""
    parts = [path.read_bytes() for path in (HERE / "image.py", HERE / "agent.py", HERE / "machine.py")]
    return hashlib.sha256(b"\0".join([*parts, run("qemu-system-x86_64", "--version").encode()])).hexdigest()[:16]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One builder at a time; others wait and then find it built."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def packages(root: Path) -> None:
    """Debian into ``root``. The initramfs is told what it needs before the kernel's package makes it."""
    hook = (
        'mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"; '
        f"printf '{INITRAMFS}' > \"$1/etc/initramfs-tools/conf.d/guest\"; "
        f"printf '{INITRAMFS_MODULES}' > \"$1/usr/share/initramfs-tools/modules.d/guest\""
    ).replace("\n", "\\n")
    run(
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
        "--dpkgopt=force-unsafe-io",
        '--aptopt=Apt::Install-Recommends "false"',
        f"--essential-hook={hook}",
        SUITE,
        root,
        MIRROR,
    )
    shutil.rmtree(root / "etc/dpkg/dpkg.cfg.d", ignore_errors=True)


def settle(root: Path) -> None:
    """Our files, and a boot menu good for the first boot only."""
    for name, text in FILES.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(HERE / "agent.py", root / "usr/lib/guest-agent.py")
    run("chroot", root, "systemctl", "enable", "guest-agent.service")
    for timer in sorted(path.name for path in (root / "etc/systemd/system/timers.target.wants").iterdir()):
        run("chroot", root, "systemctl", "disable", timer)  # what they do by themselves would only disturb comparisons
    kernel = next((root / "boot").glob("vmlinuz-*")).name
    entry = f"linux /boot/{kernel} root=UUID={ROOT_UUID} ro console=ttyS0\ninitrd /boot/{kernel.replace('vmlinuz', 'initrd.img')}\nboot\n"
    (root / "boot/grub/grub.cfg").write_text(entry)


def disk(root: Path, path: Path) -> None:
    """A raw disk with one ext4 partition holding ``root``, and GRUB in front of it.

    GRUB: ``boot.img`` into the first sector up to the disk signature, the core image into the sectors after it; both have these places as default
    (GNU GRUB manual, "Embedded boot sector and core image"; grub-core/boot/i386/pc/{boot,diskboot}.S).
    """
    with path.open("wb") as file:
        file.truncate((SIZE_MIB + START_MIB) << 20)
    run("sfdisk", path, text=f"label: dos\nlabel-id: 0x6b6c7472\nstart={START_MIB}MiB, type=83, bootable\n")
    run(
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-U",
        ROOT_UUID,
        "-L",
        "root",
        "-E",
        f"offset={START_MIB << 20},lazy_itable_init=0,lazy_journal_init=0",
        "-J",
        "size=16",
        "-d",
        root,
        path,
        f"{SIZE_MIB}M",
    )
    core = root / "tmp/core.img"
    run(
        "chroot",
        root,
        "grub-mkimage",
        "-O",
        "i386-pc",
        "-p",
        "(hd0,msdos1)/boot/grub",
        "-o",
        "/tmp/core.img",
        "biosdisk",
        "part_msdos",
        "ext2",
        "normal",
        "linux",
    )
    boot = (root / "usr/lib/grub/i386-pc/boot.img").read_bytes()
    with path.open("r+b") as file:
        file.write(boot[:440])
        file.seek(512)
        file.write(core.read_bytes())


def first_boot(raw: Path) -> None:
    """Lets the guest install its own boot loader and menu, and do what systemd does once in a machine's life."""
    from integration.guest.guest import Guest

    with Guest(raw.parent, disk=raw, name="first") as guest:
        guest.boot(timeout_s=400)
        for command in ("grub-install /dev/vda", "update-grub", "grub-set-default 0", "systemctl --failed --plain --no-legend"):
            done = guest.run(command, timeout_s=300)
            if done.rc:
                raise RuntimeError(f"{command} in the guest ended with {done.rc}:\n{done.out}{done.err}")
        guest.power_off()


def second_boot(raw: Path, folder: Path) -> None:
    """A machine that has just booted, saved with its disk: tests start from it in a moment."""
    from integration.guest.guest import Guest, overlay

    overlay(raw, folder / "booted.qcow2")
    with Guest(folder, disk=folder / "booted.qcow2", name="second") as guest:
        guest.boot(timeout_s=400)
        guest.save(folder / "booted.state")


@dataclasses.dataclass(frozen=True)
class Machine:
    """A saved machine: tests start from it in a moment, on an overlay of its disk."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "booted.qcow2"

    @property
    def state(self) -> Path:
        return self.folder / "booted.state"


def build(folder: Path) -> None:
    times = []
    started = time.monotonic()

    def step(name: str) -> None:
        nonlocal started
        times.append(f"{name} {time.monotonic() - started:.0f} s")
        started = time.monotonic()

    root = folder / "root"
    packages(root)
    step("packages")
    settle(root)
    disk(root, folder / "disk.raw")
    shutil.rmtree(root)
    step("disk")
    first_boot(folder / "disk.raw")
    step("first boot")
    second_boot(folder / "disk.raw", folder)
    step("second boot")
    (folder / "times").write_text("\n".join(times) + "\n")


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache, made by ``make`` if it is not there, whole or not at all. Others of the same kind go."""
    kind = name.rpartition("-")[0]
    with locked(cache() / f"{kind}.lock"):
        place = cache() / name
        if not place.exists():
            for old in cache().glob(f"*{kind}-*"):
                shutil.rmtree(old)
            work = Path(tempfile.mkdtemp(prefix=f"making-{kind}-", dir=cache()))
            try:
                make(work)
                work.chmod(0o755)
                work.rename(place)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return place


def image() -> Machine:
    """A machine that has just booted. Skips the test where none can be built."""
    reason = missing()
    if reason:
        pytest.skip(f"no guest: {reason}")
    return Machine(kept(f"guest-{recipe()}", build))


def with_kilter() -> Machine:
    """The same with this kilter in /opt/kilter and ``kilter`` on the path."""
    from integration.guest.guest import Guest, overlay

    base = image()
    name = hashlib.sha256(f"{recipe()} {program.version()}".encode()).hexdigest()[:16]

    def install(folder: Path) -> None:
        made = Machine(folder)
        overlay(base.disk, made.disk)
        with Guest(folder, disk=made.disk, name="install") as guest:
            guest.resume(base.state)
            program.install(guest)
            guest.save(made.state)

    return Machine(kept(f"kilter-{name}", install))
