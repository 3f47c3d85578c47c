#!/bin/bash
# The library for 64-bit Arm: built by a cross compiler, and its tests run by qemu's user emulation. No such hardware was
# at hand. What runs: the unit tests, the C tests of `./run check` (one compilation; two ranks where they take ranks), and
# the kit on host, null, self, shm and threads with 1, 2 and 4 ranks. Some 15 minutes on two cores. For ppc64le and
# riscv64 it is tested that everything compiles.
#     tests/full/aarch64.sh [BUILD_DIR]     default: build/aarch64
# Needs Debian's qemu-user, gcc-aarch64-linux-gnu and g++-aarch64-linux-gnu, and rustup's target; says what is missing.
# Programs for Arm run by themselves in a namespace whose kernel hands them to qemu (binfmt_misc, Linux 6.7): nothing is
# changed outside of it.
set -uo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
build=$(realpath -m "${1:-build/aarch64}")
target=aarch64-unknown-linux-gnu
prefix=/usr/aarch64-linux-gnu
. tools/rust.sh
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN-$rust_pinned}

skip() { echo "skipped: $1"; exit 77; }
qemu=$(command -v qemu-aarch64) || skip "no qemu-aarch64 (apt-get install qemu-user)"
for compiler in gcc g++; do
    command -v aarch64-linux-gnu-$compiler >/dev/null || skip "no aarch64-linux-gnu-$compiler (apt-get install $compiler-aarch64-linux-gnu)"
done
[ -e "$(rustc --print target-libdir --target $target)" ] || skip "no Rust for $target (rustup target add $target)"

# The magic number of ELF files for this machine, as the kernel wants it: what is compared, and which bits.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
export QEMU_LD_PREFIX=$prefix magic mask qemu
# emulated COMMAND…: in a namespace in which programs for Arm run.
emulated() {
    unshare -rm sh -c 'mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
        printf "%s" ":dtl-aarch64:M::$magic:$mask:$qemu:F" >/proc/sys/fs/binfmt_misc/register && exec "$@"' sh "$@"
}
emulated true 2>/dev/null || skip "the kernel has no binfmt_misc for namespaces (Linux 6.7), or unshare -rm is not allowed here"

# What the emulator cannot: a name of a test, and why. Linux on the processor itself does all of this.
left_out() {
    sed -n 's/ *#.*//p' <<'END'
test_array              # fork: qemu ignores MADV_WIPEONFORK
test_fork_inside        # fork
test_launch_history     # fork
test_lifecycle          # fork
test_loops              # fork
test_mem_export         # fork
test_memory_heap        # fork
test_trace              # fork
test_module_cache       # fork
test_mem_shared         # qemu invents the start time in /proc/self/stat
test_win_access         # start time
test_win_threads        # start time
test_comm_limits        # ulimit -v and system call filters apply to qemu
test_comm_places        # ulimit -v
test_comm_memory        # resident memory is qemu's
END
}

# Unit tests, the same.
units_left_out() {
    sed -n 's/ *#.*//p' <<'END'
fork                                            # qemu ignores MADV_WIPEONFORK
what_is_no_mpi_says_why                         # opens /bin/ls, which is for this machine
the_processes_above_are_known                   # the namespace hides the programs of processes outside
links_are_followed_like_the_kernel_does         # changes to a user that the namespace does not have
a_glimpse_does_not_open_and_stays_what_it_was   # qemu looks for every path in its own root first
reads_own_memory                                # qemu has no process_vm_readv
the_limit_follows_the_time_of_a_yield           # a yield takes longer than the test expects
END
}

failed=0
step() { # NAME COMMAND…
    local name=$1 begin=$SECONDS status
    shift
    "$@" >"$build/$name.log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then echo "ok      $name, $((SECONDS - begin)) s"; else
        echo "FAILED  $name, $((SECONDS - begin)) s ($build/$name.log)"
        tail -n 25 "$build/$name.log" | sed 's/^/        /'
        failed=1
    fi
}

mkdir -p "$build/bin"
# Kernels from source are compiled by the C compiler that the library finds: for Arm.
for name in cc gcc; do ln -sf "$(command -v aarch64-linux-gnu-gcc)" "$build/bin/$name"; done
step configure cmake -B "$build" -DCMAKE_TOOLCHAIN_FILE="$top/cmake/toolchains/aarch64-linux-gnu.cmake" -DDTL_BUILD_TESTS=ON
CARGO_PROFILE_PROGRAMS_OPT_LEVEL=1 step build cmake --build "$build" -j "$(nproc)" --target dtl_check dtl_static_build
[ $failed -eq 0 ] || exit 1

plain=$PATH
export PATH=$build/bin:$PATH
step ctest emulated ctest --test-dir "$build" -j "$(nproc)" -L check --output-on-failure \
    -E "tests/c/($(left_out | paste -sd'|'))\\."
# kit NAME ARGUMENT…
kit() { step "kit-$1" emulated "$build/stage/bin/dtl-ctk" run --timeout 120s "${@:2}"; }
kit abi --component abi
kit null --backend null
kit host --backend host --component device,memory,transfer,exec --expect tests/full/aarch64.toml
kit self --kind self
for kind in threads shm; do
    for ranks in 1 2 4; do kit $kind-$ranks --kind $kind --ranks $ranks; done
done

# Compiled outside: build scripts are for this machine, and find its own compiler.
units() {
    local -x CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=none PROPTEST_CASES=16
    local test=(cargo test --locked -p dtl --lib --target $target --target-dir "$build/cargo-units") name skips=()
    PATH=$plain "${test[@]}" --no-run || return
    while read -r name; do skips+=(--skip "$name"); done < <(units_left_out)
    PATH=$plain emulated "${test[@]}" -- "${skips[@]}"
}
step units units

# Others: the library and the programs compile.
for other in powerpc64le-unknown-linux-gnu riscv64gc-unknown-linux-gnu; do
    if [ -e "$(rustc --print target-libdir --target $other)" ]; then
        PATH=$plain step "check-$other" cargo check --locked -p dtl -p dtl-info -p dtlrun -p dtl-ctk -p dtl-bench \
            --target $other --target-dir "$build/cargo-check"
    else echo "skipped check-$other: rustup target add $other"; fi
done

grep -hE '^test result|tests passed|passed, ' "$build"/{units,ctest,kit-*}.log
exit $failed
