#!/usr/bin/env bash
# The freezer of control groups version 1 does not wake what sleeps: a frozen sleeper is "D" in ps, at the place where it slept.
#
# D is known as a wait for a disk, and the place is the timer's: nothing that ps shows says "frozen". Since Linux 6.1 the freezer sets
# the state of a task that sleeps in a freezable way to TASK_FROZEN in place (__set_task_frozen in kernel/freezer.c), which /proc shows as
# D. Only a task that was running gets to __refrigerator by itself (ps leaves the underscores out).
#
# Seen with procps 2:4.0.2-3 of Debian 12 on Linux 6.18. It needs root and the freezer of version 1.
set -euo pipefail
version=2:4.0.2-3
folder=$(mktemp -d)
group=
pids=()
clean() {
    if [ -n "$group" ]; then
        echo THAWED > "$group/freezer.state"
        kill "${pids[@]}" 2> /dev/null || true
        wait "${pids[@]}" 2> /dev/null || true
        rmdir "$group"
    fi
    rm -rf "$folder"
}
trap clean EXIT
base=$(awk '$3 == "cgroup" && $4 ~ /(^|,)freezer(,|$)/ {print $2; exit}' /proc/mounts)
[ -n "$base" ] && mkdir "$base/finding-$$" 2> /dev/null || { echo "SKIPPED: no group of the freezer can be made"; exit 0; }
group=$base/finding-$$
cd "$folder"
apt-get download "procps=$version" libproc2-0=$version > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
ps() { LD_LIBRARY_PATH=$folder/root/lib/x86_64-linux-gnu:$folder/root/usr/lib/x86_64-linux-gnu root/bin/ps "$@"; }
look() { echo "$(ps -o stat= -p "$1" | cut -c1) $(ps -o wchan:32= -p "$1" | xargs)"; }
sleep 60 & pids+=($!)
timeout 60 "$BASH" -c 'while :; do :; done' & pids+=($!)
busy=
until [ -n "$busy" ]; do busy=$(pgrep -P "${pids[1]}" || true); done
until [ "$(look "${pids[0]}")" = "S hrtimer_nanosleep" ]; do kill -0 "${pids[0]}"; done
for pid in "${pids[0]}" "$busy"; do echo "$pid" > "$group/cgroup.procs"; done
echo FROZEN > "$group/freezer.state"
until [ "$(cat "$group/freezer.state")" = FROZEN ]; do kill -0 "$busy"; done
sleeper=$(look "${pids[0]}")
runner=$(look "$busy")
echo "procps $version on Linux $(uname -r | cut -d. -f1,2): frozen: sleep: $sleeper; a busy loop: $runner"
[ "$sleeper" = "D hrtimer_nanosleep" ] && [ "$runner" = "D refrigerator" ] || { echo "changed"; exit 1; }
