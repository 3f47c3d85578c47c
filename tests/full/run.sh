#!/usr/bin/env bash
# The long form of "destroy against use" (tests/c/test_race.c): a million rounds for every kind of handle
# that is cheap to make, fewer for those that start a thread or wait for everybody. Minutes, not seconds,
# so it is not part of ./run test, whose short form has the full million for events only.
#
# Usage: run.sh TEST_RACE [ROUNDS]      fails if any kind sees a status that it may not see
set -u

race=$1 rounds=${2:-1000000}
failed=0 begin=$SECONDS
while read -r kind divisor; do
    echo "== $kind"
    timeout 1800 "$race" "$kind" $((rounds / divisor)) || { echo "FAILED: $kind: exit status $?"; failed=1; }
done <<'END'
events        1
executors     1
kernels       1
requests      1
communicators 1
streams       20
backends      10
END
[ $failed -eq 0 ] && echo "destroy against use: all kinds passed, $((SECONDS - begin)) s"
exit $failed
