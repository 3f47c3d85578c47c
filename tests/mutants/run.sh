#!/bin/bash
# Proves the named tests of dtl-ctk: plants one fault after the other in a correct backend (whole.so) and a correct
# communicator (wire.so over the tcp plugin), and wants the test that mutants.txt names to fail. First the two without
# a fault have to pass everything.
#
#   run.sh BUILD [PATTERN [EVERY]]     BUILD is CMake's build folder; PATTERN chooses names ("memory.*"), EVERY
#                                      only each EVERY-th of the list
#
# A PASS or FAIL line for each fault, a summary, exit status 0 or 1. Two at a time, or MUTANT_JOBS.
set -uo pipefail
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
build=$(cd "$1" && pwd) pattern=${2:-*} every=${3:-1}
cd "$(dirname "$0")"
ctk=$build/stage/bin/dtl-ctk
plugins=$build/tests/bin/mutants
export MUTANT_BASE=$build/tests/bin/plugins/gcc/libtcp.so
work=$(mktemp -d)
trap 'rm -rf "$work" /dev/shm/dtl-mutant-*' EXIT # the names that a fault leaves
begin=$SECONDS

# The faults that the sources know.
planted() {
    grep -ohE 'is_fault\("[a-z0-9_.]+"\)' ./*.c | cut -d '"' -f 2
    sed -nE 's/^SLOT\(([a-z]+), ([a-z0-9_]+),.*/\1.\2/p' ./*.c | while read -r slot; do
        printf '%s\n' "$slot.fails" "$slot.nothing" "$slot.odd_status"
    done
}

# name|component|what, without comments and spaces around the bars
listed() { sed -E '/^#/d; /^$/d; s/ *\| */|/g' mutants.txt; }

# Runs tests on a plugin: COMPONENT TESTS JSON. The time limit is for faults that hang.
tests() {
    local file=whole.so more=()
    [ "$1" = comm ] && file=wire.so
    # Only a file has a kernel that fails.
    [ "$2" = exec.module.failure_is_the_streams ] && more=(--binary "$plugins/plus.bin" --kernel plus)
    "$ctk" run --plugin "$plugins/$file" --component "$1" --ranks 3 ${2:+--only "$2"} --json "$3" --timeout "$limit" \
        "${more[@]}"
}

failed_tests() { # JSON
    awk -F '"' '$2 == "name" { name = $4 } $2 == "outcome" && $4 == "failed" { print name }' "$1"
}

correct() { # NAME COMPONENTS [MUTANT [TESTS]]
    export MUTANT=${3:-}
    if tests "$2" "${4:-}" "$work/$1.json" > "$work/$1.log" 2>&1; then
        echo "PASS $1: $(awk '$1 == "all" { print $3 " passed, " $6 " skipped" }' "$work/$1.log")"
    else
        echo "FAIL $1: a plugin without a fault does not pass"
        sed 's/^/     /' "$work/$1.log"
        return 1
    fi
}

mutant() { # LINE OF THE LIST
    local name component wanted log status try
    IFS='|' read -r name component wanted <<< "$1"
    log=$work/$name
    # A fault in the order of threads shows when they meet: on a busy machine perhaps not the first time.
    for try in 1 2 3; do
        MUTANT=$name tests "$component" "$wanted" "$log.json" > "$log.log" 2>&1
        status=$?
        if [ $status -eq 1 ] && [ -n "$(failed_tests "$log.json")" ]; then
            echo "PASS $name: $(failed_tests "$log.json" | head -1)$([ $try -eq 1 ] || echo " (try $try)")"
            return
        fi
    done
    echo "FAIL $name: exit status $status, expected a failure of $wanted"
    tail -4 "$log.log" | sed 's/^/     /'
}

for file in "$ctk" "$plugins/whole.so" "$plugins/wire.so" "$MUTANT_BASE"; do
    [ -e "$file" ] || { echo "FAIL $file is not there: build the tests first"; exit 1; }
done
if ! diff <(planted | sort -u) <(listed | cut -d '|' -f 1 | sort) > "$work/names"; then
    echo "FAIL the sources (<) and mutants.txt (>) do not name the same faults:"
    grep '^[<>]' "$work/names"
    exit 1
fi

limit=30s
# Where the kernel lets no process reach another's memory, wire has no windows.
without='^$'
if MUTANT=comm.win_put.fails tests comm comm.win.put_arrives "$work/windows.json" > "$work/windows.log" 2>&1; then
    without='^comm\.win_'
    echo "skipped: faults of windows: the kernel lets no process reach another one's memory"
fi

listed | grep -v "$without" | awk -F '|' -v every="$every" 'NR % every == 0' > "$work/all"
while IFS= read -r line; do
    # shellcheck disable=SC2254 # a pattern
    case ${line%%|*} in $pattern) printf '%s\n' "$line" ;; esac
done < "$work/all" > "$work/chosen"
grep -v '|equivalent: ' "$work/chosen" > "$work/tried"
# The tests that are to find something, of a plugin's components.
wanted() { # PATTERN OF COMPONENTS
    awk -F '|' -v of="^($1)$" '$2 ~ of { print $3 }' "$work/tried" | sort -u | paste -sd,
}

limit=30s
others='device|memory|transfer|exec'
if [ "$every" -gt 1 ]; then
    # All of them pass without a fault in other tests of CTest, too: the plugins' conformance.
    if [ -n "$(wanted "$others")" ]; then correct whole "${others//|/,}" '' "$(wanted "$others")" || exit 1; fi
    if [ -n "$(wanted comm)" ]; then correct wire comm '' "$(wanted comm)" || exit 1; fi
else
    correct whole "${others//|/,}" || exit 1
    correct whole-memory_info-of-memory device memory.memory_info || exit 1
    correct whole-without-devices memory,transfer,device memory.without_devices memory,transfer,device.memory_info || exit 1
    correct wire comm || exit 1
    correct wire-without-cancel comm comm.without_cancel || exit 1
    # The library moves what a transport has only queued before it opens another communicator.
    correct wire-that-queues comm comm.isend.only_queues comm.open.again_in_the_same_job,comm.open.one_after_the_other || exit 1
fi

total=$(wc -l < "$work/tried")
limit=6s
export -f mutant tests failed_tests
export work ctk plugins limit
xargs -d '\n' -P "${MUTANT_JOBS:-2}" -I {} bash -c 'mutant "$1"' _ {} < "$work/tried" | tee "$work/lines" |
    awk -v total="$total" '/^(PASS|FAIL)/ { number++; print "[" number "/" total "] " $0; fflush(); next } { print; fflush() }'

caught=$(grep -c '^PASS' "$work/lines")
equivalent=$(grep -c '|equivalent: ' "$work/chosen")
echo "$total faults tried: $caught caught by the test that names them, $((total - caught)) not; $equivalent more are" \
    "equivalent; $((SECONDS - begin)) s"
[ "$total" -gt 0 ] && [ "$caught" -eq "$total" ]
