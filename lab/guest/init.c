/*
 * The only program of the lab's virtual machine, its first process: loads the modules listed in
 * /modules/order, then reads and writes the disk at random offsets for ever, and prints once every
 * five seconds how fast. Kernel command line: jobs=N bs=BYTES writes=PERCENT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DISK "/dev/vda"
#define MAX_JOBS 256

/* One of each job; a cache line of its own. */
struct counts {
	_Alignas(64) atomic_ulong reads;
	atomic_ulong writes;
	atomic_ulong errors;
};

static long option(const char *line, const char *name, long otherwise)
{
	const char *at = line;
	size_t length = strlen(name);

	while ((at = strstr(at, name))) {
		if ((at == line || at[-1] == ' ') && at[length] == '=')
			return strtol(at + length + 1, NULL, 10);
		at += length;
	}
	return otherwise;
}

static void load_modules(void)
{
	char path[256];
	FILE *order = fopen("/modules/order", "r");

	if (!order)
		return;
	while (fgets(path, sizeof path, order)) {
		path[strcspn(path, "\n")] = '\0';
		int file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0 || syscall(SYS_finit_module, file, "", 0) != 0)
			printf("%s: %s\n", path, strerror(errno));
		if (file >= 0)
			close(file);
	}
	fclose(order);
}

static void job(unsigned number, size_t size, unsigned percent, struct counts *counts)
{
	uint64_t disk_size = 0, random = 0x2545F4914F6CDD1Dull * (number + 1);
	void *buffer = NULL;
	int disk = open(DISK, O_RDWR | O_DIRECT);

	if (disk < 0 || ioctl(disk, BLKGETSIZE64, &disk_size) != 0 || disk_size < size ||
	    posix_memalign(&buffer, 4096, size) != 0) {
		printf("job %u: %s\n", number, strerror(errno));
		for (;;)
			pause();
	}
	memset(buffer, (int)number, size);
	for (;;) {
		random ^= random >> 12;
		random ^= random << 25;
		random ^= random >> 27;
		off_t offset = (off_t)((random >> 16) % (disk_size / size) * size);
		int is_write = random % 100 < percent;
		ssize_t done = is_write ? pwrite(disk, buffer, size, offset)
					: pread(disk, buffer, size, offset);
		if (done != (ssize_t)size) {
			atomic_fetch_add(&counts->errors, 1);
			usleep(100000);
		} else {
			atomic_fetch_add(is_write ? &counts->writes : &counts->reads, 1);
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void report(const struct counts *counts, unsigned n_jobs)
{
	unsigned long reads_before = 0, writes_before = 0;
	double before = seconds();

	for (;;) {
		struct timespec pause = {.tv_sec = 5};
		unsigned long reads = 0, writes = 0, errors = 0;

		while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
			;
		for (unsigned i = 0; i < n_jobs; i++) {
			reads += atomic_load(&counts[i].reads);
			writes += atomic_load(&counts[i].writes);
			errors += atomic_load(&counts[i].errors);
		}
		/* On a busy host five seconds can be six. */
		double now = seconds(), took = now - before;
		printf("ops/s read %.0f write %.0f errors %lu\n", (reads - reads_before) / took,
		       (writes - writes_before) / took, errors);
		before = now;
		reads_before = reads;
		writes_before = writes;
	}
}

int main(void)
{
	char line[4096] = "";

	/* The folders exist; what fails here shows below. */
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	int console = open("/dev/console", O_RDWR);
	for (int file = 0; console >= 0 && file < 3; file++)
		dup2(console, file);
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_modules();

	int file = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	if (file >= 0 && read(file, line, sizeof line - 1) < 0)
		perror("/proc/cmdline");
	long n_jobs = option(line, "jobs", 32), size = option(line, "bs", 16384);
	long percent = option(line, "writes", 30);
	if (n_jobs < 1 || n_jobs > MAX_JOBS)
		n_jobs = MAX_JOBS;
	for (int i = 0; i < 200 && access(DISK, F_OK) != 0; i++)
		usleep(50000);

	struct counts *counts = mmap(NULL, sizeof *counts * n_jobs, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED) {
		perror("mmap");
		for (;;)
			pause();
	}
	for (long i = 0; i < n_jobs; i++)
		if (fork() == 0)
			job((unsigned)i, (size_t)size, (unsigned)percent, &counts[i]);
	report(counts, (unsigned)n_jobs);
}
