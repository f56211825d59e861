"""Boot loaders: where the kernel command line of the next boot stands, and how it is changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kilter.tune.apply.host import Host
from kilter.tune.apply.steps import Call, Put, Step

#: Parameters whose value is a list that several settings share; an element counts by its name before "=".
LISTS = ("pci", "module_blacklist", "modprobe.blacklist", "rd.driver.blacklist", "mitigations")


def words(line: str) -> list[str]:
    """The parameters of a command line; blanks inside double quotes belong to a value (Linux lib/cmdline.c, next_arg)."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', line)


def get(line: str, key: str) -> str | None:
    """The value of a parameter: the last one counts; "" for a flag, None where it is not given."""
    found = [word.partition("=")[2].strip('"') for word in words(line) if _key(word) == key]
    return found[-1] if found else None


def _key(word: str) -> str:
    return word.partition("=")[0]


def _quoted(key: str, value: str) -> str:
    if not value:
        return key
    return f'{key}="{value}"' if re.search(r"\s", value) else f"{key}={value}"


def with_parameter(line: str, key: str, value: str | None) -> str:
    """The line with a parameter set once, at the place where it stood, or at the end; None takes it away. Lists are merged."""
    kept: list[str] = []
    placed = value is None
    if value is not None and key in LISTS:
        value = merged(get(line, key) or "", value)
    for word in words(line):
        if _key(word) != key:
            kept.append(word)
        elif not placed and value is not None:
            kept.append(_quoted(key, value))
            placed = True
    if not placed and value is not None:
        kept.append(_quoted(key, value))
    return " ".join(kept)


def merged(old: str, new: str) -> str:
    """Elements of ``old``, those of ``new`` in their places or behind them: ``noaer,realloc=off`` and ``realloc`` -> ``noaer,realloc``."""
    found = [element for element in old.split(",") if element]
    for element in new.split(","):
        at = [n for n, one in enumerate(found) if _key(one) == _key(element)]
        if at:
            found[at[0]] = element
        elif element:
            found.append(element)
    return ",".join(found)


def holds(line: str, key: str, value: str | None) -> bool:
    """Whether a command line has what a change asks for."""
    now = get(line, key)
    if key in LISTS and now is not None and value is not None:
        return merged(now, value) == now
    return now == value


class Loader(NamedTuple):
    """How one boot loader is read and written. ``steps`` edit every place where an edit of a command line must go."""

    name: str
    line: Callable[[Host], str | None]  # of the entry that boots next
    steps: Callable[[Host, str, str | None], list[Step]]


# --- GRUB with /etc/default/grub

_DEFAULTS = "/etc/default/grub"
_DROPINS = "/etc/default/grub.d"
OWN = f"{_DROPINS}/zz-kilter.cfg"
_ASSIGNED = re.compile(
    r"^(?P<name>\s*(?:export\s+)?GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(?P<quote>[\"'])(?P<line>.*)(?P=quote)(?P<rest>[^\"']*)$"
)
_LINUX = re.compile(r"^\s*linux(?:16|efi)?\s+\S+\s*(?P<line>.*)$", re.MULTILINE)


