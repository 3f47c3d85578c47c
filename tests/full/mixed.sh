#!/bin/bash
# Shows that the memory of a process stops growing under mixed traffic: tests/full/mixed.c on four ranks. Not part of
# CTest.
#
#   mixed.sh BUILD [SECONDS] [SEED]     BUILD: CMake's build folder; an hour without SECONDS
set -euo pipefail
stage=$(cd "$1" && pwd)/stage
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c11 -O2 -Wall -Wextra -Werror -I "$here/../../include" "$here/mixed.c" "$stage/lib/libdtl.so" "-Wl,-rpath,$stage/lib" -o "$work/mixed"
"$stage/bin/dtlrun" -n 4 "$work/mixed" "${2:-3600}" "${3:-1}"
echo "passed"
