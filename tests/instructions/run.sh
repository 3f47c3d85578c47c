#!/bin/bash
# Counts the instructions of operations and compares them with table.txt: more than 5 % more fails, more than 5 % less
# asks for a new table. Times on a shared machine say nothing about so little; instructions are the same each time.
#
#   run.sh LIBRARY           the libdtl.so that is shipped, with link-time optimisation
#   run.sh LIBRARY --write   writes the table anew
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$1
table=$here/table.txt
skip() { echo "skipped: $1"; exit 77; }

command -v valgrind >/dev/null || skip "valgrind is not installed"
command -v "${CC:-cc}" >/dev/null || skip "no C compiler (cc); apt-get install gcc"
machine=$(uname -m)
compiler=$(grep -aoE 'rustc version [0-9]+\.[0-9]+' "$library" | head -n 1 | cut -d' ' -f3)
if [ "${2:-}" != --write ] && [ "$(sed -n 's/^made with //p' "$table")" != "rustc $compiler, $machine" ]; then
    skip "another toolchain: the table was $(grep '^made with' "$table"), this library with rustc $compiler, $machine"
fi

# Wherever this runs, the program sees the same names and variables: the C library's heap begins the same way.
work=$(mktemp -d /tmp/dtl-instructions.XXXXXX)
trap 'rm -rf "$work"' EXIT
cp "$library" "$work/libdtl.so.0"
"${CC:-cc}" -std=c11 -O2 -I "$here/../../include" "$here/instructions.c" "$work/libdtl.so.0" -o "$work/program"
rounds=$(sed -n 's/^enum { ROUNDS = \([0-9]*\) };/\1/p' "$here/instructions.c")
(cd "$work" && env -i LD_BIND_NOW=1 LD_LIBRARY_PATH="$work" "$(command -v valgrind)" -q --tool=callgrind --toggle-collect='row_*' --callgrind-out-file=counted ./program)
# "row instructions" a line: what was counted inside each row, for one operation.
found=$(callgrind_annotate --inclusive=yes --threshold=100 "$work/counted" | awk -v rounds="$rounds" '
    match($0, /:row_[a-z0-9_]+/) {
        count = $1
        gsub(",", "", count)
        printf "%s %.0f\n", substr($0, RSTART + 5, RLENGTH - 5), count / rounds
    }' | sort)

if [ "${2:-}" = --write ]; then
    {
        echo "# Instructions per operation of the shipped libdtl.so; tests/instructions/run.sh --write makes this file."
        echo "made with rustc $compiler, $machine"
        echo "$found"
    } >"$table"
    cat "$table"
    exit
fi

status=0
while read -r row now; do
    then=$(awk -v row="$row" '$1 == row { print $2 }' "$table")
    if [ -z "$then" ]; then
        echo "$row: $now, not in the table: run.sh --write" && status=1
    elif [ $((now * 100)) -gt $((then * 105)) ]; then
        echo "$row: $now instructions, $then in the table: it has become dearer; find out why, or run.sh --write" && status=1
    elif [ $((now * 100)) -lt $((then * 95)) ]; then
        echo "$row: $now instructions, $then in the table: cheaper; keep it so with run.sh --write"
    else
        echo "$row: $now"
    fi
done <<<"$found"
for row in $(grep -v '^#\|^made' "$table" | cut -d' ' -f1); do
    grep -q "^$row " <<<"$found" || { echo "$row: in the table, but not counted"; status=1; }
done
exit $status
