#!/bin/sh
# Runs the programs and plugins that were compiled against earlier headers (folders v1, …) with the library of
# today. They are for x86-64 Linux.
#
#   run.sh STAGE     the folder with bin/dtlrun and lib/libdtl.so.0
set -eu
stage=$1
here=$(dirname "$0")
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "skipped: the frozen binaries are for Linux on x86_64, not $(uname -sm)"
    exit 77
fi
# A plugin that others may write to is refused: however this tree came here, the copy is ours alone.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for folder in "$here"/v*; do
    cp "$folder/plugin.so" "$folder/program" "$copy"
    chmod 700 "$copy"/*
    for ranks in 1 2 3; do
        echo "$(basename "$folder"), $ranks rank(s)"
        LD_LIBRARY_PATH="$stage/lib" "$stage/bin/dtlrun" -n "$ranks" "$copy/program" "$copy/plugin.so"
    done
done
