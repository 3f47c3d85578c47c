#!/bin/sh
# The long form of tests/oracle: a million cases over all kinds, and as many again against Open MPI; one-sided ones
# against MPICH. Takes about an hour. Not part of CTest.
#
#   oracle.sh BUILD [CASES]     BUILD is CMake's build folder (with DTL_BUILD_TESTS=ON)
set -eu

build=$1
cases=${2:-45000}
here=$(dirname "$0")
"$here/../oracle/run.sh" kinds "$build/stage/bin" "$cases"
"$here/../oracle/run.sh" mpi "$build/stage/bin" $((cases * 3)) "$build/tests/bin/oracle.openmpi" "$build/tests" \
    mpirun.openmpi --allow-run-as-root --oversubscribe
"$here/../oracle/run.sh" windows "$build/stage/bin" "$cases" 1 "$build/tests/bin/oracle.mpich" "$build/tests" mpirun.mpich
"$here/../oracle/run.sh" windows "$build/stage/bin" "$cases" 2 "$build/tests/bin/oracle.mpich" "$build/tests" mpirun.mpich
# More ranks than cores take MPICH, which polls, half a second for each case.
for ranks in 3 4 8; do
    "$here/../oracle/run.sh" windows "$build/stage/bin" "$((cases / 100))" "$ranks" "$build/tests/bin/oracle.mpich" \
        "$build/tests" mpirun.mpich
done
mpirun.mpich -n 3 "$build/tests/bin/tests/mpi/plain/windows" own mpich
