"""Builds the stand-in NVML and the states that it plays. By hand:

python tests/standin/nvml_standin.py /tmp/standin '3.nvmlDeviceGetPowerUsage = hang'
LD_LIBRARY_PATH=/tmp/standin NVML_STANDIN_STATE=/tmp/standin/state kilter diagnose
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_standin.c")
GIB = 1 << 30
MIB = 1 << 20

#: PCI addresses of the eight GPUs of a DGX H100, and of its NVSwitches
H100_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
SWITCH_BUSES = ("05", "06", "07", "08")


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(directory: Path, *, old_driver: bool = False) -> Path:
    """Compiles libnvidia-ml.so.1 into ``directory`` and returns its path."""
    cc = compiler()
    assert cc is not None, "no C compiler"
    library = directory / "libnvidia-ml.so.1"
    options = ["-DOLD_DRIVER"] if old_driver else []
    command = [cc, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", *options, "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


def h100_node(gpus: int = 8) -> dict[str, str]:
    """A healthy, idle DGX H100 under driver 590, with the values that nvidia-smi prints on such a machine."""
    state = {
        "sys.nvmlSystemGetNVMLVersion": "13.590.48.01",
        "sys.nvmlSystemGetDriverVersion": "590.48.01",
        "sys.nvmlSystemGetCudaDriverVersion_v2": "13010",
        "sys.nvmlSystemGetConfComputeState": "0 0 0",
        "sys.nvmlDeviceGetCount_v2": str(gpus),
        "*.nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "*.nvmlDeviceGetBrand": "14",
        "*.nvmlDeviceGetArchitecture": "9",
        "*.nvmlDeviceGetCudaComputeCapability": "9 0",
        "*.nvmlDeviceGetBoardPartNumber": "692-2G520-0200-000",
        "*.nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
        "*.nvmlDeviceGetGspFirmwareVersion": "590.48.01",
        "*.nvmlDeviceGetC2cModeInfoV": "0",
        "*.nvmlDeviceGetPersistenceMode": "1",
        "*.nvmlDeviceGetComputeMode": "0",
        "*.nvmlDeviceGetMigMode": "0 0",
        "*.nvmlDeviceGetVirtualizationMode": "0",
        "*.nvmlDeviceGetMemoryInfo_v2": f"{81559 * MIB} {479 * MIB} {81080 * MIB} 0",
        "*.nvmlDeviceGetMemoryInfo": f"{81559 * MIB} {81080 * MIB} {479 * MIB}",
        "*.nvmlDeviceGetBAR1MemoryInfo": f"{128 * GIB} {128 * GIB - MIB} {MIB}",
        "*.nvmlDeviceGetEccMode": "1 1",
        "*.nvmlDeviceGetTotalEccErrors": "0",
        "*.nvmlDeviceGetMemoryErrorCounter": "0",
        "*.nvmlDeviceGetSramEccErrorStatus": "0 0 0 0 0 0 0 0 0 0 0 0",
        "*.nvmlDeviceGetRepairStatus": "0 0",
        "*.nvmlDeviceGetUnrepairableMemoryFlag_v1": "0",
        "*.nvmlDeviceGetRemappedRows": "0 0 0 0",
        "*.nvmlDeviceGetRowRemapperHistogram": "2560 0 0 0 0",
        "*.nvmlDeviceGetMaxPcieLinkGeneration": "5",
        "*.nvmlDeviceGetGpuMaxPcieLinkGeneration": "5",
        "*.nvmlDeviceGetCurrPcieLinkGeneration": "5",
        "*.nvmlDeviceGetMaxPcieLinkWidth": "16",
        "*.nvmlDeviceGetCurrPcieLinkWidth": "16",
        "*.nvmlDeviceGetPcieReplayCounter": "9",
        "*.nvmlDeviceGetPcieThroughput.0": "352",
        "*.nvmlDeviceGetPcieThroughput.1": "329",
        "*.nvmlDeviceGetEnforcedPowerLimit": "700000",
        "*.nvmlDeviceGetPowerManagementLimit": "700000",
        "*.nvmlDeviceGetPowerManagementDefaultLimit": "700000",
        "*.nvmlDeviceGetPowerManagementLimitConstraints": "200000 700000",
        "*.nvmlDeviceGetPowerUsage": "69850",
        "*.nvmlDeviceGetMaxClockInfo.1": "1980",
        "*.nvmlDeviceGetMaxClockInfo.2": "2619",
        "*.nvmlDeviceGetClockInfo.0": "345",
        "*.nvmlDeviceGetClockInfo.1": "345",
        "*.nvmlDeviceGetClockInfo.2": "2619",
        "*.nvmlDeviceGetApplicationsClock": "!26",
        "*.nvmlDeviceGetDefaultApplicationsClock": "!26",
        "*.nvmlDeviceGetTemperature.0": "41",
        "*.nvmlDeviceGetMarginTemperature": "46",
        "*.nvmlDeviceGetPerformanceState": "0",
        "*.nvmlDeviceGetUtilizationRates": "0 0",
        "*.nvmlDeviceGetCurrentClocksEventReasons": "0x1",
        "*.nvmlDeviceGetGpuFabricInfoV": "3 0 0 0 0 00000000000000000000000000000000",
        "*.field.82": "48",
        "*.field.95": "0",
        "*.field.230": "0",
        "*.field.91": "18",
        "*.nvmlDeviceGetNvLinkState": "1",
        "*.nvmlDeviceGetNvLinkVersion": "6",
        "*.field.164": "26562",
        "*.field.165": "1",
        "*.nvmlDeviceGetComputeRunningProcesses_v3": "",
        "*.nvmlDeviceGetGraphicsRunningProcesses_v3": "",
        "*.nvmlDeviceGetMPSComputeRunningProcesses_v3": "",
    }
    for field in (74, 76, 77, 79, 269, 270, 271, 161, 162, 163):
        state[f"*.field.{field}"] = "0"
    for link in range(18):
        bus = SWITCH_BUSES[link % 4]
        state[f"*.nvmlDeviceGetNvLinkRemotePciInfo_v2.{link}"] = f"00000000:{bus}:00.0 0x22A310DE 0x16BF10DE"
    for index, bus in enumerate(H100_BUSES[:gpus]):
        first = index < 4
        state |= {
            f"{index}.nvmlDeviceGetPciInfo_v3": f"00000000:{bus}:00.0 0x233010DE 0x16C110DE",
            f"{index}.nvmlDeviceGetUUID": f"GPU-00000000-0000-4000-8000-00000000000{index}",
            f"{index}.nvmlDeviceGetSerial": f"165312300000{index}",
            f"{index}.nvmlDeviceGetMinorNumber": str(index),
            f"{index}.nvmlDeviceGetModuleId": str(index + 1),
            f"{index}.nvmlDeviceGetMemoryAffinity": "1" if first else "2",
            f"{index}.nvmlDeviceGetCpuAffinity": "0xFFFFFFFFFFFF 0xFFFFFFFFFFFF00" if first else "0xFFFF000000000000 0xFFFFFFFF",
        }
    return state


def write(path: Path, state: dict[str, str]) -> Path:
    path.write_text("".join(f"{key} = {value}\n" for key, value in state.items()))
    return path


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    changes = dict(part.split("=", 1) for part in sys.argv[2:])
    print(build(target), write(target / "state", h100_node() | {key.strip(): value.strip() for key, value in changes.items()}))
