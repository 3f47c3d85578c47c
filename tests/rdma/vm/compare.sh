#!/usr/bin/env bash
# The library's latency and bandwidth (perf.c) next to perftest's, inside the virtual machine: in the same boot, in turn, size by
# size. Emulation makes the processor's part some 25 times slower, so only the ratio counts, and software shows magnified.
#
#     run-in-rdma-vm.sh --timeout 900 -- tests/rdma/vm/compare.sh [BUILD [KIND [ROUNDS]]]
#
# Prints "latency|bandwidth bytes ours perftest's ratio bound ok|MISSED". The figures are the best of ROUNDS (5), each of which is the
# median of its messages (bandwidth: the average): what else runs outside only ever makes them worse, by a hundred times when
# it has the processor that one of the two ranks needs. Fails if one misses: latency at most 1.3 times ib_send_lat's,
# bandwidth at least 0.9 times ib_write_bw's.
set -u
. "$(dirname "$0")/common.sh"
common_start "${1:-build}" "${2:-rdma}"
rounds=${3:-5} missed=0 bind=core

# ours WHAT SIZE ITERATIONS
ours() { ranks 2 timeout 120 "$programs/perf" "$kind" "$1:$2:$3" | awk -v what="$1" '$1 == what {print $3}'; }

row() { # NAME WHAT SIZE ITERATIONS PEER BOUND
    local mine theirs order
    : >"$work/mine" >"$work/theirs"
    for _ in $(seq "$rounds"); do
        ours "$2" "$3" "$4" >>"$work/mine"
        figure "$5" "$3" "$4" >>"$work/theirs"
    done
    if [ "$(cat "$work/mine" "$work/theirs" | wc -l)" -ne $((2 * rounds)) ]; then
        echo "$1 $3: not measured"
        missed=1
        return
    fi
    [ "$2" = lat ] && order=-g || order=-gr
    mine=$(sort $order "$work/mine" | head -n 1) theirs=$(sort $order "$work/theirs" | head -n 1)
    awk -v name="$1" -v size="$3" -v mine="$mine" -v theirs="$theirs" -v bound="$6" 'BEGIN {
        ratio = mine / theirs
        good = name == "latency" ? ratio <= bound : ratio >= bound
        printf "%-10s %8d %10.2f %10.2f %7.3f %5.2f %s\n", name, size, mine, theirs, ratio, bound, good ? "ok" : "MISSED"
        exit !good
    }' || missed=1
}

printf '%-10s %8s %10s %10s %7s %5s\n' "$kind" bytes ours perftest ratio bound
for size in 8 64 512 1024 4096; do row latency lat $size 200 ib_send_lat 1.3; done
for size in 65536 262144 1048576 4194304; do row bandwidth bw $size "$(iterations $size)" ib_write_bw 0.9; done
exit $missed
