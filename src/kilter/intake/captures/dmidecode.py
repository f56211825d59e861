"""``dmidecode``: maker, product, board and firmware of the machine. Other records are passed over.

Source of the format: dmidecode, dmidecode.c (dmi_decode). Serial numbers and UUIDs are not kept.
"""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_FIELDS = {
    ("BIOS Information", "Version"): "bios_version",
    ("BIOS Information", "Release Date"): "bios_date",
    ("System Information", "Manufacturer"): "dmi_vendor",
    ("System Information", "Product Name"): "dmi_product",
    ("Base Board Information", "Product Name"): "dmi_board",
}
_TITLE = re.compile(r"[A-Z][\w /()-]{2,60}$")
_PAIR = re.compile(r"([A-Z][\w /()-]{1,60}):(?: (.*))?$")
_NOTHING = {
    "",
    "Not Specified",
    "Not Present",
    "To Be Filled By O.E.M.",
    "Default string",
    "System Product Name",
    "Unknown",
    "None",
}


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.host``: dmi_vendor, dmi_product, dmi_board, bios_version, bios_date. Of several boards, the first."""
    title = ""
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if raw.startswith("Handle 0x"):
            title = ""
        elif pair := _PAIR.match(text):
            field = _FIELDS.get((title, pair[1]))
            value = (pair[2] or "").strip()
            if field is not None and value not in _NOTHING and getattr(fragment.snapshot.host, field) is None:
                fragment.snapshot.host.put(field, value, fragment.ref(line))
        elif _TITLE.match(text) and not title:
            title = text
