"""Readers: where a text sets a variable of NCCL, CUDA, PyTorch, a plugin or an engine. One pass over the lines, by what they look like."""

from __future__ import annotations

import re

import msgspec

#: Families of variables that are looked at.
_NAME = r"(?:NCCL|TORCH_NCCL|TORCH|PYTORCH|CUDA|FI|OFI_NCCL|RDMAV|UCX|NVSHMEM|OMP|VLLM|SGLANG|SGL|NVTE|BKCL)_[A-Z0-9_]+"
_ANY = re.compile(_NAME)
#: NAME=value where a shell, Docker's ENV, mpirun -x, docker -e, srun --export or an env file sets it.
_ASSIGNED = re.compile(
    rf"(?<![\w$/.\"'{{-])(?:[\"'])?(?P<name>{_NAME})=(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\"';&|)\\,]|\\.|,(?!\w+=))*)"
)
_PYTHON = re.compile(
    rf"environ(?:\.setdefault\(\s*|\[\s*)[\"'](?P<name>{_NAME})[\"']\s*(?:\]\s*=|,)\s*(?:str\()?[\"']?(?P<value>[^\"')\s]*)"
)
_ENV_WORD = re.compile(rf"^\s*(?:ENV|setenv)\s+(?P<name>{_NAME})\s+(?P<value>\S.*)$")
_YAML_NAME = re.compile(
    rf"^(?P<indent>\s*)(?:- )?\{{?\s*[\"']?name[\"']?\s*:\s*[\"']?(?P<name>{_NAME})[\"']?\s*"
    r"(?:,\s*[\"']?value[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^,}\s]*))?"
)
_YAML_VALUE = re.compile(r"^\s*[\"']?value[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^#,}]*)")
_YAML_PAIR = re.compile(rf"^\s*[\"']?(?P<name>{_NAME})[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^#,}}]*)")
_LOG = re.compile(rf"(?P<name>{_NAME}) set by environment to (?P<value>.*?)\.?$")
_UNSET = re.compile(rf"\bunset\b(?P<names>(?:\s+{_NAME})+)")
_MAX_LINE = 1 << 16


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place that sets a variable; ``value`` None = unset there. Line and column count from 1."""

    name: str
    value: str | None
    file: str
    line: int
    column: int = 1
    length: int = 0  # of the text that sets it
    plain: bool = False  # a variable of the script itself, which no program need ever see


def is_conf(file: str, text: str) -> bool:
    """Whether a text is NCCL's own configuration file: it is named so, and holds variables of NCCL alone."""
    return bool(re.search(r"\bnccl[\w-]*\.conf$", file))


def settings(text: str, file: str) -> list[Setting]:
    """Every setting of a text in its order."""
    if not _ANY.search(text):
        return []
    found: list[Setting] = []
    conf = is_conf(file, text)
    pending: tuple[str, int, int] | None = None  # a name of a YAML list, whose value is on one of the next lines
    for number, line in enumerate(text.splitlines(), 1):
        if pending is not None:
            value = _YAML_VALUE.match(line)
            if value is not None:
                found.append(Setting(pending[0], _plain(value["value"]), file, pending[1], pending[2], len(pending[0])))
                pending = None
                continue
            if number - pending[1] > 2:
                pending = None
        if len(line) > _MAX_LINE or _ANY.search(line) is None:
            continue
        if conf:
            name, equals, rest = line.partition("=")
            if equals and not line.startswith("#"):
                found.append(Setting(name, rest, file, number, 1, len(line)))
            continue
        code = _without_comment(line)
        listed = _YAML_NAME.match(code)
        if listed is not None:
            if listed["value"] is not None:
                found.append(
                    Setting(listed["name"], _plain(listed["value"]), file, number, listed.start("name") + 1, len(listed["name"]))
                )
            else:
                pending = (listed["name"], number, listed.start("name") + 1)
            continue
        found += _of_line(code, file, number)
    return found


def _of_line(code: str, file: str, number: int) -> list[Setting]:
    found: list[Setting] = []
    matches = list(_ASSIGNED.finditer(code))
    if not matches:
        matches = [match for pattern in (_PYTHON, _ENV_WORD, _LOG) if (match := pattern.search(code)) is not None][:1]
    if not matches and (pair := _YAML_PAIR.match(code)) is not None and pair["value"].strip():
        matches.append(pair)
    for match in matches:
        if re.search(r"\bARG\s*$", code[: match.start()]):
            continue  # of a build
        value = _plain(match["value"])
        if value.startswith(("$", "{{")) or "$(" in value or value in ("null", "~", "None"):
            continue  # what it will be is not known
        plain = not code[: match.start()].strip() and not code[match.end() :].strip()
        found.append(
            Setting(match["name"], value, file, number, match.start("name") + 1, match.end() - match.start("name"), plain)
        )
    unset = [name for match in _UNSET.finditer(code) for name in match["names"].split()]
    found += [Setting(name, None, file, number, code.index(name) + 1, len(name)) for name in unset]
    return found


def _plain(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return value.strip()


def _without_comment(line: str) -> str:
    """The line up to a comment; ``#`` inside quotes or a word is none, and ``#SBATCH --export`` is a setting."""
    if "#" not in line or line.startswith("#SBATCH"):
        return line
    quote = ""
    for index, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "#" and (index == 0 or line[index - 1] in " \t;"):
            return line[:index]
    return line
