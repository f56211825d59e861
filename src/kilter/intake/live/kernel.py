"""The kernel: release, boot line, taint, modules with parameters, sysctls, build configuration, IOMMU groups."""

from __future__ import annotations

import os
import re
import zlib

from kilter.facts.base import Reason
from kilter.facts.host import Kernel, Module
from kilter.intake.live.kernel_names import CONF_SYSCTLS, CONFIG_EXACT, CONFIG_PREFIX, PARAMETER_MODULES, SYSCTLS
from kilter.intake.live.places import Places, integer

#: Of a text that shows more of /proc/sys: what counts as a setting. The rest of kernel/ is identity, told elsewhere.
_SYSCTL_TREES = ("vm/", "kernel/", "fs/", "net/", "sunrpc/")
_NO_SYSCTLS = tuple(
    f"kernel/{name}" for name in ("hostname", "domainname", "osrelease", "ostype", "version", "arch", "tainted", "random/")
)

_MAX_CONFIG = 4 << 20


def config_options(text: str) -> dict[str, str]:
    """The options of :mod:`kernel_names` in a kernel build configuration: y, m, n ("is not set"), or the value without quotes."""
    found = {}
    for line in text.splitlines():
        if line.startswith("CONFIG_"):
            name, _, value = line[7:].partition("=")
            value = value.strip().strip('"')
        elif line.startswith("# CONFIG_") and line.endswith(" is not set"):
            name, value = line[9 : -len(" is not set")], "n"
        else:
            continue
        if name in CONFIG_EXACT or name.startswith(CONFIG_PREFIX):
            found[f"CONFIG_{name}"] = value
    return found


def _inflate(data: bytes) -> str:
    """Text of a gzip file, bounded."""
    try:
        return zlib.decompressobj(31).decompress(data, _MAX_CONFIG).decode("utf-8", "replace")
    except zlib.error:
        return ""


def _config(places: Places, kernel: Kernel) -> None:
    tree = places.tree
    release = kernel.release or ""
    paths = ["/proc/config.gz"]
    if release and "/" not in release:
        paths += [f"/boot/config-{release}", f"/lib/modules/{release}/config", f"/usr/lib/modules/{release}/config"]
    for path in paths:
        if path.endswith(".gz"):
            # A text holds the options themselves under this name, as the collector script writes them.
            data = None if places.is_text else tree.read_bytes(path)
            text = _inflate(data) if data else tree.read(path) or "" if places.is_text else ""
        else:
            text = tree.read(path) or ""
        if text and (found := config_options(text)):
            kernel.put("config", found, places.ref(path, path))
            return
    if not places.is_text:
        kernel.lacks("config", Reason.ABSENT, f"none of {', '.join(paths)} holds a configuration")


def parse_modules(text: str) -> dict[str, Module]:
    """``/proc/modules``: name, size, reference count, users, state, address (Linux ``kernel/module/procfs.c``)."""
    found = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) < 4 or integer(parts[1]) is None:
            continue
        users = [user for user in parts[3].split(",") if user and user != "-" and not user.startswith("[")]
        found[parts[0]] = Module(name=parts[0], size_bytes=integer(parts[1]), used_by=users)
    return found


def _modules(places: Places, kernel: Kernel) -> None:
    """Loaded modules, with version and parameters of those that matter.

    Code built into the kernel has parameters in ``/sys/module`` too: it appears without size, and only if it has some that
    matter.
    """
    tree = places.tree
    text = tree.read("/proc/modules")
    names = tree.names("/sys/module")
    if text is None and not names:
        return
    modules = parse_modules(text or "")
    for name, module in modules.items():
        module.origin[""] = places.ref("/proc/modules", "/proc/modules")
        if places.is_text:
            module.origin[""] = _line_of(module.origin[""], text or "", name)
    for name in names:
        folder = places.folder(f"/sys/module/{name}")
        wanted = name.startswith(PARAMETER_MODULES)
        if name not in modules:
            # Without /proc/modules, "initstate" marks a loadable module (built-in code has none).
            loadable = tree.exists(folder.path("initstate")) or (text is None and folder.text("version") is not None)
            if not loadable and not (wanted and tree.names(folder.path("parameters"))):
                continue
            modules[name] = Module(name=name, origin={"": folder.ref("version" if loadable else "parameters")})
        if not wanted:
            continue
        module = modules[name]
        version = folder.text("version")
        module.put("version", version, places.ref(folder.path("version"), "/sys/module"))
        parameters = {
            parameter: value
            for parameter in folder.names("parameters")
            if (value := folder.text(f"parameters/{parameter}")) is not None
        }
        if parameters:
            module.put("parameters", parameters, places.ref(folder.path(f"parameters/{next(iter(parameters))}"), "/sys/module"))
    _driver_parameters(places, modules)
    loadable = any(module.version or tree.exists(f"/sys/module/{name}/initstate") for name, module in modules.items())
    if text is None and not places.is_text and not loadable:
        kernel.lacks("modules", Reason.ABSENT, "/proc/modules does not exist: a kernel without loadable modules")
        return
    kernel.put(
        "modules",
        modules,
        places.ref(
            "/proc/modules" if text is not None else "/sys/module", "/proc/modules" if text is not None else "/sys/module"
        ),
    )


