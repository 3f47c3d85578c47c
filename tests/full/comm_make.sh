#!/bin/bash
# The long form of tests/c/test_comm_make.c: 2 to 8 ranks of 2 to 8 threads make, use and destroy communicators and
# windows at random. Runs one configuration and seed after the other. Fails at the first wrong result or hang; the line
# before that result names the run. Not part of CTest, which has a form that takes a minute.
#
#   comm_make.sh BUILD [SECONDS] [SEED]     BUILD: CMake's build folder; an hour without SECONDS
set -uo pipefail
build=$(cd "$1" && pwd)
seconds=${2:-3600} seed=${3:-$RANDOM}
program=$build/tests/bin/tests/c/test_comm_make.gcc-c11
dtlrun=$build/stage/bin/dtlrun
runs=0
RANDOM=$seed
echo "seed $seed"
while [ $SECONDS -lt "$seconds" ]; do
    ranks=$((RANDOM % 7 + 2)) threads=$((RANDOM % 7 + 2)) number=$RANDOM
    case $((RANDOM % 8)) in
        0) command=("$program" threads $ranks $threads 20000 $number) ;;
        1) command=("$program" mail $ranks $threads 20000 $number) ;;
        2) command=(env DTL_HIER_ACROSS=shm "DTL_FAKE_NODES=2,$((ranks - 1))" "$dtlrun" -n $((ranks + 1)) "$program" hier 0 $threads 20000 $number) ;;
        *) command=("$dtlrun" -n $ranks "$program" shm 0 $threads 20000 $number) ;;
    esac
    echo "${command[*]}"
    timeout 180 "${command[@]}"
    status=$?
    [ $status -eq 0 ] || { echo "FAILED with status $status after $runs runs, $SECONDS s"; exit 1; }
    runs=$((runs + 1))
done
echo "passed: $runs runs, $SECONDS s"
