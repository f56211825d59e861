"""``nvidia-smi -q -x`` (XML). Cut-off files give what was read up to the cut."""

from __future__ import annotations

from xml.parsers import expat

from kilter.facts.accelerator import Accelerator, MigDevice, Process
from kilter.intake.captures.nvidia_smi import Values, fill, integer, put_driver, timestamp
from kilter.intake.captures.xml_block import feed, foreign, new_parser
from kilter.intake.fragment import Block, Fragment

MAX_DEPTH = 40


class _Reader:
    def __init__(self, fragment: Fragment, first_line: int, parser: expat.XMLParserType) -> None:
        self.fragment = fragment
        self.first_line = first_line
        self.parser = parser
        self.path: list[str] = []
        self.text: list[str] = []
        self.line = first_line
        self.accelerators: list[Accelerator] = []
        self.gpu: Accelerator | None = None
        self.values: Values = {}
        self.processes: list[Process] | None = None
        self.migs: list[MigDevice] = []
        self.attached: int | None = None
        self.is_leaf = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.path) >= MAX_DEPTH:
            raise ValueError(f"XML nested deeper than {MAX_DEPTH}")
        self.path.append(tag)
        self._between_tags()
        self.is_leaf = True
        self.line = self.first_line + self.parser.CurrentLineNumber - 1
        if tag == "gpu" and len(self.path) == 2:
            self.gpu = self.fragment.accelerator(self.line)
            self.accelerators.append(self.gpu)
            self.values, self.processes, self.migs = {}, None, []
            if "id" in attributes:
                self.values["pci/pci_bus_id"] = (attributes["id"], self.line)
        elif self.gpu is not None:
            if tag == "processes":
                self.processes = []
            elif tag == "process_info" and self.processes is not None:
                self.processes.append(Process(pid=-1))
            elif tag == "mig_device":
                self.migs.append(MigDevice())

    def data(self, text: str) -> None:
        self.text.append(text)

    def _between_tags(self) -> None:
        """Text that stands in no element of its own is foreign."""
        pieces = "".join(self.text).split("\n")
        self.text = []
        first = self.first_line + self.parser.CurrentLineNumber - len(pieces)
        for number, piece in enumerate(pieces, first):
            foreign(self.fragment, number, piece.strip())

    def end(self, tag: str) -> None:
        if not self.is_leaf:
            self._between_tags()
        self.is_leaf = False
        value = "".join(self.text).strip()
        self.text = []
        if self.gpu is None:
            self._header(tag, value)
        elif tag == "gpu" and len(self.path) == 2:
            self.finish_gpu()
        elif "processes" in self.path:
            self._process(tag, value)
        elif "mig_device" in self.path:
            self._mig(tag, value)
        elif value:
            self.values.setdefault("/".join(self.path[2:]), (value, self.line))
        if self.path:
            self.path.pop()

    def _header(self, tag: str, value: str) -> None:
        if tag == "timestamp":
            self.fragment.source.time = timestamp(value)
        elif tag == "attached_gpus":
            self.attached = integer(value)
            self.fragment.snapshot.put("accelerators_attached", self.attached, self.fragment.ref(self.line))
        elif value:
            put_driver(self.fragment, tag, value, self.line)

    def _process(self, tag: str, value: str) -> None:
        if not self.processes:
            return
        process = self.processes[-1]
        if tag == "pid":
            process.pid = pid if (pid := integer(value)) is not None else -1
        elif tag == "type":
            process.type = value
        elif tag == "process_name":
            process.name = value
        elif tag == "used_memory":
            process.memory_mib = integer(value)

    def _mig(self, tag: str, value: str) -> None:
        mig = self.migs[-1]
        if tag == "gpu_instance_id":
            mig.gpu_instance = integer(value)
        elif tag == "compute_instance_id":
            mig.compute_instance = integer(value)
        elif tag == "total" and "fb_memory_usage" in self.path:
            mig.memory_total_mib = integer(value)

    def finish_gpu(self) -> None:
        if self.gpu is None:
            return
        fill(self.gpu, self.values, "xml", self.fragment, self.fragment.source.time)
        if self.processes is not None:
            self.gpu.processes = [p for p in self.processes if p.pid >= 0]
        if self.migs:
            self.gpu.mig_devices = self.migs
        elif (none := self.values.get("mig_devices")) is not None and none[0].strip() == "None":
            self.gpu.put("mig_devices", [], self.fragment.ref(none[1]))
        self.gpu = None


def parse(block: Block, fragment: Fragment) -> None:
    """Fill one accelerator a ``<gpu>``. Format: nvsmi_device_v11 and v12 documents of drivers 515-595."""
    parser = new_parser()
    reader = _Reader(fragment, block.first_line, parser)
    parser.CharacterDataHandler = reader.data
    if not feed(parser, reader, block, fragment, closing="</nvidia_smi_log>", what="XML") and reader.gpu is not None:
        reader.gpu.error = None
        reader.finish_gpu()
    if reader.attached is not None and reader.attached == len(reader.accelerators):
        for index, accelerator in enumerate(reader.accelerators):
            accelerator.put("index", index, accelerator.ref(""))
    elif reader.attached is not None and reader.attached > len(reader.accelerators):
        fragment.note(f"nvidia-smi -q -x: {reader.attached} GPUs attached, {len(reader.accelerators)} in the file")
