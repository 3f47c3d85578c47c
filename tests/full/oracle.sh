#!/bin/sh
# The long form of tests/oracle: a million cases over all kinds, and as many again against Open MPI. Takes
# about an hour. Not part of CTest.
#
#   oracle.sh BUILD [CASES]     BUILD is CMake's build folder (with DTL_BUILD_TESTS=ON)
set -eu

build=$1
cases=${2:-45000}
here=$(dirname "$0")
"$here/../oracle/run.sh" kinds "$build/stage/bin" "$cases"
"$here/../oracle/run.sh" mpi "$build/stage/bin" $((cases * 3)) "$build/tests/bin/oracle" "$build/tests" \
    mpirun.openmpi --allow-run-as-root --oversubscribe
