#!/bin/sh
# Messages above 4 GiB over shm (both ways of moving them) and threads: tests/full/large.c. Minutes, and
# 14 GiB of memory.
#
#   large.sh BUILD     BUILD is CMake's build folder
set -eu
build=$1
here=$(dirname "$0")
cc -std=c11 -O2 -pthread -I "$here/../../include" "$here/large.c" -o "$build/large" \
    "$build/stage/lib/libdtl.so" -Wl,-rpath,"$(realpath "$build")/stage/lib"
"$build/stage/bin/dtlrun" -n 2 "$build/large"
DTL_SHM_COPY=cells "$build/stage/bin/dtlrun" -n 2 "$build/large"
"$build/large" threads
