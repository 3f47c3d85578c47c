#!/bin/sh
# Collectives above 2 GiB over kind mpi: tests/full/mpi_large.c, over Debian's Open MPI and MPICH and PyPI's MPICH 5,
# natively and by the standard binary interface. Minutes, and 20 GiB of memory.
#
#     mpi_large.sh STAGE [FOLDER]
#
# STAGE: the folder with lib/libdtl.so (build/stage). FOLDER: where the MPIs of PyPI are, or are to be (build/mpi).
set -eu
stage=$(realpath "$1")
folder=$(realpath -m "${2:-build/mpi}")
cd "$(dirname "$0")"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
./mpi_setup.sh "$folder" mpich >/dev/null
program=$(mktemp)
trap 'rm -f "$program"' EXIT
while read -r launcher compiler; do
    command -v "$compiler" >/dev/null || continue
    "$compiler" -std=c11 -O2 -I ../../include mpi_large.c -o "$program" "$stage/lib/libdtl.so" -Wl,-rpath,"$stage/lib"
    "$launcher" -n 2 "$program" </dev/null
done <<END
mpirun.openmpi mpicc.openmpi
mpirun.mpich mpicc.mpich
$folder/mpich/bin/mpiexec $folder/mpich/bin/mpicc
$folder/mpich/bin/mpiexec $folder/mpich/bin/mpicc_abi
END
