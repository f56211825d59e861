"""Exports: every mechanism is expressed or named in every form, values survive, and the script really works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.plan import Advice, Change, Plan, Verdict
from kilter.tune.apply.mechanisms import names
from kilter.tune.export import FORMS, export

ONE_OF_EACH = {
    "sysctl": Change(mechanism="sysctl", key="vm.swappiness", value="10", was="60"),
    "sysfs": Change(mechanism="sysfs", key="/sys/kernel/mm/transparent_hugepage/enabled", value="madvise"),
    "cmdline": Change(mechanism="cmdline", key="iommu", value="pt"),
    "modprobe": Change(mechanism="modprobe", key="nvidia.NVreg_EnableGpuFirmware", value="1"),
    "limits": Change(mechanism="limits", key="memlock", value="unlimited"),
    "unit": Change(mechanism="unit", key="irqbalance.service", value="disabled"),
    "dropin": Change(mechanism="dropin", key="slurmd.service/Service.LimitMEMLOCK", value="infinity"),
    "udev": Change(mechanism="udev", key="nvme", value='KERNEL=="nvme*", ATTR{queue/scheduler}="none"'),
    "env": Change(mechanism="env", key="NCCL_IB_TIMEOUT", value="22"),
    "nccl_conf": Change(mechanism="nccl_conf", key="NCCL_IB_TIMEOUT", value="22"),
    "pci": Change(mechanism="pci", key="0000:3b:00.0/acs", value="0x0000"),
    "irq": Change(mechanism="irq", key="ens1", value="8-15"),
    "ethtool": Change(mechanism="ethtool", key="ens1/ring.rx", value="8192"),
    "qos": Change(mechanism="qos", key="ens1/trust", value="dscp"),
    "nvidia": Change(mechanism="nvidia", key="all/persistence", value="1"),
    "container": Change(mechanism="container", key="docker/default-ulimits.memlock.Hard", value="-1"),
    "tuned": Change(mechanism="tuned", key="profile", value="hpc"),
}


def plan(*changes: Change) -> Plan:
    return Plan(
        advice=[
            Advice(id=f"x.{n}", verdict=Verdict.RECOMMEND, title="x", why="because", changes=[c]) for n, c in enumerate(changes)
        ]
    )


def test_there_is_a_change_for_every_mechanism() -> None:
    assert set(ONE_OF_EACH) == set(names())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mechanism", names())
@pytest.mark.parametrize("goes", [False, True], ids=["set", "unset"])
def test_every_mechanism_is_expressed_or_named(form: str, mechanism: str, goes: bool) -> None:
    change = ONE_OF_EACH[mechanism]
    if goes:
        change = Change(mechanism=mechanism, key=change.key, value=None, was="old")
    made = export(plan(change), form)
    empty = export(Plan(), form)
    said = made.files != empty.files
    noted = any(change.key in note or (mechanism == "cmdline" and change.key in note) for note in made.notes)
    assert said or noted, (made.files, made.notes)
    if goes and mechanism not in ("env", "cmdline"):
        assert noted


def test_conflicts_and_questions_are_not_written() -> None:
    for verdict in (Verdict.ASK, Verdict.CONFLICT, Verdict.ALREADY, Verdict.NOT_APPLICABLE):
        asked = Plan(advice=[Advice(id="x", verdict=verdict, title="x", changes=[ONE_OF_EACH["sysctl"]])])
        assert export(asked, "sh").files == export(Plan(), "sh").files


def test_by_hand_is_a_note() -> None:
    asked = Plan(advice=[Advice(id="pcie.x", verdict=Verdict.RECOMMEND, title="x", by_hand="turn the knob")])
    for form in FORMS:
        assert "by hand: turn the knob (pcie.x)" in export(asked, form).notes


ALL = plan(*ONE_OF_EACH.values())


def test_forms_are_what_their_readers_read() -> None:
    assert yaml.safe_load(export(ALL, "cloud-init").files["kilter.yaml"])["runcmd"][0] == ["sysctl", "--system"]
    config = yaml.safe_load(export(ALL, "machineconfig").files["99-worker-kilter.yaml"])
    assert config["spec"]["kernelArguments"] == ["iommu=pt"]
    assert {f["path"] for f in config["spec"]["config"]["storage"]["files"]} >= {
        "/etc/nccl.conf",
        "/etc/sysctl.d/99-zz-kilter.conf",
    }
    resource = yaml.safe_load(export(ALL, "nodewright").files["kilter.yaml"])
    assert resource["spec"]["packages"]["tuning"]["configMap"]["sysctl.conf"] == "vm.swappiness=10\n"
    profile = export(ALL, "tuned").files["kilter/tuned.conf"]
    for line in (
        "vm.swappiness=10",
        "cmdline_kilter=+iommu=pt",
        "nvidia=NVreg_EnableGpuFirmware=1",
        "service.irqbalance.service=disable",
    ):
        assert line in profile.splitlines()
    assert "KernelCommandLine=iommu=pt" in export(ALL, "mkosi").files["mkosi.conf.d/50-kilter.conf"]
    image = export(ALL, "containerfile").files
    assert image["rootfs/usr/lib/bootc/kargs.d/50-kilter.toml"] == f"kargs = {json.dumps(['iommu=pt'])}\n"
    assert export(ALL, "env").files["kilter.env"] == "NCCL_IB_TIMEOUT=22\n"


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def test_ansible_is_yaml_with_known_modules() -> None:
    files = export(ALL, "ansible").files
    tasks = yaml.load(files["roles/kilter/tasks/main.yml"], Loader=_Loader)
    modules = {key for task in tasks for key in task if "." in key}
    assert modules <= {
        "ansible.posix.sysctl",
        "ansible.builtin.copy",
        "ansible.builtin.file",
        "ansible.builtin.command",
        "ansible.builtin.systemd_service",
    }
    handlers = {one["name"] for one in yaml.load(files["roles/kilter/handlers/main.yml"], Loader=_Loader)}
    assert {task["notify"] for task in tasks if "notify" in task} == handlers


VALUES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(lambda v: v.strip() == v)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_values_survive_every_shell_and_yaml(value: str) -> None:
    change = Change(mechanism="env", key="KILTER_X", value=value)
    script = export(plan(change), "env").files["kilter-env.sh"]
    shown = subprocess.run(["sh", "-c", f'{script}printf %s "$KILTER_X"'], capture_output=True, check=True).stdout
    assert shown == value.encode()
    prolog = export(plan(change), "slurm").files["task-prolog.sh"]
    assert subprocess.run(["sh", "-c", prolog], capture_output=True, check=True).stdout.decode() == f"export KILTER_X={value}\n"
    written = Change(mechanism="nccl_conf", key="NCCL_X", value=value)
    document = yaml.safe_load(export(plan(written), "cloud-init").files["kilter.yaml"])
    assert document["write_files"][0]["content"].endswith(f"NCCL_X={' '.join(value.splitlines())}\n")
    tasks = yaml.load(export(plan(written), "ansible").files["roles/kilter/tasks/main.yml"], Loader=_Loader)
    assert any(
        task.get("ansible.builtin.copy", {}).get("content", "").endswith(f"NCCL_X={' '.join(value.splitlines())}\n")
        for task in tasks
    )


@pytest.mark.parametrize("shell", [["sh"], ["dash"], ["busybox", "sh"]], ids=lambda s: s[0])
def test_the_script_writes_and_undoes(tmp_path: Path, shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    root = tmp_path / "root"
    for path, text in {
        "proc/sys/vm/swappiness": "60\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        "etc/nccl.conf": "NCCL_DEBUG=WARN\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    governor = Change(mechanism="sysfs", key="/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", value="performance")
    gone = Change(mechanism="sysctl", key="kernel.sched_latency_ns", value="1")
    script = tmp_path / "kilter.sh"
    script.write_text(export(plan(*ONE_OF_EACH.values(), governor, gone), "sh").files["kilter.sh"])

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*shell, str(script), *flags], env={**os.environ, "ROOT": str(root)}, capture_output=True, text=True, check=True
        )

    def files() -> dict[str, str]:
        return {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}

    before = files()
    dry = run("--dry-run")
    assert files() == before
    assert "write /etc/sysctl.d/99-zz-kilter.conf" in dry.stdout
    assert "there is no /proc/sys/kernel/sched_latency_ns" in dry.stderr
    run()
    assert (root / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text() == "performance\n"
    assert "NCCL_IB_TIMEOUT=22" in (root / "etc/nccl.conf").read_text()
    after = files()
    run()
    assert {k: v for k, v in files().items() if "kilter-kilter" not in k} == {
        k: v for k, v in after.items() if "kilter-kilter" not in k
    }
    run("--undo")
    restored = files()
    assert restored.pop("sys/kernel/mm/transparent_hugepage/enabled").strip() in ("madvise", "always [madvise] never")
    before.pop("sys/kernel/mm/transparent_hugepage/enabled")
    assert restored == before


def test_scripts_are_clean(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    for form in ("sh", "env", "slurm"):
        for path, text in export(ALL, form).files.items():
            if path.endswith(".sh"):
                target = tmp_path / path
                target.write_text(text)
                done = subprocess.run(
                    ["shellcheck", "-s", "sh", "-e", "SC2016,SC2317,SC2329", str(target)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, done.stdout
