/*
 * A stand-in for libnvidia-ml.so.1, driven by a text file, for tests of the code that calls NVML.
 *
 * The file is named by NVML_STANDIN_STATE and read when the library is first called. Each line is
 *
 *     <device>.<function>[.<argument>...] = <answer>
 *
 * <device> is the index of a GPU, "0/1" for MIG device 1 of GPU 0, "*" for every device, or "sys" for calls without one.
 * <function> is the name of the exported symbol, or "*" for each function. The most exact line answers. An answer is the values that
 * the call returns, separated by blanks, or
 *
 *     !15      fail with nvmlReturn_t 15
 *     hang     never return
 *     hang!    never return and ignore SIGTERM
 *     slow 0.5 sleep so many seconds, then fail with "not supported"
 *     segv     die by SIGSEGV
 *     flood    print to standard output without end
 *
 * What no line answers is not supported (3). Struct layouts are facts of the public NVML ABI.
 * -DOLD_DRIVER leaves out the symbols that drivers before R535 lack.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };

struct device {
    char id[16];
};

typedef const struct device *handle;
typedef unsigned int uint;
typedef unsigned long long u64;

static struct line {
    char *key, *value;
} *lines;
static size_t line_count;
static const struct device system_calls = {"sys"};

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = 0;
    return text;
}

static void read_state(void) {
    if (lines) return;
    lines = calloc(1, sizeof *lines);
    const char *path = getenv("NVML_STANDIN_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char buffer[4096];
    while (file && fgets(buffer, sizeof buffer, file)) {
        char *equals = strchr(buffer, '=');
        if (buffer[0] == '#' || !equals) continue;
        *equals = 0;
        lines = realloc(lines, (line_count + 1) * sizeof *lines);
        lines[line_count].key = strdup(trim(buffer));
        lines[line_count++].value = strdup(trim(equals + 1));
    }
    if (file) fclose(file);
}

static const char *find(const char *device, const char *function, const char *arguments) {
    char key[256];
    snprintf(key, sizeof key, "%s.%s%s", device, function, arguments);
    for (size_t i = line_count; i-- > 0;) /* the last of equal lines wins */
        if (!strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

static void fault(const char *answer) {
    if (!strncmp(answer, "hang", 4)) {
        if (answer[4] == '!') signal(SIGTERM, SIG_IGN);
        for (;;) pause();
    } else if (!strcmp(answer, "segv")) {
        raise(SIGSEGV);
    } else if (!strncmp(answer, "slow ", 5)) {
        usleep((useconds_t)(atof(answer + 5) * 1e6));
    } else if (!strcmp(answer, "flood")) {
        for (;;) puts("a library should not print, but some do");
    }
}

/* The answer to a call, or NULL with *code set. */
static const char *ask(handle device, const char *function, const char *arguments, int *code) {
    read_state();
    const char *id = device ? device->id : "?";
    const char *answer = find(id, function, arguments);
    if (!answer && *arguments) answer = find(id, function, "");
    if (!answer) answer = find(id, "*", "");
    if (!answer) answer = find("*", function, arguments);
    if (!answer && *arguments) answer = find("*", function, "");
    *code = NOT_SUPPORTED;
    if (!answer) return NULL;
    fault(answer);
    if (answer[0] == '!') {
        *code = atoi(answer + 1);
        return NULL;
    }
    if (!strncmp(answer, "slow ", 5)) return NULL;
    *code = SUCCESS;
    return answer;
}

static const char *ask1(handle device, const char *function, long argument, int *code) {
    char text[32];
    snprintf(text, sizeof text, ".%ld", argument);
    return ask(device, function, text, code);
}

static u64 number(const char **answer) {
    char *end;
    u64 value = strtoull(*answer, &end, 0);
    *answer = end;
    return value;
}

static int text(const char *answer, int code, char *buffer, uint size) {
    if (!answer) return code;
    if (strlen(answer) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, answer);
    return SUCCESS;
}

#define TEXT(name) \
    int name(handle device, char *buffer, uint size) { \
        int code; \
        const char *answer = ask(device, #name, "", &code); \
        return text(answer, code, buffer, size); \
    }
#define UINT(name) \
    int name(handle device, uint *value) { \
        int code; \
        const char *answer = ask(device, #name, "", &code); \
        if (answer) *value = (uint)number(&answer); \
        return code; \
    }
#define UINT_OF(name) \
    int name(handle device, uint argument, uint *value) { \
        int code; \
        const char *answer = ask1(device, #name, argument, &code); \
        if (answer) *value = (uint)number(&answer); \
        return code; \
    }
#define TWO(name) \
    int name(handle device, uint *first, uint *second) { \
        int code; \
        const char *answer = ask(device, #name, "", &code); \
        if (answer) *first = (uint)number(&answer), *second = (uint)number(&answer); \
        return code; \
    }
#define LONG(name) \
    int name(handle device, u64 *value) { \
        int code; \
        const char *answer = ask(device, #name, "", &code); \
        if (answer) *value = number(&answer); \
        return code; \
    }

/* system */

const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        [0] = "Success", [2] = "Invalid Argument", [3] = "Not Supported", [4] = "Insufficient Permissions", [6] = "Not Found",
        [9] = "Driver Not Loaded", [13] = "Function Not Found", [15] = "GPU is lost", [16] = "GPU requires reset",
        [18] = "Driver/library version mismatch", [23] = "Insufficient Resources", [25] = "Argument version mismatch",
        [26] = "Requested functionality has been deprecated",
    };
    if (code == 999) return "Unknown Error";
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) && texts[code] ? texts[code] : "Unknown Error code";
}

int nvmlInitWithFlags(uint flags) {
    int code;
    (void)flags;
    const char *answer = ask(&system_calls, "nvmlInitWithFlags", "", &code);
    return answer ? SUCCESS : code == NOT_SUPPORTED ? SUCCESS : code;
}

int nvmlShutdown(void) { return SUCCESS; }

#define SYSTEM_TEXT(name) \
    int name(char *buffer, uint size) { \
        int code; \
        const char *answer = ask(&system_calls, #name, "", &code); \
        return text(answer, code, buffer, size); \
    }
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)
SYSTEM_TEXT(nvmlSystemGetDriverVersion)

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int code;
    const char *answer = ask(&system_calls, "nvmlSystemGetCudaDriverVersion_v2", "", &code);
    if (answer) *version = (int)number(&answer);
    return code;
}

int nvmlSystemGetProcessName(uint pid, char *buffer, uint size) {
    int code;
    const char *answer = ask1(&system_calls, "nvmlSystemGetProcessName", pid, &code);
    return text(answer, code, buffer, size);
}

int nvmlDeviceGetCount_v2(uint *count) {
    int code;
    const char *answer = ask(&system_calls, "nvmlDeviceGetCount_v2", "", &code);
    if (answer) *count = (uint)number(&answer);
    return code;
}

static int open_device(const char *id, const char *function, handle *device) {
    struct device *made = calloc(1, sizeof *made);
    snprintf(made->id, sizeof made->id, "%s", id);
    int code;
    const char *answer = ask(made, function, "", &code);
    *device = made;
    return answer || code == NOT_SUPPORTED ? SUCCESS : code;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, handle *device) {
    char id[16];
    snprintf(id, sizeof id, "%u", index);
    return open_device(id, "nvmlDeviceGetHandleByIndex_v2", device);
}

/* identity */

struct pci {
    char legacy[16];
    uint domain, bus, device, ids, subsystem;
    char bus_id[32];
};

static int pci(const char *answer, int code, struct pci *info) { /* "00000000:1B:00.0 0x233010DE 0x16C110DE" */
    if (!answer) return code;
    memset(info, 0, sizeof *info);
    sscanf(answer, "%31s %x %x", info->bus_id, &info->ids, &info->subsystem);
    sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy, sizeof info->legacy, "%04x:%02x:%02x.0", info->domain & 0xffff, info->bus & 0xff, info->device & 0x1f);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(handle device, struct pci *info) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetPciInfo_v3", "", &code);
    return pci(answer, code, info);
}

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
UINT(nvmlDeviceGetBrand)
UINT(nvmlDeviceGetArchitecture)
UINT(nvmlDeviceGetMinorNumber)
TWO(nvmlDeviceGetCudaComputeCapability)
#ifndef OLD_DRIVER
UINT(nvmlDeviceGetModuleId)
int nvmlDeviceGetGspFirmwareVersion(handle device, char *version) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetGspFirmwareVersion", "", &code);
    return text(answer, code, version, 64);
}
UINT(nvmlDeviceGetC2cModeInfoV)
#endif

