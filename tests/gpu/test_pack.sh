#!/usr/bin/env bash
# The pack for machines with a GPU, over the driver that is none: packed, unpacked elsewhere, run from another folder with no
# variable of this one. It must pass, use its own files, and tell of what fails.
#
#     test_pack.sh BUILD DRIVER KERNELS      KERNELS: the host code that the driver does launches with
set -euo pipefail
build=$1
if [ ! -e "$build/wheels/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" ]; then
    echo "skipped: NVRTC is not there (tests/gpu_wheels.sh fetches it from PyPI)"
    exit 77
fi
work=$(mktemp -d "$build/tests/gpu pack.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$(dirname "$0")/pack.sh" "$build" "$work/pack.tar"
tar -C "$work" -xf "$work/pack.tar"
rm "$work/pack.tar"
fail() { echo "test_pack: $1" >&2; exit 1; }

run() { # RESULTS VARIABLE=value…
    local results=$work/$1
    shift
    (cd / && env -i PATH="$PATH" FAKE_CUDA_DEVICES=1 FAKE_CUDA_KERNELS="$kernels" DTL_CUDA_LIBRARY="$driver" "$@" \
        "$work/dtl-gpu/run.sh" --quick "$results")
}
driver=$2 kernels=$3

loaded=$(LD_LIBRARY_PATH=$work/dtl-gpu/lib ldd "$work/dtl-gpu/bin/bench")
[[ $loaded == *"=> $work/dtl-gpu/lib/libdtl.so.0 "* ]] || fail "the programs would not take the library of the pack"
run good || { cat "$work"/good/*.log; fail "it should pass"; }
grep -q '^PASS kernel-histogram$' "$work/good/results.md" || fail "no line of a kernel"
grep -q '^| saxpy, .* GB/s |' "$work/good/results.md" || fail "no line of saxpy"
grep -q 'Fake GPU 0' "$work/good/results.md" || fail "the device is not named"

# Without a driver nothing is tested, which is a failure; so is a launch that fails.
if run absent DTL_CUDA_LIBRARY=/nowhere/libcuda.so.1 >"$work/absent.txt"; then fail "no driver, and it passed"; fi
grep -q '^FAIL device: .*/nowhere/libcuda.so.1' "$work/absent.txt" || { cat "$work/absent.txt"; fail "no reason"; }
if run bad FAKE_CUDA_KERNELS=/nowhere/kernels.so >"$work/bad.txt"; then fail "no kernel did its work, and it passed"; fi
grep -q '^FAIL kernel-matmul: status 1; .*memcmp' "$work/bad.txt" || { cat "$work/bad.txt"; fail "no failure named"; }
