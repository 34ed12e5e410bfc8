#!/usr/bin/env bash
# pprof adds up functions of one name that are in different binaries.
#
# A node of pprof's reports is a function's name. The mapping that its location has (lib_one.so, lib_two.so) counts only with
# -addresses. So `malloc` of libc and `malloc` of an allocator that is preloaded are one line, and so are two static functions
# `compress` of two libraries that never ran together. A line's sum can be of several functions.
#
# Seen with github.com/google/pprof v0.0.0-20250403155104-27863c87afa6.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
version=v0.0.0-20250403155104-27863c87afa6
cd "$folder"
GOPATH="$folder/go" GOCACHE="$folder/cache" GOFLAGS=-modcacherw GOBIN="$folder/bin" \
    go install "github.com/google/pprof@$version" 2> /dev/null
# Two samples, `main -> compress` in either library: 100 and 300 ns.
cat > profile.py <<'END'
import gzip

def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])

def field(tag, value):
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    return number(tag << 3 | 2) + number(len(value)) + value

strings = ["", "wall", "nanoseconds", "/lib/lib_one.so", "/lib/lib_two.so", "compress", "main", "/bin/prog"]
profile = field(1, field(1, 1) + field(2, 2))
for location, ns in (1, 100), (2, 300):
    profile += field(2, field(1, number(location) + number(3)) + field(2, number(ns)))
for id, (start, file) in enumerate(((0x1000, 3), (0x9000, 4), (0x400000, 7)), 1):
    profile += field(3, field(1, id) + field(2, start) + field(3, start + 4096) + field(5, file) + field(7, 1))
for id, address in enumerate((0x1100, 0x9100, 0x400100), 1):
    profile += field(4, field(1, id) + field(2, id) + field(3, address) + field(4, field(1, id)))
for id, name in (1, 5), (2, 5), (3, 6):
    profile += field(5, field(1, id) + field(2, name) + field(3, name))
for string in strings:
    profile += field(6, string.encode())
open("profile.pb.gz", "wb").write(gzip.compress(profile))
END
python3 profile.py
found() {
    PPROF_BINARY_PATH=$folder bin/pprof -top "$@" profile.pb.gz 2> /dev/null | awk '/compress/ {print $1}' | xargs
}
echo "pprof $version: -top $(found); -top -addresses $(found -addresses)"
[ "$(found)" = "400ns" ] && [ "$(found -addresses)" = "300ns 100ns" ] || { echo "changed"; exit 1; }
