#!/bin/bash
# Compares the types and constants of the Fortran module with those of the C headers: the size of each
# struct, and each constant, printed by a program in Fortran and by one in C.
#
#   layouts.sh TOP MODULES LIBRARY     the sources, and the folder with dtl_c.o and the module files
set -euo pipefail
top=$1 modules=$2 library=$3
command -v gfortran >/dev/null || { echo "skipped: no gfortran"; exit 77; }
command -v "${CC:-cc}" >/dev/null || { echo "skipped: no C compiler (cc)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names as the headers have them, not as the generator of the module does.
headers=(dtl.h dtl_select.h dtl_backend.h dtl_rdma.h)
structs=$(cd "$top/include" && sed -nE 's/^\} (dtl_[a-z0-9_]+_t);$/\1/p' "${headers[@]}" | sort -u)
constants=$(cd "$top/include" && sed -nE 's/^#define (DTL_[A-Z0-9_]+) (\(?-?[0-9]+u?\)?|U?INT64_C\([0-9A-Fa-fx]+\)|.*_C\(-?[0-9].*)$/\1/p' \
    "${headers[@]}" | grep -vE '^DTL_(VERSION_|LAYOUT_COUNT|COMM_(SELF|WORLD)$)' | sort -u)

{
    for header in "${headers[@]}"; do echo "#include <$header>"; done
    echo 'int main(void) {'
    for name in $structs; do echo "printf(\"%s %zu\\n\", \"$name\", sizeof($name));"; done
    for name in $constants; do echo "printf(\"%s %lld\\n\", \"$name\", (long long)$name);"; done
    echo 'return 0; }'
} >"$work/c.c"
{
    echo 'program layouts'
    echo 'use dtl_c'
    echo 'use, intrinsic :: iso_c_binding'
    i=0
    for name in $structs; do echo "type($name) :: v$((i += 1))"; done
    i=0
    for name in $structs; do echo "print '(a, 1x, i0)', '$name', c_sizeof(v$((i += 1)))"; done
    for name in $constants; do echo "print '(a, 1x, i0)', '$name', $name"; done
    echo 'end program'
} >"$work/fortran.f90"
"${CC:-cc}" -I "$top/include" "$work/c.c" -o "$work/c"
gfortran -fmax-errors=5 -I "$modules" "$work/fortran.f90" "$modules/dtl_c.o" -o "$work/fortran" "$library"
"$work/c" >"$work/c.txt"
LD_LIBRARY_PATH=$(dirname "$library") "$work/fortran" >"$work/fortran.txt"
# Constants of 32 bits are printed as signed numbers in Fortran.
awk '{ print $1, ($2 > 2147483647 && $2 <= 4294967295 ? $2 - 4294967296 : $2) }' "$work/c.txt" >"$work/signed.txt"
diff "$work/signed.txt" "$work/fortran.txt"
count=$(wc -l <"$work/c.txt")
echo "$count sizes and values are equal"
[ "$count" -gt 250 ]
