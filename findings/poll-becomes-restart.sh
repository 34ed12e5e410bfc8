#!/usr/bin/env bash
# After any debugger has looked at a process once, its poll, sleep or timed futex wait is the system call 219 for as long as it lasts.
#
# A stop interrupts these calls. They go on by restart_syscall (219 on x86-64, kernel/signal.c), and /proc/PID/syscall shows that
# number with the arguments of the call before: a tool that tells waits by their number takes a thread that polls for something else,
# long after the debugger, here eu-stack, has gone. Only the kernel function that it waits in (wchan) still says it.
#
# Seen with elfutils 0.188-2.1 of Debian 12 on Linux 6.18. It needs root, as /proc/PID/syscall does.
set -euo pipefail
version=0.188-2.1
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download "elfutils=$version" "libdw1=$version" "libelf1=$version" "libasm1=$version" > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > prog.c <<'END'
#include <poll.h>
int main(void) { return poll(0, 0, 600000); }
END
gcc -o prog prog.c
./prog & pid=$!
call() { awk '{print $1}' "/proc/$pid/syscall"; }
until [ "$(call)" = 7 ]; do kill -0 "$pid"; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu root/usr/bin/eu-stack -p "$pid" > stack
# It is stopped until the debugger has left.
until [ "$(call)" != running ] && [ "$(awk '{print $3}' "/proc/$pid/stat")" = S ]; do kill -0 "$pid"; done
after=$(call)
echo "Linux $(uname -r | cut -d. -f1,2): system call before eu-stack: 7 (poll), after: $after; wchan: $(cat "/proc/$pid/wchan")"
[ "$after" = 219 ] || { echo "changed"; exit 1; }
