#!/usr/bin/env bash
# The peers alone, between rxe0 and rxe1, inside the virtual machine: perftest and ibv_rc_pingpong. No judgement: compare.sh has
# that. GID index 1 (RoCEv2 over IPv4).
#
#     run-in-rdma-vm.sh --timeout 300 -- tests/rdma/vm/peers.sh [ROUNDS]
#
# Prints lines "program bytes figure unit", the best of ROUNDS (3) measurements (why: compare.sh).
set -u
. "$(dirname "$0")/common.sh"
common_start . peers
rounds=${1:-3}

line() { # PROGRAM SIZE ITERATIONS UNIT
    local order=-g
    [ "$4" = us ] || order=-gr
    printf '%-16s %8d %10.2f %s\n' "$1" "$2" "$(for _ in $(seq "$rounds"); do figure "$1" "$2" "$3"; done | sort $order | head -n 1)" "$4"
}
for size in 8 64 512 1024 4096; do
    for tool in ibv_rc_pingpong ib_send_lat ib_write_lat; do line $tool $size 200 us; done
done
for size in 65536 262144 1048576 4194304; do
    for tool in ib_send_bw ib_write_bw; do line $tool $size "$(iterations $size)" MB/s; done
done
