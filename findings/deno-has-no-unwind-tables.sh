#!/usr/bin/env bash
# The program of the npm package deno has neither .eh_frame nor .debug_frame, nor symbols: no debugger has rules for its stacks.
#
# The ABI of x86-64 asks for .eh_frame of every program (System V ABI, AMD64 supplement, section 4.2.4), and backtraces of panics in Rust are made by
# it. Here the section headers list none, and gdb, eu-stack and perf --call-graph dwarf have nothing to unwind by; frame pointers are what is left.
#
# Seen with deno 2.9.6 (package @deno/linux-x64-glibc of npm) and binutils of Debian 12.
set -euo pipefail
version=2.9.6
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm pack --silent "@deno/linux-x64-glibc@$version" > /dev/null
tar -xzf deno-*.tgz
readelf --section-headers --wide package/deno > sections
frames=$(grep -cE '\.(eh_frame|debug_frame|eh_frame_hdr)\b' sections || true)
symbols=$(grep -cE '\.symtab\b' sections || true)
text=$(awk '{for (i = 1; i < NF; i++) if ($i == ".text") print $(i + 4)}' sections)
echo "deno $(package/deno --version | head -1 | cut -d' ' -f2): .text has $((16#$text >> 20)) MiB; sections with unwind tables: $frames; symbol tables: $symbols"
[ "$frames" = 0 ] && [ "$symbols" = 0 ] && [ $((16#$text >> 20)) -gt 30 ] || { echo "changed"; exit 1; }
