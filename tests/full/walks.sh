#!/bin/bash
# Follows the buffer of dtl_comm_send (kind threads) and the destination of dtl_mem_copy from the C function to the copy,
# as callgrind records the calls of a debug build: at most 12 source files and 2 calls into a higher layer each. The
# library is built from a copy of the tree without #[inline(always)], which would hide functions. walks.py has the method.
#
#   walks.sh [REVISION]      the working tree, or what was committed as REVISION
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/rust.sh
here=$PWD/tests/full
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
if [ $# -eq 0 ]; then
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/tree" 2>/dev/null || true
else
    git archive "$1" | tar x -C "$work/tree"
fi
cd "$work/tree"
grep -rlF '#[inline(always)]' src | xargs sed -i 's/#\[inline(always)\]//'
CARGO_TARGET_DIR=$work/target cargo "+$rust_pinned" rustc -q --locked --lib --crate-type cdylib
cp "$work/target/debug/libdtl.so" "$work/libdtl.so.0.2"
"${CC:-cc}" -std=c11 -O1 -I include "$here/walks.c" "$work/libdtl.so.0.2" -o "$work/walks"

# walk FUNCTION ENTRY
walk() {
    (cd "$work" && env -i LD_BIND_NOW=1 LD_LIBRARY_PATH="$work" "$(command -v valgrind)" -q --tool=callgrind \
        --demangle=no --toggle-collect="$1" --callgrind-out-file=recorded ./walks) || return
    python3 "$here/walks.py" "$work/recorded" "$2" 12 2
}
status=0
walk walk_send dtl_comm_send || status=1
walk walk_copy dtl_mem_copy || status=1
exit $status
