"""A bootc image: files copied in, kernel arguments in /usr/lib/bootc/kargs.d (docs.fedoraproject.org/en-US/bootc/kernel-args)."""

from __future__ import annotations

import json

from kilter.tune.export.mkosi import image_files
from kilter.tune.export.parts import IN_FILES, Export, Parts


def make(found: Parts, name: str) -> Export:
    add, remove = found.arguments()
    files, notes = image_files(found)
    made = {f"rootfs{path}": text for path, text in files.items()}
    if add:
        made[f"rootfs/usr/lib/bootc/kargs.d/50-{name}.toml"] = f"kargs = {json.dumps(add)}\n"
    made["Containerfile"] = (
        "# Written by kilter.\nARG BASE\nFROM ${BASE}\n"
        + ("COPY rootfs/ /\n" if len(made) else "")
        + "RUN bootc container lint\n"
    )
    notes += [f"to be taken out of the base image's kargs.d: {word}" for word in remove]
    return Export(files=made, notes=[*notes, *found.left(*IN_FILES, "cmdline", "unit")])
