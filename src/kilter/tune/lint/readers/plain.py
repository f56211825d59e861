"""Texts of one setting a line: /etc/nccl.conf, ``env`` output and env files, TOML, Python's os.environ, NCCL's log."""

from __future__ import annotations

import re

from kilter.tune.lint.readers.shell import plain_value, without_comment
from kilter.tune.lint.setting import ANY, FAMILY, MAX_LINE, Edit, Setting, Span

_PYTHON = re.compile(
    rf"(?:environ|env|envs|env_vars|environment)(?:\.setdefault\(\s*|\[\s*)[\"'](?P<name>{FAMILY})[\"']\s*(?:\]\s*=(?!=)|,)\s*"
    r"(?:str\(\s*)?(?:(?P<quote>[\"'])(?P<text>[^\"'\\]*)(?P=quote)|(?P<number>-?\d+)\b|(?P<other>\S.*))"
    rf"|putenv\(\s*[\"'](?P<name2>{FAMILY})[\"']\s*,\s*[\"'](?P<text2>[^\"']*)[\"']"
    rf"|^\s*[\"'](?P<name3>{FAMILY})[\"']\s*:\s*[\"'](?P<text3>[^\"']*)[\"']\s*,?\s*$"
)
_LOG = re.compile(rf"(?P<name>{FAMILY}) set by environment to (?P<value>.*?)\.?\s*$")
_TOML = re.compile(rf"^\s*[\"']?(?P<name>{FAMILY})[\"']?\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^#\s]+)\s*(?:#.*)?$")
_PAIR = re.compile(rf"^(?:export\s+)?(?P<name>{FAMILY})=(?P<value>.*)$")


def read_conf(text: str, file: str) -> list[Setting]:
    """NCCL's own file: ``NAME=value`` to the end of the line, blanks and all; ``#`` in the first column is a comment
    (NVIDIA/nccl src/misc/param.cc). Names are those of the families, with what the line has around them."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if len(line) > MAX_LINE or not equals or line.startswith("#") or ANY.search(name) is None:
            continue
        edit = Edit(Span(number, 0, len(name)), Span(number, len(name) + 1, len(line)), [Span(number, 0, -1)])
        found.append(Setting(name, value, file, number, 1, len(line), verbatim=True, edit=edit))
    return found


def read_pairs(text: str, file: str) -> list[Setting]:
    """``env`` output and env files."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _PAIR.match(line) if len(line) <= MAX_LINE else None
        if match is not None:
            value, known = plain_value(match["value"])
            edit = Edit(Span(number, *match.span("name")), Span(number, *match.span("value")), [Span(number, 0, -1)])
            found.append(
                Setting(
                    match["name"],
                    value,
                    file,
                    number,
                    match.start("name") + 1,
                    match.end() - match.start("name"),
                    known=known,
                    edit=edit,
                )
            )
    return found


def read_toml(text: str, file: str) -> list[Setting]:
    found = []
    scope: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            scope = (line.strip(),)
        match = _TOML.match(line) if len(line) <= MAX_LINE and ANY.search(line) else None
        if match is not None:
            value, known = plain_value(match["value"])
            edit = Edit(Span(number, *match.span("name")), None, [Span(number, 0, -1)])
            found.append(
                Setting(
                    match["name"],
                    value,
                    file,
                    number,
                    match.start("name") + 1,
                    len(match["name"]),
                    known=known,
                    scope=scope,
                    edit=edit,
                )
            )
    return found


def read_python(text: str, file: str) -> list[Setting]:
    """Assignments to ``os.environ`` and to dictionaries of variables. What an expression gives is not known."""
    found = []
    docstring = False
    for number, line in enumerate(text.splitlines(), 1):
        quotes = line.count('"""') + line.count("'''")
        inside, docstring = docstring, docstring ^ bool(quotes % 2)
        if inside or len(line) > MAX_LINE or ANY.search(line) is None:
            continue
        match = _PYTHON.search(without_comment(line))
        if match is None:
            continue
        group = "name" if match["name"] else "name2" if match["name2"] else "name3"
        said = next((match[one] for one in ("text", "text2", "text3", "number") if match[one] is not None), None)
        # Python sets and resets variables around calls: each function is its own place.
        edit = Edit(Span(number, *match.span(group)))
        found.append(
            Setting(
                match[group], said or "", file, number, match.start(group) + 1, len(match[group]),
                known=said is not None, scope=(f"line {number}",), edit=edit,
            )
        )  # fmt: skip
    return found


def read_log(text: str, file: str) -> list[Setting]:
    """What NCCL says of its variables; what many ranks say alike stands once."""
    found: dict[tuple[str, str], Setting] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LOG.search(line) if len(line) <= MAX_LINE and "set by environment to" in line else None
        if match is not None and (match["name"], match["value"]) not in found:
            name, value = match["name"], match["value"].strip()
            found[name, match["value"]] = Setting(
                name, value, file, number, match.start("name") + 1, match.end() - match.start("name")
            )
    return list(found.values())
