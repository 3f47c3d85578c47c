#!/usr/bin/env bash
# Runs the example shrink with 2 to 4 ranks, one of which kills itself: the others must finish with the
# right result, and the launcher must tell how the one ended.
#
# Usage: run_shrink.sh SHRINK DTLRUN
set -u

for ranks in 2 3 4; do
    output=$(timeout 60 "$2" -n $ranks --on-failure=continue "$1" 2>&1)
    status=$?
    if [[ $status -ne 137 || $output != *"$((ranks - 1)) of $ranks ranks finished"*": correct"* ]]; then
        echo "FAILED: $ranks ranks, exit status $status instead of 137: $output" >&2
        exit 1
    fi
    echo "$output"
done
