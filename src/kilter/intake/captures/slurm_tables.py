"""Tables of sinfo and squeue: with a header or without, separated by a sign or by position.

A format is whatever the user asked for (``-o``, ``-O``), so columns go by the header's names. Without a header (``-h``) columns are told by
what stands in them, over all rows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from kilter.intake.captures import slurm_entities as entities
from kilter.intake.captures import slurm_values as values
from kilter.intake.fragment import Fragment

Row = tuple[int, str]

_JOB_HEADERS = {"JOBID", "JOB_ID", "ARRAY_JOB_ID"}
_SEPARATORS = ("|#", "|", ";", "\t", "#", ",")
_WORDS = re.compile(r"\S+")
#: The layout of ``sinfo -N -l``.
_NARROW_MEMORY = re.compile(r"S:C:T MEMORY TMP_DISK")
#: Reasons for which jobs wait, as squeue prints them (slurm.h: enum job_state_reason).
_REASONS_WORDS = (
    "None Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive JobHeldAdmin "
    "JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit AssociationTimeLimit Reservation "
    "ReqNodeNotAvail NodeDown BadConstraints SystemFailure JobLaunchFailure NonZeroExitCode TimeLimit InactiveLimit "
    "InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning Prolog QOSNotAllowed "
    "AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpGRES QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit "
    "QOSMaxCpuPerUserLimit QOSMaxGRESPerUser QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit AssocGrpGRES AssocGrpCpuLimit "
    "AssocGrpNodeLimit AssocGrpJobsLimit AssocMaxJobsLimit JobArrayTaskLimit JobHoldMaxRequeue NodesBusy "
    "BurstBufferResources BurstBufferStageIn RaisedSignal"
)
REASONS = frozenset(_REASONS_WORDS.split())
_JOB_ID = re.compile(r"\d{1,12}(?:[_+]\S+)?$")
_TRES = re.compile(r"(?:cpu|mem|node|billing|gres/[^=,]+)=[^,]+(?:,|$)")
_GRES = re.compile(r"(?:gres[:/])?gpu(?:[:/=]|$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
_NAME = re.compile(r"[A-Za-z](?=[\w.-]*\d)[\w.-]*$|[A-Za-z][\w.-]*\[[\d,-]+\][\w.-]*(?:,.*)?$|[A-Za-z][\w.-]{2,}$")


def separator(line: str) -> str:
    """The sign between the columns of ``line``, "" for columns by position."""
    return next((sign for sign in _SEPARATORS if line.count(sign) >= 2 and (sign != "," or " " not in line.strip())), "")


def read(header: str, rows: list[Row], fragment: Fragment) -> None:
    """A table with a header: each row becomes nodes or a job; a row that names neither goes to ``unparsed``."""
    sign = separator(header)
    if sign:
        names = [_header_name(name) for name in header.split(sign)]
        split = [(line, text, text.split(sign)) for line, text in rows]
    else:
        names, split = _by_position(header, rows)
    jobs = bool(_JOB_HEADERS & set(names))
    nodes = entities.Nodes(fragment)
    for line, text, texts in split:
        if not text.strip():
            continue
        if abs(len(texts) - len(names)) > 1 and sign:
            fragment.unparsed(line, text[:200])
            continue
        cells: entities.Cells = {}
        for name, cell in zip(names, texts, strict=False):
            cells.setdefault(name, []).append(cell.strip())
        if _NARROW_MEMORY.search(header) and len("".join(cells.get("MEMORY", []))) >= 6:
            del cells["MEMORY"]  # sinfo -N -l cuts it to six signs without a mark
        placed = entities.add_job_row(cells, fragment, line) if jobs else entities.add_node_row(cells, nodes, line)
        if not placed:
            fragment.unparsed(line, text[:200])


def _header_name(text: str) -> str:
    name = text.strip().strip("#").upper()
    return "ALLOCMEM" if name == "ALLOC_MEM" else name


def _by_position(header: str, rows: list[Row]) -> tuple[list[str], list[tuple[int, str, list[str]]]]:
    """Columns where the header and every row are blank; where columns touch, by words."""
    header = header.expandtabs()
    spans = [(match.start(), match.end(), match.group()) for match in _WORDS.finditer(header)]
    names = [_header_name(name) for _, _, name in spans]
    texts = [(line, text.expandtabs()) for line, text in rows]
    width = min(max([len(header), *(len(text) for _, text in texts)]), 4096)
    used = bytearray(width + 1)
    for text in (header, *(text for _, text in texts if text.strip())):
        for match in _WORDS.finditer(text[:width]):
            used[match.start() : match.end()] = b"\1" * (match.end() - match.start())
    cuts = _cuts(spans, used)
    out = []
    for line, text in texts:
        if cuts is not None and len(text) >= spans[0][0]:
            out.append((line, text, [text[low:high].strip() for low, high in cuts]))
        else:
            out.append((line, text, _by_words(names, text)))
    return names, out


def _cuts(spans: list[tuple[int, int, str]], used: bytearray) -> list[tuple[int, int]] | None:
    """Where each column begins and ends; None when two columns are not parted by a blank in every row."""
    borders = [0]
    for (_, left_end, _), (right_start, _, _) in itertools.pairwise(spans):
        blank = [at for at in range(left_end, min(right_start, len(used))) if not used[at]]
        if not blank:
            return None
        # Between two headers may stand the end of a left-aligned text or the beginning of a right-aligned one. Texts with blanks in
        # them (reasons) are left-aligned, so the last blank is the border.
        borders.append(blank[-1])
    return list(zip(borders, [*borders[1:], 1 << 20], strict=True))


_REASON_ROW = re.compile(
    r"(?P<reason>.*\S)\s+(?P<user>\S+)\s+(?P<time>\d{4}-\d\d-\d\dT[\d:]{8}|Unknown)\s+(?:(?P<state>\S+)\s+)?(?P<nodes>\S+)\s*$"
)


def _by_words(names: list[str], text: str) -> list[str]:
    """A row whose columns cannot be told by position: words in order, what is left in the last column."""
    if names[:1] == ["REASON"] and (match := _REASON_ROW.match(text[:4096])):
        found = {"REASON": match["reason"], "USER": match["user"], "TIMESTAMP": match["time"]}
        found |= {"STATE": match["state"] or "", "NODELIST": match["nodes"]}
        return [found.get(name, "") for name in names]
    return text.split(None, len(names) - 1) if len(names) > 1 else [text]


# -- without a header -----------------------------------------------------------------------------------------------------------------


def read_headerless(rows: list[Row], fragment: Fragment) -> None:
    """Rows of ``sinfo -h`` or ``squeue -h`` with a separator: columns told by their contents. Other rows go to ``unparsed``."""
    sign = next((s for _, text in rows if (s := separator(text))), "")
    split = [(line, text, [cell.strip() for cell in text.split(sign)]) for line, text in rows if sign and sign in text]
    if split:
        usual = max({len(cells) for _, _, cells in split}, key=lambda n: sum(1 for row in split if len(row[2]) == n))
        split = [row for row in split if len(row[2]) == usual]
    placed = {line for line, _, _ in split}
    for line, text in rows:
        if line not in placed:
            fragment.unparsed(line, text[:200])
    if not split:
        return
    columns = [list(column) for column in zip(*(cells for _, _, cells in split), strict=True)]
    names = _job_columns(columns) if _column(columns, values.is_job_state) is not None else _node_columns(columns)
    nodes = entities.Nodes(fragment)
    for line, text, texts in split:
        cells: entities.Cells = {}
        for index, cell in enumerate(texts):
            if index in names:
                cells.setdefault(names[index], []).append(cell)
        done = entities.add_job_row(cells, fragment, line) if "JOBID" in cells else entities.add_node_row(cells, nodes, line)
        if not done:
            fragment.unparsed(line, text[:200])
    if split:
        fragment.note("a table without a header: its columns were told by their contents; run it without -h to be sure")


def _column(
    columns: list[list[str]], test: Callable[[str], bool], taken: dict[int, str] | None = None, *, empty: bool = False
) -> int | None:
    """The first column whose cells all pass (empty and N/A ones where ``empty``; at least one must)."""
    for index, column in enumerate(columns):
        if taken and index in taken:
            continue
        full = [cell for cell in column if not (empty and values.nothing(cell))]
        if full and all(test(cell) for cell in full):
            return index
    return None


def _node_columns(columns: list[list[str]]) -> dict[int, str]:
    names: dict[int, str] = {}

    def give(name: str, test: Callable[[str], bool], *, empty: bool = False) -> None:
        index = _column(columns, test, names, empty=empty)
        if index is not None:
            names[index] = name

    give("STATE", values.is_node_state)
    give("GRES", lambda cell: bool(_GRES.match(cell)) or cell == "(null)")
    give("GRES_USED", lambda cell: bool(_GRES.match(cell)))
    give("CPUS(A/I/O/T)", lambda cell: bool(re.fullmatch(r"\d+/\d+/\d+/\d+", cell)))
    give("TIMESTAMP", lambda cell: bool(_TIME.match(cell)), empty=True)
    give("NODELIST", lambda cell: bool(_NAME.match(cell)) and values.hosts(cell) is not None)
    give("CPUS", lambda cell: values.number(cell) is not None)
    give("PARTITION", lambda cell: bool(re.fullmatch(r"[A-Za-z][\w.-]*\*?", cell)))
    return names


def _job_columns(columns: list[list[str]]) -> dict[int, str]:
    state = _column(columns, values.is_job_state)
    assert state is not None
    names: dict[int, str] = {state: "STATE"}
    pending = [cell == "PENDING" for cell in columns[state]]

    def give(name: str, test: Callable[[str], bool], *, empty: bool = False, after: int = -1) -> int | None:
        hidden = {**names, **dict.fromkeys(range(after + 1), "")}
        index = _column(columns, test, hidden, empty=empty)
        if index is not None:
            names[index] = name
        return index

    give("REASON", lambda cell: cell in REASONS)
    give("TRES_ALLOC", lambda cell: bool(_TRES.match(cell)))
    give("TRES_PER_NODE", lambda cell: bool(_GRES.match(cell)), empty=True)
    ids = [i for i, column in enumerate(columns) if i not in names and all(_JOB_ID.match(cell) for cell in column)]
    if ids:  # numbers of jobs differ from row to row, those of CPUs and nodes are small
        best = max(ids, key=lambda i: (sum(len(cell.partition("_")[0]) for cell in columns[i]), "_" in "".join(columns[i]), -i))
        names[best] = "JOBID"
    _durations(columns, names, pending)
    _nodelist(columns, names, pending)
    give(
        "NAME", lambda cell: bool(re.match(r"[^\s/(]", cell)) and not re.fullmatch(r"[\d.:TGMK/-]+|N/A", cell) and len(cell) < 200
    )
    return names


def _durations(columns: list[list[str]], names: dict[int, str], pending: list[bool]) -> None:
    """Limit, used and left: limit = used + left in every row, and a pending job has used nothing."""
    found = {}
    for index, column in enumerate(columns):
        times = [values.duration(cell) for cell in column]
        if index not in names and all(time is not None for time in times):
            found[index] = [time for time in times if time is not None]
    items = list(found.items())[:8]
    for limit, a in items:
        for used, b in items:
            for left, c in items:
                adds_up = all(abs(x - y - z) <= 1 for x, y, z in zip(a, b, c, strict=True)) and any(b)
                idle = all(y == 0 for y, waits in zip(b, pending, strict=True) if waits)
                if len({limit, used, left}) == 3 and adds_up and idle:
                    names |= {limit: "TIME_LIMIT", used: "TIME", left: "TIME_LEFT"}
                    return


def _nodelist(columns: list[list[str]], names: dict[int, str], pending: list[bool]) -> None:
    """The nodes of running jobs: a pending job has none."""
    for index, column in enumerate(columns):
        if index in names or not any(not waits for waits in pending):
            continue
        if all(
            (cell == "") if waits else bool(_NAME.match(cell) and values.hosts(cell))
            for cell, waits in zip(column, pending, strict=True)
        ):
            names[index] = "NODELIST"
            return
