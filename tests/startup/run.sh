#!/bin/bash
# Measures what linking the library costs: size of the file, time to start, threads.
#     run.sh LIBRARY
set -euo pipefail
library=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d "${TMPDIR:-/tmp}/dtl-startup.XXXXXX")
trap 'rm -rf "$work"' EXIT

size=$(stat -c %s "$library")
echo "$size bytes"
[ "$size" -le 4500000 ] || { echo "FAIL: more than 4.5 MB: nm --size-sort on lib/.debug shows what it consists of"; exit 1; }

cp "$library" "$work/libdtl.so.0.2"
"${CC:-cc}" -std=c11 -O2 "$here/startup.c" -o "$work/plain"
"${CC:-cc}" -std=c11 -O2 "$here/startup.c" -Wl,--no-as-needed "$work/libdtl.so.0.2" -Wl,-rpath,"$work" -o "$work/linked"
"$work/linked" || { echo "FAIL: a program that only links the library has more than one thread"; exit 1; }
read -r linked plain < <("$work/plain" "$work/linked" "$work/plain")
echo "started and ended in $linked us; without the library $plain us"
[ $((linked - plain)) -lt 1000 ] || { echo "FAIL: linking the library costs 1 ms or more"; exit 1; }
