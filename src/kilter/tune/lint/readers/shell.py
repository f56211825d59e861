"""Shell scripts, Slurm batch files, Dockerfiles, command lines: every form in which a line sets a variable.

Forms: Bash manual (export, declare, env, here documents), Slurm sbatch(1) and srun(1) ``--export``, Open MPI mpirun(1) ``-x``, docker run
``-e`` and ``--env``, Dockerfile reference ENV, systemd.exec(5) Environment=.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.tune.lint.readers.blocks import Blocks
from kilter.tune.lint.setting import ANY, FAMILY, MAX_LINE, Edit, Setting, Span

#: The name at one word's beginning, and its value: quoted, or up to the end of the word. ``,X=`` begins the next of --export's list.
_ASSIGNED = re.compile(
    rf"(?<![\w$/.{{-])(?P<quote>[\"'])?(?P<name>{FAMILY})\+?="
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\{[^}]*\}|\$\([^)]*\)|(?:[^\s\"';&|)\\,`]|\\.|,(?!\w+=))*)"
)
_DEFAULTED = re.compile(rf"\$\{{(?P<name>{FAMILY}):?=(?P<value>[^}}]*)\}}")
_ENV_WORD = re.compile(rf"^\s*(?:ENV|setenv)\s+(?P<name>{FAMILY})\s+(?P<value>[^\s=].*?)\s*$")
_LUA = re.compile(rf"^\s*(?:setenv|pushenv)\s*\(\s*[\"'](?P<name>{FAMILY})[\"']\s*,\s*[\"'](?P<value>[^\"']*)[\"']\s*\)")
#: YAML that a script writes in a here document.
_YAML = re.compile(rf"^\s*[\"']?(?P<name>{FAMILY})[\"']?\s*:\s+(?P<value>\"[^\"]*\"|'[^']*'|[^\s#,}}][^#,}}]*)")
_UNSET = re.compile(r"\bunset\b(?P<names>(?:\s+-v)?(?:\s+\w+)+)|\benv\s(?:[^;&|]*\s)?(?:-u\s*|--unset=)(?P<one>\w+)")
_SEPARATOR = re.compile(r"&&|\|\||[;|&(){}`]|\b(?:then|do|else)\b")
_DEFAULT = re.compile(r"\$\{\w+:?-(?P<value>[^${}]*)\}$")
_OPTION = re.compile(r"(?:^|\s)(?P<option>-x|-e|--env|--envs|-env|-genv|--export|-E)(?:\s+|=)[\"']?$")
_DECLARES = {
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "ENV",
    "setenv",
    "set",
    "builtin",
    "RUN",
    "sudo",
    "command",
    "exec",
}
_SAYS = {
    "echo",
    "printf",
    "print",
    "log",
    "info",
    "warn",
    "error",
    "die",
    "logger",
    "cat",
    "grep",
    "egrep",
    "rg",
    "awk",
    "sed",
    "test",
}
_SAYS |= {"[", "[[", "if", "elif", "while", "LABEL", "ARG", "COMMENT", "#"}
_WRITES = re.compile(r">>?\s*[^&\s]|\|\s*(?:sudo\s+)?tee\b")
_CONDITION = re.compile(r"^\s*(?:\[|\(\(|test\b|!|command\b|which\b|grep\b|lspci\b|nvidia-smi\b)")


def read_shell(text: str, file: str, scope: tuple[str, ...] = (), first: int = 1, *, prose: bool = False) -> list[Setting]:
    """The settings of a script, whose first line is line ``first`` of the file. ``prose``: it may be a sentence as well."""
    found: list[Setting] = []
    blocks = Blocks(scope)
    head, continued = "", False  # the first word of a command that goes on over several lines
    for number, line in enumerate(text.splitlines(), first):
        if len(line) > MAX_LINE:
            continue
        code = without_comment(line)
        if not blocks.line(code, number):
            continue
        if not continued:
            head = ""
        if ANY.search(code) is not None:
            found += _of_line(code, file, number, blocks, head, prose=prose)
        continued = code.rstrip().endswith("\\")
        if continued and not head:
            head = _first_word(code)
    return found


def _first_word(code: str) -> str:
    words = code.split(None, 1)
    return words[0] if words else ""


def _of_line(code: str, file: str, number: int, blocks: Blocks, head: str, *, prose: bool) -> Iterator[Setting]:
    taken = False
    for match in _ASSIGNED.finditer(code):
        taken = True
        setting = _assigned(match, code, file, number, blocks, head, prose=prose)
        if setting is not None:
            yield setting
    if not taken:
        for pattern in (_ENV_WORD, _LUA, _DEFAULTED, *((_YAML,) if blocks.in_document else ())):
            word = pattern.search(code)
            if word is not None and word["value"].strip() not in ("null", "~"):
                value, known = plain_value(word["value"])
                edit = Edit(
                    Span(number, *word.span("name")),
                    Span(number, *word.span("value")),
                    [] if pattern is _DEFAULTED else [Span(number, 0, -1)],
                )
                yield Setting(
                    word["name"], value, file, number, word.start("name") + 1, word.end() - word.start("name"),
                    known=known, scope=blocks.scope, branch=blocks.branch_at(word.start()), edit=edit,
                )  # fmt: skip
                break
    if "unset" in code or "env " in code:
        for match in _UNSET.finditer(code):
            for name in (match["names"] or match["one"] or "").split():
                if ANY.fullmatch(name):
                    scope = (*blocks.scope, f"command of line {number}") if match["one"] else blocks.scope
                    yield Setting(
                        name,
                        None,
                        file,
                        number,
                        code.index(name, match.start()) + 1,
                        len(name),
                        scope=scope,
                        branch=blocks.branch_at(match.start()),
                    )


def _assigned(
    match: re.Match[str], code: str, file: str, number: int, blocks: Blocks, head: str, *, prose: bool
) -> Setting | None:
    before, after = code[: match.start()], code[match.end() :]
    segment, condition = _segment(before)
    words = segment.split()
    first = words[0].lstrip("@-+\"'") if words else ("" if segment != before or not head else head)
    option = _OPTION.search(before)
    quoted = _inside_quotes(before)
    if first in _SAYS and option is None and not _WRITES.search(after):
        return None
    if (quoted or prose) and option is None and not _starts_word(before, words):
        return None  # prose
    if first == "ARG" or (words and words[-1] == "ARG"):
        return None
    value, known = plain_value(match["value"])
    start, end = match.start("name"), match.end()
    if match["quote"]:  # -e "NAME=value with blanks"
        closing = code.find(match["quote"], match.end())
        if closing >= 0 and match["value"][:1] not in ("'", '"'):
            value, known = plain_value(code[match.start("value") : closing])
            end = closing
            after = code[closing + 1 :]
    tail = after.strip()
    statement = (not words or words[0] in _DECLARES or all("=" in word for word in words)) and not head
    inline = statement and (not words or words[0] not in _DECLARES) and _command_follows(tail)
    scope = (*blocks.scope, f"command of line {number}") if inline or option is not None else blocks.scope
    branch = blocks.branch_at(match.start())
    if condition:
        branch = (*branch, f"list of line {number}")
    value_start = match.start("value") + (1 if match["value"][:1] in ("'", '"') else 0)
    value_end = (end if match["quote"] else match.end("value")) - (1 if match["value"][:1] in ("'", '"') else 0)
    edit = Edit(
        Span(number, start, match.end("name")),
        Span(number, value_start, max(value_start, value_end)),
        _cut(code, number, match, end, option),
    )
    return Setting(
        match["name"], value, file, number, start + 1, end - start,
        plain=statement and not inline and option is None and not quoted and _is_own(words), known=known, scope=scope, branch=branch, edit=edit,
    )  # fmt: skip


def _is_own(words: list[str]) -> bool:
    """Whether an assignment after these words stays in the script: no ``export``, no ``declare -x``."""
    return all("=" in word or word in ("local", "readonly", "declare", "typeset") for word in words)


def _segment(before: str) -> tuple[str, bool]:
    """The command's words before a place, and whether it runs only if what stands before it succeeds or fails."""
    last, condition = 0, False
    for match in _SEPARATOR.finditer(before):
        if before[max(0, match.start() - 1) : match.start()] in ("$", "\\") or (match[0] in "{(" and before[:1] == "#"):
            continue
        if match[0] == "||" or (match[0] == "&&" and _CONDITION.match(before[last : match.start()])):
            condition = True
        elif match[0] == ";":
            condition = False
        last = match.end()
    segment = before[last:]
    return (segment if segment.strip() else ""), condition


