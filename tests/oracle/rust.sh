#!/bin/bash
# Builds what of the Rust binding needs an MPI: the crate mpi (rsmpi) finds it with its compiler, and libclang reads its
# header. Both MPIs share one folder of cargo: what runs while compiling is compiled once, and the flag with the MPI's
# name keeps the rest apart.
#
#   rust.sh program FOLDER MPI MPICC OUTPUT   builds bindings/rust/oracle/mpi with this MPI
#   rust.sh docs FOLDER FEATURES              runs the documentation tests of the binding, with Open MPI
#
# DTL_LIB_DIR names the folder of the library; CARGO the program, otherwise "cargo".
set -eu

command=$1 folder=$2
top=$(realpath "$(dirname "$0")/../..")
cargo=${CARGO:-cargo}
host=$("$cargo" -vV | sed -n 's/^host: //p')

# run_cargo MPI MPICC COMMAND...: with this MPI.
run_cargo() {
    local mpi=$1 mpicc=$2 command=$3
    shift 3
    # A stable rustdoc compares the error codes of compile_fail blocks only with RUSTC_BOOTSTRAP. It changes what some
    # crates compile, so all builds in the folder have it.
    env RUSTC_BOOTSTRAP=1 MPICC="$mpicc" "$cargo" "$command" --locked --target "$host" \
        --config "build.rustflags=['--cfg', '$mpi']" --target-dir "$folder" "$@"
}

case $command in
program)
    run_cargo "$3" "$4" build --manifest-path "$top/bindings/rust/oracle/Cargo.toml" -p oracle-mpi
    cp "$folder/$host/debug/oracle-mpi" "$5"
    ;;
docs)
    run_cargo openmpi mpicc.openmpi test --manifest-path "$top/bindings/rust/Cargo.toml" --no-fail-fast -p dtl-binding \
        --doc --features "$3" -- --nocapture
    ;;
*)
    echo "rust.sh: unknown command $command" >&2
    exit 2
    ;;
esac
