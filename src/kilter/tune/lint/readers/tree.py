"""Kubernetes manifests and other YAML or JSON: names and values of ``env`` lists, plain pairs, and scripts in block texts.

Forms: Kubernetes API, EnvVar of a container; ConfigMap data. A chart with template marks that is no YAML is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kilter.tune.lint.readers.shell import plain_value, read_shell, without_comment
from kilter.tune.lint.setting import ANY, FAMILY, MAX_LINE, Edit, Setting, Span

_MAX_TREE = 1 << 20  # characters; a larger text is read line by line
_MAX_NODES = 100_000
_LISTED = re.compile(
    rf"^(?P<indent>\s*)(?:- )?\{{?\s*[\"']?name[\"']?\s*:\s*[\"']?(?P<name>{FAMILY})[\"']?\s*"
    r"(?:,\s*[\"']?value[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^,}\s]*))?"
)
_VALUE = re.compile(r"^\s*(?:- )?[\"']?value[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^#,}]*)")
_PAIR = re.compile(rf"^\s*[\"']?(?P<name>{FAMILY})[\"']?\s*:\s*(?P<value>\"[^\"]*\"|'[^']*'|[^#,}}]*)")
_EMPTY = ("null", "~", "None", "")


def read_tree(text: str, file: str) -> list[Setting]:
    """The settings of YAML or JSON."""
    if len(text) > _MAX_TREE or "{{" in text:
        return read_lines(text, file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[Setting] = []
    lines = text.splitlines()
    try:
        for number, document in enumerate(yaml.compose_all(text, Loader=loader)):
            if document is not None:
                found += _Walk(lines, file).settings(document, (f"document {number + 1}",) if number else ())
    except (yaml.YAMLError, ValueError, RecursionError):
        return read_lines(text, file)
    return sorted(found, key=lambda s: (s.line, s.column))


class _Walk:
    """Over one document. Anchored nodes are seen once."""

    def __init__(self, lines: list[str], file: str) -> None:
        self.lines, self.file = lines, file
        self.seen: set[int] = set()

    def settings(self, root: Node, scope: tuple[str, ...]) -> list[Setting]:
        found: list[Setting] = []
        todo: list[tuple[Node, tuple[str, ...]]] = [(root, scope)]
        while todo and len(self.seen) < _MAX_NODES:
            node, where = todo.pop()
            if id(node) in self.seen:
                continue
            self.seen.add(id(node))
            if isinstance(node, ScalarNode):
                found += self._script(node, where)
            elif isinstance(node, SequenceNode):
                todo += [(child, where) for child in node.value]
            elif isinstance(node, MappingNode):
                pairs = node.value
                listed = self._listed(pairs, node, where)
                if listed is not None:
                    found.append(listed)
                    continue
                inner = where
                if any(key.value in ("env", "image", "containers") for key, _ in pairs if isinstance(key.value, str)):
                    inner = (*where, f"line {node.start_mark.line + 1}")
                for key, child in pairs:
                    if isinstance(key, ScalarNode) and ANY.fullmatch(key.value):
                        if isinstance(child, ScalarNode) and not self._empty(child):
                            found.append(self._pair(key, child, where))
                        continue
                    todo.append((child, inner))
        return found

    def _empty(self, node: ScalarNode) -> bool:
        return node.style in (None, "") and node.value in _EMPTY

    def _listed(self, pairs: list[tuple[Node, Node]], node: MappingNode, where: tuple[str, ...]) -> Setting | None:
        by_name = {key.value: child for key, child in pairs if isinstance(key.value, str)}
        name, value = by_name.get("name"), by_name.get("value")
        if not isinstance(name, ScalarNode) or not ANY.fullmatch(name.value):
            return None
        if not isinstance(value, ScalarNode) or self._empty(value):
            # valueFrom, or nothing: the name alone is judged
            return self._make(name, None, where, []) if "valueFrom" in by_name or value is not None else None
        cut = []
        if not node.flow_style:
            first, end = node.start_mark, node.end_mark
            last = end.line if end.column == 0 or not self._text(end.line)[: end.column].strip() else end.line + 1
            dash = self._text(first.line)[: first.column].strip()
            if dash == "-":
                cut = [
                    Span(line, 0, -1)
                    for line in range(first.line + 1, last + 1)
                    if self._text(line - 1).strip() and not self._text(line - 1).lstrip().startswith("#")
                ]
        return self._make(name, value, where, cut)

    def _text(self, line: int) -> str:
        return self.lines[line] if line < len(self.lines) else ""

    def _pair(self, key: ScalarNode, value: ScalarNode, where: tuple[str, ...]) -> Setting:
        line = key.start_mark.line
        before = self._text(line)[: key.start_mark.column]
        one_line = value.end_mark.line == line and not self._text(line)[value.end_mark.column :].strip(" ,").partition("#")[0]
        # In JSON the comma of the line before may be the last one then: such a line stays.
        whole = not before.strip() and one_line and not self._text(line).lstrip().startswith(('"', "'"))
        return self._make(key, value, where, [Span(line + 1, 0, -1)] if whole else [])

    def _make(self, name: ScalarNode, value: ScalarNode | None, where: tuple[str, ...], cut: list[Span]) -> Setting:
        start = name.start_mark
        quote = 1 if name.style in ("'", '"') else 0
        column = start.column + quote
        text: str = name.value
        said, known = ("", False) if value is None else plain_value(value.value.strip())
        span = None
        if value is not None and value.start_mark.line == value.end_mark.line:
            inner = 1 if value.style in ("'", '"') else 0
            span = Span(value.start_mark.line + 1, value.start_mark.column + inner, value.end_mark.column - inner)
        edit = Edit(Span(start.line + 1, column, column + len(text)), span, cut)
        return Setting(text, said, self.file, start.line + 1, column + 1, len(text), known=known, scope=where, edit=edit)

    def _script(self, node: ScalarNode, where: tuple[str, ...]) -> Iterator[Setting]:
        """A block text, or a command in one line, as a shell reads it."""
        if ANY.search(node.value) is None:
            return
        start, end = node.start_mark, node.end_mark
        if node.style in ("|", ">"):
            first = start.line + 1
            yield from read_shell(
                "\n".join(self.lines[first : end.line + (end.column > 0)]),
                self.file,
                (*where, f"text of line {first}"),
                first + 1,
                prose=node.style == ">",
            )
        elif start.line == end.line:
            inner = 1 if node.style in ("'", '"') else 0
            piece = self._text(start.line)[start.column + inner : end.column - inner]
            # Blanks in front keep the columns right.
            yield from read_shell(" " * (start.column + inner) + piece, self.file, where, start.line + 1, prose=True)


def read_lines(text: str, file: str) -> list[Setting]:
    """The same of a text that is no YAML yet (a chart's template), as far as one line after another tells."""
    found: list[Setting] = []
    pending: tuple[str, int, int] | None = None
    scope: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_LINE:
            continue
        if line.startswith("---"):
            scope = (f"document of line {number}",)
        elif re.match(r"\s*(?:- )?env\s*:", line):
            scope = (*scope[:1], f"env of line {number}")
        if pending is not None:
            value = _VALUE.match(line)
            if value is not None:
                said, known = plain_value(value["value"])
                edit = Edit(Span(pending[1], pending[2], pending[2] + len(pending[0])))
                found.append(
                    Setting(
                        pending[0], said, file, pending[1], pending[2] + 1, len(pending[0]), known=known, scope=scope, edit=edit
                    )
                )
                pending = None
                continue
            if number - pending[1] > 2:
                pending = None
        if ANY.search(line) is None:
            continue
        code = without_comment(line)
        listed = _LISTED.match(code)
        pair = _PAIR.match(code)
        if listed is not None and listed["value"] is None:
            pending = (listed["name"], number, listed.start("name"))
        elif listed is not None or (pair is not None and pair["value"].strip() not in _EMPTY):
            match = listed or pair
            assert match is not None
            said, known = plain_value(match["value"])
            edit = Edit(Span(number, *match.span("name")))
            found.append(
                Setting(
                    match["name"],
                    said,
                    file,
                    number,
                    match.start("name") + 1,
                    len(match["name"]),
                    known=known,
                    scope=scope,
                    edit=edit,
                )
            )
        elif pair is None:
            found += read_shell(code, file, (*scope, "text"), number)
    return found
