#!/usr/bin/env bash
# A copy of an MPI without the function MPI_Comm_spawn: dtl_comm_grow names it, and everything else works.
#
#     lacks.sh PROGRAM MPI LAUNCHER...      MPI: openmpi or mpich; PROGRAM: tests/mpi/plain/grow
#
# Prints "skipped: reason" where the library is not found.
set -uo pipefail
program=$1 mpi=$2
shift 2
case $mpi in
mpich) soname=libmpich.so.12 ;;
openmpi) soname=libmpi.so.40 ;;
esac
file=$(ldconfig -p | sed -n "s/.*\b$soname .* => //p" | head -n 1)
[ -n "$file" ] || { echo "skipped: $soname is not on the loader's path"; exit 0; }
copy=$(mktemp -d /tmp/dtl-mpi.XXXXXX) || exit 1
trap 'rm -r "$copy"' EXIT
# In the table of names another name of the same length, which nobody looks up.
LC_ALL=C sed 's/MPI_Comm_spawn\x00/MPI_Comm_lacks\x00/g' "$file" >"$copy/$soname" && chmod 755 "$copy/$soname" || exit 1
DTL_MPI_LIBRARY=$copy/$soname "$@" -n 2 "$program" lacks "$mpi"
