#!/usr/bin/env bash
# Go 1.26 writes 0 where the header of its table of functions (.gopclntab) had the start of the code, and does not change the magic number.
#
# The header (`pcHeader` in src/runtime/symtab.go) has a magic number, the counts of functions and files, and the address that
# the table's function offsets count from. From 1.20 to 1.25 the magic is 0xfffffff1 and the address that of .text. 1.26 keeps the
# magic and writes 0, so that a reader which adds the header's address names every function of a stripped program wrong; .text's address is
# right for all that Go links itself, as here; where the C linker does it (cgo), .text begins with C's start code. For a PIE the section was .data.rel.ro.gopclntab and is .gopclntab, too.
#
# Seen with go1.25.4 and go1.26.0 for linux/amd64.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
export GOPATH="$folder/go" GOCACHE="$folder/cache" GOFLAGS=-modcacherw CGO_ENABLED=0
cd "$folder"
printf 'package main\n\nfunc main() { println("x") }\n' > hello.go
printf 'module hello\n\ngo 1.21\n' > go.mod
cat > header.py <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
at, = struct.unpack_from("<Q", data, 0x28)
count, names = struct.unpack_from("<HH", data, 0x3C)
sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * i) for i in range(count)]
def name(section):
    start = sections[names][4] + section[0]
    return data[start : data.index(b"\0", start)].decode()
by_name = {name(section): section for section in sections}
table = next(n for n in by_name if n.endswith("gopclntab"))
offset = by_name[table][4]
magic, = struct.unpack_from("<I", data, offset)
start, = struct.unpack_from("<Q", data, offset + 24)
is_text = {0: "0", by_name[".text"][3]: "address of .text"}.get(start, hex(start))
print(f"{table} magic {magic:#x} start {is_text}")
END
seen() {
    GOTOOLCHAIN=$1 go build -buildmode="$2" -ldflags=-s -o program hello.go 2> /dev/null
    python3 header.py program
}
check() {
    found=$(seen "$1" "$2")
    echo "$1 $2: $found"
    [ "$found" = "$3" ] || { echo "changed; it was: $3"; exit 1; }
}
check go1.25.4 exe ".gopclntab magic 0xfffffff1 start address of .text"
check go1.25.4 pie ".data.rel.ro.gopclntab magic 0xfffffff1 start address of .text"
check go1.26.0 exe ".gopclntab magic 0xfffffff1 start 0"
check go1.26.0 pie ".gopclntab magic 0xfffffff1 start 0"
