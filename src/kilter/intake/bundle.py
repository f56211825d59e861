"""Support bundles: which members are worth reading, whose they are, and what command a member holds.

Everything is recognised by content; this saves time on what no reader of kilter understands, and names the node. Layouts: sos (sosreport/sos:
``sos_commands/<plugin>/<command with _ for blanks and />``), OpenShift must-gather (``nodes/<node>/...``, ``journal/``), kilter's collector, gpud.
"""

from __future__ import annotations

import re

#: Folders of bundles that hold nothing that kilter reads.
_SKIP_FOLDERS = re.compile(
    r"(?:^|/)(?:var/lib/(?:rpm|dpkg|dnf|yum|selinux|docker|containers|pcp|puppet|mlocate|alternatives)|usr/(?:lib|share|src|bin)|etc/(?:selinux|pki|ssl|ssh|alternatives|"
    r"fonts|X11|skel|dbus-1|polkit-1|pam\.d|cups|gconf|java|vim|xdg|yum\.repos\.d|httpd|postfix|crypto-policies|firewalld|sudoers\.d)|"
    r"var/log/(?:httpd|cups|sa|pcp|samba|tomcat|audit|dnf[^/]*|yum[^/]*|anaconda|insights-client|sssd)|"
    r"sos_reports|sos_logs|sos_strings|version\.d|"
    r"sos_commands/(?:rpm|yum|dnf|dpkg|apt|selinux|python|perl|java|cups|x11|grub2|boot|crypto|ssh|pam|ldap|samba|apache|postfix|"
    r"fonts|snap|flatpak|subscription_manager|insights|gdm|gnome|alternatives|logrotate|cron|at|sudo|auditd|abrt|coredump|firewalld|firewall_tables|nfs|"
    r"libraries|release_packages|python3|sssd|vdo|lvm2|multipath|iscsi|scsi|usb|printing|keyutils))/",
)
_SKIP_SYS = re.compile(
    r"(?:^|/)(?:sys/kernel/(?:slab|btf|debug/(?:dynamic_debug|tracing|clk|regmap|gpio|pinctrl|ieee80211|usb|zswap|bdi|block|sched))|sys/fs/selinux|sys/firmware/acpi/tables|"
    r"sys/devices/virtual/(?:tty|vc|vtconsole|workqueue|input|graphics|misc)|proc/(?:fs|irq|asound|bus|acpi|scsi|tty)|"
    r"proc/(?:kallsyms|kcore|kpage\w*|timer_list|sched_debug|slabinfo|pagetypeinfo|zoneinfo|sysrq-trigger))(?:/|$)"
)
_BINARY = re.compile(
    r"\.(?:rpm|deb|so(?:\.[\d.]+)?|ko(?:\.[xg]z|\.zst)?|o|a|pyc|pyo|jar|war|class|exe|dll|png|jpe?g|gif|svg|ico|pdf|woff2?|ttf|pcap(?:ng)?|core|vmcore|kdump|"
    r"dump|mo|db|db-(?:wal|shm|journal)|sqlite3?|pack|idx|journal~?|pb|bin|img|iso|qcow2|vmdk|nsys-rep|ncu-rep|qdrep|pt|pth|safetensors|onnx|gguf|npy|npz|"
    r"parquet|whl|cer|crt|pem|key|p12|der|wav|mp[34]|avi)$",
    re.I,
)

_NODE_FOLDER = re.compile(
    r"(?:^|/)(?:kilter-(?P<kilter>[\w.-]+?)-\d{8}T\d{6}Z|sosreport-(?P<sos>[\w.-]+?)(?:-\d{1,12})?-\d{4}-\d\d-\d\d-\w+|"
    r"nodes/(?P<gather>[A-Za-z0-9][\w.-]*)|nvidia-bug-report-(?P<bug>[A-Za-z][\w.-]*?))(?=/|\.log|\.tar|$)"
)
_SOS = re.compile(r"(?:^|/)sos_commands/[\w.+-]+/([^/]+)$")
_COPIED = re.compile(r"(?:^|/)((?:proc|sys|etc|var/log|run)/.+)$")
_TOOLS = (
    "nvidia-smi",
    "xpu-smi",
    "lspci",
    "lscpu",
    "lsmod",
    "dmesg",
    "journalctl",
    "ethtool",
    "numactl",
    "ibstat",
    "ibstatus",
    "ibv_devinfo",
    "ibv_devices",
    "ibdev2netdev",
    "sysctl",
    "uname",
    "free",
    "df",
    "ip",
    "ipmitool",
    "ipmi-sel",
    "dmidecode",
    "ras-mc-ctl",
    "systemctl",
    "sinfo",
    "squeue",
    "scontrol",
    "kubectl",
    "dcgmi",
    "nvme",
    "mlxlink",
    "mlxconfig",
    "show_gids",
    "perfquery",
    "ibnetdiscover",
    "iblinkinfo",
)


def interesting(name: str) -> bool:
    """Whether a member of a bundle may hold what kilter reads. False only for what surely does not: packages, tables, pictures, code."""
    path = name.replace("\\", "/")
    return not (_BINARY.search(path) or _SKIP_FOLDERS.search(path) or _SKIP_SYS.search(path))


def node(name: str) -> str:
    """The host that a bundle's folder (or file) name stands for, or "" where it says none."""
    match = _NODE_FOLDER.search(name.replace("\\", "/"))
    return next((value for value in match.groupdict().values() if value), "") if match else ""


def command(name: str) -> str:
    """The command line, or the path on the host, that a member's name stands for; "" where it says none.

    sos writes blanks and slashes as "_" and drops what else is no file name: ``lspci_-nnvv`` is ``lspci -nnvv``, ``ip_-s_-d_link`` is
    ``ip -s -d link``. A path cannot be told from blanks in all cases; the first word is right.
    """
    path = name.replace("\\", "/")
    if match := _SOS.search(path):
        text = match.group(1)
        for tool in _TOOLS:
            if text == tool or text.startswith(f"{tool}_"):
                return f"{tool} {text[len(tool) + 1 :].replace('_', ' ')}".strip()
        return text.replace("_", " ")
    if match := _COPIED.search(path):
        return f"cat /{match.group(1)}"
    return ""
