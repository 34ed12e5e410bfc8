#!/usr/bin/env bash
# The run-queue delay of schedstat counts the time in which a quota keeps a thread from running.
#
# "perf sched", eBPF tools for run-queue latency and "time on the run queue" panels read as "too few CPUs". A thread whose group has used up its quota
# (cpu.cfs_quota_us, cpu.max) stays runnable, and the kernel adds that time to run_delay in /proc/PID/schedstat like any other
# (kernel/sched/stats.h). Only the group's cpu.stat tells the two apart.
#
# Seen on Linux 6.18 with a shell of Debian 12 (bash 5.2.15-2+b13). It needs root and the controller cpu of version 1.
set -euo pipefail
version=5.2.15-2+b13
folder=$(mktemp -d)
group=
pid=
clean() {
    [ -z "$pid" ] || { kill "$pid"; wait "$pid"; } 2> /dev/null || true
    [ -z "$group" ] || until rmdir "$group" 2> /dev/null; do :; done
    rm -rf "$folder"
}
trap clean EXIT
base=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ {print $2; exit}' /proc/mounts)
[ -n "$base" ] && mkdir "$base/finding-$$" 2> /dev/null || { echo "SKIPPED: no group of the controller cpu can be made"; exit 0; }
group=$base/finding-$$
cd "$folder"
apt-get download "bash=$version" > /dev/null 2>&1
dpkg-deb -x bash_*.deb root
echo 20000 > "$group/cpu.cfs_quota_us"
root/bin/bash -c 'while :; do :; done' & pid=$!
echo "$pid" > "$group/cgroup.procs"
throttled() { awk '/^throttled_time/ {print $2}' "$group/cpu.stat"; }
delay() { cut -d' ' -f2 "/proc/$pid/schedstat"; }
# Both are added up when a period begins and the thread runs again.
first=$(throttled); first_delay=$(delay)
until [ $(($(throttled) - first)) -gt 3000000000 ]; do kill -0 "$pid"; sleep 0.1; done
# The delay is read last: it has what the throttled time has.
last=$(throttled); sleep 0.2; last_delay=$(delay)
throttled_ms=$(((last - first) / 1000000)); delay_ms=$(((last_delay - first_delay) / 1000000))
echo "Linux $(uname -r | cut -d. -f1,2): throttled by a quota for $throttled_ms ms; run-queue delay grew by $delay_ms ms"
[ "$delay_ms" -ge $((throttled_ms * 9 / 10)) ] || { echo "changed"; exit 1; }
