#!/usr/bin/env bash
# A thread that waits in sem_wait has no frame of sem_wait on its stack.
#
# glibc's sem_wait leaves its slow path by a jump (a tail call) to a local function, __new_sem_wait_slow64, which waits in another local
# one. The exported name is on no stack. Where libc has no debug symbols, as on most servers, no backtrace can tell a
# semaphore from any other futex: pthread_cond_wait and pthread_mutex_lock call, and are there.
#
# Seen with libc6 2.36-9+deb12u14 and binutils 2.40-2 of Debian 12.
set -euo pipefail
libc=2.36-9+deb12u14
binutils=2.40-2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
download() { apt-get download "$1" > /dev/null 2>&1; }
download "libc6=$libc"
download "binutils-x86-64-linux-gnu=$binutils"
download "libbinutils=$binutils"
for package in *.deb; do dpkg-deb -x "$package" root; done
objdump() { LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu root/usr/bin/x86_64-linux-gnu-objdump "$@"; }
file=root/lib/x86_64-linux-gnu/libc.so.6
# The instructions of the function `$1` of version `$2`.
code() {
    read -r start size < <(objdump -T $file | awk -v name="$1" -v version="$2" '$NF == name && index($(NF - 1), version) {print $1, $(NF - 2)}')
    objdump -d --no-show-raw-insn --start-address="0x$start" --stop-address=$((16#$start + 16#$size)) $file | grep -P '^ +[0-9a-f]+:'
}
# All that it calls but the test for a cancellation, and its last instruction.
calls=$(code sem_wait GLIBC_2.34 | grep call | grep -vc pthread_testcancel || true)
last=$(code sem_wait GLIBC_2.34 | tail -1 | awk '{print $2}')
cond=$(code pthread_cond_wait GLIBC_2.3.2 | grep -c call || true)
echo "libc6 $libc: sem_wait has $calls calls that could wait, and ends in $last; pthread_cond_wait has $cond calls"
[ "$calls" = 0 ] && [ "$last" = jmp ] && [ "$cond" -ge 1 ] || { echo "changed"; exit 1; }
