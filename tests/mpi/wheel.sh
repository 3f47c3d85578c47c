#!/usr/bin/env bash
# Kind "mpi" over the standard binary interface of MPI 5: installs the MPICH of PyPI and runs kit.sh with it.
#
#     wheel.sh FOLDER DTL_CTK RANKS CASES PATTERNS     FOLDER: where MPIs of PyPI are, or are to be
set -uo pipefail
cd "$(dirname "$0")" || exit 1
folder=$1
shift
if ! line=$(../full/mpi_setup.sh "$folder" mpich 2>"${folder%/}.log" | grep ' standard '); then
    echo "skipped: the MPICH of PyPI cannot be installed here: $(tail -n 1 "${folder%/}.log")"
    exit 0
fi
read -r _ _ launcher library _ <<<"$line"
DTL_MPI_LIBRARY=$library exec ./kit.sh "$@" "$launcher" -n '{ranks}'
