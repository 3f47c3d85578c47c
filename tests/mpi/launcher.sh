#!/usr/bin/env bash
# Two installations of one MPI, the system's and a copy of it that no loader finds: each launcher's ranks take the
# library that is installed with it, also through a wrapper. dtl-info says which one and why.
#
#     launcher.sh MPI DTL_INFO      MPI: openmpi or mpich
#
# Prints "skipped: reason" where the MPI is missing.
set -uo pipefail
mpi=$1 info=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset LD_LIBRARY_PATH DTL_MPI_LIBRARY

skip() { echo "skipped: $1"; exit 0; }
system=$(command -v "mpirun.$mpi") || skip "mpirun.$mpi is not installed"
# The copy's library has the family's later name, which the loader is asked for after the system's.
case $mpi in
mpich) soname=libmpich.so.12 as=libmpi.so.12 programs="mpiexec.hydra hydra_pmi_proxy" ;;
openmpi) soname=libmpi.so.40 as=$soname programs="orterun orted prterun prted" ;;
esac
file=$(ldconfig -p | sed -n "s/.*\b$soname .* => //p" | head -n 1)
[ -n "$file" ] || skip "$soname is not on the loader's path"
bin=$(dirname "$(readlink -f "$system")")

copy=$(mktemp -d /tmp/dtl-mpi.XXXXXX) || exit 1
trap 'rm -r "$copy"' EXIT
mkdir "$copy/bin" "$copy/lib"
for program in $programs; do
    if [ -e "$bin/$program" ]; then cp -L "$bin/$program" "$copy/bin"; fi
done
cp -L "$file" "$copy/lib/$as"
launcher=$copy/bin/$(basename "$(readlink -f "$system")")
[ -x "$launcher" ] || skip "$(readlink -f "$system") is a launcher that this test does not know"

status=0
check() { # WANTED COMMAND...
    local wanted=$1 said
    shift
    # One line, with single blanks: dtl-info wraps.
    said=$(timeout 100 "$@" 2>&1 | tr -s ' \n' ' ')
    case $said in
    *" mpi: $wanted"*) ;;
    *) echo "\"mpi: $wanted\" is not in: $said"; status=1 ;;
    esac
}
check "$copy/lib/$as, " "$launcher" -n 1 "$info"
check "$copy/lib/$as, " "$launcher" -n 1 sh -c "\"$info\"; exit 0"
check "$(readlink -f "$file"), " "$system" -n 1 "$info"
# Without a launcher: what LD_LIBRARY_PATH has comes before the first name that the loader finds elsewhere.
check "$copy/lib/$as, " env LD_LIBRARY_PATH="$copy/lib" "$info"
# A library that is named is taken, whatever the launcher has.
check "$(readlink -f "$file"), " env DTL_MPI_LIBRARY="$file" "$launcher" -n 1 "$info"
exit $status
