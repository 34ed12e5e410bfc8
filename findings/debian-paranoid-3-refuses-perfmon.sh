#!/usr/bin/env bash
# On Debian's kernel CAP_PERFMON does not open perf events: at kernel.perf_event_paranoid 3, Debian's default, it takes CAP_SYS_ADMIN.
#
# Since Linux 5.8 CAP_PERFMON stands for everything that perf_event_open needs, at whatever level that setting is. Level 3 is not of Linux
# itself: Debian's patch to perf_event_open refuses every event at that level to who has not CAP_SYS_ADMIN, so that a service or a file
# with CAP_PERFMON alone gets EACCES, even for a software clock in user mode. At level 2 the capability does what it says.
#
# Seen with linux-image-6.1.0-50-cloud-amd64 6.1.176-1 of Debian 12, booted by qemu-system-x86 1:7.2 (any version will do, without KVM).
set -euo pipefail
package=linux-image-6.1.0-50-cloud-amd64
version=6.1.176-1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for program in qemu-system-x86_64 gcc cpio; do
    command -v $program > /dev/null || { echo "SKIPPED: needs $program (apt-get install qemu-system-x86 gcc cpio)"; exit 0; }
done
cd "$folder"
apt-get download "$package=$version" > /dev/null 2>&1 || { echo "SKIPPED: $package $version is not in the archive any more"; exit 0; }
dpkg-deb -x ./*.deb root
cat > init.c <<'END'
#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_level(int level)
{
    FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "w");
    fprintf(file, "%d\n", level);
    fclose(file);
}

/* A clock of this process in user mode, by a child that holds one capability, or none (-1). */
static void try(int level, const char *name, int capability)
{
    set_level(level);
    if (fork() == 0) {
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2] = {{0}};
        struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_CPU_CLOCK,
                                       .exclude_kernel = 1, .exclude_hv = 1};
        if (capability >= 0)
            data[capability / 32].effective = data[capability / 32].permitted = 1u << capability % 32;
        syscall(SYS_capset, &header, data);
        long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
        printf("RESULT %d %s %s\n", level, name, fd >= 0 ? "opens" : errno == EACCES ? "EACCES" : strerror(errno));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

int main(void)
{
    int level = -9;
    mount("proc", "/proc", "proc", 0, NULL);
    FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "r");
    if (file && fscanf(file, "%d", &level) == 1)
        printf("RESULT default level %d\n", level);
    for (level = 2; level <= 3; level++) {
        try(level, "none", -1);
        try(level, "CAP_PERFMON", 38);
        try(level, "CAP_SYS_ADMIN", 21);
    }
    reboot(RB_POWER_OFF);
    return 0;
}
END
gcc -O1 -static -o init init.c
mkdir -p image/proc && cp init image/init
(cd image && find . | cpio -o -H newc 2> /dev/null) > initramfs
timeout 300 qemu-system-x86_64 -accel tcg -cpu max -m 512 -nodefaults -display none -no-reboot -serial stdio \
    -kernel root/boot/vmlinuz-* -initrd initramfs -append 'console=ttyS0 quiet panic=-1' < /dev/null 2>&1 \
    | tr -d '\r' | grep -o 'RESULT .*' > results || true
echo "$package $version:"
cat results
cat > expected <<'END'
RESULT default level 3
RESULT 2 none opens
RESULT 2 CAP_PERFMON opens
RESULT 2 CAP_SYS_ADMIN opens
RESULT 3 none EACCES
RESULT 3 CAP_PERFMON EACCES
RESULT 3 CAP_SYS_ADMIN opens
END
cmp -s results expected || { echo "changed"; exit 1; }