def grub_cfg(host: Host) -> str | None:
    return next((path for path in ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg") if host.exists(path)), None)


def _grub_line(host: Host) -> str | None:
    path = grub_cfg(host)
    match = _LINUX.search(host.text(path) or "") if path else None
    return match["line"] if match else None


def regenerate(host: Host) -> list[Step]:
    """Make the menu of GRUB anew."""
    path = grub_cfg(host)
    if path is None:
        return []
    maker = ["grub-mkconfig", "-o", path] if host.has("grub-mkconfig") else ["grub2-mkconfig", "-o", path]
    return [Call(maker, touches=[path], again=maker)]


def _grub_steps(host: Host, key: str, value: str | None) -> list[Step]:
    steps: list[Step] = []
    placed = False
    reads_dropins = host.is_dir(_DROPINS)
    paths = [_DEFAULTS] + (
        [f"{_DROPINS}/{name}" for name in host.names(_DROPINS) if name.endswith(".cfg")] if reads_dropins else []
    )
    for path in paths:
        before = host.read(path)
        if before is None:
            continue
        lines = before.decode("utf-8", "surrogateescape").split("\n")
        for number, text in enumerate(lines):
            found = _ASSIGNED.match(text)
            if found is None or get(found["line"], key) is None:
                continue
            line = with_parameter(found["line"], key, None if placed else value)
            if path == OWN and line.strip() in ("$GRUB_CMDLINE_LINUX", ""):
                lines[number] = ""
            else:
                lines[number] = f"{found['name']}={found['quote']}{line}{found['quote']}{found['rest']}"
            placed = placed or value is not None
        after = "\n".join(lines).encode("utf-8", "surrogateescape")
        if after != before:
            emptied = path == OWN and not any(one.strip() and not one.startswith("#") for one in lines)
            steps.append(Put(path, None if emptied else after))
    if not placed and value is not None:
        steps.append(_own_default(host, key, value, reads_dropins))
    return [*steps, *regenerate(host)] if steps else []


def _own_default(host: Host, key: str, value: str, reads_dropins: bool) -> Step:
    """Where no file names the parameter yet: a drop-in where GRUB reads them (Debian, Ubuntu), else the file itself."""
    if reads_dropins:
        text = (host.read(OWN) or b"# Written by kilter; 'kilter tune rollback' takes it back.\n").decode()
        return Put(OWN, f'{text.rstrip()}\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {_quoted(key, value)}"\n'.encode())
    text = (host.read(_DEFAULTS) or b"").decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    for number, one in enumerate(lines):
        found = _ASSIGNED.match(one)
        if found is not None and not found["name"].strip().endswith("_DEFAULT"):
            line = with_parameter(found["line"], key, value)
            lines[number] = f"{found['name']}={found['quote']}{line}{found['quote']}{found['rest']}"
            return Put(_DEFAULTS, "\n".join(lines).encode("utf-8", "surrogateescape"))
    return Put(
        _DEFAULTS, f'{text.rstrip()}\nGRUB_CMDLINE_LINUX="{_quoted(key, value)}"\n'.lstrip().encode("utf-8", "surrogateescape")
    )


# --- Boot Loader Specification: entries of their own (RHEL and Fedora with GRUB, systemd-boot)

_ENTRIES = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")
_OPTIONS = re.compile(r"^options[ \t]+(.*)$", re.MULTILINE)
_KERNEL_CMDLINE = "/etc/kernel/cmdline"


def entries(host: Host) -> list[str]:
    return [f"{folder}/{name}" for folder in _ENTRIES for name in host.names(folder) if name.endswith(".conf")]


def _bls_line(host: Host) -> str | None:
    """Of the entry with the newest version, which boots unless another was chosen."""
    lines = [match[1] for path in entries(host) if (match := _OPTIONS.search(host.text(path) or ""))]
    return lines[-1] if lines else None


def _bls_steps(host: Host, key: str, value: str | None) -> list[Step]:
    steps: list[Step] = []
    paths = entries(host)
    if any("$kernelopts" in (host.text(path) or "") for path in paths):
        argument = key if not value else f"{key}={value}"
        change = f"--remove-args={key}" if value is None else f"--args={argument}"
        environment = [path for path in ("/boot/grub2/grubenv",) if host.exists(path)]
        return [Call(["grubby", "--update-kernel=ALL", change], touches=[*paths, *environment, _DEFAULTS])]
    for path in paths:
        before = (host.read(path) or b"").decode("utf-8", "surrogateescape")
        after = _OPTIONS.sub(lambda match: f"options {with_parameter(match[1], key, value)}", before)
        if after != before:
            steps.append(Put(path, after.encode("utf-8", "surrogateescape")))
    line = host.text(_KERNEL_CMDLINE)
    if line is not None and (new := with_parameter(line, key, value)) != " ".join(words(line)):
        steps.append(Put(_KERNEL_CMDLINE, f"{new}\n".encode("utf-8", "surrogateescape")))
    if host.exists(_DEFAULTS) and host.exists("/boot/grub2"):
        # Kernels that are installed later take their line from here.
        steps += [step for step in _grub_steps(host, key, value) if isinstance(step, Put)]
    return steps


# --- rpm-ostree


def _ostree_line(host: Host) -> str | None:
    done = host.run(["rpm-ostree", "kargs"], limit_s=120)
    return done.output.strip() if done.code == 0 else None


def _ostree_steps(host: Host, key: str, value: str | None) -> list[Step]:
    line = _ostree_line(host) or ""
    was = get(line, key)
    forth = ["rpm-ostree", "kargs"]
    back = ["rpm-ostree", "kargs"]
    old = [word for word in words(line) if _key(word) == key]
    if value is None:
        forth += [f"--delete={word}" for word in old]
        back += [f"--append={word}" for word in old]
    else:
        new = _quoted(key, merged(was or "", value) if key in LISTS else value)
        forth += [*(f"--delete={word}" for word in old), f"--append={new}"]
        back += [f"--delete={new}", *(f"--append={word}" for word in old)]
    return [Call(forth, undo=[back])]


LOADERS = {
    "rpm-ostree": Loader("rpm-ostree", _ostree_line, _ostree_steps),
    "entries": Loader("boot loader entries", _bls_line, _bls_steps),
    "GRUB": Loader("GRUB", _grub_line, _grub_steps),
}


def loader(host: Host) -> Loader | None:
    """The boot loader of this host; None where none is found whose line can be changed."""
    if host.exists("/run/ostree-booted"):
        return LOADERS["rpm-ostree"] if host.has("rpm-ostree") else None
    if entries(host):
        return LOADERS["entries"]
    return LOADERS["GRUB"] if host.exists(_DEFAULTS) and grub_cfg(host) else None
