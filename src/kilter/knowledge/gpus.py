"""What an accelerator can do, and how many NVLinks it should have. Tables: ``tables/gpus.yaml``, ``tables/gpu_ids.yaml``.

Figures that no source confirms are named in :attr:`GpuSpec.unconfirmed`; ``None`` is "not supported or not public".
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from kilter.knowledge.table import table, typed

Confidence = Literal["high", "medium", "low"]

_NAMELESS = re.compile(r"(nvidia( corporation)? )?(device( [0-9a-f]{4})?|graphics device|g[a-z]\d{3}\w*)")


class GpuSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sources": "src"}):
    """Peaks are dense TFLOP/s (TOP/s for int8) at the vendor's clock; ``gb_s`` is 1e9 bytes/s, one direction."""

    arch: str
    fp32: float | None
    bf16: float | None
    fp16: float | None
    fp8: float | None
    fp4: float | None
    int8: float | None
    memory_gb: float
    memory_type: str
    memory_gb_s: float | None
    pcie: str | None
    tdp_w: float | None
    sources: list[str]
    key: str = ""
    cc: str | None = None
    sm: int | None = None
    tf32: float | None = None
    l2_mb: float | None = None
    l3_mb: float | None = None
    nvlink_generation: int | None = None
    nvlink_gb_s: float | None = None
    nvlink_note: str = ""
    nvlink_domain_gpus: int | None = None
    visible_gib: float | None = None
    memory_gb_alt: float | None = None
    memory_gb_s_alt: float | None = None
    tdp_w_alt: float | None = None
    bf16_matmul_measured: float | None = None
    fp8_matmul_measured: float | None = None
    allreduce_busbw_measured_gb_s: float | None = None
    fp16_note: str = ""
    fp8_note: str = ""
    pci_id: str = ""
    topology: str = ""
    note: str = ""
    unconfirmed: list[str] = []
    confidence: str = ""

    def confidence_of(self, field: str) -> Confidence:
        """How far ``field`` can be trusted: ``low`` where the table names it as unconfirmed."""
        words = {u.split(" (")[0] for u in self.unconfirmed}
        if field in words or "all" in words:
            return "low"
        return "low" if self.confidence == "low" else "high"

    def source_names(self) -> list[str]:
        return table("gpus").source_names(self.sources)


class NvLinks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NVLinks of a healthy GPU of one product. ``optional``: a bridge product, where no active link at all is normal too."""

    count: int
    confidence: Confidence
    source: str
    link_gb_s: float | None = None  # one link, one direction, as nvidia-smi prints it
    also_gb_s: list[float] = []  # other values seen on healthy machines
    optional: bool = False

    def allows(self, active: int) -> bool:
        """Is ``active`` links what a healthy GPU of this product shows?"""
        return active == self.count or (self.optional and active == 0)

    def allows_speed(self, gb_s: float) -> bool:
        """Is ``gb_s`` a speed that a healthy link of this product prints (to 1 %)?"""
        if self.link_gb_s is None:
            return True
        return any(abs(gb_s - s) <= 0.01 * s for s in (self.link_gb_s, *self.also_gb_s))


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A product: how tools name it, its PCI device ids, and the key of its figures in ``gpus.yaml`` if it has any."""

    key: str
    spec: str | None
    names: list[str]
    pci_ids: list[str]
    source: str
    nvlinks: NvLinks | None = None

    @property
    def vendor(self) -> str:
        return "kunlunxin" if self.key.startswith("Kunlun") else "nvidia"


@functools.cache
def products() -> tuple[Product, ...]:
    """All known products."""
    return tuple(typed(table("gpu_ids").head("gpus"), list[Product]))


def spec_keys() -> list[str]:
    """Keys of all entries of ``gpus.yaml``."""
    return table("gpus").members("gpus")


@functools.cache
def spec(key: str) -> GpuSpec | None:
    """The figures of one key of ``gpus.yaml``, or ``None``. Parses that entry only."""
    entry = table("gpus").member("gpus", key)
    return None if entry is None else typed({"key": key, **entry}, GpuSpec)


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()


@functools.cache
def _index() -> tuple[dict[str, Product], dict[int, Product]]:
    names = {_folded(n): p for p in products() for n in p.names}
    ids = {int(i, 16): p for p in products() for i in p.pci_ids}
    return names, ids


def _by_name(name: str) -> Product | None:
    """The product that a tool's name means; board names of lspci ("GA100 [A100 SXM4 80GB]") too."""
    bracket = re.search(r"\[([^\[\]]+)\]", name)
    plain = _folded(bracket[1] if bracket else name)
    short = re.sub(r"^(nvidia(?: corporation)? )?(tesla )?", "", plain)
    names, _ = _index()
    for text in (plain, short):
        product = names.get(text)
        # "NVIDIA R200" is not Baidu's R200
        if product is not None and (product.vendor == "nvidia" or text == plain):
            return product
    return None


def _memory_fits(product: Product, memory_mib: int) -> bool:
    """A GPU shows 93-100 % of the marketed memory (ECC and reserved parts); a vGPU or MIG slice much less."""
    figures = spec(product.spec) if product.spec else None
    if figures is None:
        return True
    sizes = [figures.memory_gb] + ([figures.memory_gb_alt] if figures.memory_gb_alt else [])
    return any(0.88 * gb * 1024 <= memory_mib <= 1.03 * gb * 1024 for gb in sizes)


def product(*, pci_device_id: int | None = None, name: str | None = None, memory_mib: int | None = None) -> Product | None:
    """Which product a GPU is, from what is known of it; ``None`` when unknown or when the facts contradict each other.

    ``pci_device_id`` is NVIDIA's device id (0x2330), ``name`` what nvidia-smi, xpu-smi or lspci prints, ``memory_mib`` the
    total memory of the whole device.
    """
    by_name = _by_name(name) if name else None
    by_id = _index()[1].get(pci_device_id) if pci_device_id is not None else None
    found = by_name or by_id
    if found is None or (by_name and by_id and by_name is not by_id):
        return None
    if name and by_name is None and not _nameless(name):
        return None  # a name that is not this product's: a vGPU ("NVIDIA A100-40C"), or a product not in the table
    if memory_mib is not None and not _memory_fits(found, memory_mib):
        return None
    return found


def _nameless(name: str) -> bool:
    """Names that say nothing about the product: "Device 2330", "Graphics Device", a bare chip ("GH100")."""
    return _NAMELESS.fullmatch(_folded(name)) is not None


def for_device(*, pci_device_id: int | None = None, name: str | None = None, memory_mib: int | None = None) -> GpuSpec | None:
    """The figures of a GPU, by :func:`product`; ``None`` when unsure or not in the table."""
    found = product(pci_device_id=pci_device_id, name=name, memory_mib=memory_mib)
    return spec(found.spec) if found and found.spec else None


@functools.lru_cache(maxsize=256)
def expected_nvlinks(
    *, pci_device_id: int | None = None, name: str | None = None, memory_mib: int | None = None
) -> NvLinks | None:
    """How many NVLinks a healthy GPU of this product has, how fast, and how sure that is; ``None`` when unknown.

    ``source`` is the full text of where the number was seen.
    """
    found = product(pci_device_id=pci_device_id, name=name, memory_mib=memory_mib)
    if found is None or found.nvlinks is None:
        return None
    return msgspec.structs.replace(found.nvlinks, source=table("gpu_ids").source_names([found.nvlinks.source])[0])
