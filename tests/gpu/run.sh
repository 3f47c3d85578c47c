#!/usr/bin/env bash
# Tests and measures backend cuda on this machine's first GPUs, with what pack.sh put beside this file. Needs NVIDIA's driver;
# no compiler, no CUDA toolkit, no network.
#
#     run.sh [--quick] [FOLDER]      FOLDER for results.md and the logs; default: results in the current folder
#
# --quick leaves out what takes long, and measures small sizes only. A line for each test; status 0 if none failed.
set -uo pipefail
quick=0
if [ "${1:-}" = --quick ]; then quick=1; shift; fi
case ${1:-} in -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-results}" && out=$(cd "${1:-results}" && pwd) || exit 2
cache=$(mktemp -d) || exit 2
trap 'rm -rf "$cache"' EXIT
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export DTL_NVRTC_LIBRARY=$here/lib/libnvrtc.so.12 DTL_CACHE_DIR=$cache

lines=()
failed=0 there=1
say() { echo "$1" && lines+=("$1"); }

# Only the first test asks for a device: without one there is nothing to show.
without() { # NAME REASON
    if [ "$1" != device ]; then say "skipped $1: $2" && return; fi
    say "FAIL device: $2"
    failed=1 there=0
}

# Runs a test; what it prints goes to NAME.log.
check() { # NAME COMMAND…
    local name=$1 log=$out/$1.log status=0
    shift
    timeout -k 10 300 "$@" >"$log" 2>&1 || status=$?
    case $status in
    0) say "PASS $name" ;;
    77) without "$name" "$(sed -n 's/^skipped: //p' "$log" | tail -n 1)" ;;
    124 | 137) say "FAIL $name: not done in 300 s; $log" ;;
    *) say "FAIL $name: status $status; $(tail -n 1 "$log"); $log" ;;
    esac
    case $status in 0 | 77) ;; *) failed=$((failed + 1)) ;; esac
}

check device "$here/bin/test_cuda" device
if [ $there = 1 ]; then
    for component in device transfer memory exec; do
        case $quick$component in 1memory | 1exec) say "skipped ctk-$component: --quick" && continue ;; esac
        check "ctk-$component" "$here/bin/dtl-ctk" run --backend cuda --component "$component"
    done
    for kernel in saxpy reduce matmul histogram log fault; do
        check "kernel-$kernel" "$here/bin/kernels" "$here/kernels" "$kernel"
    done
    if [ ! -e "$here/bin/heat_gpu" ]; then say "skipped heat_gpu: it was not built"
    elif [ $quick = 1 ]; then say "skipped heat_gpu: --quick"
    else check heat_gpu env DTL_BACKEND=cuda "$here/bin/dtlrun" -n 4 "$here/bin/heat_gpu"; fi
    # One rank, and two where there are as many GPUs.
    if [ -e "$here/lib/libnccl.so.2" ]; then export DTL_NCCL_LIBRARY=${DTL_NCCL_LIBRARY:-$here/lib/libnccl.so.2}; fi
    for ranks in 1 2; do check "nccl-$ranks" "$here/bin/dtlrun" -n $ranks "$here/bin/test_nccl" device; done
    say "skipped test_nccl faults, death, absent: they need the NCCL that fails as it is told (tests/nccl)"
    say "skipped test_nccl_collectives: it has ranks disagree, which a real NCCL does not notice"
    say "skipped test_cuda faults, optional, absent: they need the driver that fails as it is told (tests/cuda)"
    say "skipped test_cuda_modules: what it counts and damages needs that driver; kernel-log is what is left of it"
    sizes=() seconds=()
    if [ $quick = 1 ]; then sizes=(most 65536 batches 3) seconds=(most 65536 seconds 0.01); fi
    check bench "$here/bin/bench" "$here/kernels" "${seconds[@]}"
    check messages "$here/bin/dtlrun" -n 2 "$here/bin/comm" messages "${sizes[@]}"
    for ranks in 1 2; do check allreduce-$ranks "$here/bin/dtlrun" -n $ranks "$here/bin/comm" allreduce "${sizes[@]}"; done
fi

driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$driver" ] || driver=$(cat /sys/module/nvidia/version 2>/dev/null) || driver="of an unknown version"
{
    echo "# Backend cuda on a GPU"
    echo
    echo "$(date -u +%Y-%m-%d), NVIDIA driver $driver, libdtl $(cat "$here/version"), $(uname -sm)"
    echo
    if [ $there = 1 ]; then
        for table in bench messages allreduce-1 allreduce-2; do
            grep -v '^skipped: ' "$out/$table.log"
            echo
            grep '^skipped: ' "$out/$table.log"
        done
    fi
    echo
    echo "## Tests"
    echo '```text'
    printf '%s\n' "${lines[@]}"
    echo '```'
} >"$out/results.md"
if [ $failed = 0 ]; then echo "all passed; $out/results.md"; else echo "$failed failed; $out/results.md"; fi
[ $failed = 0 ]
