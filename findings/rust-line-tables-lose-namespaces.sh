#!/usr/bin/env bash
# With -C debuginfo=line-tables-only an inlined function of Rust has its bare name in DWARF: no namespace and no linkage name.
#
# The name of an inlined `pool::lock` is `lock`, as that of any other `lock`: DW_TAG_namespace and DW_AT_linkage_name are there with
# debuginfo=1 and 2 only. Functions that are not inlined have their mangled names in the symbol table. wcprof therefore puts the path of the
# source file before such a name.
#
# Seen with rustc 1.95.0 and binutils 2.40-2 of Debian 12.
set -euo pipefail
rust=1.95.0
binutils=2.40-2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export RUSTUP_HOME=$folder/rustup CARGO_HOME=$folder/cargo
rustup toolchain install "$rust" --profile minimal --no-self-update > /dev/null 2>&1
for package in "binutils-x86-64-linux-gnu=$binutils" "libbinutils=$binutils"; do apt-get download "$package" > /dev/null 2>&1; done
for package in *.deb; do dpkg-deb -x "$package" root; done
export LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
cat > pool.rs <<'END'
pub mod pool {
    #[inline(always)]
    pub fn lock(x: &mut u64) { *x = x.wrapping_mul(3).rotate_left(7); }
}
#[no_mangle]
pub fn caller(x: &mut u64) { pool::lock(x) }
END
entries() {
    rustup run "$rust" rustc --crate-type lib --emit obj -O -C debuginfo="$1" -o pool.o pool.rs
    root/usr/bin/x86_64-linux-gnu-readelf --debug-dump=info pool.o > info
    namespaces=$(grep -c 'DW_TAG_namespace' info || true)
    linkage=$(grep -c 'DW_AT_linkage_name.*pool' info || true)
    name=$(grep -c 'DW_AT_name.*: lock$' info || true)
    inlined=$(grep -c 'DW_TAG_inlined_subroutine' info || true)
    echo "$namespaces $linkage $name $inlined"
}
tables=$(entries line-tables-only)
limited=$(entries 1)
echo "rustc $rust: namespaces, linkage names, names 'lock', inlined calls: $tables with line-tables-only; $limited with 1"
read -r namespaces linkage name inlined <<< "$tables"
[ "$namespaces" = 0 ] && [ "$linkage" = 0 ] && [ "$name" -ge 1 ] && [ "$inlined" -ge 1 ] || { echo "changed"; exit 1; }
read -r namespaces _ <<< "$limited"
[ "$namespaces" -ge 1 ] || { echo "changed"; exit 1; }
