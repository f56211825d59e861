"""GPU memory errors: ECC, row remapping, page retirement, SRAM."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.accelerator import Accelerator, EccCounts
from kilter.facts.finding import Cause, Finding

_ECC = "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"
_REMAP = ("NVIDIA GPU memory error management (row remapping), A100 and later", "research: failure modes 5, 6, 10")


def _supported(gpu: Accelerator, field: str, ctx: Context) -> None:
    """A tool that says "N/A" has no such mechanism on this card."""
    if getattr(gpu, field) is None and field in gpu.missing and gpu.missing[field].reason.value == "not supported":
        raise ctx.skip(f"{field} is not supported on this GPU")


@rule(
    "gpu.row_remap.failure",
    "Row remapping has not failed",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=_REMAP,
    action="Drain; run the vendor's field diagnostics; replace the GPU (RMA criterion).",
)
def remap_failure(gpu: Accelerator, ctx: Context) -> Finding | None:
    """A row could not be remapped: the spare rows of that bank are used up. This is an RMA criterion whatever the XIDs say.

    Only the flag is judged: remapped rows by themselves are normal wear.
    """
    _supported(gpu, "remap_failure", ctx)
    if not ctx.need(gpu, Accelerator.remap_failure):
        return None
    ctx.known(gpu, Accelerator.remapped_uncorrectable)
    return ctx.finding("critical", "row remapping failed: no spare row left in a bank of HBM")


@rule(
    "gpu.row_remap.pending",
    "No row remapping waits for a reset",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=_REMAP,
    action="Drain at the next opportunity and reset the GPU; check that pending reads No afterwards.",
)
def remap_pending(gpu: Accelerator, ctx: Context) -> Finding | None:
    """A row is marked for remapping and the GPU waits for a reset. XID 63 tells of it once; the flag stays."""
    _supported(gpu, "remap_pending", ctx)
    if not ctx.need(gpu, Accelerator.remap_pending):
        return None
    return ctx.finding("warning", "row remapping is pending: the bad row is in use until the GPU is reset")


@rule(
    "gpu.row_remap.banks_low",
    "Spare rows are left",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=_REMAP,
    action="Watch the GPU; plan its replacement if further rows are remapped.",
)
def remap_banks(gpu: Accelerator, ctx: Context) -> Finding | None:
    """The bank availability histogram shows banks with no or few spare rows left."""
    _supported(gpu, "remap_failure", ctx)
    if not gpu.remap_banks:
        raise ctx.missing("bank remap availability histogram")
    none, low = gpu.remap_banks.get("none", 0), gpu.remap_banks.get("low", 0)
    if none:
        return ctx.finding(
            "warning",
            f"{none} bank(s) have no spare row left: the next bad row there cannot be remapped",
            evidence=[ctx.fact(gpu, "remap_banks")],
        )
    return ctx.finding("info", f"{low} bank(s) are low on spare rows", evidence=[ctx.fact(gpu, "remap_banks")]) if low else None


@rule(
    "gpu.page_retirement.pending",
    "No page retirement waits for a reboot",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=("NVIDIA dynamic page retirement documentation (V100 and older)",),
    action="Drain and reset the GPU (or reboot); check that the pending flag is gone.",
)
def pages_pending(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Pages are marked for retirement and still in use until the driver is reloaded. GPUs before A100 only."""
    _supported(gpu, "retired_pages_pending", ctx)
    if not ctx.need(gpu, Accelerator.retired_pages_pending):
        return None
    ctx.known(gpu, Accelerator.retired_pages_dbe)
    return ctx.finding("warning", "retired pages are pending: bad pages stay in use until the GPU is reset")


#: NVIDIA's replacement criterion is 60 retired pages of the 64 that the InfoROM holds (dynamic page retirement, memory); DCGM uses 63.
RETIRED_PAGES_LIMIT = 60


@rule(
    "gpu.page_retirement.limit",
    "Retired pages below the limit",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=(
        "NVIDIA dynamic page retirement documentation (60 pages, memory)",
        "NVIDIA/DCGM 4.6.0 health watch (63)",
        "Azure/azurehpc-health-checks test data",
    ),
    action="Replace the GPU.",
)
def pages_limit(gpu: Accelerator, ctx: Context) -> Finding | None:
    """60 or more retired pages, single and double bit together: the InfoROM holds 64, and the card is at its replacement criterion."""
    _supported(gpu, "retired_pages_dbe", ctx)
    total = ctx.need(gpu, Accelerator.retired_pages_sbe) + ctx.need(gpu, Accelerator.retired_pages_dbe)
    if total < RETIRED_PAGES_LIMIT:
        return None
    return ctx.finding(
        "error",
        f"{total} retired pages (replace at {RETIRED_PAGES_LIMIT}, the card can hold 64)",
        disagreement="DCGM warns at 63, NVIDIA's policy replaces at 60.",
    )


