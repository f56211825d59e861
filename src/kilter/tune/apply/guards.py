"""Guards of an application: the sentinel that takes a boot line back which the machine does not come up with, and the time limit for confirming.

**Sentinel with GRUB.** The default becomes a copy of the old entry; the new one is booted once (``next_entry`` of grubenv, which GRUB itself
clears), with ``panic=30`` so that a kernel that stops starts again. If the machine comes up healthy, the sentinel's service takes the copy
away and the new line stays. If it does not, the next start, by the service, by the panic or by a hand on the power switch, is the old line, and
there the service undoes the change. Elsewhere the service alone counts the boots: what hangs before it can run needs a hand.
"""

from __future__ import annotations

import re
import time

from kilter.tune.apply import boot
from kilter.tune.apply.host import Host
from kilter.tune.apply.journal import FOLDER, Journal
from kilter.tune.apply.steps import Call, Put, Step

UNIT = "/etc/systemd/system/kilter-sentinel.service"
SCRIPT = "/etc/kilter/sentinel.sh"
#: Seconds that a machine has to reach its default target; a number in /etc/kilter/healthy-within says otherwise.
HEALTHY_WITHIN_S = 300

_SERVICE = """\
# Written by kilter for change {id}; it goes away once the machine has come up healthy.
[Unit]
Description=Takes the boot line of kilter change {id} back if the machine does not come up with it
DefaultDependencies=no
IgnoreOnIsolate=yes
After=systemd-remount-fs.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/bin/sh {script}
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=sysinit.target emergency.target rescue.target
"""

_SENTINEL = """\
#!/bin/sh
# Written by kilter for change {id}.
change={folder}
say() {{ echo "kilter: $*"; }}
tries=0
while [ ! -e "$change/rollback.sh" ] && [ "$tries" -lt 60 ]; do tries=$((tries + 1)); sleep 1; done
[ "$(cat /proc/sys/kernel/random/boot_id)" = "{boot_id}" ] && exit 0
back() {{ sh "$change/rollback.sh"; sync; }}
{trial}
limit=$(cat /etc/kilter/healthy-within 2>/dev/null || echo {limit})
waited=0
while [ "$waited" -lt "$limit" ]; do
    if healthy; then
        sh "$change/sentinel-disarm.sh" && say "change {id} came up healthy" && exit 0
        exit 1
    fi
    sleep 5
    waited=$((waited + 5))
done
say "not healthy after $limit s with change {id}"
{unhealthy}
systemctl reboot --force || systemctl reboot --force --force
"""

_HEALTHY = """\
healthy() {
    [ "$(systemctl is-active "$(systemctl get-default)")" = active ] || return 1
    set -- /sys/bus/pci/devices/*
    [ "$#" -ge DEVICES ] || return 1
    for check in /etc/kilter/health.d/*; do
        [ -x "$check" ] && { "$check" || return 1; }
    done
    return 0
}
"""

_BY_GRUB = """\
case " $(cat /proc/cmdline) " in
*" kilter.trial={id} "*) ;;
*)
    # GRUB took the old line: the trial did not come up.
    say "change {id} did not come up; it is undone"
    back
    exit 0
    ;;
esac
"""

_BY_COUNT = """\
boots=$(cat "$change/boots" 2>/dev/null || echo 0)
boots=$((boots + 1))
echo "$boots" > "$change/boots"
sync
if [ "$boots" -gt 1 ]; then
    say "change {id} did not come up; it is undone"
    back
    systemctl reboot --force
    exit 0
fi
"""


def first_entry(text: str) -> str | None:
    """The body of the first menu entry of a grub.cfg, without its head and last line."""
    match = re.search(r"^menuentry [^\n]*\{\n(.*?)^\}\n", text, re.MULTILINE | re.DOTALL)
    return match[1] if match else None


def _entries(id_: str, old: str, new: str) -> str:
    trial = re.sub(r"^(\s*linux\S*\s.*)$", rf"\1 panic=30 kilter.trial={id_}", new, count=1, flags=re.MULTILINE)
    return (
        f"# kilter change {id_}: the old line is the default until the new one has come up.\n"
        f"menuentry 'As before kilter change {id_}' --id kilter-before {{\n{old}}}\n"
        f"menuentry 'Trial of kilter change {id_}' --id kilter-trial {{\n{trial}}}\n"
        'if [ "${boot_once}" != "true" ]; then set default="kilter-before"; fi\n'
    )


def _old_menu(journal: Journal, path: str) -> str | None:
    """The boot menu as it was before this application."""
    for record in journal.records:
        for file in record.files:
            if file.path == path and file.saved is not None:
                return journal.saved(file).decode("utf-8", "surrogateescape")
    return None


def _boots_first_entry(host: Host, menu: str, folder: str) -> bool:
    """Whether the default is the first entry, whose text is what is tried: GRUB_DEFAULT=0, or saved with nothing saved."""
    default = re.search(r'^\s*set default="(\$\{saved_entry\}|0)"$', menu, re.MULTILINE)
    saved = re.search(r"^saved_entry=(.*)$", host.text(f"{folder}/grubenv") or "", re.MULTILINE)
    return default is not None and (default[1] == "0" or saved is None or saved[1] in ("", "0"))


