#!/usr/bin/env bash
# What becomes of messages (exchange.c) when the cable between rxe0 and rxe1 is cut, loses packets or is slow, and when a peer is
# killed. Inside the virtual machine.
#
#     run-in-rdma-vm.sh --timeout 600 -- tests/rdma/vm/faults.sh [BUILD [KIND [CASE…]]]
#
# KIND shm does not use the cable: there it must not matter (that is how the script itself is tried).
# Prints "PASS|FAIL case: what the ranks said"; fails if one failed.
set -u
. "$(dirname "$0")/common.sh"
common_start "${1:-build}" "${2:-rdma}"
shift $(($# < 2 ? $# : 2))
only=" $* " failed=0 on_failure=continue
cut=failure
# A cut cable is noticed after (6 + 1) * 4.096 us * 2^14 = 0.47 s. Soft-RoCE takes 7 tries as "for ever".
export DTL_RDMA_TIMEOUT=${DTL_RDMA_TIMEOUT:-14} DTL_RDMA_RETRIES=${DTL_RDMA_RETRIES:-6}
[ "$kind" = rdma ] || cut='all right'

# started LIMIT SECONDS [DIE_IN_ROUND]: exchange begins, and both ranks have ended their first round. They get LIMIT seconds.
started() {
    ranks 2 timeout -k 5 "$1" "$programs/exchange" "$kind" "$2" 20000 "${@:3}" >"$work/log" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 600); do
        [ "$(grep -c begun "$work/log")" -lt 2 ] || return 0
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# ended CASE RANK_0 RANK_1: both have ended, and said that (or were killed).
ended() {
    local begin=$SECONDS verdict=PASS rank=0 expected said
    wait $pid
    for expected in "$2" "$3"; do
        said="^rank $rank: $expected "
        [ "$expected" != killed ] || said="^dtlrun: rank $rank was killed by signal 9 "
        grep -q "$said" "$work/log" || verdict=FAIL
        rank=$((rank + 1))
    done
    rdma-vm-link clear
    rdma-vm-link up
    printf '%s %s: %s; %d s\n' $verdict "$1" \
        "$(grep -E '^rank [01]: (all right|failure|timeout|wrong|error)' "$work/log" | sort | paste -sd ';')" $((SECONDS - begin))
    [ $verdict = PASS ] || { failed=1; sed 's/^/    /' "$work/log"; }
}

# fault CASE SECONDS WHAT_BOTH_SAY LIMIT COMMAND…: COMMAND happens to the cable while ranks exchange messages for SECONDS.
fault() {
    local name=$1 seconds=$2 expected=$3 limit=$4
    shift 4
    [ "$only" = '  ' ] || [[ $only == *" $name "* ]] || return
    started "$limit" "$seconds" || echo "$name: did not begin"
    "$@"
    ended "$name" "$expected" "$expected"
}

flap() { rdma-vm-link down; sleep 0.2; rdma-vm-link up; }

fault none 2 'all right' 30 true
fault down 8 "$cut" 30 rdma-vm-link down
fault silence 8 "$cut" 30 rdma-vm-link loss 100
# soft-RoCE ends a queue pair that posts while its interface is down: the connection is made anew.
fault flap 4 'all right' 30 flap
fault loss-1 4 'all right' 60 rdma-vm-link loss 1
fault loss-10 4 'all right' 60 rdma-vm-link loss 10
fault delay 4 'all right' 60 rdma-vm-link delay 5
if [ "$only" = '  ' ] || [[ $only == *" killed "* ]]; then
    started 30 20 10
    ended killed failure killed
fi
exit $failed
