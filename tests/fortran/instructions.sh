#!/bin/bash
# A send of 8 bytes through the Fortran module takes at most 10 instructions more than in C.
#
#   instructions.sh TOP MODULES LIBRARY     the sources, and the folder with the module's objects
set -euo pipefail
top=$1 modules=$2 library=$3
command -v gfortran >/dev/null || { echo "skipped: no gfortran"; exit 77; }
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for source in dtl_c.f90 dtl_support.f90 dtl_types.F90 dtl.f90; do
    gfortran -O2 -fPIC -I "$top/bindings/fortran" -c "$top/bindings/fortran/$source"
done
gfortran -O2 -c "$top/tests/fortran/send.f90"
cc -O2 -I "$top/include" -c "$top/tests/fortran/send.c" -o main.o
gfortran ./*.o -o program "$library"
count() {
    LD_BIND_NOW=1 LD_LIBRARY_PATH=$(dirname "$library") valgrind -q --tool=callgrind --toggle-collect="$1" \
        --callgrind-out-file="$1.out" ./program >&2
    awk '/^(summary|totals):/ { printf "%.1f\n", $2 / 1000; exit }' "$1.out"
}
c=$(count row_c) fortran=$(count row_fortran)
echo "a send of 8 bytes: $c instructions in C, $fortran in Fortran"
awk -v c="$c" -v fortran="$fortran" 'BEGIN { exit !(fortran <= c + 10 && fortran >= c) }'