def _grub_steps(host: Host, journal: Journal) -> list[Step] | None:
    """Steps that make the new entry a trial; None where this GRUB cannot."""
    path = boot.grub_cfg(host)
    if path is None or "custom.cfg" not in (host.text(path) or ""):
        return None
    folder = path.rpartition("/")[0]
    if not host.has("grub-editenv") or not _boots_first_entry(host, host.text(path) or "", folder):
        return None
    if host.has("grub-probe"):
        probed = host.run(["grub-probe", "--target=abstraction", folder], limit_s=60)
        # On LVM and RAID GRUB reads grubenv and cannot write it: the trial would be booted for ever.
        if probed.code != 0 or probed.output.strip():
            return None
    old, new = first_entry(_old_menu(journal, path) or ""), first_entry(host.text(path) or "")
    if old is None or new is None:
        return None
    custom, environment = f"{folder}/custom.cfg", f"{folder}/grubenv"
    text = (host.read(custom) or b"").decode("utf-8", "surrogateescape") + _entries(journal.id, old, new)
    # GRUB itself clears next_entry; the file is then another than was written, and is made as before by taking the entry out.
    had = host.exists(environment)
    as_before = ["grub-editenv", environment, "unset", "next_entry"] if had else ["rm", "-f", environment]
    steps: list[Step] = [Put(custom, text.encode("utf-8", "surrogateescape"))]
    if not had:
        steps.append(Call(["grub-editenv", environment, "create"], touches=[environment], again=as_before))
    return [*steps, Call(["grub-editenv", environment, "set", "next_entry=kilter-trial"], touches=[environment], again=as_before)]


def sentinel(host: Host, journal: Journal) -> tuple[list[Step], str]:
    """(steps that arm it, a note about what it cannot do). No steps where systemd does not run."""
    if not host.has("systemctl") or not host.exists("/run/systemd/system"):
        return [], "systemd does not run here: no sentinel watches the next boot"
    by_grub = _grub_steps(host, journal)
    boot_id = host.text("/proc/sys/kernel/random/boot_id") or ""
    trial = (_BY_GRUB if by_grub is not None else _BY_COUNT).format(id=journal.id)
    text = _SENTINEL.format(
        id=journal.id,
        folder=f"{FOLDER}/{journal.id}",
        boot_id=boot_id,
        limit=HEALTHY_WITHIN_S,
        trial=trial + _HEALTHY.replace("DEVICES", str(len(host.names("/sys/bus/pci/devices")))),
        unhealthy="" if by_grub is not None else "back",
    )
    note = (
        ""
        if by_grub is not None
        else "the sentinel runs as a service: a kernel that stops before it needs a hand at the boot menu"
    )
    steps: list[Step] = [
        Call(undo=[["systemctl", "daemon-reload"]]),
        Put(SCRIPT, text.encode(), 0o755),
        Put(UNIT, _SERVICE.format(id=journal.id, script=SCRIPT).encode()),
        Call(["systemctl", "daemon-reload"]),
        Call(["systemctl", "enable", "kilter-sentinel.service"], undo=[["systemctl", "disable", "kilter-sentinel.service"]]),
        *(by_grub or []),
    ]
    return steps, note


_TIMER = """\
# Written by kilter for change {id}; 'kilter tune confirm' takes it away.
[Unit]
Description=Takes kilter change {id} back unless it is confirmed

[Timer]
OnCalendar={when}
Persistent=true
AccuracySec=1s
Unit=kilter-confirm-{id}.service

[Install]
WantedBy=timers.target
"""
_CONFIRM = """\
# Written by kilter for change {id}; 'kilter tune confirm' takes it away.
[Unit]
Description=Takes kilter change {id} back, which was not confirmed

[Service]
Type=oneshot
ExecStart=/bin/sh {folder}/rollback.sh
"""


def time_limit(host: Host, id_: str, deadline: float) -> list[Step]:
    """Steps that roll the change back at ``deadline`` (seconds since the epoch), also over a reboot. None where systemd does not run."""
    if not host.has("systemctl") or not host.exists("/run/systemd/system"):
        return []
    name = f"kilter-confirm-{id_}"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(deadline))
    folder = "/etc/systemd/system"
    return [
        Call(undo=[["systemctl", "daemon-reload"]]),
        Put(f"{folder}/{name}.service", _CONFIRM.format(id=id_, folder=f"{FOLDER}/{id_}").encode()),
        Put(f"{folder}/{name}.timer", _TIMER.format(id=id_, when=when).encode()),
        Call(["systemctl", "daemon-reload"]),
        Call(["systemctl", "enable", f"{name}.timer"], undo=[["systemctl", "disable", f"{name}.timer"]]),
        # Without --no-block the command would wait for whoever calls it at the deadline.
        Call(["systemctl", "start", f"{name}.timer"], undo=[["systemctl", "stop", "--no-block", f"{name}.timer"]]),
    ]
