#!/bin/sh
# How program and plugin.so of this folder were made, once, on the day that ABI version 2 was frozen: from the
# header and the library of that day (PREFIX), on the oldest system that is supported, stripped. They are not made
# again: that they still work is what ../run.sh tests.
#
#   make.sh PREFIX
set -eu
prefix=$1
cd "$(dirname "$0")"
gcc -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -s -Wl,--hash-style=gnu -I"$prefix/include" plugin.c -o plugin.so
gcc -std=gnu11 -O2 -s -Wl,--hash-style=gnu -I"$prefix/include" program.c -o program -L"$prefix/lib" -l:libdtl.so.0.2
