#!/bin/bash
# A send of 8 bytes through the safe Rust interface takes at most 10 instructions more than in C.
#
#   instructions.sh TOP LIBRARY SEND     the sources, libdtl.so, and send.rs as a program
set -euo pipefail
top=$1 library=$2 send=$3
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cc -O2 -I "$top/include" "$top/tests/fortran/send.c" -o send_c "$library"
count() { # count PROGRAM FUNCTION
    LD_BIND_NOW=1 LD_LIBRARY_PATH=$(dirname "$library") valgrind -q --tool=callgrind --toggle-collect="$2" \
        --callgrind-out-file=out "$1" >&2
    awk '/^(summary|totals):/ { printf "%.1f\n", $2 / 1000; exit }' out
}
c=$(count ./send_c row_c) rust=$(count "$send" '*row_rust*')
echo "a send of 8 bytes: $c instructions in C, $rust in Rust"
awk -v c="$c" -v rust="$rust" 'BEGIN { exit !(c > 100 && rust > 100 && rust <= c + 10) }'
