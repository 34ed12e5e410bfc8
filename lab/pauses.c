/* Stops all CPUs at once for 0.2 to 1.4 s, again and again, with 6 to 30 s between, as a hypervisor does
 * that takes them away: a thread of the highest real-time priority on each CPU spins meanwhile. Needs root.
 * The scheduler's limits for such threads are lifted while it runs, and then set to the kernel's defaults.
 * Prints each pause's length, and ends when standard input closes. */
#define _GNU_SOURCE
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000u
#define RT_LIMIT "/proc/sys/kernel/sched_rt_runtime_us"
#define FAIR_SHARE "/sys/kernel/debug/sched/fair_server/cpu*/runtime"

static uint64_t pause_begin, pause_end;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static int write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return -1;
    int failed = fputs(text, file) < 0;
    return fclose(file) != 0 || failed ? -1 : 0;
}

/* Since Linux 6.8 a part of each second is kept for other threads (kernel/sched/deadline.c, fair server). */
static void write_fair_share(const char *text)
{
    glob_t found;
    if (glob(FAIR_SHARE, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        (void)write_text(found.gl_pathv[i], text);
    globfree(&found);
}

static void restore_limits(void)
{
    (void)write_text(RT_LIMIT, "950000");
    write_fair_share("50000000");
}

static void *stop_cpu(void *cpu)
{
    cpu_set_t set;
    struct sched_param param = {.sched_priority = 99};
    CPU_ZERO(&set);
    CPU_SET((int)(intptr_t)cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0 ||
        pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) {
        fprintf(stderr, "pauses: no real-time thread on CPU %d: %s\n", (int)(intptr_t)cpu,
                strerror(errno));
        exit(1);
    }
    for (;;) {
        uint64_t end = __atomic_load_n(&pause_end, __ATOMIC_ACQUIRE);
        uint64_t begin = __atomic_load_n(&pause_begin, __ATOMIC_ACQUIRE);
        if (end > now_ns()) {
            sleep_until(begin);
            while (now_ns() < end) {
            }
        }
        sleep_until(now_ns() + 20 * MS);
    }
}

static void *make_pauses(void *unused)
{
    uint64_t random = 88172645463325252u;
    for (;;) {
        uint64_t values[2];
        for (int i = 0; i < 2; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            values[i] = random;
        }
        uint64_t begin = now_ns() + (6000 + values[0] % 24000) * MS;
        uint64_t length = (200 + values[1] % 1200) * MS;
        __atomic_store_n(&pause_begin, begin, __ATOMIC_RELEASE);
        __atomic_store_n(&pause_end, begin + length, __ATOMIC_RELEASE);
        sleep_until(begin + length + 50 * MS);
        printf("%u ms\n", (unsigned)(length / MS));
        fflush(stdout);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    char byte;
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    /* debugfs need not be mounted, and what is mounted here is seen by nobody else. */
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
    atexit(restore_limits);
    if (write_text(RT_LIMIT, "-1") != 0) {
        perror("pauses: " RT_LIMIT);
        return 1;
    }
    write_fair_share("0");
    for (long cpu = 0; cpu < n_cpus; cpu++)
        pthread_create(&thread, NULL, stop_cpu, (void *)(intptr_t)cpu);
    pthread_create(&thread, NULL, make_pauses, NULL);
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
