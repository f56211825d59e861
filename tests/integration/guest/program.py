"""kilter in the guest: the wheel of this tree and what it needs, unpacked into /opt/kilter."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.guest.guest import Guest

ROOT = Path(__file__).parents[3]
PYTHON = "3.11"  # of Debian 12
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
STARTER = (
    "#!/usr/bin/python3\nimport sys\nsys.path.insert(0, '/opt/kilter')\nfrom kilter.__main__ import main\nsys.exit(main())\n"
)


def version() -> str:
    """Names the sources that go into the guest."""
    digest = hashlib.sha256()
    names = [ROOT / "pyproject.toml", ROOT / "constraints.txt", Path(__file__)]
    names += sorted(path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for path in names:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def pip(*argv: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *map(str, argv)], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"pip {argv[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def archive() -> bytes:
    """A tar of kilter's wheel and its dependencies, for the guest's Python."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
        (wheel,) = folder.glob("kilter-*.whl")
        where = ["--python-version", PYTHON, "--only-binary=:all:", *(part for p in PLATFORMS for part in ("--platform", p))]
        pip("install", "--target", folder / "target", *where, "-c", ROOT / "constraints.txt", wheel)
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            tar.add(folder / "target", arcname=".", filter=lambda info: None if "__pycache__" in info.name else info)
        return made.getvalue()


def install(guest: Guest) -> None:
    guest.put("/opt/kilter.tar", archive())
    guest.put("/usr/local/bin/kilter", STARTER.encode(), 0o755)
    guest.check(
        "mkdir /opt/kilter && tar -xf /opt/kilter.tar -C /opt/kilter --no-same-owner && rm /opt/kilter.tar", timeout_s=300
    )
    guest.check("python3 -m compileall -q -j 4 /opt/kilter && kilter --help", timeout_s=600)
