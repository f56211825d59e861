"""XML outputs, read as a stream: a cut file gives what stood before the cut, entities are refused."""

from __future__ import annotations

from typing import Protocol
from xml.parsers import expat

from kilter.intake.fragment import Block, Fragment


class Reader(Protocol):
    """What is told of the elements."""

    def start(self, tag: str, attributes: dict[str, str]) -> None: ...

    def end(self, tag: str) -> None: ...


def _refuse(*_: object) -> None:
    raise ValueError("XML entity declarations are not read")


def new_parser() -> expat.XMLParserType:
    """A parser that takes the text as UTF-8 whatever the declaration says: the text was decoded already."""
    parser = expat.ParserCreate("UTF-8")
    parser.EntityDeclHandler = _refuse
    return parser


def foreign(fragment: Fragment, number: int, text: str) -> None:
    """Text that belongs to no element: its line is counted once, however many elements stand on it."""
    if not (fragment.unplaced and fragment.unplaced[-1][0] == number):
        fragment.unparsed(number, text)


def feed(
    parser: expat.XMLParserType,
    reader: Reader,
    block: Block,
    fragment: Fragment,
    *,
    closing: str,
    what: str,
    has_text: bool = True,
) -> bool:
    """Read up to the line with ``closing``; lines behind it are left to others. False when the text ends or breaks before (noted).

    Without ``has_text``, elements have attributes only, and any text between them is foreign.
    """
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    if not has_text:
        parser.CharacterDataHandler = lambda text: foreign(fragment, block.first_line + parser.CurrentLineNumber - 1, text)
    end = next((i for i, line in enumerate(block.lines) if closing in line), len(block.lines) - 1)
    complete = True
    try:
        parser.Parse("\n".join(block.lines[: end + 1]).encode("utf-8", "replace"), True)
    except (expat.ExpatError, ValueError) as error:
        complete = False
        line = block.first_line + parser.CurrentLineNumber - 1
        fragment.note(f"{what} ends or breaks at line {line}: {error}; what stood before it was read")
    for number, text in enumerate(block.lines[end + 1 :], block.first_line + end + 1):
        fragment.unparsed(number, text)
    return complete
