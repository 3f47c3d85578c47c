#!/bin/bash
# Shows that dtl-ctk's one-sided cases and tests/c/test_comm_make.c can fail: in a copy of the library it puts in one
# defect of tests/ctk/weakened.txt after the other and expects the cases to fail. Some minutes. Not part of CTest.
#
#   weakened_windows.sh [PART OF A LINE]
set -uo pipefail
cd "$(dirname "$0")/../.."
target=${DTL_WEAKENED_TARGET:-$PWD/target/weakened}
copy=$target/source
log=$target/log
failed=0

trim() { sed -E 's/^ +//; s/ +$//; s/\r/|/g'; }
field() { # NUMBER: a field of $line; \| is a bar in it
    printf '%s\n' "${line//\\|/$'\r'}" | cut -d '|' -f "$1" | trim
}

shows='(epoch [0-9]+:|misuse [0-9]+,|step [0-9]+,).*|ranks hang|signal: [0-9]+|test_comm_make.c:[0-9]+: .*'

# Runs the cases, or the program, with the weakened library.
attempt() {
    local made=$target/build/debug kind=${where% *} ranks=${where#* }
    if [ "$only" != test_comm_make ]; then
        timeout 120 "$made/dtl-ctk" run --kind "$kind" --ranks "$ranks" --cases 300 \
            --max-bytes 16KiB --only "$only" --timeout 5s --no-shrink
        return
    fi
    gcc -std=c11 -g -pthread -Iinclude tests/c/test_comm_make.c "$made/libdtl.a" -lm -o "$target/make" || return 2
    local by=("$made/dtlrun" -n "$ranks")
    [ "$kind" = threads ] && by=()
    timeout 30 "${by[@]}" "$target/make" "$kind" "$ranks" 8 8000
}

rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z -- . ':!docs' | xargs -0 cp --parents -t "$copy"
while IFS= read -r line; do
    file=$(field 1) old=$(field 2) new=$(field 3) where=$(field 4) only=$(field 5)
    OLD=${old//\\n/$'\n'} NEW=${new//\\n/$'\n'} perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/g' "src/$file" >"$copy/src/$file"
    if cmp -s "src/$file" "$copy/src/$file"; then
        echo "FAIL $file: does not contain: $old"
        failed=$((failed + 1))
        continue
    fi
    if ! (cd "$copy" && cargo build -q --locked -p dtl -p dtl-ctk -p dtlrun --target-dir "$target/build") >"$log" 2>&1; then
        echo "FAIL $file: does not compile with: $new"
        grep -m 3 -A 6 '^error' "$log"
        failed=$((failed + 1))
    else
        attempt >"$log" 2>&1
        status=$?
        shown=$(grep -m 1 -oE "$shows" "$log")
        [ "$only $status" = "test_comm_make 124" ] && status=1 shown=hang
        if [ $status -eq 1 ] && [ -n "$shown" ]; then
            echo "PASS $file: $where, $only fails with: ${new:-(nothing)}: $shown"
        else
            echo "FAIL $file: $where, $only ends with status $status in spite of: $old -> $new"
            failed=$((failed + 1))
        fi
    fi
    cp "src/$file" "$copy/src/$file"
done < <(grep -vE '^(#|$)' tests/ctk/weakened.txt | grep -F -- "${1:-}")
rm -rf "$copy"
[ $failed -eq 0 ]
