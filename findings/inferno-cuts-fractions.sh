#!/usr/bin/env bash
# inferno cuts the fraction of each weight before it adds up: 0.4 + 0.6 + 2.9 ms are 2, and functions below 1 are not in the graph.
#
# flamegraph.pl adds weights as they are. inferno-flamegraph takes the integer part of each line and warns that it does so; a profile in
# seconds or milliseconds can lose most of its time and its smaller functions that way. inferno-diff-folded does the same, and its output
# has the lines with 0. Weights in integers of a small unit (wcprof's folded stacks are in microseconds) lose nothing.
#
# Seen with inferno 0.12.2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
version=0.12.2
cargo install --quiet --locked --root "$folder" --version "$version" inferno --no-default-features --features cli \
    --target-dir "$folder/target" 2> /dev/null
cd "$folder"
printf 'main;a 0.4\nmain;b 0.6\nmain;c 2.9\n' > fractions.folded
titles=$(bin/inferno-flamegraph fractions.folded 2> warning | grep -o '<title>[^<]*' | sed 's/<title>//' | sort | paste -sd '|')
warned=$(grep -c 'truncated to integers' warning || true)
difference=$(bin/inferno-diff-folded fractions.folded fractions.folded 2> /dev/null | sort | paste -sd '|')
echo "inferno $version: $titles; warnings: $warned; difference: $difference"
[ "$titles" = "all (2 samples, 100%)|c (2 samples, 100.00%)|main (2 samples, 100.00%)" ] &&
    [ "$warned" = 1 ] && [ "$difference" = "main;a 0 0|main;b 0 0|main;c 2 2" ] || { echo "changed"; exit 1; }
