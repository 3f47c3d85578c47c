#!/usr/bin/env bash
# The communicator's test programs (tests/c, the list is suite.txt) over a kind between rxe0 and rxe1, inside the virtual machine.
#
#     run-in-rdma-vm.sh --timeout 1800 -- tests/rdma/vm/suite.sh [BUILD [KIND [NAME…]]]
#
# NAME…: only these. RDMA_VM_TESTS: the folder of the programs, if it is not BUILD/tests/bin/tests/c.
# Prints "PASS|FAIL|SKIP name ranks seconds" for each, what a failed one said last, and a summary. Fails if one failed.
set -u
. "$(dirname "$0")/common.sh"
common_start "${1:-build}" "${2:-rdma}"
shift $(($# < 2 ? $# : 2))
tests=${RDMA_VM_TESTS:-$build/tests/bin/tests/c} passed=0 failed=0 skipped=0

while read -r name count seconds arguments; do
    [[ $name != \#* ]] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    begin=$(date +%s%N)
    # shellcheck disable=SC2086 # several arguments
    ranks "$count" timeout -k 5 "$seconds" "$tests/$name.gcc-c11" "$kind" $arguments >"$work/log" 2>&1 </dev/null
    status=$?
    took=$((($(date +%s%N) - begin) / 100000000))
    case $status in
    0) verdict=PASS passed=$((passed + 1)) ;;
    77) verdict=SKIP skipped=$((skipped + 1)) ;;
    *) verdict=FAIL failed=$((failed + 1)) ;;
    esac
    printf '%s %-22s %d %3d.%d s%s\n' $verdict "$name" "$count" $((took / 10)) $((took % 10)) \
        "$([ $status -ne 124 ] && [ $status -ne 137 ] || echo "  ran out of its $seconds s")"
    [ $verdict = PASS ] || tail -n 12 "$work/log" | sed 's/^/    /'
done <"$(dirname "$0")/suite.txt"
# A receiver always has room for what it is sent: no packet is ever answered by "receiver not ready".
late=$(counter send_rnr_err) again=$(counter completer_retry_err)
[ "$late" -eq 0 ] || { echo "FAIL: receivers were not ready $late times"; failed=$((failed + 1)); }
echo "$kind: $passed passed, $failed failed, $skipped skipped; sent again after a time limit: $again times"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
