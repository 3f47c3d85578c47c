#!/bin/bash
# AddressSanitizer over the C tests: the library and the tests are compiled with it and run by CTest.
# Needs a nightly toolchain of Rust, and clang; without them it prints "skipped: reason". About half an hour.
#
#   asan.sh [FOLDER=build/asan] [CTEST ARGUMENT…]      e.g. asan.sh build/asan -R test_win
#
# Leaks are not reported here: valgrind finds them (tests/CMakeLists.txt). Left out are tests that run
# under valgrind, count instructions, limit the address space (the sanitizer reserves terabytes of it) or
# build with compilers of their own, and the C++ tests, in which only exceptions are not covered by the
# C tests.
set -u
cd "$(dirname "$0")/../.."
folder=${1:-build/asan}
[ $# -gt 0 ] && shift
toolchain=${DTL_ASAN_TOOLCHAIN:-nightly}
skip() { echo "skipped: $1"; exit 0; }
command -v clang >/dev/null || skip "clang is not installed"
rustc "+$toolchain" --version >/dev/null 2>&1 || skip "no toolchain $toolchain (rustup toolchain install nightly)"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Wrappers that CMake calls in place of cargo and gcc. Of the Rust code only the library is instrumented, not the
# programs.
cat >"$folder/cargo" <<END
#!/bin/sh
if [ "\$1" = rustc ]; then
    export RUSTFLAGS="-Zsanitizer=address -Cdebuginfo=1" CARGO_PROFILE_RELEASE_LTO=off
    export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none
    exec cargo "+$toolchain" "\$@"
fi
exec cargo "\$@"
END
printf '#!/bin/sh\nexec clang -fsanitize=address -fno-omit-frame-pointer "$@"\n' >"$folder/gcc"
chmod +x "$folder/cargo" "$folder/gcc"

cmake -S . -B "$folder" -DDTL_BUILD_TESTS=ON -DDTL_CARGO="$folder/cargo" -DDTL_TEST_GCC="$folder/gcc" \
    -DDTL_TEST_GXX= -DDTL_TEST_CLANG= -DDTL_TEST_CLANGXX= >"$folder/configure.log" || exit 1
cmake --build "$folder" -j "$(nproc)" >"$folder/build.log" 2>&1 || { tail -n 40 "$folder/build.log"; exit 1; }
# A library without instrumentation would pass everything.
[ "$(nm -D "$folder/stage/lib/libdtl.so" | grep -c ' U __asan_report')" -gt 0 ] ||
    { echo "FAIL the library is not instrumented"; exit 1; }

export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:abort_on_error=1
cd "$folder" && ctest --output-on-failure -E 'valgrind|instructions|frozen|tests/cmake|numpy|limits|tests/mpi|gpu|vm' "$@"
