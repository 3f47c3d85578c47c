#!/bin/bash
# AddressSanitizer over the C tests: the library and the tests are compiled with it and run by CTest.
# Needs a nightly toolchain of Rust, and clang; without them it prints "skipped: reason". About an hour on
# two processors.
#
#   asan.sh [FOLDER=build/asan] [CTEST ARGUMENT…]      e.g. asan.sh build/asan -R test_win
#
# Leaks are not reported here: valgrind finds them (tests/CMakeLists.txt). Left out are tests that run
# under valgrind, count instructions, limit the address space (the sanitizer reserves terabytes of it),
# build with compilers of their own (the tutorials) or MPI's, or run the library's own programs, which are not
# instrumented. The C++ tests are left out, too: only exceptions are not covered by the C tests.
# test_fork_inside forks while threads start, which the sanitizer's own locks do not survive.
set -u
cd "$(dirname "$0")/../.."
folder=${1:-build/asan}
[ $# -gt 0 ] && shift
toolchain=${DTL_ASAN_TOOLCHAIN:-nightly}
skip() { echo "skipped: $1"; exit 0; }
command -v clang >/dev/null || skip "clang is not installed"
sysroot=$(rustc "+$toolchain" --print sysroot 2>/dev/null) || skip "no toolchain $toolchain (rustup toolchain install nightly)"
runtime=$(ls "$sysroot"/lib/rustlib/x86_64-unknown-linux-gnu/lib/librustc-*_rt.asan.a 2>/dev/null) || skip "no runtime of AddressSanitizer"
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
# Programs have the toolchain's own runtime, which is the one that belongs to the library's instrumentation. The options go past
# clang's driver: it would link clang's, which distributions keep in a package of its own. Shared objects use the program's.
cat >"$folder/gcc" <<END
#!/bin/sh
link="-Wl,--whole-archive $runtime -Wl,--no-whole-archive -rdynamic -pthread -ldl -lrt -lm -lresolv"
for argument; do
    case \$argument in -shared | -c | -fsyntax-only) link= ;; esac
done
exec clang -Xclang -fsanitize=address -Xclang -fsanitize-address-use-after-scope -D__SANITIZE_ADDRESS__=1 \\
    -fno-omit-frame-pointer "\$@" \$link
END
chmod +x "$folder/cargo" "$folder/gcc"

# That an error is reported at all: the one that this program makes.
printf '%s\n' '#include <stdlib.h>' 'int main(int n, char** a) { char* p = malloc(8); (void)a; free(p); return p[n]; }' >"$folder/wrong.c"
"$folder/gcc" "$folder/wrong.c" -o "$folder/wrong" || exit 1
"$folder/wrong" 2>&1 | grep -q 'ERROR: AddressSanitizer: heap-use-after-free' || { echo "FAIL an error is not reported"; exit 1; }

cmake -S . -B "$folder" -DDTL_BUILD_TESTS=ON -DDTL_CARGO="$folder/cargo" -DDTL_TEST_GCC="$folder/gcc" \
    -DDTL_TEST_GXX= -DDTL_TEST_CLANG= -DDTL_TEST_CLANGXX= -DDTL_TEST_MPICC_openmpi= -DDTL_TEST_MPICC_mpich= \
    -DDTL_TEST_MPICXX_openmpi= -DDTL_TEST_MPICXX_mpich= >"$folder/configure.log" || exit 1
cmake --build "$folder" -j "$(nproc)" >"$folder/build.log" 2>&1 || { tail -n 40 "$folder/build.log"; exit 1; }
# A library without instrumentation would pass everything.
[ "$(nm -D "$folder/stage/lib/libdtl.so" | grep -c ' U __asan_report')" -gt 0 ] ||
    { echo "FAIL the library is not instrumented"; exit 1; }

# UCX, below MPICH, writes jumps over functions of the C library, where the sanitizer's are: any program ends in MPI_Init.
export UCX_MEM_EVENTS=n
# LLVM, in a driver of OpenCL, has a stack for signals that the sanitizer would unmap when the thread ends.
export ASAN_OPTIONS=use_sigaltstack=0:detect_leaks=0:allocator_may_return_null=1:abort_on_error=1
left_out='valgrind|instructions|frozen|tests/cmake|numpy|limits|tests/mpi|tests/ctk|oracle|mutants|gpu|vm|fork_inside|tutorial'
cd "$folder" && ctest --output-on-failure -E "$left_out" "$@"
