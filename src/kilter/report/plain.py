"""Texts of inputs and file names on a terminal: what they hold must not move its cursor, set its title or turn its lines."""

from __future__ import annotations

import datetime
import re

import msgspec

#: Colours and erasures as grep and shells print them (ECMA-48, control sequences): dropped, they say nothing.
_SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,8}[@-~]")
#: C0 and C1 controls, DEL, direction marks and overrides (Unicode Technical Report 36, section 2.10), halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: The same inside JSON, where line ends and indentation are the document's own.
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if match.group() in "\t\n\r":
        return " "
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is no UTF-8 (PEP 383)
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def plain(text: str) -> str:
    """``text`` on one line, without escape sequences; other control characters are spelt out, ``\\x07``."""
    if text.isprintable():
        return text
    return _CONTROL.sub(_visible, _SEQUENCE.sub("", text))


def json_text(value: object, *, indent: int = 2) -> str:
    """A document as every command prints it. Characters that JSON allows but a terminal obeys are escaped."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, out of a file's name
        data = msgspec.json.encode(_whole(msgspec.to_builtins(value)))
    text = msgspec.json.format(data, indent=indent).decode() + "\n"
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not _encodes(value) else value
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, (list, tuple)) else value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utc(seconds: float, form: str) -> str:
    """A time since the epoch by a form of ``strftime``; the bare number where no calendar reaches."""
    try:
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"
