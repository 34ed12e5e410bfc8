#!/usr/bin/env bash
# A process that the freezer of control groups version 2 has frozen is "S" in ps, also where it was running.
#
# Nothing in /proc/PID/stat or status tells it from a process that waits for work: JOBCTL_TRAP_FREEZE makes the thread sleep below
# get_signal in the state TASK_INTERRUPTIBLE (do_freezer_trap in kernel/signal.c), so the letter is S, for a program that was in the middle of a
# computation, too. The freezer of version 1 gives D. Only the group's cgroup.events ("frozen 1") and the kernel function say it.
#
# Seen with procps 2:4.0.2-3 of Debian 12 on Linux 6.18. It needs root and a hierarchy of version 2.
set -euo pipefail
version=2:4.0.2-3
folder=$(mktemp -d)
group=
pid=
clean() {
    [ -z "$pid" ] || kill "$pid" 2> /dev/null || true
    [ -z "$group" ] || { echo 0 > "$group/cgroup.freeze"; wait "$pid" 2> /dev/null || true; rmdir "$group"; }
    rm -rf "$folder"
}
trap clean EXIT
base=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
[ -n "$base" ] && mkdir "$base/finding-$$" 2> /dev/null || { echo "SKIPPED: no group of version 2 can be made"; exit 0; }
group=$base/finding-$$
cd "$folder"
apt-get download "procps=$version" libproc2-0=$version > /dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" root; done
ps() { LD_LIBRARY_PATH=$folder/root/lib/x86_64-linux-gnu:$folder/root/usr/lib/x86_64-linux-gnu root/bin/ps "$@"; }
timeout 60 sh -c 'while :; do :; done' & pid=$!
busy=
until [ -n "$busy" ]; do busy=$(pgrep -P "$pid" || true); done
until [ "$(ps -o stat= -p "$busy" | cut -c1)" = R ]; do :; done
echo "$busy" > "$group/cgroup.procs"
echo 1 > "$group/cgroup.freeze"
until grep -q "frozen 1" "$group/cgroup.events"; do kill -0 "$busy"; done
letter=$(ps -o stat= -p "$busy" | cut -c1)
place=$(ps -o wchan:32= -p "$busy")
echo "procps $version on Linux $(uname -r | cut -d. -f1,2): a busy loop that is frozen: $letter in $place"
[ "$letter" = S ] || { echo "changed"; exit 1; }
