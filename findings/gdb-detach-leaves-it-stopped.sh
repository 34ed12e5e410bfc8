#!/usr/bin/env bash
# gdb's non-stop mode leaves a process stopped after "attach &", "interrupt" and "detach": its threads are T, nobody traces them.
#
# In batch mode the commands run one after the other: detach comes before the stops that interrupt asked for were reported, so that the SIGSTOP is
# still there when the tracer leaves. A profiler that looks at the process then finds "stopped by a signal", and no debugger any more.
#
# Seen with gdb 13.1-3 of Debian 12 on Linux 6.18. It needs the right to trace (root).
set -euo pipefail
version=13.1-3
folder=$(mktemp -d)
pid=
clean() {
    [ -z "$pid" ] || { kill -CONT "$pid"; kill "$pid"; } 2> /dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
cd "$folder"
apt-get download "gdb=$version" > /dev/null 2>&1
dpkg-deb -x gdb_*.deb root
cat > prog.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *waits(void *none) { pause(); return none; }
int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, waits, NULL);
    puts("READY"); fflush(stdout); pause();
}
END
gcc -O1 -pthread -o prog prog.c
./prog > out & pid=$!
until grep -q READY out 2> /dev/null; do kill -0 "$pid"; done
letters() { cat /proc/"$pid"/task/*/stat | sed 's/.*) //' | cut -d' ' -f1 | xargs; }
before=$(letters)
root/usr/bin/gdb -nx -batch -ex 'set non-stop on' -ex "attach $pid &" -ex interrupt -ex detach > gdb.out 2>&1 || true
# Whoever stopped it is gone.
tracer=$(awk '/^TracerPid/ {print $2}' /proc/"$pid"/status)
after=$(letters)
echo "gdb $version on Linux $(uname -r | cut -d. -f1,2): threads before: $before; after detach: $after; traced by: $tracer"
[ "$before" = "S S S S" ] && [ "$after" = "T T T T" ] && [ "$tracer" = 0 ] || { echo "changed"; exit 1; }
