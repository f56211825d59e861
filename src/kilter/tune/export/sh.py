"""A POSIX shell script: writes the files, values and boot line, keeps what was there, and undoes it with ``--undo``."""

from __future__ import annotations

import shlex

from kilter.tune.export.parts import IN_FILES, Export, Parts, removals

_HEAD = """\
#!/bin/sh
# Written by kilter ({name}). Usage: sh {name}.sh [--dry-run | --undo]; ROOT=/mnt works on a mounted tree. It can be run again.
set -eu
mode=${{1:-apply}}
ROOT=${{ROOT:-}}
kept=$ROOT/var/lib/kilter-{name}

keep() {{
    [ "$mode" = apply ] || return 0
    mkdir -p "$kept/files$(dirname "$1")"
    if [ -e "$kept/files$1" ] || [ -e "$kept/files$1.absent" ]; then return 0; fi
    if [ -e "$ROOT$1" ]; then cp -p "$ROOT$1" "$kept/files$1"; else : > "$kept/files$1.absent"; fi
}}
put() {{ # path, text
    if [ "$mode" = --undo ]; then
        if [ -e "$kept/files$1.absent" ]; then rm -f "$ROOT$1"; elif [ -e "$kept/files$1" ]; then cp -p "$kept/files$1" "$ROOT$1"; fi
        return 0
    fi
    if [ -e "$ROOT$1" ] && [ "$(cat "$ROOT$1")" = "$2" ]; then return 0; fi
    echo "write $1"
    [ "$mode" = --dry-run ] && return 0
    keep "$1"
    mkdir -p "$ROOT$(dirname "$1")"
    printf '%s\\n' "$2" > "$ROOT$1"
}}
value() {{ # path, value
    if [ ! -e "$ROOT$1" ]; then echo "skipped: there is no $1" >&2; return 0; fi
    if [ "$mode" = --undo ]; then
        if [ -e "$kept/files$1" ]; then cat "$kept/files$1" > "$ROOT$1"; fi
        return 0
    fi
    [ "$(cat "$ROOT$1")" = "$2" ] && return 0
    echo "set $1 = $2"
    [ "$mode" = --dry-run ] && return 0
    keep_value "$1"
    printf '%s\\n' "$2" > "$ROOT$1" || echo "skipped: $1 does not take $2" >&2
}}
keep_value() {{
    mkdir -p "$kept/files$(dirname "$1")"
    # Of a choice "a [b] c" the chosen one.
    [ -e "$kept/files$1" ] || sed 's/.*\\[\\(.*\\)\\].*/\\1/' "$ROOT$1" > "$kept/files$1"
}}
run() {{ [ -n "$ROOT" ] || [ "$mode" = --dry-run ] || "$@" || echo "failed: $*" >&2; }}

"""


def make(found: Parts, name: str) -> Export:
    lines = [_HEAD.format(name=name)]
    lines += [f"put {shlex.quote(path)} {shlex.quote(text.rstrip(chr(10)))}" for path, text in found.files().items()]
    for item in found.of("sysctl", "sysfs"):
        change = item.change
        if change.value is None:
            continue
        path = "/proc/sys/" + change.key.translate(str.maketrans("./", "/.")) if change.mechanism == "sysctl" else change.key
        if "*" in path:
            lines.append(f'for one in "$ROOT"{path}; do value "${{one#"$ROOT"}}" {shlex.quote(change.value)}; done')
        else:
            lines.append(f"value {shlex.quote(path)} {shlex.quote(change.value)}")
    for unit, word in found.units():
        forth, back = {
            "enabled": ("enable", "disable"),
            "disabled": ("disable", "enable"),
            "masked": ("mask", "unmask"),
            "started": ("start", "stop"),
            "stopped": ("stop", "start"),
        }[word]
        lines.append(
            f'if [ "$mode" = --undo ]; then run systemctl {back} {shlex.quote(unit)}; else run systemctl {forth} {shlex.quote(unit)}; fi'
        )
    notes = [*removals(found, *IN_FILES, "cmdline"), *found.left(*IN_FILES, "cmdline", "unit")]
    add, _ = found.arguments()
    if add:
        text = "".join(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {word}"\n' for word in add)
        lines.append(f"put /etc/default/grub.d/zz-kilter.cfg {shlex.quote(text.rstrip(chr(10)))}")
        lines.append("run update-grub")
        notes.append("the boot line is set for GRUB on Debian and Ubuntu; elsewhere use 'kilter tune apply' or grubby")
    lines.append('[ "$mode" != --undo ] || rm -rf "$kept"')
    lines += [f"# {note}".replace("\n", " ") for note in notes]
    return Export(files={f"{name}.sh": "\n".join(lines) + "\n"}, notes=notes)
