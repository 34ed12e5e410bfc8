#!/usr/bin/env bash
# A return probe of any tool cuts the stacks that eu-stack shows, and eu-stack blames the dynamic linker for it.
#
# While a uretprobe is on a function, the kernel puts the address of its own page [uprobes] in the place of the function's return
# address, and keeps the real one for itself (kernel/events/uprobes.c). That address is the first byte of the page, so the byte
# before it, where the call is looked for, is in no mapping. elfutils takes the module before it in its list, ld-linux-x86-64.so.2, says
# that it has "no matching address range", and exits with 1: main and all other callers are missing.
#
# Seen with elfutils 0.188-2.1 of Debian 12 on Linux 6.18. It needs root and tracefs, whose probe it removes again.
set -euo pipefail
version=0.188-2.1
folder=$(mktemp -d)
trace=/sys/kernel/tracing
name=finding_$$
pid=
clean() {
    [ -z "$pid" ] || kill "$pid" 2> /dev/null || true
    if grep -q "$name" $trace/uprobe_events 2> /dev/null; then
        echo 0 > "$trace/events/$name/inner/enable"
        echo "-:$name/inner" >> $trace/uprobe_events
    fi
    rm -rf "$folder"
}
trap clean EXIT
[ -w $trace/uprobe_events ] || { echo "SKIPPED: $trace/uprobe_events cannot be written"; exit 0; }
cd "$folder"
apt-get download "elfutils=$version" "libdw1=$version" "libelf1=$version" "libasm1=$version" > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > prog.c <<'END'
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int inner(void) { puts("READY"); fflush(stdout); pause(); return 1; }
__attribute__((noinline)) int outer(void) { return inner() + 1; }
int main(void) { return outer(); }
END
gcc -O1 -g -fno-optimize-sibling-calls -o prog prog.c
stack() {
    ./prog > out & pid=$!
    until grep -q READY out 2> /dev/null; do kill -0 "$pid"; done
    code=0
    LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu root/usr/bin/eu-stack -p "$pid" > stack 2> errors || code=$?
    kill "$pid"; wait "$pid" 2> /dev/null || true
    rm out
    names=$(awk '/^#/ {print $3}' stack | xargs)
}
stack
without=$names
[ "$without" = "${without#*inner outer main}" ] && { echo "changed: without a probe: $without"; exit 1; }
offset=$(nm prog | awk '$3 == "inner" {print "0x" $1}')
echo "r:$name/inner $folder/prog:$offset" >> $trace/uprobe_events
echo 1 > "$trace/events/$name/inner/enable"
stack
echo "eu-stack $version on Linux $(uname -r | cut -d. -f1,2): without a probe: $without; with: $names; exit code $code, errors: $(wc -c < errors) bytes"
tail -2 stack; cat errors
case "$names" in
    *inner*main*) echo "changed: the callers are there"; exit 1 ;;
    *inner) ;;
    *) echo "changed"; exit 1 ;;
esac
[ "$code" = 1 ] && grep -q 'ld-linux-x86-64.so.2: no matching address range' errors || { echo "changed"; exit 1; }
