#!/usr/bin/env bash
# The pack for machines with a GPU, over the driver that is none: packed, unpacked elsewhere, run from another folder with no
# variable of this one. It must pass, use its own files, and tell of what fails.
#
#     test_pack.sh BUILD DRIVER KERNELS NCCL      KERNELS: the host code that the driver does launches with; NCCL: one that is none
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
driver=$2 kernels=$3 nccl=$4

loaded=$(LD_LIBRARY_PATH=$work/dtl-gpu/lib ldd "$work/dtl-gpu/bin/bench")
[[ $loaded == *"=> $work/dtl-gpu/lib/libdtl.so.0.2 "* ]] || fail "the programs would not take the library of the pack"
run good DTL_NCCL_LIBRARY="$nccl" || { cat "$work"/good/*.log; fail "it should pass"; }
grep -q '^PASS kernel-histogram$' "$work/good/results.md" || fail "no line of a kernel"
grep -q '^| saxpy, .* GB/s |' "$work/good/results.md" || fail "no line of saxpy"
grep -q '^PASS nccl-1$' "$work/good/results.md" || fail "no line of NCCL"
grep -q '^skipped nccl-2: there are 1 devices for 2 ranks$' "$work/good/results.md" || fail "two ranks on one device, and not said"
env -i PATH="$PATH" FAKE_CUDA_DEVICES=2 DTL_CUDA_LIBRARY="$driver" DTL_NCCL_LIBRARY="$nccl" \
    LD_LIBRARY_PATH="$work/dtl-gpu/lib" "$work/dtl-gpu/bin/dtlrun" -n 2 "$work/dtl-gpu/bin/test_nccl" device || fail "two ranks on two devices"
grep -q 'Fake GPU 0' "$work/good/results.md" || fail "the device is not named"

# Without a driver nothing is tested, which is a failure; so is a launch that fails.
if run absent DTL_CUDA_LIBRARY=/nowhere/libcuda.so.1 >"$work/absent.txt"; then fail "no driver, and it passed"; fi
grep -q '^FAIL device: .*/nowhere/libcuda.so.1' "$work/absent.txt" || { cat "$work/absent.txt"; fail "no reason"; }
if run bad FAKE_CUDA_KERNELS=/nowhere/kernels.so DTL_NCCL_LIBRARY=/nowhere/libnccl.so.2 >"$work/bad.txt"; then fail "no kernel did its work, and it passed"; fi
grep -q '^FAIL kernel-matmul: status 1; .*memcmp' "$work/bad.txt" || { cat "$work/bad.txt"; fail "no failure named"; }
grep -q '^skipped nccl-1: .*/nowhere/libnccl.so.2' "$work/bad.txt" || { cat "$work/bad.txt"; fail "no reason why there is no NCCL"; }
