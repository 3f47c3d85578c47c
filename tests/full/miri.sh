#!/bin/bash
# Miri over the unit tests of src/sys: undefined behaviour of every kind, data races among it. Needs a nightly toolchain of Rust
# with the components miri and rust-src; prints "skipped: reason" without. Up to half an hour. Not part of CTest.
#
#   miri.sh [FILTER…]     e.g. miri.sh sys::handles::handle_table    runs in one group the tests whose names contain one of these
#
# A group is one process, which ends at the first error. What Miri cannot run is listed below with the reason. Under Miri the tests
# make fewer rounds (cfg!(miri)), and src/sys does without what Miri has not: membarrier (fences, as on old kernels), thread
# pointers in assembly, mappings (memory of the C library), signal masks, the string instruction, the time stamp counter.
#
# The options of Miri. disable-isolation: tests read files, the clock and folders. permissive-provenance: the allocator
# (src/sys/heap) finds a block's description by its address, so its pointers are made of numbers, with exposed provenance.
# ignore-leaks: tables and the allocator keep what they have for ever, which is as it should be in a process.
set -uo pipefail
cd "$(dirname "$0")/../.."
toolchain=${DTL_MIRI_TOOLCHAIN:-nightly}
target=$PWD/target/miri
package=$target/sys
failed=0

skip() { echo "skipped: $1"; exit 0; }
sysroot=$(rustc "+$toolchain" --print sysroot 2>/dev/null) || skip "no toolchain $toolchain (rustup toolchain install nightly)"
cargo "+$toolchain" miri --version >/dev/null 2>&1 || skip "no miri (rustup component add miri --toolchain $toolchain)"
[ -d "$sysroot/lib/rustlib/src" ] || skip "no rust-src (rustup component add rust-src --toolchain $toolchain)"
mkdir -p "$package" "$target/logs"

# Miri compiles the crate at every start: only src/sys and what it uses, a tenth of all.
cat >"$package/Cargo.toml" <<'END'
[package]
name = "dtl-sys"
version = "0.0.0"
edition = "2024"
[lib]
path = "lib.rs"
doctest = false
[lints.rust]
unexpected_cfgs = { level = "warn", check-cfg = ["cfg(dtl_avx512)"] }
[dependencies]
bitflags = "2"
libc = "0.2"
rustix = { version = "1.1", default-features = false, features = ["std", "use-libc", "event", "fs", "net", "param", "pipe", "process", "rand", "stdio", "thread"] }
[dev-dependencies]
proptest = { version = "1", default-features = false, features = ["std"] }
[workspace]
END
printf '#[path = "%s"]\npub mod abi;\n#[path = "%s"]\npub mod hints;\n#[path = "%s"]\npub mod sys;\n' "$PWD/src/abi/mod.rs" "$PWD/src/hints.rs" "$PWD/src/sys/mod.rs" >"$package/lib.rs"
cp Cargo.lock "$package"

# What is left out, by a part of its name; all other tests of src/sys are run.
left_out() {
    sed 's/ *#.*//' <<'END'
sys::os::dl::                                   # dlopen, dladdr
sys::memory::heap::tests::a_block_that_no_address   # Miri ends where memory is short
sys::memory::heap::tests::what_is_kept_stays_within # 800 MiB, of which Miri describes each byte
sys::os::process::tests::a_shortage_names_its   # getrlimit, memfd_create
sys::os::process::tests::pidfd_sees_a_zombie    # pidfd
sys::os::process::tests::start_time_of_self     # /proc/PID/stat
sys::os::foreign_process::                      # fork, pidfd, process_vm_readv, descriptors of others
sys::os::shm_segment::                               # memfd_create, shared mappings
sys::os::unix_socket::                               # sendmsg, recvmsg
sys::os::secure_path::tests::links_are_followed       # lchown
sys::os::secure_path::tests::real_files               # getauxval
sys::os::close_on_fork::                             # fork
END
}
skips=()
while read -r name; do skips+=(--skip "$name"); done < <(left_out)

export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks"
export PROPTEST_CASES=${PROPTEST_CASES:-2} # of each property, instead of 256
miri=(timeout 1800 cargo "+$toolchain" miri test --lib --manifest-path "$package/Cargo.toml" --target-dir "$target")

# group NAME FILTER…: the tests whose names contain a filter. Passes if they do, and there is one.
group() {
    local name=$1 log=$target/logs/$1.log begin=$SECONDS count
    shift
    "${miri[@]}" -- "${skips[@]}" "$@" >"$log" 2>&1
    local status=$?
    count=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log")
    if [ $status -eq 0 ] && [ "${count:-0}" -gt 0 ]; then
        echo "PASS $name: $count tests, $((SECONDS - begin)) s"
        return
    fi
    echo "FAIL $name: status $status   ($log)"
    grep -m 3 -E 'error: |panicked at|FAILED' "$log"
    return 1
}

# That an error is found at all: a use after a free, in a test of this script's own.
cat >>"$package/lib.rs" <<'END'
#[test]
fn wrong() {
    let freed = { let value = Box::new(7); &raw const *value };
    assert_eq!(unsafe { *freed }, 7);
}
END
"${miri[@]}" -- --exact wrong >"$target/logs/wrong.log" 2>&1 && { echo "FAIL an error is not found"; exit 1; }
grep -q 'error: Undefined Behavior' "$target/logs/wrong.log" || { echo "FAIL Miri does not run   ($target/logs/wrong.log)"; exit 1; }

if [ $# -gt 0 ]; then
    group chosen "$@"
    exit
fi
# Two at a time: one that takes long beside the others.
group heap sys::memory::heap &
for names in "tables sys::handles::handle_table sys::handles::slot_map sys::handles::epoch" "reduce sys::compute::elements"; do
    group $names || failed=1
done
# All the others.
skips+=(--skip wrong)
for name in memory::heap handles::handle_table handles::slot_map handles::epoch compute::reduce compute::elements; do skips+=(--skip "sys::$name::"); done
group others sys:: || failed=1
wait $! || failed=1
exit $failed
