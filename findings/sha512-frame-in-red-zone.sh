#!/usr/bin/env bash
# OpenSSL's SHA-512 for AVX2 says that its frame is found by the word 8 bytes below the stack pointer, which perf's copies of a stack do not have.
#
# Its unwind rule is DW_OP_breg7 (rsp) -8, DW_OP_deref, DW_OP_plus_uconst 8: right for a debugger, which reads all memory, since the ABI keeps 128
# bytes below the stack pointer (System V ABI, AMD64 supplement, section 3.2.2). perf record --call-graph dwarf copies the stack from the
# pointer upward (PERF_SAMPLE_STACK_USER), so that nearly all samples of the busiest function have no caller, and nothing says so. SHA-1 of the same
# library, which keeps its frame above the pointer, is there to compare.
#
# Seen with OpenSSL 3.2.1 inside the wheel cryptography 42.0.5 and perf 6.1 (Debian 12): 96 to 99 % of the samples of SHA-512 have a single
# frame, of SHA-1 none. Needs an x86-64 CPU with AVX2, perf, readelf, Python 3.
set -euo pipefail
version=42.0.5
grep -qw avx2 /proc/cpuinfo || { echo "no AVX2 here"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check "cryptography==$version"
library=$(find env -name _rust.abi3.so)
cat > work.py << 'END'
import sys, time
from cryptography.hazmat.primitives import hashes
kind, data = getattr(hashes, sys.argv[1]), bytes(1 << 20)
end = time.monotonic() + 3
while time.monotonic() < end:
    digest = hashes.Hash(kind())
    digest.update(data)
    digest.finalize()
END
# Percent of the samples in a function whose name begins so that have one frame.
alone() {
    perf record --quiet --freq 499 --call-graph dwarf,16384 --output "$1.data" env/bin/python work.py "$1" > /dev/null 2>&1
    perf script --input "$1.data" --fields ip,sym 2> /dev/null |
        awk -v name="$2" 'BEGIN { RS = ""; FS = "\n" } $1 ~ name { all++; if (NF == 1) one++ } END { if (all < 200) exit 1; printf "%d", 100 * one / all }'
}
rules=$(readelf --debug-dump=frames "$library" 2> /dev/null | grep -c 'DW_OP_breg7 (rsp): -8; DW_OP_deref; DW_OP_plus_uconst: 8' || true)
sha512=$(alone SHA512 sha512_block)
sha1=$(alone SHA1 sha1_)
echo "$(perf --version), cryptography $version: $rules rules by the word below the stack pointer; samples with one frame: SHA-512 $sha512 %, SHA-1 $sha1 %"
[ "$rules" -ge 1 ] && [ "$sha512" -gt 50 ] && [ "$sha1" -lt 20 ] || { echo "changed"; exit 1; }
