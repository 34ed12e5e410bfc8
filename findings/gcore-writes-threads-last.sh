#!/usr/bin/env bash
# gdb's gcore writes the notes of a core (threads, registers, list of files) behind all memory: a copy that was cut short has memory, and no thread.
#
# The kernel writes them first, so that of a core that filled the disk or was cut by a limit the threads are there and the last memory is
# not. Program headers say where the notes are, and any order is valid.
#
# Seen with gdb 13.1-3 of Debian 12 on Linux 6.18, beside a core of the kernel. It needs the right to trace (root).
set -euo pipefail
version=13.1-3
folder=$(mktemp -d)
pid=
clean() {
    [ -z "$pid" ] || kill "$pid" 2> /dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
cd "$folder"
apt-get download "gdb=$version" > /dev/null 2>&1 || { echo "SKIPPED: gdb $version is not in the archive any more"; exit 0; }
dpkg-deb -x gdb_*.deb root
cat > prog.c <<'END'
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    puts("READY"); fflush(stdout); pause();
}
END
gcc -O1 -o prog prog.c
./prog > out & pid=$!
until grep -q READY out 2> /dev/null; do kill -0 "$pid"; done
root/usr/bin/gdb -nx -batch -p "$pid" -ex "generate-core-file $folder/core" > gdb.out 2>&1
# Offset of the notes, and of the first and the last memory that is in the file.
offsets() { readelf -lW "$1" | awk '$1 == "NOTE" {note = $2} $1 == "LOAD" && $5 != "0x000000" {if (!first) first = $2; last = $2} END {print note, first, last}'; }
read -r note first last < <(offsets core)
size=$(stat -c %s core)
head -c $((size * 9 / 10)) core > cut
threads=$(root/usr/bin/gdb -nx -batch -ex 'info threads' prog cut 2> /dev/null | grep -cE '^\*? +[0-9]+ +(Thread|LWP|process)' || true)
whole=$(root/usr/bin/gdb -nx -batch -ex 'info threads' prog core 2> /dev/null | grep -cE '^\*? +[0-9]+ +(Thread|LWP|process)' || true)
echo "gdb $version: notes at $note, memory from $first to $last; threads of the whole file: $whole, of its first nine tenths: $threads"
[ $((note)) -gt $((last)) ] && [ "$whole" = 1 ] && [ "$threads" = 0 ] || { echo "changed"; exit 1; }
