#!/bin/bash
# ThreadSanitizer over the tests with many threads, in C and in Rust: the library and the standard library
# are compiled with it. Prints PASS or FAIL for each, and "skipped: reason" where the tools are missing: a
# nightly toolchain with rust-src, and clang. Takes some minutes. Not part of CTest.
#
#   tsan.sh [BUILD]     BUILD is CMake's build folder, for dtlrun; without it nothing runs in two processes
#
# ThreadSanitizer knows atomics but not the order that a membarrier gives. It needs none here: what that
# barrier decides is whether an object is kept, and the free itself is ordered by the reader's release store
# (src/sys/handles/epoch.rs). There is no list of suppressions.
set -uo pipefail
build=${1:-}
[ -n "$build" ] && build=$(cd "$build" && pwd)
cd "$(dirname "$0")/../.."
toolchain=${DTL_TSAN_TOOLCHAIN:-nightly}
triple=x86_64-unknown-linux-gnu
target=$PWD/target/tsan
failed=0

skip() { echo "skipped: $1"; exit 0; }
command -v clang >/dev/null || skip "clang is not installed"
sysroot=$(rustc "+$toolchain" --print sysroot 2>/dev/null) || skip "no toolchain $toolchain (rustup toolchain install nightly)"
[ -d "$sysroot/lib/rustlib/src" ] || skip "no rust-src (rustup component add rust-src --toolchain $toolchain)"
runtime=$(ls "$sysroot/lib/rustlib/$triple/lib"/librustc-*_rt.tsan.a 2>/dev/null) || skip "no runtime of ThreadSanitizer"
mkdir -p "$target/logs"

export RUSTFLAGS="-Zsanitizer=thread -Cdebuginfo=1"
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none
export OMPI_ALLOW_RUN_AS_ROOT=1
common=(--release --locked -Zbuild-std --target "$triple" --target-dir "$target")

# check NAME COMMAND…: passes if the command does and nothing was reported.
check() {
    local name=$1 log begin=$SECONDS
    shift
    log=$target/logs/${name//[^a-z0-9_]/-}.log
    timeout 600 "$@" >"$log" 2>&1
    local status=$?
    if [ $status -ne 0 ] || grep -q '^WARNING: ThreadSanitizer' "$log"; then
        echo "FAIL $name: status $status, $(grep -c '^WARNING: ThreadSanitizer' "$log") reports   ($log)"
        grep -m 3 'SUMMARY: ThreadSanitizer' "$log"
        failed=$((failed + 1))
    else
        echo "PASS $name: $((SECONDS - begin)) s"
    fi
}

# program NAME SOURCE: compiles and links it with the library and the same runtime.
program() {
    clang -g -O1 -pthread -fsanitize=thread -Iinclude "$2" -c -o "$target/$1.o" &&
        clang "$target/$1.o" "$library" -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
            -rdynamic -pthread -ldl -lm -lrt -lresolv -lstdc++ -o "$target/$1"
}

cargo "+$toolchain" rustc --lib "${common[@]}" --crate-type staticlib >"$target/logs/build.log" 2>&1 ||
    { echo "FAIL build   ($target/logs/build.log)"; exit 1; }
library=$target/$triple/release/libdtl.a
# A library without instrumentation would pass everything.
[ "$(nm "$library" 2>/dev/null | grep -c ' U __tsan_read8')" -gt 0 ] || { echo "FAIL the library is not instrumented"; exit 1; }

# That a race is reported at all: the one that this program is about.
printf '%s\n' '#include <pthread.h>' 'static int x;' \
    'static void *add(void *p) { for (int i = 0; i < 100000; i++) x++; return p; }' \
    'int main(void) { pthread_t t; pthread_create(&t, 0, add, 0); add(0); return pthread_join(t, 0); }' >"$target/racy.c"
program racy "$target/racy.c" || exit 1
"$target/racy" >"$target/logs/racy.log" 2>&1 && { echo "FAIL a race is not reported"; exit 1; }

for name in test_race test_comm_threads test_exec test_loops test_comm_p2p test_registry test_policy test_dispatch test_enums; do
    program $name tests/c/$name.c || { echo "FAIL $name does not compile"; failed=$((failed + 1)); }
done
for kind in events streams executors kernels requests communicators backends; do
    check "test_race $kind" "$target/test_race" $kind 20000
done
check "test_comm_threads few" "$target/test_comm_threads" few
check "test_exec" "$target/test_exec"
check "test_loops" env TSAN_OPTIONS=die_after_fork=0 "$target/test_loops" # its child makes threads of its own
for name in test_registry test_policy test_dispatch test_enums; do
    check $name "$target/$name"
done
check "test_comm_p2p self" "$target/test_comm_p2p" self
check "test_comm_p2p mail 3" "$target/test_comm_p2p" mail 3
if [ -n "$build" ]; then
    check "test_comm_p2p shm 2" "$build/stage/bin/dtlrun" -n 2 "$target/test_comm_p2p" shm
fi
check "Rust unit tests" cargo "+$toolchain" test --lib "${common[@]}" -- --test-threads 4
[ $failed -eq 0 ]
