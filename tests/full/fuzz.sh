#!/bin/bash
# The long run of the fuzzer (tests/fuzz): ten million calls with hostile arguments, a quarter of them with each
# of 1, 2, 4 and 8 threads. Minutes to an hour; not part of CTest, which has a short run.
#
#   fuzz.sh BUILD [CALLS=10000000] [SEED=1]     BUILD is CMake's build folder with the tests built
#
# Prints a line for each run, and the findings. A seed with one thread repeats the same calls.
set -u
build=${1:?usage: fuzz.sh BUILD [CALLS] [SEED]} calls=${2:-10000000} seed=${3:-1}
fuzz=$build/tests/bin/tests/fuzz/fuzz
failed=0
[ -x "$fuzz" ] || { echo "no $fuzz: build the tests first (cmake --build $build)" >&2; exit 2; }
log=$(mktemp)
for threads in 1 2 4 8; do
    begin=$SECONDS
    "$fuzz" $((calls / 4)) $threads "$seed" >"$log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "PASS $threads threads: $(tail -n 1 "$log"), $((SECONDS - begin)) s"
    else
        failed=1
        echo "FAIL $threads threads, seed $seed: exit status $status"
        grep -v '^ *[0-9]* calls: \|^dtl info: ' "$log" | tail -n 40
    fi
done
rm -f "$log"
exit $failed