/* modes */

UINT(nvmlDeviceGetPersistenceMode)
UINT(nvmlDeviceGetComputeMode)
TWO(nvmlDeviceGetMigMode)
UINT(nvmlDeviceGetVirtualizationMode)

static int words(const char *answer, int code, uint size, u64 *set) {
    if (!answer) return code;
    for (uint i = 0; i < size; i++) set[i] = number(&answer);
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(handle device, uint size, u64 *set) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetCpuAffinity", "", &code);
    return words(answer, code, size, set);
}

int nvmlDeviceGetMemoryAffinity(handle device, uint size, u64 *set, uint scope) {
    int code;
    (void)scope;
    const char *answer = ask(device, "nvmlDeviceGetMemoryAffinity", "", &code);
    return words(answer, code, size, set);
}

int nvmlSystemGetConfComputeState(uint *state) { /* environment, feature, developer tools */
    int code;
    const char *answer = ask(&system_calls, "nvmlSystemGetConfComputeState", "", &code);
    for (int i = 0; answer && i < 3; i++) state[i] = (uint)number(&answer);
    return code;
}

/* memory */

struct memory {
    u64 total, free, used;
};

int nvmlDeviceGetMemoryInfo(handle device, struct memory *info) { /* total, free, used */
    int code;
    const char *answer = ask(device, "nvmlDeviceGetMemoryInfo", "", &code);
    if (answer) info->total = number(&answer), info->free = number(&answer), info->used = number(&answer);
    return code;
}

