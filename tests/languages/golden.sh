#!/bin/sh
# Runs a job of five ranks and compares what it prints with golden.txt, byte for byte.
#
#   golden.sh COMMAND...     the launcher with its arguments, and the program
here=$(dirname "$0")
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$@" >"$output"
status=$?
if [ $status -ne 0 ]; then
    cat "$output"
    echo "exit status $status"
    exit 1
fi
diff "$here/golden.txt" "$output" && echo "as golden.txt"
