#!/usr/bin/env bash
# Runs the example cg on a real matrix with 1 to 4 ranks and checks what it finds: the iterations, the
# residual, the error, and that --reproducible gives the same bits for every number of ranks.
#
# Usage: run_cg.sh CG MATRIX [LAUNCHER…]
#   LAUNCHER is given the number of ranks and the command: "dtlrun -n", "mpirun.mpich -n". None: one
#   process only. The limits below are those of bcsstk16.mtx.
set -u

cg=$1 matrix=$2
shift 2
launcher=("$@")
ranks_list=1
[ $# -gt 0 ] && ranks_list="1 2 3 4"
failed=0

complain() {
    echo "FAILED: $*" >&2
    failed=1
}

# launch RANKS ARGUMENT…: the table in $output, the exit status in $status.
launch() {
    local ranks=$1
    shift
    local prefix=()
    [ ${#launcher[@]} -gt 0 ] && prefix=("${launcher[@]}" "$ranks")
    output=$(timeout 100 "${prefix[@]}" "$cg" "$matrix" "$@" 2>&1)
    status=$?
}

# field NAME: what the table says behind it.
field() {
    sed -n "s/^$1  *//p" <<<"$output"
}

# at_most NAME LIMIT
at_most() {
    awk -v value="$(field "$1")" -v limit="$2" \
        'BEGIN { exit !(value ~ /^[0-9.]+e[-+][0-9]+$/ && value + 0 <= limit + 0) }' ||
        complain "$ranks ranks: $1 is '$(field "$1")', expected at most $2"
}

check_run() {
    local iterations
    iterations=$(field iterations)
    [ "$status" -eq 0 ] || complain "$ranks ranks: exit status $status, output: $output"
    [[ $iterations =~ ^[0-9]+$ && $iterations -ge 190 && $iterations -le 205 ]] ||
        complain "$ranks ranks: '$iterations' iterations, expected 190 to 205"
    at_most "relative residual" 1e-8
    at_most "max |x - 1|" 1e-6
    [[ $(field communicator) == *", $ranks ranks: "* ]] ||
        complain "expected $ranks ranks that work together, communicator is '$(field communicator)'"
}

for ranks in $ranks_list; do
    launch "$ranks"
    check_run
    echo "$ranks ranks: $(field iterations) iterations, |x - 1| $(field "max |x - 1|"), $(field communicator)"
done

first=
for ranks in $ranks_list; do
    launch "$ranks" --reproducible
    check_run
    found="$(field iterations) iterations, hash $(field "hash of x")"
    [[ $found =~ hash\ [0-9a-f]{16}$ ]] || complain "$ranks ranks: no hash in: $output"
    [ -z "$first" ] && first=$found
    [ "$found" = "$first" ] || complain "--reproducible: $found with $ranks ranks, but $first with 1"
    echo "$ranks ranks, reproducible: $found"
done

launch "${ranks_list##* }" --max-iterations 5
[ "$status" -ne 0 ] || complain "exit status 0 although 5 iterations cannot be enough"
[[ $(field iterations) == "5 (not converged)" ]] || complain "not converged, but the table says: $(field iterations)"

exit $failed
