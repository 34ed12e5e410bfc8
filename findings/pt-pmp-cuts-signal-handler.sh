#!/usr/bin/env bash
# pt-pmp cuts gdb's `<signal handler called>` at its first space: the frame becomes `<signal`, with a bracket that nothing closes.
#
# pt-pmp takes the word after `in`, or the second one, as a frame's function (`aggregate_stacktrace` in pt-pmp). A thread that waits in a signal
# handler has a line of gdb without `in` there, so that whoever splits pt-pmp's text at brackets or commas meets half a name.
#
# Seen with percona-toolkit 3.2.1 and gdb 13.1 of Debian 12.
set -euo pipefail
version=3.2.1-1
folder=$(mktemp -d)
program=
trap '[ -z "$program" ] || kill "$program" 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq "percona-toolkit=$version" > /dev/null
dpkg-deb -x percona-toolkit_*.deb tools
cat > waits.c << 'C'
#include <signal.h>
#include <unistd.h>
static void handler(int signal) { (void)signal; for (;;) pause(); }
int main(void) { signal(SIGUSR1, handler); raise(SIGUSR1); }
C
gcc -g -O0 waits.c -o waits
./waits &
program=$!
sleep 1
bash tools/usr/bin/pt-pmp --pid "$program" --iterations 1 2> /dev/null > seen || true
kill -9 "$program"
wait "$program" 2> /dev/null || true
program=
echo "percona-toolkit $version, $(gdb --version | head -1): $(grep handler seen)"
grep -q 'handler,<signal,' seen || { echo "changed"; cat seen; exit 1; }