def _counts(gpu: Accelerator, scope: str, ctx: Context) -> EccCounts:
    if gpu.ecc_mode is False:
        raise ctx.skip("ECC is off")
    if gpu.ecc_mode is None and "ecc_mode" in gpu.missing:
        raise ctx.skip("no ECC on this GPU")
    counts = gpu.ecc_volatile if scope == "volatile" else gpu.ecc_aggregate
    if counts is None:
        raise ctx.missing(f"ECC counts ({scope})")
    return counts


@rule(
    "gpu.ecc.uncorrected",
    "No uncorrected ECC error since the driver was loaded",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=("NVIDIA GPU memory error management", "research: failure modes 5-8"),
    action="Read XIDs 48/63/64/94/95 and the remap flags; drain and reset; test memory before it returns.",
)
def ecc_uncorrected(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Uncorrected ECC errors since driver load (volatile counts). Data was lost or a process was killed.

    Aggregate counts are the card's life: they are shown, but only volatile ones are judged.
    """
    counts = _counts(gpu, "volatile", ctx)
    sram, dram, total = (
        ctx.known(counts, f) for f in (EccCounts.sram_uncorrected, EccCounts.dram_uncorrected, EccCounts.total_uncorrected)
    )
    known = [n for n in (sram, dram, total) if n is not None]
    if not known:
        raise ctx.missing("uncorrected ECC counts")
    if not any(known):
        return None
    worst = "SRAM" if sram else "HBM" if dram else "memory"
    cause = (
        Cause("failing SRAM cell (replace on repetition)", "likely")
        if sram
        else Cause("HBM bit failure; row remapping mends it at the next reset", "likely", "remap pending / failure flags")
    )
    return ctx.finding("error", f"{max(known)} uncorrected {worst} ECC error(s) since driver load", causes=[cause])


@rule(
    "gpu.ecc.sram_threshold",
    "SRAM errors below NVIDIA's threshold",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint=_ECC,
    sources=("nvidia-smi -q: SRAM Threshold Exceeded (R535 and later)", "research: failure mode 8"),
    action="Replace the GPU (RMA criterion).",
)
def sram_threshold(gpu: Accelerator, ctx: Context) -> Finding | None:
    """The driver says that the SRAM uncorrectable threshold is exceeded."""
    _supported(gpu, "sram_threshold_exceeded", ctx)
    return (
        ctx.finding("critical", "SRAM uncorrectable error threshold exceeded")
        if ctx.need(gpu, Accelerator.sram_threshold_exceeded)
        else None
    )


@rule(
    "gpu.memory.repair",
    "No memory repair waits or failed",
    scope="gpu",
    family="memory",
    sop="SOP-MEM",
    hint="nvidia-smi -q (R575 or newer)",
    sources=("nvidia-smi -q of driver 590: Channel Repair Pending, TPC Repair Pending, Unrepairable Memory",),
    action="Drain and reset the GPU; unrepairable memory means replacement.",
)
def memory_repair(gpu: Accelerator, ctx: Context) -> Iterator[Finding]:
    """Flags of newer drivers: channel or TPC repair pending (reset), unrepairable memory (replace)."""
    flags = [
        ctx.known(gpu, f)
        for f in (Accelerator.channel_repair_pending, Accelerator.tpc_repair_pending, Accelerator.unrepairable_memory)
    ]
    if all(flag is None for flag in flags):
        if any(name in gpu.missing for name in ("channel_repair_pending", "unrepairable_memory")):
            raise ctx.skip("not supported")
        raise ctx.missing("repair flags")
    if flags[2]:
        yield ctx.finding("critical", "the driver reports unrepairable memory")
    elif flags[0] or flags[1]:
        yield ctx.finding("warning", f"{'channel' if flags[0] else 'TPC'} repair is pending: reset the GPU")


@rule(
    "gpu.ecc.off",
    "ECC is on",
    scope="gpu",
    family="memory",
    sop="SOP-SW",
    hint="nvidia-smi -q -d ECC",
    sources=("NVIDIA data-center GPUs ship with ECC on",),
    action="nvidia-smi -e 1 and reset, unless somebody chose it.",
)
def ecc_off(gpu: Accelerator, ctx: Context) -> Finding | None:
    """ECC is off on a card that has it, or waits for a reset to change. A choice of the owner on workstations; on HBM parts rarely wanted."""
    if gpu.ecc_mode is None and "ecc_mode" in gpu.missing:
        raise ctx.skip("no ECC on this GPU")
    if "GeForce" in (gpu.name or ""):
        raise ctx.skip("off is the default of GeForce cards")
    on = ctx.need(gpu, Accelerator.ecc_mode)
    pending = ctx.known(gpu, Accelerator.ecc_mode_pending)
    if pending is not None and pending != on:
        return ctx.finding("info", f"ECC is {'on' if on else 'off'} and changes at the next reset")
    return None if on else ctx.finding("info", "ECC is off: memory errors are neither corrected nor counted")