def _inside_quotes(before: str) -> bool:
    quote = ""
    for index, sign in enumerate(before):
        if quote:
            if sign == quote and not (sign == '"' and before[index - 1] == "\\"):
                quote = ""
        elif sign in "\"'" and (index == 0 or before[index - 1] != "\\"):
            quote = sign
    return bool(quote)


def _starts_word(before: str, words: list[str]) -> bool:
    """Whether what stands in quotes before a place lets a setting follow, not prose."""
    inside = re.split(r"[\"']", before)[-1]
    if not inside.strip() or not words:
        return True
    last = inside.split()[-1]
    if "=" in last:
        return all(word in _DECLARES or word.startswith("-") or "=" in word for word in inside.split())
    return last in _DECLARES or last.endswith((",", ";", "&&", "\\n")) or inside.rstrip().endswith(("\\n", ","))


def _command_follows(tail: str) -> bool:
    for word in tail.split():
        if word.startswith((";", "&", "|", "#", ")", "\\")):
            return False
        if not re.match(r"[A-Za-z_]\w*\+?=", word):
            return True
    return False


def _cut(code: str, number: int, match: re.Match[str], end: int, option: re.Match[str] | None) -> list[Span]:
    """What goes with the setting: its line, its option, or its word."""
    start = match.start()
    if match["quote"] and code[end : end + 1] == match["quote"]:
        end += 1
    before, after = code[:start], code[end:]
    if (
        before.strip() in ("", "export", "ENV", "declare -x", "#SBATCH --export=", "-")
        and after.strip() in ("", "\\", ";")
        and not (before.strip() == "ENV" and after.strip())
    ):
        return [Span(number, 0, -1)]
    if option is not None and option["option"] != "--export":
        at = option.start("option")
        if not code[:at].strip() and after.strip() in ("", "\\"):
            return [Span(number, 0, -1)]
        return [Span(number, at, _over_blanks(code, end))]
    if after.startswith(","):
        return [Span(number, start, end + 1)]
    if before.endswith(","):
        return [Span(number, start - 1, end)]
    if option is not None:  # all of --export
        return [Span(number, option.start("option"), _over_blanks(code, end))]
    words = before.split()
    if words[-1:] == ["export"] and (not after.strip() or after.lstrip().startswith((";", "&&"))):
        at = before.rindex("export")
        rest = re.match(r"\s*(?:;|&&)\s*", after)
        return [Span(number, at, end + (rest.end() if rest else 0))]
    return [Span(number, start, _over_blanks(code, end))]


def _over_blanks(code: str, end: int) -> int:
    while end < len(code) and code[end] in " \t":
        end += 1
    return end


def plain_value(value: str) -> tuple[str, bool]:
    """A value without its quotes, and whether it is known before the script runs; of ``${X:-v}`` it is v."""
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        if value[0] == "'":
            return value[1:-1], True
        value = value[1:-1].strip()
    default = _DEFAULT.match(value)
    if default is not None:
        return default["value"].strip("\"'"), True
    if "$" in value or "`" in value or "{{" in value:
        return value, False
    return value.replace("\\", "") if "\\" in value else value, True


def without_comment(line: str) -> str:
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
