"""mkosi: kernel arguments in a fragment of mkosi.conf, files below mkosi.extra (mkosi(1))."""

from __future__ import annotations

from kilter.tune.export.parts import IN_FILES, Export, Parts, removals


def image_files(found: Parts) -> tuple[dict[str, str], list[str]]:
    """(files of an image, notes): units are set by a preset."""
    files = found.files()
    presets = [
        f"{'enable' if word == 'enabled' else 'disable'} {unit}\n"
        for unit, word in found.units()
        if word in ("enabled", "disabled", "masked")
    ]
    if presets:
        files["/etc/systemd/system-preset/10-kilter.preset"] = "".join(presets)
    runtime = [
        f"an image does not start or stop units: {unit} {word}" for unit, word in found.units() if word in ("started", "stopped")
    ]
    return files, [*runtime, *removals(found, *IN_FILES)]


def make(found: Parts, name: str) -> Export:
    add, remove = found.arguments()
    files, notes = image_files(found)
    made = {f"mkosi.extra{path}": text for path, text in files.items()}
    lines = ["# Written by kilter.", "[Content]"] + [f"KernelCommandLine={word}" for word in add]
    made[f"mkosi.conf.d/50-{name}.conf"] = "\n".join(lines) + "\n"
    notes += [f"to be left out of KernelCommandLine= elsewhere: {word}" for word in remove]
    return Export(files=made, notes=[*notes, *found.left(*IN_FILES, "cmdline", "unit")])
