"""What terminal reports share: a gutter, wrapping, colour."""

from __future__ import annotations

import textwrap

from kilter.report.plain import plain


def count(number: int, one: str, many: str = "") -> str:
    """``3 parameters``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


class Writer:
    """Lines of a terminal report: wrapped to a width, coloured or not."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text

    def add(self, text: str = "") -> None:
        self.lines.append(text)

    def labelled(self, label: str, text: str, *, indent: int = 2, gutter: int = 9) -> None:
        """``label`` in the gutter, ``text`` wrapped beside it."""
        room = max(self.width - indent - gutter, 30)
        wrapped = textwrap.wrap(plain(text), room, break_long_words=True, break_on_hyphens=False) or [""]
        pad = " " * indent
        self.add(f"{pad}{self.paint(plain(label).ljust(gutter), '2')}{wrapped[0]}")
        for line in wrapped[1:]:
            self.add(f"{pad}{' ' * gutter}{line}")

    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n") + "\n"
