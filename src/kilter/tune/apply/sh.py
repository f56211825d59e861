"""The way back without kilter: a script for any POSIX shell that undoes what the journal records."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilter.tune.apply.journal import FileBefore, Record

_HEAD = """\
#!/bin/sh
# Undoes the changes of kilter {id}, the last one first. It needs sh, cp, mv, chmod, chown, rm, dd, sha256sum; not kilter.
#   sh rollback.sh           what somebody else has changed since is left alone and named
#   FORCE=1 sh rollback.sh   also what somebody else has changed
# ROOT=/mnt/other sh rollback.sh works on a machine mounted there. It can be run again.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
ROOT=${{ROOT:-}}
FORCE=${{FORCE:-0}}
failed=0

sum() {{ if [ -e "$1" ]; then sha256sum < "$1" | cut -d' ' -f1; fi; }}
note() {{ echo "$*" >&2; failed=1; }}

# path, number of the copy, mode, owner, sum before, sum after ("?" = the change may not have ended), step whose command makes it anew
file() {{
    now=$(sum "$ROOT$1")
    [ "$now" = "$5" ] && return
    if [ "$6" != '?' ] && [ "$now" != "$6" ] && [ "$FORCE" != 1 ]; then
        if [ -n "$7" ]; then again="$again $7 "; return; fi
        note "$1: changed by somebody else since, left as it is"
        return
    fi
    cp "$here/before/$2" "$ROOT$1.kilter-back" && chmod "$3" "$ROOT$1.kilter-back" && chown "$4" "$ROOT$1.kilter-back" \\
        && mv "$ROOT$1.kilter-back" "$ROOT$1" || note "$1: cannot be restored"
}}
# path, sum after
gone() {{
    [ -e "$ROOT$1" ] || return
    if [ "$2" != '?' ] && [ "$(sum "$ROOT$1")" != "$2" ] && [ "$FORCE" != 1 ]; then
        note "$1: changed by somebody else since, left as it is"
        return
    fi
    rm -f "$ROOT$1" || note "$1: cannot be removed"
}}
folder() {{ rmdir "$ROOT$1" 2>/dev/null || true; }}
# path, value before, value after
value() {{
    now=$(cat "$ROOT$1" 2>/dev/null)
    [ "$now" = "$2" ] && return
    if [ "$3" != '?' ] && [ "$now" != "$3" ] && [ "$FORCE" != 1 ]; then
        note "$1: changed by somebody else since, left as it is"
        return
    fi
    printf '%s' "$4" > "$ROOT$1" || note "$1: cannot be written"
}}
# path, offset, bytes before as octal escapes
bytes() {{ printf "$3" | dd of="$ROOT$1" bs=1 seek="$2" conv=notrunc 2>/dev/null || note "$1: cannot be written"; }}
again=
call() {{ [ -n "$ROOT" ] || "$@" >/dev/null 2>&1 || note "$*: failed"; }}

"""
_TAIL = """
if [ "$failed" = 0 ] && [ -z "$ROOT" ]; then echo "rolled back" > "$here/state"; fi
sync
exit "$failed"
"""


def script(id_: str, records: list[Record]) -> str:
    """The text of ``rollback.sh`` for the records so far."""
    lines = [_HEAD.format(id=id_)]
    for record in reversed(records):
        if not record.group:
            lines += undo(record)
            continue
        # What guards the change (sentinel, time limit) is taken away once it has done its work.
        lines += [f'if [ ! -e "$here/{record.group}.done" ]; then', *undo(record), "fi"]
    for record in records:
        if record.again:
            lines.append(f"case \"$again\" in *' {record.number} '*) call {_words(record.again)} ;; esac")
    return "\n".join(lines) + _TAIL


def disarm(id_: str, records: list[Record], group: str) -> str:
    """A script that takes a guard away and leaves the change: the records of one group."""
    lines = [_HEAD.format(id=f"{id_} ({group} only)")]
    for record in reversed(records):
        if record.group == group:
            lines += undo(record)
    return "\n".join(lines) + f'\n: > "$here/{group}.done"\nsync\nexit "$failed"\n'


def undo(record: Record) -> list[str]:
    """Lines that undo one step."""
    quote = shlex.quote

    def after(path: str) -> str:
        return record.after.get(path, "") if record.done else "?"

    lines = []
    if record.kind == "poke":
        lines.append(
            f"value {quote(record.path)} {quote(record.value)} {quote(after(record.path))} {quote(written(record.value))}"
        )
    elif record.kind == "bytes":
        escaped = "".join(f"\\{byte:03o}" for byte in bytes.fromhex(record.value))
        lines.append(f"bytes {quote(record.path)} {record.offset} {quote(escaped)}")
    lines += [_file(file, after(file.path)) + (f" {record.number}" if record.again else "") for file in record.files]
    lines += [f"folder {quote(path)}" for path in reversed(record.folders)]
    lines += [f"call {_words(argv)}" for argv in record.undo]
    return lines


def _words(argv: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in argv)


def _file(file: FileBefore, after: str) -> str:
    quote = shlex.quote
    if file.saved is None:
        return f"gone {quote(file.path)} {quote(after)}"
    return f"file {quote(file.path)} {file.saved} {file.mode:o} {file.uid}:{file.gid} {file.sha256} {quote(after)}"


def written(value: str) -> str:
    """What to write so that a kernel file reads ``value`` again: of a choice ``a [b] c`` the chosen one."""
    start, end = value.find("["), value.find("]")
    if 0 <= start < end and " " in value:
        return value[start + 1 : end]
    return value
