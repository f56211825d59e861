"""Which lines of a shell script run only sometimes: if, case, functions, here documents, lists with && and ||."""

from __future__ import annotations

import re

_KEYWORD = re.compile(r"\b(?:if|elif|else|fi|case|esac)\b|;;")
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\{[^}]*\}")
_TOKEN = re.compile(r";;&?|;&|&&|\|\||[;&|(){}]|[^\s;&|(){}]+")
_STARTS = {"if", "then", "else", "elif", "do", "while", "until", "!", "&&", "||", ";", ";;", ";&", ";;&", "&", "|", "(", "{"}
_FUNCTION = re.compile(r"^(?P<indent>\s*)(?:function\s+[\w.:-]+\s*(?:\(\s*\))?|[\w.:-]+\s*\(\s*\))\s*(?P<brace>\{?)")
_HEREDOC = re.compile(r"(?<!<)<<(?P<dash>-?)\s*(?P<quote>[\"'\\]?)(?P<word>[A-Za-z_][\w.-]*)")
_MAX_DEPTH = 200


class Blocks:
    """Follows a script line by line; :attr:`scope` and :meth:`branch_at` are those of the line that was given last."""

    def __init__(self, scope: tuple[str, ...] = ()) -> None:
        self.scope = scope
        self._marks: list[tuple[int, tuple[str, ...]]] = [(0, ())]  # column, and the branch from there on
        self._open: list[tuple[str, int, int]] = []  # kind, number of the block, arm
        self._count = 0
        self._function: str | None = None  # the indent at which it ends
        self._document = ""  # the word that ends the here document we are in
        self._next: tuple[str, int] | None = None  # that of the one which begins after this line, and its line
        self._outside: tuple[tuple[str, ...], list[tuple[str, int, int]], str | None] = (scope, [], None)

    @property
    def in_document(self) -> bool:
        """Whether the line is text of a here document."""
        return bool(self._document)

    def line(self, text: str, number: int) -> bool:
        """Takes the next line, comments gone. False for a line that ends a here document."""
        if self._next is not None:
            (self._document, first), self._next = self._next, None
            self._outside = (self.scope, self._open, self._function)
            self.scope, self._open, self._function = (*self.scope, f"here document of line {first}"), [], None
        if self._document and text.strip() == self._document:
            self._document = ""
            self.scope, self._open, self._function = self._outside
            return False
        self._follow(text)
        if not self._document and "<<" in text and (match := _HEREDOC.search(_QUOTED.sub(_kept, text))) is not None:
            self._next = (match["word"], number)
        return True

    def branch_at(self, column: int) -> tuple[str, ...]:
        """The arms of blocks that a column (from 0) of the line stands in."""
        return next((branch for start, branch in reversed(self._marks) if start <= column), ())

    def _branch(self) -> tuple[str, ...]:
        return tuple(f"{block}:{arm}" for _, block, arm in self._open)

    def _follow(self, text: str) -> None:
        if self._function is not None and re.match(rf"{self._function}\}}", text):
            self._function = None
            self._open = [one for one in self._open if one[0] != "function"]
        elif self._function is None and (match := _FUNCTION.match(text)) is not None and len(self._open) < _MAX_DEPTH:
            body = text[match.end() :]
            if not (match["brace"] and "}" in body):
                self._function = match["indent"]
                self._push("function")
        self._marks = [(0, self._branch())]
        if _KEYWORD.search(text) is not None:
            self._words(_QUOTED.sub(lambda match: "Q" * len(match[0]), text))

    def _push(self, kind: str) -> None:
        if len(self._open) < _MAX_DEPTH:
            self._count += 1
            self._open.append((kind, self._count, 0))

    def _arm(self, kind: str) -> None:
        if self._open and self._open[-1][0] == kind:
            _, block, arm = self._open[-1]
            self._open[-1] = (kind, block, arm + 1)

    def _close(self, kind: str) -> None:
        if self._open and self._open[-1][0] == kind:
            self._open.pop()

    def _words(self, text: str) -> None:
        start = True
        for match in _TOKEN.finditer(text):
            piece, before = match[0], len(self._open)
            arms = self._open[-1:]
            if piece.startswith(";;") or piece == ";&":
                self._arm("case")
            elif not start:
                pass
            elif piece in ("if", "case"):
                self._push(piece)
            elif piece in ("else", "elif"):
                self._arm("if")
            elif piece == "fi":
                self._close("if")
            elif piece == "esac":
                self._close("case")
            if len(self._open) != before or self._open[-1:] != arms:
                self._marks.append((match.end(), self._branch()))
            # "a) if ..." begins a command too
            start = piece in _STARTS or (piece == ")" and bool(self._open) and self._open[-1][0] == "case")


def _kept(match: re.Match[str]) -> str:
    """Quotes go, but those of ``<<'EOF'`` stay."""
    text = match[0]
    return text if re.fullmatch(r"['\"][\w.-]+['\"]", text) else " " * len(text)
