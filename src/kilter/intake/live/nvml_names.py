"""Texts of NVML's enumerations: those that ``nvidia-smi -q`` prints, where it prints one.

The numbers are facts of the public NVML API, as nvidia-ml-py 13.615 declares them.
"""

from __future__ import annotations

BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC", 9: "NVIDIA Virtual Compute Server", 10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming", 12: "Quadro RTX", 13: "NVIDIA RTX", 14: "NVIDIA", 15: "GeForce RTX", 16: "Titan RTX",
}  # fmt: skip
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell",
    13: "Rubin",
}  # fmt: skip
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}
#: 0 to 4 as nvidia-smi prints them; 5 to 7 (R595 and later) by the names of the NVML enumeration.
RECOVERY = {
    0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset", 5: "Recover IMEX Domain", 6: "Bus Reset",
    7: "System Reboot",
}  # fmt: skip
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
NVLINK_STATES = {0: "inactive", 1: "active", 2: "sleep", 3: "active (traffic disabled)"}
NVLINK_REMOTES = {0: "GPU", 1: "IBM NPU", 2: "NVSwitch"}
#: Bits of the clocks-event mask, by the names of knowledge/tables/throttle_reasons.yaml.
THROTTLE_BITS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting", "board_limit", "reliability",
)  # fmt: skip
#: NVML_FI_DEV_* -> reason; these counters are in nanoseconds.
THROTTLE_COUNTERS = {
    74: "sw_power_cap", 76: "sync_boost", 77: "board_limit", 79: "reliability", 269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown", 271: "hw_power_brake_slowdown",
}  # fmt: skip
#: NVML_FI_DEV_NVLINK_COUNT_* (NVLink 5) -> the word of ``nvidia-smi nvlink -e``, without "Errors".
NVLINK_COUNTERS = {
    206: "Malformed packet", 207: "Buffer overrun", 208: "Rx", 209: "Rx remote", 210: "Rx General", 211: "Local link integrity",
    212: "Tx discards", 213: "Link recovery successful events", 214: "Link recovery failed events",
    215: "Total link recovery events", 219: "Effective", 221: "Symbol",
}  # fmt: skip
#: health mask of nvmlGpuFabricInfo: name, shift, mask, texts (0 = not supported)
FABRIC_HEALTH: tuple[tuple[str, int, int, dict[int, str]], ...] = (
    ("bandwidth", 0, 3, {1: "Degraded", 2: "Full"}),
    ("route_recovery_in_progress", 2, 3, {1: "True", 2: "False"}),
    ("route_unhealthy", 4, 3, {1: "True", 2: "False"}),
    ("access_timeout_recovery", 6, 3, {1: "True", 2: "False"}),
    ("incorrect_configuration", 8, 15, {
        1: "None", 2: "Incorrect SysGuid", 3: "Incorrect Chassis Serial Number", 4: "No Partition", 5: "Insufficient Nvlinks",
        6: "Incompatible GPU Firmware", 7: "Invalid Location", 8: "GPU State Invalid",
    }),
)  # fmt: skip
FABRIC_SUMMARY = {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}


def name_of(table: dict[int, str], value: int) -> str:
    """Text of an enumeration value; one that is not known is kept by its number."""
    return table.get(value) or f"unknown ({value})"


def cpu_list(words: list[int]) -> str:
    """Mask in 64-bit words -> kernel list format (``0-15,32-47``)."""
    mask = sum(word << (64 * i) for i, word in enumerate(words))
    parts, bit = [], 0
    while mask >> bit:
        if not mask >> bit & 1:
            bit += 1
            continue
        end = bit
        while mask >> end & 1:
            end += 1
        parts.append(str(bit) if end == bit + 1 else f"{bit}-{end - 1}")
        bit = end
    return ",".join(parts)


def throttle_names(mask: int) -> list[str]:
    """Names of the bits that are set; a bit without a name is kept as ``unknown bit 0x800``."""
    names = [name for bit, name in enumerate(THROTTLE_BITS) if mask >> bit & 1]
    return names + [f"unknown bit {1 << bit:#x}" for bit in range(len(THROTTLE_BITS), 64) if mask >> bit & 1]
