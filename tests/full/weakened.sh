#!/bin/bash
# Shows that the models of tests/models can fail: weakens one ordering (or one step) of the library
# after the other, in a copy, as tests/models/weakened.txt says, and expects the named model to panic or to crash.
# Takes some minutes. Not part of CTest.
#
#   weakened.sh [PART OF A LINE]
set -uo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
target=${DTL_MODELS_TARGET:-$top/target/models}
copy=$target/weakened
log=$target/weakened.log
failed=0

trim() { sed -E 's/^ +//; s/ +$//; s/\r/|/g'; }
field() { # NUMBER: a field of $line; \| is a bar in it
    printf '%s\n' "${line//\\|/$'\r'}" | cut -d '|' -f "$1" | trim
}

mkdir -p "$copy/tests/models"
while IFS= read -r line; do
    file=$(field 1) old=$(field 2) new=$(field 3) model=$(field 4)
    rm -rf "$copy/src" "$copy/tests/models"
    mkdir -p "$copy/tests"
    cp -r src "$copy/src" && cp -r tests/models "$copy/tests/models"
    OLD=${old//\\n/$'\n'} NEW=${new//\\n/$'\n'} perl -0pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/g' "$copy/src/$file"
    if cmp -s "src/$file" "$copy/src/$file"; then
        echo "FAIL $file: does not contain: $old"
        failed=$((failed + 1))
        continue
    fi
    if ! (cd "$copy/tests/models" && cargo build -q --locked --target-dir "$target/build-weakened") >"$log" 2>&1; then
        echo "FAIL $file: does not compile with: $new"
        grep -m 3 -A 6 '^error' "$log"
        failed=$((failed + 1))
        continue
    fi
    # In a shell of its own, which keeps the word of a crash to itself.
    (timeout 300 "$target/build-weakened/debug/dtl-models" "$model"; exit $?) >"$log" 2>&1
    status=$?
    # A crash counts as well: what was freed too early may be gone. A failure without a panic does not count: no model
    # has that name, or none has more than one execution.
    if [ $status -eq 0 ] || [ $status -eq 124 ]; then
        echo "FAIL $file: '$model' passes in spite of: $old -> $new"
        failed=$((failed + 1))
    elif [ $status -le 128 ] && ! grep -q 'panicked at' "$log"; then
        echo "FAIL $file: '$model' does not panic: $(tail -n 1 "$log")"
        failed=$((failed + 1))
    else
        echo "PASS $file: '$model' fails with: ${new:-(nothing)}: $(grep -m 1 -A 1 'panicked at' "$log" | tail -n 1)"
    fi
done < <(grep -vE '^(#|$)' tests/models/weakened.txt | grep -F -- "${1:-}")
rm -rf "$copy"
[ $failed -eq 0 ]
