"""Bytes of a text file -> text, whichever system wrote it."""

from __future__ import annotations

import codecs

#: Byte order marks (Unicode Standard, section 23.8); that of UTF-32 begins like that of UTF-16. PowerShell's ``>`` writes UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD = 4096


def decode(data: bytes) -> str:
    """The text of ``data``: UTF-8 unless a mark, or NULs in every second byte, say otherwise. Bytes that are none become U+FFFD.

    A text without any line feed, but with carriage returns, has these for line ends.
    """
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    text = data[len(mark) :].decode(encoding or _unmarked(data[:_HEAD]), "replace")
    return text.replace("\r", "\n") if "\r" in text and "\n" not in text else text


def _unmarked(head: bytes) -> str:
    """UTF-16 of mostly ASCII characters has a NUL in every pair of bytes, always at the same side."""
    if b"\x00" not in head:
        return "utf-8"
    pairs = len(head) // 2
    first, second = head[::2].count(0), head[1::2].count(0)
    if second > 0.7 * pairs and first < 0.05 * pairs:
        return "utf-16-le"
    if first > 0.7 * pairs and second < 0.05 * pairs:
        return "utf-16-be"
    return "utf-8"