#ifndef OLD_DRIVER
struct memory_v2 {
    uint version;
    u64 total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *info) { /* total, reserved, free, used */
    int code;
    if (info->version != 0x2000028) return VERSION_MISMATCH;
    const char *answer = ask(device, "nvmlDeviceGetMemoryInfo_v2", "", &code);
    if (answer) info->total = number(&answer), info->reserved = number(&answer), info->free = number(&answer), info->used = number(&answer);
    return code;
}
#endif

int nvmlDeviceGetBAR1MemoryInfo(handle device, struct memory *info) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetBAR1MemoryInfo", "", &code);
    if (answer) info->total = number(&answer), info->free = number(&answer), info->used = number(&answer);
    return code;
}

TWO(nvmlDeviceGetEccMode)

int nvmlDeviceGetTotalEccErrors(handle device, uint kind, uint counter, u64 *count) {
    int code;
    char arguments[32];
    snprintf(arguments, sizeof arguments, ".%u.%u", kind, counter);
    const char *answer = ask(device, "nvmlDeviceGetTotalEccErrors", arguments, &code);
    if (answer) *count = number(&answer);
    return code;
}

int nvmlDeviceGetMemoryErrorCounter(handle device, uint kind, uint counter, uint location, u64 *count) {
    int code;
    char arguments[48];
    snprintf(arguments, sizeof arguments, ".%u.%u.%u", kind, counter, location);
    const char *answer = ask(device, "nvmlDeviceGetMemoryErrorCounter", arguments, &code);
    if (answer) *count = number(&answer);
    return code;
}

#ifndef OLD_DRIVER
struct sram {
    uint version;
    u64 counts[11];
    uint exceeded;
};

int nvmlDeviceGetSramEccErrorStatus(handle device, struct sram *status) { /* exceeded, then the counts in the order of the struct */
    int code;
    if (status->version != 0x1000068) return VERSION_MISMATCH;
    const char *answer = ask(device, "nvmlDeviceGetSramEccErrorStatus", "", &code);
    if (answer) {
        status->exceeded = (uint)number(&answer);
        for (int i = 0; i < 11; i++) status->counts[i] = number(&answer);
    }
    return code;
}

int nvmlDeviceGetRepairStatus(handle device, uint *status) { /* version, channel, TPC */
    int code;
    const char *answer = ask(device, "nvmlDeviceGetRepairStatus", "", &code);
    if (answer) status[1] = (uint)number(&answer), status[2] = (uint)number(&answer);
    return code;
}

