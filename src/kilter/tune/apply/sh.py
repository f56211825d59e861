"""The way back without kilter: a script for any POSIX shell that undoes what the journal records."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kilter.tune.apply.back import Action, File, Folder, Raw, Value, way_back

if TYPE_CHECKING:
    from kilter.tune.apply.journal import Record

_HEAD = """\
#!/bin/sh
# Undoes the changes of kilter {id}, the last one first. It needs sh, cat, cp, mv, chmod, chown, rm, rmdir, dd, sha256sum, cut; not kilter.
#   sh rollback.sh           what somebody else has changed since is left alone and named
#   FORCE=1 sh rollback.sh   also what somebody else has changed
# ROOT=/mnt/other sh rollback.sh works on a machine mounted there. It can be run again.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
ROOT=${{ROOT:-}}
FORCE=${{FORCE:-0}}
failed=0
again=

sum() {{ if [ -e "$1" ]; then sha256sum < "$1" | cut -d' ' -f1; fi; }}
note() {{ echo "$*" >&2; failed=1; }}
# path, what it is now, what it may be ("?" = anything), step whose command makes it anew
mine() {{
    case "$3" in '?' | *"|$2|"*) return 0 ;; esac
    [ "$FORCE" = 1 ] && return 0
    if [ -n "$4" ]; then
        again="$again $4 "
    else
        note "$1: changed by somebody else since, left as it is"
    fi
    return 1
}}
# path, number of the copy, mode, owner, sum, what it may be, step
file() {{
    now=$(sum "$ROOT$1")
    [ "$now" = "$5" ] && return
    mine "$1" "$now" "$6" "$7" || return
    if ! cp "$here/before/$2" "$ROOT$1.kilter-back" || ! chmod "$3" "$ROOT$1.kilter-back" \\
        || ! chown "$4" "$ROOT$1.kilter-back" || ! mv "$ROOT$1.kilter-back" "$ROOT$1"; then
        note "$1: cannot be restored"
    fi
}}
# path, what it may be, step
gone() {{
    [ -e "$ROOT$1" ] || return
    mine "$1" "$(sum "$ROOT$1")" "$2" "$3" || return
    rm -f "$ROOT$1" || note "$1: cannot be removed"
}}
# values of the kernel end with its boot, and numbers of interrupts mean other devices in the next one
same_boot() {{ [ "$(cat "$ROOT/proc/sys/kernel/random/boot_id" 2>/dev/null)" = '{boot_id}' ]; }}
folder() {{ rmdir "$ROOT$1" 2>/dev/null || true; }}
# path, value, what it may be, what to write
value() {{
    case "$1" in /proc/irq/*) same_boot || return 0 ;; esac
    if [ ! -e "$ROOT$1" ]; then
        if same_boot; then note "$1: is gone"; fi
        return 0
    fi
    now=$(cat "$ROOT$1" 2>/dev/null)
    [ "$now" = "$2" ] && return
    mine "$1" "$now" "$3" '' || return
    printf '%s' "$4" > "$ROOT$1" || note "$1: cannot be written"
}}
# path, offset, bytes as octal escapes
raw() {{ printf "$3" | dd of="$ROOT$1" bs=1 seek="$2" conv=notrunc 2>/dev/null || note "$1: cannot be written"; }}
# commands are for the running machine, and only once
call() {{ [ -n "$ROOT" ] || [ "$(cat "$here/state")" = "rolled back" ] || "$@" >/dev/null 2>&1 || note "$*: failed"; }}

"""
_TAIL = """
if [ "$failed" = 0 ] && [ -z "$ROOT" ]; then echo "rolled back" > "$here/state"; fi
sync
exit "$failed"
"""


def script(id_: str, records: list[Record], boot_id: str) -> str:
    """The text of ``rollback.sh`` for the records so far."""
    lines = [_HEAD.format(id=id_, boot_id=boot_id)]
    for action in way_back(records):
        line = _line(action)
        # What guards the change (sentinel, time limit) is taken away once it has done its work.
        lines.append(f'[ -e "$here/{action.group}.done" ] || {line}' if action.group else line)
    return "\n".join([*lines, *_again(records)]) + _TAIL


def _again(records: list[Record]) -> list[str]:
    """Commands that make files anew which somebody else has written since."""
    return [f"case \"$again\" in *' {r.number} '*) call {_words(r.again)} ;; esac" for r in records if r.again]


def disarm(id_: str, records: list[Record], group: str, boot_id: str) -> str:
    """A script that takes a guard away and leaves the change: the records of one group."""
    lines = [_HEAD.format(id=f"{id_} ({group} only)", boot_id=boot_id)]
    own = [record for record in records if record.group == group]
    lines += [_line(action) for action in way_back(own)] + _again(own)
    return "\n".join(lines) + f'\n: > "$here/{group}.done"\nsync\nexit "$failed"\n'


def _line(action: Action) -> str:
    """A call of one of the functions of the head."""
    if isinstance(action, File):
        file = action.file
        step = "" if action.again is None else str(action.again)
        if file.saved is None:
            return f"gone {_words([file.path, _known(action.known), step])}"
        owner = f"{file.uid}:{file.gid}"
        return f"file {_words([file.path, str(file.saved), f'{file.mode:o}', owner, file.sha256, _known(action.known), step])}"
    if isinstance(action, Value):
        return f"value {_words([action.path, action.before, _known(action.known), written(action.before)])}"
    if isinstance(action, Raw):
        return f"raw {_words([action.path, str(action.offset), ''.join(f'{chr(92)}{byte:03o}' for byte in action.before)])}"
    if isinstance(action, Folder):
        return f"folder {_words([action.path])}"
    return f"call {_words(action.argv)}"


def _known(sums: frozenset[str] | None) -> str:
    return "?" if sums is None else "|" + "".join(f"{one}|" for one in sorted(sums))


def _words(argv: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in argv)


def written(value: str) -> str:
    """What to write so that a kernel file reads ``value`` again: of a choice ``a [b] c`` the chosen one."""
    start, end = value.find("["), value.find("]")
    if 0 <= start < end and " " in value:
        return value[start + 1 : end]
    return value
