#!/usr/bin/env bash
# Gives the example cg one malformed matrix after the other: each must end on every rank with exit
# status 1 and one line that names the file, the line in it, and what is wrong.
#
# Usage: run_bad_mtx.sh CG FOLDER [LAUNCHER…]
#   FOLDER holds the files (tests/data/mtx). LAUNCHER is given the number of ranks and the command:
#   "dtlrun -n", "mpirun.mpich -n". None: one process only.
set -u

cg=$1 folder=$2
shift 2
launcher=("$@")
ranks=1
[ $# -gt 0 ] && ranks=3
failed=0

# run FILE: what each rank prints, and "exit STATUS", in $output. (The shell around each rank also keeps a launcher from
# killing the others because of the first one's status. Each rank prints to a file of its own, because a launcher may
# forward the lines of several ranks in pieces.)
run() {
    local prefix=() ranks_print
    ranks_print=$(mktemp -d)
    [ ${#launcher[@]} -gt 0 ] && prefix=("${launcher[@]}" "$ranks")
    output=$(timeout 60 "${prefix[@]}" sh -c \
        'file=$(mktemp "$0/XXXXXX"); "$@" >"$file" 2>&1; echo "exit $?" >>"$file"' "$ranks_print" "$cg" "$1" 2>&1)
    [ $? -ne 124 ] || output="$output (hung)"
    output+=$(cat "$ranks_print"/*)
    rm -r "$ranks_print"
}

# expect FILE MESSAGE: what follows "FILE:" or "FILE: ".
expect() {
    local file=$1 message=$2
    run "$file"
    local lines exits
    lines=$(grep -cF "cg: $file:$message" <<<"$output")
    exits=$(grep -cx "exit 1" <<<"$output")
    if [ "$lines" -ne 1 ] || [ "$exits" -ne "$ranks" ] || [ "$(grep -c '^cg: ' <<<"$output")" -ne 1 ]; then
        printf 'FAILED: expected one line "cg: %s:%s" and "exit 1" from %d ranks, got:\n%s\n' \
            "$file" "$message" "$ranks" "$output" >&2
        failed=1
    else
        echo "right: $file:$message"
    fi
}

cd "$folder" || exit 1
expect bad_banner.mtx '1: not a Matrix Market file: the first line must be'
expect array.mtx '1: "matrix array" is not supported: only "matrix coordinate"'
expect complex.mtx '1: field "complex" is not supported: only real and integer'
expect skew_symmetric.mtx '1: symmetry "skew-symmetric" is not supported: only general and symmetric'
expect non_square.mtx '2: the matrix is 3 x 4, not square'
expect truncated.mtx '6: expected an entry "row column value"'
expect too_few.mtx '7: the file ends after 5 of 6 entries'
expect too_many.mtx '7: more than the 4 entries declared'
expect bad_index.mtx '6: index (4, 2) is outside 1 to 3'
expect nan.mtx '4: the value nan is not a finite number'
expect zero_diagonal.mtx '5: diagonal entry 2 is 0: the matrix is not positive definite'
expect missing_diagonal.mtx ' row 2 has no diagonal entry: the matrix is not positive definite'
expect twice.mtx '5: entry (2, 1) is given twice'
expect not_symmetric.mtx '4: entry (1, 2) is 1 but (2, 1) is 2: the matrix is not symmetric'
expect indefinite.mtx ' the matrix is not positive definite (found in iteration 2)'
expect empty.mtx ' the file is empty'
expect no_such_file.mtx ' cannot open: No such file or directory'
expect . ' cannot read: Is a directory'

run good.mtx
if [ "$(grep -cx "exit 0" <<<"$output")" -ne "$ranks" ]; then
    printf 'FAILED: good.mtx is right, but:\n%s\n' "$output" >&2
    failed=1
fi
exit $failed