int nvmlDeviceGetUnrepairableMemoryFlag_v1(handle device, uint *status) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetUnrepairableMemoryFlag_v1", "", &code);
    if (answer) status[1] = (uint)number(&answer);
    return code;
}
#endif

int nvmlDeviceGetRetiredPages(handle device, uint cause, uint *count, u64 *addresses) { /* the answer is how many */
    int code;
    const char *answer = ask1(device, "nvmlDeviceGetRetiredPages", cause, &code);
    if (!answer) return code;
    uint pages = (uint)number(&answer);
    if (!addresses || *count < pages) {
        *count = pages;
        return pages ? INSUFFICIENT_SIZE : SUCCESS;
    }
    for (uint i = 0; i < pages; i++) addresses[i] = 0x1000ull * (i + 1);
    *count = pages;
    return SUCCESS;
}

UINT(nvmlDeviceGetRetiredPagesPendingStatus)

int nvmlDeviceGetRemappedRows(handle device, uint *correctable, uint *uncorrectable, uint *pending, uint *failed) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetRemappedRows", "", &code);
    if (answer) {
        *correctable = (uint)number(&answer), *uncorrectable = (uint)number(&answer);
        *pending = (uint)number(&answer), *failed = (uint)number(&answer);
    }
    return code;
}

int nvmlDeviceGetRowRemapperHistogram(handle device, uint *banks) { /* max, high, partial, low, none */
    int code;
    const char *answer = ask(device, "nvmlDeviceGetRowRemapperHistogram", "", &code);
    for (int i = 0; answer && i < 5; i++) banks[i] = (uint)number(&answer);
    return code;
}

/* bus, power, clocks, heat */

UINT(nvmlDeviceGetMaxPcieLinkGeneration)
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration)
UINT(nvmlDeviceGetCurrPcieLinkGeneration)
UINT(nvmlDeviceGetMaxPcieLinkWidth)
UINT(nvmlDeviceGetCurrPcieLinkWidth)
UINT(nvmlDeviceGetPcieReplayCounter)
UINT_OF(nvmlDeviceGetPcieThroughput)
UINT(nvmlDeviceGetEnforcedPowerLimit)
UINT(nvmlDeviceGetPowerManagementLimit)
UINT(nvmlDeviceGetPowerManagementDefaultLimit)
TWO(nvmlDeviceGetPowerManagementLimitConstraints)
UINT(nvmlDeviceGetPowerUsage)
UINT_OF(nvmlDeviceGetMaxClockInfo)
UINT_OF(nvmlDeviceGetClockInfo)
UINT_OF(nvmlDeviceGetApplicationsClock)
UINT_OF(nvmlDeviceGetDefaultApplicationsClock)
UINT_OF(nvmlDeviceGetTemperatureThreshold)
UINT_OF(nvmlDeviceGetTemperature)
UINT(nvmlDeviceGetFanSpeed)
UINT(nvmlDeviceGetPerformanceState)
int nvmlDeviceGetUtilizationRates(handle device, uint *rates) { /* GPU, memory */
    int code;
    const char *answer = ask(device, "nvmlDeviceGetUtilizationRates", "", &code);
    for (int i = 0; answer && i < 2; i++) rates[i] = (uint)number(&answer);
    return code;
}
LONG(nvmlDeviceGetCurrentClocksThrottleReasons)
#ifndef OLD_DRIVER
LONG(nvmlDeviceGetCurrentClocksEventReasons)
int nvmlDeviceGetMarginTemperature(handle device, int *info) {
    int code;
    const char *answer = ask(device, "nvmlDeviceGetMarginTemperature", "", &code);
    if (answer) info[1] = (int)number(&answer);
    return code;
}
#endif

struct field {
    uint id, scope;
    int64_t timestamp, latency;
    uint type, result;
    union {
        double d;
        uint ui;
        u64 ull;
    } value;
};

