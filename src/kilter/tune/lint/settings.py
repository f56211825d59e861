"""Where a text sets a variable of NCCL, CUDA, PyTorch, a plugin or an engine, whatever form the text has."""

from __future__ import annotations

import re

from kilter.tune.lint.setting import ANY, Setting

#: Form of text -> what it is.
KINDS = {
    "script": "shell script, Slurm batch file, command line",
    "dockerfile": "Dockerfile",
    "yaml": "Kubernetes manifest or other YAML or JSON",
    "conf": "NCCL's own file, /etc/nccl.conf",
    "env": "env file or output of env",
    "python": "Python",
    "toml": "TOML",
    "log": "NCCL's log",
}
_NAMES = (
    (re.compile(r"(?:^|/)[\w.-]*nccl[\w-]*\.conf$"), "conf"),
    (re.compile(r"\.py$"), "python"),
    (re.compile(r"(?:^|/)(?:Dockerfile|Containerfile)[\w.-]*$|\.[dD]ockerfile$"), "dockerfile"),
    (re.compile(r"\.(?:ya?ml|json)(?:\.\w+)?$"), "yaml"),
    (re.compile(r"\.toml$"), "toml"),
    (re.compile(r"(?:^|/)\.?env$|\.env$|(?:^|/)environ$"), "env"),
    (re.compile(r"\.(?:sh|bash|zsh|csh|sbatch|slurm|job|lua|service)$"), "script"),
)
_LOG = re.compile(r"NCCL (?:INFO|WARN)|set by environment to")
_PAIRS = re.compile(r"(?:\s*(?:#.*)?\n|[A-Za-z_]\w*=.*\n)+\Z")


def kind_of(file: str, text: str) -> str:
    """The form of a text by its file's name, else by what it looks like."""
    for pattern, kind in _NAMES:
        if pattern.search(file):
            return kind
    start = text[:4096]
    if start.startswith("#!"):
        return "python" if "python" in start.partition("\n")[0] else "script"
    if _LOG.search(start) or "set by environment to" in text[: 1 << 20]:
        return "log"
    if re.search(r"^apiVersion\s*:", start, re.M) or start.lstrip().startswith(("{", "- name:")):
        return "yaml"
    if re.match(r"\s*(?:#.*\n\s*)*(?:ARG\s.*\n\s*)*FROM\s+\S", start):
        return "dockerfile"
    if len(text) < 1 << 18 and _PAIRS.match(text if text.endswith("\n") else f"{text}\n"):
        return "env"
    return "script"


def settings(text: str, file: str, kind: str = "") -> list[Setting]:
    """Every setting of a text in its order. ``kind`` is one of :data:`KINDS`; "" = told by name and look."""
    if not ANY.search(text):
        return []
    kind = kind or kind_of(file, text)
    if kind in ("script", "dockerfile"):
        from kilter.tune.lint.readers.shell import read_shell

        return read_shell(text, file)
    if kind == "yaml":
        from kilter.tune.lint.readers.tree import read_tree

        return read_tree(text, file)
    from kilter.tune.lint.readers import plain

    read = {
        "conf": plain.read_conf,
        "env": plain.read_pairs,
        "python": plain.read_python,
        "toml": plain.read_toml,
        "log": plain.read_log,
    }
    return read[kind](text, file)
