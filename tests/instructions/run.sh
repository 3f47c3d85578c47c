#!/bin/bash
# Counts the instructions of operations and compares them with table.txt: more than 3 % more fails, more than
# 3 % less asks for a new table. Times on a shared machine say nothing about so little; instructions are the
# same each time. Rows mpi_... count instructions of libdtl.so only, over MPICH with one rank. Rows cpp_... are
# the same operations through dtl.hpp: they may take 10 instructions more than in C.
#
#   run.sh LIBRARY           the libdtl.so that is shipped, with link-time optimisation
#   run.sh LIBRARY --write   writes the table anew
set -euo pipefail
shopt -s inherit_errexit
library=$(realpath "$1")
cd "$(dirname "$0")/../.."
here=$PWD/tests/instructions
table=$here/table.txt
skip() { echo "skipped: $1"; exit 77; }

command -v valgrind >/dev/null || skip "valgrind is not installed"
mpich=libmpich.so.12
grep -q "^\s*$mpich " <<<"$(ldconfig -p)" || skip "MPICH is not installed"
command -v "${CC:-cc}" >/dev/null || skip "no C compiler (cc); apt-get install gcc"
command -v "${CXX:-c++}" >/dev/null || skip "no C++ compiler (c++); apt-get install g++"
. tools/rust.sh
machine=$(uname -m)
compiler=$(grep -aoE 'rustc version [0-9]+\.[0-9]+\.[0-9]+' "$library" | head -n 1 | cut -d' ' -f3)
with="rustc $compiler, $machine"
[ "$compiler" = "$rust_pinned" ] || skip "the table is for the pinned rustc $rust_pinned, this library is by $compiler"
if [ "${2:-}" != --write ] && ! grep -qx "made with $with" "$table"; then
    skip "another machine: the table was $(grep '^made with' "$table"), this library with $with"
fi

# Wherever this runs, the program sees the same names and variables: the C library's heap begins the same way.
work=$(mktemp -d /tmp/dtl-instructions.XXXXXX)
trap 'rm -rf "$work"' EXIT
cp "$library" "$work/libdtl.so.0.2"
"${CC:-cc}" -std=c11 -O2 -pthread -I "$here/../../include" -c "$here/instructions.c" -o "$work/instructions.o"
"${CXX:-c++}" -std=c++17 -O2 -pthread -I "$here/../../include" "$here/cpp.cpp" "$work/instructions.o" \
    "$work/libdtl.so.0.2" -ldl -o "$work/program"
rounds=$(sed -n 's/^enum { ROUNDS = \([0-9]*\) };/\1/p' "$here/instructions.c")

# counted VARIABLE=VALUE [ROW]: runs the program and prints what was counted inside the functions row_...
counted() {
    (cd "$work" && env -i LD_BIND_NOW=1 LD_LIBRARY_PATH="$work" "$1" "$(command -v valgrind)" -q --tool=callgrind \
        --toggle-collect='row_*' --callgrind-out-file=counted ./program "${@:2}") >&2
    callgrind_annotate --inclusive="$([ $# -eq 1 ] && echo yes || echo no)" --threshold=100 "$work/counted"
}

# "row instructions" a line: what was counted inside each row, for one operation.
rows() {
    counted LC_ALL=C | awk -v rounds="$rounds" '
        match($0, /:row_[a-z0-9_]+/) {
            count = $1
            gsub(",", "", count)
            printf "%s %.0f\n", substr($0, RSTART + 5, RLENGTH - 5), count / rounds
        }'
    # How many instructions an MPI takes is not ours.
    for row in mpi_message_8 mpi_window_8; do
        counted DTL_MPI_LIBRARY=$mpich $row | awk -v rounds="$rounds" -v row=$row '
            /\[.*libdtl\.so\.0\.2\]/ {
                count = $1
                gsub(",", "", count)
                sum += count
            }
            END { printf "%s %.0f\n", row, sum / rounds }'
    done
}
found=$(rows | sort)

if [ "${2:-}" = --write ]; then
    {
        echo "# Instructions per operation of the shipped libdtl.so; tests/instructions/run.sh --write makes this file."
        echo "made with $with"
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
    elif [ $((now * 100)) -gt $((then * 103)) ]; then
        echo "$row: $now instructions, $then in the table: it has become dearer; find out why, or run.sh --write" && status=1
    elif [ $((now * 100)) -lt $((then * 97)) ]; then
        echo "$row: $now instructions, $then in the table: cheaper; keep it so with run.sh --write"
    else
        echo "$row: $now"
    fi
done <<<"$found"
while read -r row now; do
    in_c=$(awk -v row="${row#cpp_}" '$1 == row { print $2 }' <<<"$found")
    if [ "$now" -gt $((in_c + 10)) ]; then
        echo "$row: $now instructions, $in_c in C: the C++ interface may add 10" && status=1
    fi
done < <(grep '^cpp_' <<<"$found")
for row in $(grep -v '^#\|^made' "$table" | cut -d' ' -f1); do
    grep -q "^$row " <<<"$found" || { echo "$row: in the table, but not counted"; status=1; }
done
exit $status
