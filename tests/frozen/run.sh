#!/bin/sh
# Programs and plugins that were compiled against earlier headers, with the library of today. Those of the present
# interface (v2) have to work. Those of 0.1 (v1) have to be refused with a text. They are for x86-64 Linux.
#
#   run.sh STAGE     the folder with bin/dtlrun and lib/libdtl.so.0.2
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
export LD_LIBRARY_PATH="$stage/lib"
take() { # take VERSION
    cp "$here/$1/plugin.so" "$here/$1/program" "$copy"
    chmod 700 "$copy"/*
}
refused() { # refused TEXT COMMAND...: the command fails and prints the text
    text=$1
    shift
    if said=$("$@" 2>&1); then
        echo "not refused: $*"
        exit 1
    fi
    case $said in *"$text"*) echo "refused: $said" ;; *) echo "no '$text' in: $said"; exit 1 ;; esac
}

for ranks in 1 2 3; do
    take v2
    echo "v2, $ranks rank(s)"
    "$stage/bin/dtlrun" -n "$ranks" "$copy/program" "$copy/plugin.so"
done
take v1
refused "libdtl.so.0: cannot open shared object file" "$copy/program" "$copy/plugin.so"
refused "it speaks ABI versions 1 to 1, this library 2 to 2" "$stage/bin/dtl-info" --probe "$copy/plugin.so"
take v2
cp "$here/v1/plugin.so" "$copy"
refused "it speaks ABI versions 1 to 1, this library 2 to 2" "$stage/bin/dtlrun" -n 1 "$copy/program" "$copy/plugin.so"
