"""Killed at every step while setting kernel parameters: how many original values are lost, by kilter and by TuneD's own plugin.

``python benchmarks/apply_kill.py``. TuneD's sysctl plugin is the installed one (Debian and Fedora package ``tuned``), run by the system's Python on a
folder in place of /proc/sys. After each kill both recover as they do after a crash: kilter by its rollback, TuneD from its storage file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tune" / "apply"))

from machine import Killed, Machine, build  # noqa: E402

from kilter.facts.plan import Change  # noqa: E402
from kilter.tune.apply import engine  # noqa: E402
from kilter.tune.apply.host import Host  # noqa: E402

KEYS = [f"vm.key{n}" for n in range(8)]

#: Runs TuneD's plugin in a child that dies before its n-th write (of a value, or of the storage file); prints the originals that are lost.
TUNED = r"""
import os, signal, sys, types
import tuned.plugins.plugin_sysctl as module
from tuned.storage.pickle_provider import PickleProvider
from tuned.storage.storage import Storage
root, at, keys = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
module._get_sysctl_path = lambda option: os.path.join(root, option)
left = [at]
def count():
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
def plugin(path, counting):
    provider = PickleProvider(path)
    provider.load()
    storage = Storage(provider, "sysctl")
    if counting:
        save = provider.save
        provider.save = lambda: (count(), save())
    same = lambda value: value
    return types.SimpleNamespace(
        _variables=types.SimpleNamespace(expand=same), _cmd=types.SimpleNamespace(unquote=same),
        _process_assignment_modifiers=lambda new, old: new, _storage=storage, _storage_key=lambda name=None: "options",
        _global_cfg=types.SimpleNamespace(get_bool=lambda *a: False), provider=provider)
path = os.path.join(root, "storage")
child = os.fork()
if child == 0:
    write = module._write_sysctl
    module._write_sysctl = lambda *a, **k: (count(), write(*a, **k))[1]
    self = plugin(path, True)
    instance = types.SimpleNamespace(name="x", options={k: "new" for k in keys}, _sysctl={k: "new" for k in keys}, _sysctl_original={})
    module.SysctlPlugin._instance_apply_static(self, instance)
    self.provider.save()
    os._exit(0)
_, status = os.waitpid(child, 0)
again = plugin(path, False)
saved = again._storage.get("options", {})
module.SysctlPlugin._instance_unapply_static(again, types.SimpleNamespace(_sysctl_original=saved))
lost = sum(open(os.path.join(root, k)).read().strip() != "old" for k in keys)
print(int(os.WIFSIGNALED(status)), lost)
"""


def tuned() -> tuple[int, int] | None:
    """(kills, originals lost); None where TuneD is not installed."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import tuned.plugins.plugin_sysctl"], capture_output=True, check=False).returncode:
        return None
    kills = lost = at = 0
    while True:
        with tempfile.TemporaryDirectory() as folder:
            for key in KEYS:
                Path(folder, key).write_text("old\n")
            done = subprocess.run(
                [python, "-c", TUNED, folder, str(at), ",".join(KEYS)], capture_output=True, text=True, check=True
            )
        killed, gone = map(int, done.stdout.split())
        if not killed:
            return kills, lost
        kills, lost, at = kills + 1, lost + gone, at + 1


def kilter() -> tuple[int, int]:
    """(kills, originals lost)."""
    changes = [Change(mechanism="sysctl", key=key, value="new") for key in KEYS]
    kills = lost = at = 0
    while True:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        build(folder)
        for key in KEYS:
            (folder / "proc/sys" / key.replace(".", "/")).write_text("old\n")
        child = os.fork()
        if child == 0:
            try:
                engine.apply(changes, Killed(folder, Machine(folder), at))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        if killed:
            host = Host(folder, Machine(folder))
            if any(one.state in ("applying", "applied") for one in engine.status(host)):
                engine.rollback(host)
            lost += sum((folder / "proc/sys" / key.replace(".", "/")).read_text().strip() != "old" for key in KEYS)
        shutil.rmtree(folder)
        if not killed:
            return kills, lost
        kills, at = kills + 1, at + 1


def main() -> None:
    kills, lost = kilter()
    print(f"kilter: killed at {kills} points while setting {len(KEYS)} parameters; original values lost: {lost}")
    peer = tuned()
    if peer is None:
        print("TuneD is not installed (package tuned): no comparison")
    else:
        print(f"TuneD:  killed at {peer[0]} points while setting {len(KEYS)} parameters; original values lost: {peer[1]}")


if __name__ == "__main__":
    main()
