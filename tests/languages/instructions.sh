#!/bin/bash
# A send of 8 bytes through the safe Rust interface takes at most 10 instructions more than in C, and so does an
# event query of a backend that is written in Rust.
#
#   instructions.sh TOP LIBRARY SEND QUERY     the sources, libdtl.so, and send.rs and event_query.rs as programs
set -euo pipefail
top=$1 library=$2 send=$3 query=$4
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
is_close() { awk -v c="$1" -v rust="$2" 'BEGIN { exit !(c > 100 && rust > 100 && rust <= c + 10) }'; }
is_close "$c" "$rust"
plain=$(count "$query" '*row_plain*') traits=$(count "$query" '*row_traits*')
echo "an event query: $plain instructions with functions as in C, $traits with the traits of a driver"
is_close "$plain" "$traits"
