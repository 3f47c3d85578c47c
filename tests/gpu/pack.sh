#!/usr/bin/env bash
# Collects what tests and measures backend cuda on a machine that has NVIDIA's driver and nothing else: the library, the
# programs, NVRTC, the kernels, and run.sh, which runs it all.
#
#     pack.sh [--nccl] BUILD OUT      BUILD: CMake's build folder, with tests; OUT: a folder, or a file that ends with .tar or .tar.gz
#
# --nccl: with NVIDIA's NCCL, which is 270 MB; else that of the machine is tested, if it has one.
# NVRTC is that of BUILD/wheels (tests/gpu_wheels.sh BUILD/wheels fetches it). Where next: run.sh; docs/how-to/test-on-a-gpu.md.
set -euo pipefail
nccl=
if [ "${1:-}" = --nccl ]; then nccl=1; shift; fi
[ $# = 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
out=$2
nvrtc=$build/wheels/nvidia/cuda_nvrtc/lib
bin=$build/tests/bin

fail() { echo "pack: $1" >&2; exit 1; }
[ -e "$nvrtc/libnvrtc.so.12" ] || fail "there is no NVRTC in $build/wheels: tests/gpu_wheels.sh $build/wheels fetches it"
[ ! -e "$out" ] || fail "$out is there already"

case $out in
*.tar | *.tar.gz)
    work=$(mktemp -d "$build/pack.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    folder=$work/dtl-gpu
    ;;
*) folder=$out ;;
esac
mkdir -p "$folder/bin" "$folder/lib" "$folder/kernels"

# A file under another name; as a link if it is on the same file system.
put() { # FILE TARGET
    [ -e "$1" ] || fail "$1 is not there: build with -DDTL_BUILD_TESTS=ON"
    cp -lL "$1" "$folder/$2" 2>/dev/null || cp -L "$1" "$folder/$2"
}
put "$build/stage/lib/libdtl.so.0.2" lib/libdtl.so.0.2
put "$nvrtc/libnvrtc.so.12" lib/libnvrtc.so.12
for file in "$nvrtc"/libnvrtc-builtins.so.*; do put "$file" "lib/${file##*/}"; done
[ -z "$nccl" ] || put "$build/wheels/nvidia/nccl/lib/libnccl.so.2" lib/libnccl.so.2
for program in dtl-ctk dtl-info dtlrun; do put "$build/stage/bin/$program" "bin/$program"; done
put "$bin/tests/c/test_cuda.gcc-c11" bin/test_cuda
put "$bin/tests/c/test_nccl.gcc-c11" bin/test_nccl
put "$bin/tests/gpu/kernels" bin/kernels
put "$bin/tests/gpu/bench" bin/bench
put "$bin/tests/gpu/comm" bin/comm
[ ! -e "$bin/examples-c/heat_gpu.gcc" ] || put "$bin/examples-c/heat_gpu.gcc" bin/heat_gpu
for file in "$here"/../kernels/*.c; do put "$file" "kernels/${file##*/}"; done
put "$here/run.sh" run.sh
git -C "$here" describe --always --dirty >"$folder/version" 2>/dev/null || echo unknown >"$folder/version"

case $out in
*.tar) tar -C "$work" -cf "$out" dtl-gpu ;;
*.tar.gz) tar -C "$work" -czf "$out" dtl-gpu ;;
esac
echo "$out"