int nvmlDeviceGetFieldValues(handle device, int count, struct field *fields) { /* "<id>" or "<id>.<scope>" as argument; "d1.5" is a double */
    int code;
    const char *answer = ask(device, "nvmlDeviceGetFieldValues", "", &code); /* only for faults */
    if (!answer && code != NOT_SUPPORTED) return code;
    for (int i = 0; i < count; i++) {
        char arguments[48];
        snprintf(arguments, sizeof arguments, ".%u.%u", fields[i].id, fields[i].scope);
        answer = ask(device, "field", arguments, &code);
        if (!answer && code == NOT_SUPPORTED) {
            snprintf(arguments, sizeof arguments, ".%u", fields[i].id);
            answer = ask(device, "field", arguments, &code);
        }
        fields[i].result = (uint)code;
        if (answer && *answer == 'd') {
            fields[i].type = 0;
            fields[i].value.d = atof(answer + 1);
        } else if (answer && *answer == '?') {
            fields[i].type = 77;
        } else if (answer) {
            fields[i].type = 3;
            fields[i].value.ull = number(&answer);
        }
    }
    return SUCCESS;
}

/* fabric: state, status, clique, health mask, summary, then 32 hexadecimal digits of the UUID */

#ifndef OLD_DRIVER
int nvmlDeviceGetGpuFabricInfoV(handle device, unsigned char *info) {
    int code;
    uint version, status, clique, state, health, summary;
    char digits[33] = "";
    memcpy(&version, info, 4);
    if (version != 0x3000028 && version != 0x2000024) return VERSION_MISMATCH;
    const char *answer = ask(device, "nvmlDeviceGetGpuFabricInfoV", "", &code);
    if (!answer) return code;
    sscanf(answer, "%u %u %u %i %u %32s", &state, &status, &clique, (int *)&health, &summary, digits);
    for (int i = 0; i < 16; i++) sscanf(digits + 2 * i, "%2hhx", &info[4 + i]);
    memcpy(info + 20, &status, 4);
    memcpy(info + 24, &clique, 4);
    memcpy(info + 28, &state, 4);
    memcpy(info + 32, &health, 4);
    if (version == 0x3000028) info[36] = (unsigned char)summary;
    return SUCCESS;
}
#endif

/* NVLink */

UINT_OF(nvmlDeviceGetNvLinkState)
UINT_OF(nvmlDeviceGetNvLinkVersion)
UINT_OF(nvmlDeviceGetNvLinkRemoteDeviceType)

int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, uint link, struct pci *info) {
    int code;
    const char *answer = ask1(device, "nvmlDeviceGetNvLinkRemotePciInfo_v2", link, &code);
    return pci(answer, code, info);
}

int nvmlDeviceGetNvLinkErrorCounter(handle device, uint link, uint counter, u64 *count) {
    int code;
    char arguments[32];
    snprintf(arguments, sizeof arguments, ".%u.%u", link, counter);
    const char *answer = ask(device, "nvmlDeviceGetNvLinkErrorCounter", arguments, &code);
    if (answer) *count = number(&answer);
    return code;
}

/* MIG */

UINT(nvmlDeviceGetMaxMigDeviceCount)
UINT(nvmlDeviceGetGpuInstanceId)
UINT(nvmlDeviceGetComputeInstanceId)

int nvmlDeviceGetMigDeviceHandleByIndex(handle device, uint index, handle *mig) { /* it exists if its UUID has a line */
    char id[32], wanted[16];
    snprintf(id, sizeof id, "%s/%u", device->id, index);
    snprintf(wanted, sizeof wanted, "%.15s", id);
    read_state();
    if (!find(wanted, "nvmlDeviceGetUUID", "")) return NOT_FOUND;
    return open_device(wanted, "nvmlDeviceGetMigDeviceHandleByIndex", mig);
}

/* processes: pid, bytes, pid, bytes, ... */

struct process {
    uint pid;
    u64 memory;
    uint gpu_instance, compute_instance;
};

static int processes(handle device, const char *function, uint *count, struct process *list) {
    int code;
    const char *answer = ask(device, function, "", &code);
    if (!answer) return code;
    uint found = 0;
    for (const char *rest = answer; *rest; found++) {
        uint pid = (uint)number(&rest);
        u64 memory = number(&rest);
        while (*rest == ' ') rest++;
        if (list && found < *count) list[found] = (struct process){pid, memory, ~0u, ~0u};
    }
    code = found && (!list || *count < found) ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return code;
}

#define PROCESSES(name) \
    int name(handle device, uint *count, struct process *list) { return processes(device, #name, count, list); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
#ifndef OLD_DRIVER
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
#endif
