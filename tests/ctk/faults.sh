#!/bin/bash
# Every fault that the sample backend can be given must be found by the test that names it, two at a time.
#     faults.sh DTL_CTK
set -u
export ctk=$1
finds() {
    # Some faults show only in some orders of arrival.
    for _ in 1 2 3; do
        said=$("$ctk" run --backend sample --ranks 3 --fault "$1" --only "$2" --timeout 4s 2>&1)
        if grep -qF "FAIL     $2: " <<<"$said"; then return 0; fi
    done
    printf '%s: %s did not find it:\n%s\n' "$1" "$2" "$said"
    return 1
}
export -f finds
"$ctk" list --faults | xargs -P 2 -L 1 bash -c 'finds "$0" "$1"'
