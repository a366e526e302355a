// A management library without a GPU. Its GPUs live in the file that FAKE_NVML names, lines of `key=number`, so that every
// process sees the same; tests write there what is to happen. Calls that change something are told in FAKE_NVML.log.
//
//   gpus          how many there are (1)
//   sm.N, mem.N   MHz that the clocks of GPU N are locked to; 0: not locked
//   refuse        who asks may not change clocks
//   refuse_mem    a memory clock: 1 may not be locked, 2 cannot be
//   keep_sm, keep_mem   what a clock is while it is locked, whatever it was locked to; 0: held
//   throttle      reasons for lower clocks, as bits
//   throttle_from readings until they show
//   xid           number of a fault that is told once; 0: none
//   xid_from      readings until it happens
//   lost_from     readings until the GPU is lost; 0: never
//   process       number of a process that computes on it; 0: none
//   holder        number of mlarun's own that keeps it open; 0: none
//   no_driver     there is none to talk to
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { XID_EVENT = 8 };
enum { IDLE_SM_MHZ = 1980, IDLE_MEM_MHZ = 3201, MOST_GPUS = 4, STATE_BYTES = 4096 };

static int handles[MOST_GPUS];

static const char *path(void)
{
    const char *name = getenv("FAKE_NVML");
    return name ? name : "/nonexistent";
}

static int number_of(const void *device)
{
    return (int)((const int *)device - handles);
}

// Value of `key` in the text, else `otherwise`.
static long find(const char *text, const char *key, long otherwise)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, key, length) && line[length] == '=')
            return atol(line + length + 1);
    return otherwise;
}

static void load(int file, char *text)
{
    ssize_t length = pread(file, text, STATE_BYTES - 1, 0);
    text[length > 0 ? length : 0] = 0;
}

