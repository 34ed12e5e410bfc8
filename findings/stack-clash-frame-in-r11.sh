#!/usr/bin/env bash
# With -fstack-clash-protection gcc describes the frame of a function by r11 while its prologue touches the pages of a large frame.
#
# Calls do not preserve r11. Until the loop is over there is no other rule (DW_CFA_def_cfa r11), so that an unwinder that was given the instruction
# pointer, sp and rbp of a thread that is preempted there has no callers. Debian 13 builds its packages with this flag (dpkg-buildflags).
#
# Seen with gcc-12 12.2.0-14+deb12u1 and binutils 2.40-2 of Debian 12.
set -euo pipefail
gcc=12.2.0-14+deb12u1
binutils=2.40-2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
download() { apt-get download "$1" > /dev/null 2>&1; }
download "gcc-12=$gcc"
download "cpp-12=$gcc"
download "libgcc-12-dev=$gcc"
download "binutils-x86-64-linux-gnu=$binutils"
download "libbinutils=$binutils"
for package in *.deb; do dpkg-deb -x "$package" root; done
export LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu PATH=$folder/root/usr/bin:$PATH
cat > frame.c <<'END'
void use(char *);
void large_frame(void) { char bytes[65536]; use(bytes); }
END
rows() {
    root/usr/bin/x86_64-linux-gnu-gcc-12 -O2 "$@" -S -o frame.s frame.c
    root/usr/bin/x86_64-linux-gnu-as -o frame.o frame.s
    root/usr/bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp frame.o
}
with=$(rows -fstack-clash-protection | grep -c ' r11+' || true)
without=$(rows -fno-stack-clash-protection | grep -c ' r11+' || true)
echo "gcc $gcc: rows of a frame of 64 KiB that are based on r11: $with with -fstack-clash-protection, $without without"
[ "$with" -ge 1 ] && [ "$without" = 0 ] || { echo "changed"; exit 1; }