def _driver_parameters(places: Places, modules: dict[str, Module]) -> None:
    """``/proc/driver/nvidia/params``: the NVIDIA driver's keys in force, as it understood its module parameters."""
    text = places.tree.read("/proc/driver/nvidia/params")
    if not text or "nvidia" not in modules:
        return
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().isidentifier():
            found[name.strip()] = value.strip().strip('"')
    modules["nvidia"].parameters = {**modules["nvidia"].parameters, **found}
    modules["nvidia"].origin.setdefault("parameters", places.ref("/proc/driver/nvidia/params", "/proc/driver/nvidia"))


def _line_of(ref: tuple[int, int], text: str, name: str) -> tuple[int, int]:
    """The line of a module in a text that holds /proc/modules from line ``ref[1]`` on."""
    for number, line in enumerate(text.splitlines()):
        if line.startswith(f"{name} "):
            return (ref[0], ref[1] + number)
    return ref


def _sysctls(places: Places, kernel: Kernel) -> None:
    tree = places.tree
    found: dict[str, str] = {}
    if places.is_text:
        paths = [path.removeprefix("/proc/sys/") for path in places.walk("/proc/sys") if path.startswith("/proc/sys/")]
        paths = [path for path in paths if path.startswith(_SYSCTL_TREES) and not path.startswith(_NO_SYSCTLS)]
    else:
        interfaces = ["all", "default"]
        names = tree.names("/proc/sys/net/ipv4/conf")
        interfaces += [name for name in names if tree.exists(f"/sys/class/net/{name}/device")]
        paths = [*SYSCTLS, *(f"net/ipv4/conf/{name}/{key}" for name in interfaces for key in CONF_SYSCTLS)]
    for path in paths:
        value = tree.read(f"/proc/sys/{path}")
        if value is not None:
            # Interface names may hold dots; sysctl(8) then keeps the slashes' place by swapping both.
            key = path.translate(str.maketrans("./", "/."))
            found[key] = re.sub(r"\s+", " ", value.strip())
            if places.is_text:
                kernel.origin[f"sysctls.{key}"] = places.ref(f"/proc/sys/{path}", "/proc/sys")
    if found:
        kernel.sysctls = {**kernel.sysctls, **found}
        kernel.origin["sysctls"] = places.ref(f"/proc/sys/{paths[0]}", "/proc/sys")


def read(places: Places) -> None:
    """Fill ``snapshot.kernel``."""
    kernel, tree = places.snapshot.kernel, places.tree
    proc = places.folder("/proc/sys/kernel")
    for field, name in (("release", "osrelease"), ("version", "version"), ("arch", "arch")):
        if tree.exists(proc.path(name)):
            proc.take(kernel, field, name)
    banner = tree.read("/proc/version")
    if banner and (match := re.match(r"Linux version (\S+) .*?(#\d.*)$", banner, re.DOTALL)):
        ref = places.ref("/proc/version", "/proc/version")
        if kernel.release is None:
            kernel.put("release", match[1], ref)
        if kernel.version is None:
            kernel.put("version", match[2].strip(), ref)
    if places.is_live:
        if kernel.arch is None:
            kernel.put("arch", os.uname().machine, places.ref("/proc/version", "/proc/version"))
        kernel.put("page_bytes", os.sysconf("SC_PAGESIZE"), places.ref("/proc/version", "/proc/version"))
    cmdline = tree.read("/proc/cmdline")
    kernel.put("cmdline", cmdline.strip() if cmdline else None, places.ref("/proc/cmdline", "/proc/cmdline"))
    if tree.exists(proc.path("tainted")):
        proc.take(kernel, "tainted", "tainted", integer)
    _config(places, kernel)
    _modules(places, kernel)
    _sysctls(places, kernel)
    groups = "/sys/kernel/iommu_groups"
    if tree.exists(groups) or (not places.is_text and tree.exists("/sys/kernel") and tree.names("/sys/kernel")):
        kernel.put("iommu_groups", len(tree.names(groups)), places.ref(groups, groups))
