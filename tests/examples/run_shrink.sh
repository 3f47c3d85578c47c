#!/usr/bin/env bash
# Runs the example shrink or recover with 2 to 4 ranks, one of which kills itself: the others (and with recover
# a new process) must finish with the right result, and the launcher must tell how the one ended.
#
# Usage: run_shrink.sh PROGRAM DTLRUN
set -u

for ranks in 2 3 4; do
    output=$(timeout 60 "$2" -n $ranks --on-failure=continue "$1" 2>&1)
    status=$?
    case $1 in
        *recover*) finished="$ranks ranks finished, 1 of them new" ;;
        *) finished="$((ranks - 1)) of $ranks ranks finished" ;;
    esac
    if [[ $status -ne 137 || $output != *"$finished"*": correct"* ]]; then
        echo "FAILED: $ranks ranks, exit status $status instead of 137: $output" >&2
        exit 1
    fi
    echo "$output"
done
