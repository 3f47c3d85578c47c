#!/bin/sh
# Compares the RDMA devices that the library finds with those of the Rust crate ibverbs, and registers the library's
# memory with them: with the devices of this machine, if it has any, and with the fake ones. Not part of CTest: the crate
# configures the sources of rdma-core, which takes a minute, and needs cmake, libclang and libibverbs-dev.
#
#   oracle_ibverbs.sh BUILD     BUILD is CMake's build folder (with DTL_BUILD_TESTS=ON)
set -eu

build=$(realpath "$1")
top=$(realpath "$(dirname "$0")/../..")
export DTL_LIB_DIR="$build/stage/lib"
cargo build --locked --manifest-path "$top/bindings/rust/oracle/Cargo.toml" -p oracle-ibverbs \
    --target-dir "$build/tests/cargo-oracle-ibverbs"
oracle=$build/tests/cargo-oracle-ibverbs/debug/oracle-ibverbs

# with_fake [NAME=VALUE...]: with the fake devices and CUDA driver.
with_fake() {
    env LD_LIBRARY_PATH="$DTL_LIB_DIR:$build/tests/bin/rdma:$build/tests/bin/cuda" DTL_FAKE_VERBS_DMABUF=1 "$@" "$oracle"
}

LD_LIBRARY_PATH="$DTL_LIB_DIR" "$oracle"
with_fake DTL_FAKE_VERBS_LEAKS=1
with_fake DTL_FAKE_VERBS_LEAKS=1 DTL_FAKE_VERBS_LINK=ib DTL_FAKE_VERBS_DEVICES=4
# The crate closes no device whose port is down.
with_fake DTL_FAKE_VERBS_PORT=down
with_fake DTL_FAKE_VERBS_DEVICES=empty
with_fake DTL_FAKE_VERBS_DEVICES=0
echo "oracle_ibverbs: all are equal"
