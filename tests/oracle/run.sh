#!/bin/sh
# dtl-ctk over every kind and several numbers of ranks, or against a real MPI. Not the long form, which is
# tests/full/oracle.sh.
#
#   run.sh kinds BIN CASES                  every kind against dtl-ctk's serial reference
#   run.sh mpi BIN CASES ORACLE WORK MPIRUN…  one kind per number of ranks, and the same cases by MPI
#   run.sh windows BIN CASES RANKS ORACLE WORK MPIRUN…  the same for one-sided cases (apart, as they need an MPI in
#                                             which all of that works; Open MPI 4.1 ends in crashes)
#
# BIN has dtl-ctk and dtlrun, ORACLE is the compiled oracle.c, WORK a folder for files. CASES is the number
# for each combination. The seed is the time, or DTL_TEST_SEED.
set -eu

mode=$1
bin=$2
cases=$3
seed=${DTL_TEST_SEED:-$(date +%s)}
echo "seed $seed (DTL_TEST_SEED=$seed repeats this run)"
large=$((cases / 40 + 1))
# What the cases are of: all operations but those on windows, or these.
windows=window,window_mixed,window_misuse
others=$("$bin/dtl-ctk" list --cases | awk '$1 !~ /^window/ { printf "%s%s", sep, $1; sep = "," }')

# ctk KIND RANKS CASES SIZE ARGUMENT…
ctk() {
    kind=$1 ranks=$2 count=$3 size=$4
    shift 4
    "$bin/dtl-ctk" run --kind "$kind" --ranks "$ranks" --cases "$count" --max-bytes "$size" --seed "$seed" "$@"
}

kinds() {
    ctk self 1 "$cases" 64KiB
    for ranks in 1 2 3 4 5 7 8; do
        for kind in threads shm minimal; do
            ctk $kind $ranks "$cases" 16KiB
            ctk $kind $ranks "$large" 1MiB
        done
    done
    # Pretended nodes, with shared memory between them too.
    export DTL_HIER_ACROSS=shm
    for nodes in 2x2=4 3,1=4 2,3=5 2,1,3,1=7; do
        export DTL_FAKE_NODES="${nodes%=*}"
        ctk hier "${nodes#*=}" "$cases" 16KiB
        ctk hier "${nodes#*=}" "$large" 1MiB
    done
    unset DTL_HIER_ACROSS DTL_FAKE_NODES
    # The kit finds a bug that is there, and says how to repeat it.
    if text=$(ctk faulty 3 200 64KiB 2>&1); then
        echo "the faulty kind passed"
        exit 1
    fi
    command=$(echo "$text" | sed -n 's/^  dtl-ctk //p')
    case $command in
    *--shrink=*) ;;
    *) echo "no command to repeat a small case in: $text" && exit 1 ;;
    esac
    # The command's words have no blanks in them.
    # shellcheck disable=SC2086
    if "$bin/dtl-ctk" $command --no-shrink >/dev/null 2>&1; then
        echo "the small case of the faulty kind passed: $command"
        exit 1
    fi
}

# against KIND RANKS SIZE CASES MPIRUN…: the digests of dtl and MPI are the same, line by line.
against() {
    kind=$1 ranks=$2 size=$3 count=$4
    shift 4
    name=$work/oracle.$kind.$ranks.$size
    "$bin/dtl-ctk" cases --ranks "$ranks" --cases "$count" --max-bytes "$size" --seed "$seed" \
        --only "$only" --out "$name.cases"
    ctk "$kind" "$ranks" "$count" "$size" --only "$only" --digest "$name.dtl"
    "$@" -n "$ranks" "$oracle" "$name.cases" "$name.mpi"
    if ! cmp -s "$name.dtl" "$name.mpi" || [ "$(wc -l <"$name.mpi")" -ne "$count" ]; then
        echo "$kind, $ranks rank(s): dtl and MPI differ, first in"
        diff "$name.dtl" "$name.mpi" | head -4
        exit 1
    fi
    rm -f "$name.cases" "$name.dtl" "$name.mpi"
}

case $mode in
kinds) kinds ;;
mpi)
    oracle=$4 work=$5 only=$others
    shift 5
    against self 1 64KiB "$cases" "$@"
    against threads 2 64KiB "$cases" "$@"
    against shm 3 64KiB "$cases" "$@"
    against shm 4 1MiB "$large" "$@"
    against minimal 4 16KiB "$cases" "$@"
    against threads 5 16KiB "$cases" "$@"
    against shm 7 16KiB "$cases" "$@"
    against shm 8 16KiB "$cases" "$@"
    ;;
windows)
    ranks=$4 oracle=$5 work=$6 only=$windows
    shift 6
    case $ranks in
    1) against self 1 64KiB "$cases" "$@" ;;
    2)
        against threads 2 4KiB "$cases" "$@"
        against shm 2 64KiB "$((cases / 4))" "$@"
        ;;
    *)
        against shm "$ranks" 4KiB "$cases" "$@"
        against minimal "$ranks" 4KiB "$((cases / 4))" "$@"
        ;;
    esac
    ;;
*) sed -n '5,9s/^#   //p' "$0" && exit 2 ;;
esac
echo "all combinations passed"
