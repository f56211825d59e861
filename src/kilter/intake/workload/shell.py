"""Command lines of a job script, as far as they can be known without running it: variables, arrays and defaults are put in."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

_MAX_TEXT = 1 << 20
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?-(?P<default>[^}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)")
_ASSIGNED = re.compile(r"(?:export\s+|readonly\s+|local\s+|declare\s+(?:-\w+\s+)*)?(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=")
_SUM = re.compile(r"\$\(\(\s*(\d{1,9})\s*([-+*/])\s*(\d{1,9})\s*\)\)")
_ENDS = {";", "&&", "||", "|", "&", "(", ")", "{", "}", "then", "do", "else", "if", "time", "exec", "sudo", "nohup"}


class Command(NamedTuple):
    """One command: its words, and the variables set for it (by ``export`` before it, or in front of it)."""

    words: list[str]
    environment: dict[str, str]
    line: int


def _is_open(text: str) -> bool:
    """Whether an array or a text in double quotes goes on in the next line."""
    outside = re.sub(r"\\.|'[^']*'", "", text)
    if outside.count('"') % 2:
        return True
    array = re.search(r"(?:^|\s)[A-Za-z_]\w*\+?=\((.*)$", re.sub(r'"[^"]*"', "", outside))
    return array is not None and array[1].count("(") >= array[1].count(")")


def _joined(text: str) -> list[tuple[int, str]]:
    """Logical lines: continuations, and arrays up to their closing bracket, are one line."""
    found: list[tuple[int, str]] = []
    held, start = "", 0
    for number, line in enumerate(text[:_MAX_TEXT].splitlines(), 1):
        start = start or number
        stripped = re.sub(r"(^|\s)#(?!SBATCH).*$", r"\1", line) if "#" in line and not line.startswith("#SBATCH") else line
        if stripped.rstrip().endswith("\\"):
            held += stripped.rstrip()[:-1] + " "
            continue
        held += stripped
        if _is_open(held) and len(held) < 1 << 16:
            held += " "
            continue
        found.append((start, held))
        held, start = "", 0
    return [*found, (start, held)] if held else found


def _expand(text: str, variables: dict[str, str]) -> str:
    """Variables outside single quotes; those that are not known stay as they are written."""

    def value(match: re.Match[str]) -> str:
        name = match["name"] or match["plain"]
        return variables.get(name, match["default"] if match["default"] is not None else match[0])

    # "${ARGS[@]}" is as many words as the array has, though it stands in quotes.
    text = re.sub(r'"(\$\{[A-Za-z_]\w*\[[@*]\]\})"', r"\1", text)
    for _ in range(5):
        parts = re.split(r"('[^']*')", text)
        new = "".join(part if part.startswith("'") else _VARIABLE.sub(value, part) for part in parts)
        new = _SUM.sub(_computed, new)
        if new == text or len(new) > 1 << 17:
            break
        text = new
    return text


def _computed(match: re.Match[str]) -> str:
    left, right = int(match[1]), int(match[3])
    if match[2] == "/":
        return str(left // right) if right else match[0]
    return str({"+": left + right, "-": left - right, "*": left * right}[match[2]])


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quote that never ends
        return text.split()


def commands(text: str, environment: dict[str, str] | None = None) -> list[Command]:
    """The commands of a script or of one pasted line, in their order."""
    variables: dict[str, str] = dict(environment or {})
    exported: dict[str, str] = dict(environment or {})
    found: list[Command] = []
    for number, line in _joined(text):
        array = re.match(r"\s*(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=\((?P<body>.*)\)\s*$", line)
        if array is not None:
            body = _expand(array["body"], variables).strip()
            variables[array["name"]] = f"{variables.get(array['name'], '')} {body}".strip() if array["more"] else body
            continue
        run: list[str] = []
        for word in [*_words(_expand(line, variables)), ";"]:
            if word in _ENDS or set(word) <= set(";&|()"):
                _finish(run, number, variables, exported, found)
                run = []
            else:
                run.append(word)
    return found


def _finish(run: list[str], number: int, variables: dict[str, str], exported: dict[str, str], found: list[Command]) -> None:
    exports = run[:1] == ["export"]
    words = run[1:] if exports else run
    own: dict[str, str] = {}
    while words and (match := _ASSIGNED.match(words[0])) is not None:
        value = words[0][match.end() :]
        own[match["name"]] = variables.get(match["name"], "") + value if match["more"] else value
        words = words[1:]
    if not words or exports:
        variables |= own
        exported |= {name: value for name, value in own.items() if exports or name in exported}
        return
    if words[0] == "unset":
        for name in words[1:]:
            exported.pop(name, None)
        return
    found.append(Command(words, {**exported, **own}, number))
    if "-c" in words[:-1] and any(re.search(r"(?:^|/)(?:ba)?sh$", word) for word in words):
        inner = words[words.index("-c") + 1]
        found += [command._replace(line=number) for command in commands(inner, {**exported, **own})]
