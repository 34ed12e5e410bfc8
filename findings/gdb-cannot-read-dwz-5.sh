#!/usr/bin/env bash
# gdb 13 does not read a program whose debug information "dwz -5 -m" has shared: no line, no variable, no inlined function.
#
# DWARF 5 has standard forms for what was GNU's extension: DW_FORM_strp_sup for strings of the common file, a section .debug_sup for its name. dwz
# writes them with -5, and gdb of the same distribution ends with an error at the first of them. Without -5 the same pair of files is read.
#
# Seen with dwz 0.15-1 and gdb 13.1-3 of Debian 12. It needs a C compiler.
set -euo pipefail
dwz=0.15-1
gdb=13.1-3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in "dwz=$dwz" "gdb=$gdb"; do apt-get download "$package" > /dev/null 2>&1; done
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > program.c <<'END'
struct a_structure_with_a_long_name { long a_member_with_a_long_name, another_member_with_a_long_name; };
struct a_structure_with_a_long_name the_variable;
int main(void) { return (int)the_variable.a_member_with_a_long_name; }
END
asks() {
    flags=$1
    gcc -g -gdwarf-5 -o first program.c
    cp first second
    root/usr/bin/dwz $flags -m common.debug first second 2> /dev/null
    root/usr/bin/gdb -nx -batch -ex 'ptype struct a_structure_with_a_long_name' -ex 'info line main' first 2>&1 || true
}
plain=$(asks "")
new=$(asks -5)
error=$(grep -o 'DW_FORM_strp_sup' <<< "$new" | head -1 || true)
lines() { grep -c 'Line 3 of "program.c"' <<< "$1" || true; }
echo "gdb $gdb after dwz $dwz: lines found $(lines "$plain"); after dwz -5: $(lines "$new"), and it names ${error:-nothing}"
[ "$(lines "$plain")" = 1 ] && [ "$(lines "$new")" = 0 ] && [ "$error" = DW_FORM_strp_sup ] || { echo "changed"; exit 1; }