static long get(const char *key, long otherwise)
{
    char text[STATE_BYTES];
    int file = open(path(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return otherwise;
    flock(file, LOCK_SH);
    load(file, text);
    close(file);
    return find(text, key, otherwise);
}

// Sets `key` to `value`, or adds to it; gives the new value.
static long change(const char *key, long value, int add)
{
    char text[STATE_BYTES], changed[STATE_BYTES];
    int file = open(path(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return 0;
    flock(file, LOCK_EX);
    load(file, text);
    value += add ? find(text, key, 0) : 0;
    size_t used = 0, length = strlen(key);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strncmp(line, key, length) || line[length] != '=')
            used += snprintf(changed + used, sizeof changed - used, "%s\n", line);
    used += snprintf(changed + used, sizeof changed - used, "%s=%ld\n", key, value);
    if (pwrite(file, changed, used, 0) < 0 || ftruncate(file, used))
        perror(path());
    close(file);
    return value;
}

static void set_of(const void *device, const char *what, long value)
{
    char key[32];
    snprintf(key, sizeof key, "%s.%d", what, number_of(device));
    change(key, value, 0);
}

static long get_of(const void *device, const char *what)
{
    char key[32];
    snprintf(key, sizeof key, "%s.%d", what, number_of(device));
    return get(key, 0);
}

static void tell(const char *what, const void *device, unsigned value)
{
    char name[STATE_BYTES], line[128];
    snprintf(name, sizeof name, "%s.log", path());
    int length = snprintf(line, sizeof line, "%s %d %u\n", what, number_of(device), value);
    int file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, length) < 0)
        perror(name);
    close(file);
}

static int lost(void)
{
    long from = get("lost_from", 0);
    return from && get("readings", 0) >= from;
}

int nvmlInit_v2(void)
{
    return get("no_driver", 0) ? DRIVER_NOT_LOADED : SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "580.0");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = get("gpus", 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &handles[index % MOST_GPUS];
    return index < (unsigned)get("gpus", 1) ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{
    snprintf(text, length, "GPU-fa4e0000-0000-0000-0000-%012d", number_of(device));
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    char known[96];
    for (int index = 0; index < get("gpus", 1) && index < MOST_GPUS; index++) {
        *device = &handles[index];
        nvmlDeviceGetUUID(*device, known, sizeof known);
        if (!strcmp(known, uuid))
            return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length)
{
    (void)device;
    snprintf(text, length, "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz)
{
    int memory = kind == 2;
    long locked = get_of(device, memory ? "mem" : "sm");
    long kept = get(memory ? "keep_mem" : "keep_sm", 0);
    *mhz = locked ? (kept ? kept : locked) : memory ? IDLE_MEM_MHZ : IDLE_SM_MHZ;
    return lost() ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    (void)device;
    long readings = change("readings", 1, 1);
    *reasons = readings >= get("throttle_from", 0) ? get("throttle", 0) : 0;
    return lost() ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 123456;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 700000;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius)
{
    (void)device, (void)sensor;
    *celsius = 41;
    return SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes)
{
    (void)device;
    long known[] = { get("process", 0), get("holder", 0) };
    unsigned room = processes ? *count : 0;
    *count = 0;
    for (int index = 0; index < 2; index++) {
        // A holder that is gone is on no GPU; a process is there because the test says so.
        if (!known[index] || (index == 1 && kill(known[index], 0)))
            continue;
        if (*count < room)
            processes[*count] = (struct process){ .pid = known[index], .gpu_instance = -1u, .compute_instance = -1u };
        *count += 1;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation)
{
    (void)device;
    *generation = 5;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes)
{
    (void)device;
    *lanes = 16;
    return SUCCESS;
}

int nvmlDeviceGetVbiosVersion(void *device, char *text, unsigned length)
{
    (void)device;
    snprintf(text, length, "96.00.00.00.01");
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later)
{
    (void)device;
    *now = *later = 0;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(void *device, unsigned *now, unsigned *later)
{
    (void)device;
    *now = *later = 1;
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode)
{
    (void)device;
    *mode = 1;
    return SUCCESS;
}

struct event {
    void *device;
    unsigned long long type, data;
    unsigned instances[2];
};
static void *watched;

int nvmlEventSetCreate(void **set)
{
    *set = &watched;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)types, (void)set;
    watched = device;
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds)
{
    (void)set, (void)milliseconds;
    long xid = get("xid", 0);
    if (!xid || get("readings", 0) < get("xid_from", 0))
        return TIMEOUT;
    change("xid", 0, 0);
    *event = (struct event){watched, XID_EVENT, xid, {0, 0}};
    return SUCCESS;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    return SUCCESS;
}

#ifndef LACK_LOCK
int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most)
{
    tell("lock_sm", device, most);
    if (get("refuse", 0))
        return NO_PERMISSION;
    set_of(device, "sm", least == most ? most : 0);
    return SUCCESS;
}
#endif

int nvmlDeviceResetGpuLockedClocks(void *device)
{
    tell("reset_sm", device, 0);
    if (get("refuse", 0))
        return NO_PERMISSION;
    set_of(device, "sm", 0);
    return SUCCESS;
}

int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned least, unsigned most)
{
    tell("lock_mem", device, most);
    long refuse_mem = get("refuse_mem", 0);
    if (get("refuse", 0) || refuse_mem)
        return refuse_mem == 2 ? NOT_SUPPORTED : NO_PERMISSION;
    set_of(device, "mem", least == most ? most : 0);
    return SUCCESS;
}

int nvmlDeviceResetMemoryLockedClocks(void *device)
{
    tell("reset_mem", device, 0);
    if (get("refuse", 0))
        return NO_PERMISSION;
    if (get("refuse_mem", 0) == 2)
        return NOT_SUPPORTED;
    set_of(device, "mem", 0);
    return SUCCESS;
}

int nvmlDeviceSetApplicationsClocks(void *device, unsigned memory, unsigned graphics)
{
    (void)memory;
    tell("applications_clocks", device, graphics);
    return SUCCESS;
}

int nvmlDeviceSetPersistenceMode(void *device, unsigned mode)
{
    tell("persistence", device, mode);
    return SUCCESS;
}

int nvmlDeviceSetPowerManagementLimit(void *device, unsigned milliwatts)
{
    tell("power_limit", device, milliwatts);
    return SUCCESS;
}
