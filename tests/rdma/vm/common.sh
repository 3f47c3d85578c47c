# What the scripts that run inside the virtual machine share; they source it. It is no program, and nothing for outside of the
# machine. Sets: kind, build, stage, programs (folder of exchange, perf), work (a folder for logs, which goes with the machine).
#
#     common_start [BUILD [KIND]]     BUILD: CMake's build folder (build). KIND: rdma, or shm to try the scripts themselves
#     ranks N PROGRAM [ARG…]          runs it by dtlrun (with its options $bind and $on_failure); the ranks' devices are rxe0
#                                     and rxe1 in turn
#     pair SERVER_COMMAND…            runs a program of perftest or ibv_rc_pingpong between rxe0 and rxe1; the client's output

common_start() {
    local device
    for device in rxe0 rxe1; do
        [ -e "/sys/class/infiniband/$device" ] || { echo "skipped: no device $device: this runs inside run-in-rdma-vm.sh"; exit 77; }
    done
    build=$(realpath "${1:-build}") kind=${2:-rdma} stage=$build/stage programs=$build/tests/bin/rdma
    work=$(mktemp -d)
    export DTL_COMM=$kind DTL_CACHE_DIR=$work/kernels DTL_TEST_DTLRUN=$stage/bin/dtlrun
}

ranks() {
    local count=$1
    shift
    # shellcheck disable=SC2016 # the rank's shell is to expand it
    "$stage/bin/dtlrun" ${bind:+--bind="$bind"} ${on_failure:+--on-failure="$on_failure"} -n "$count" \
        sh -c 'DTL_RDMA_DEVICES=rxe$((DTL_LOCAL_RANK % 2)) exec "$@"' sh "$@"
}

# listens PORT: whether somebody listens on that TCP port.
listens() { grep -q "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6; }

# Both halves have a time limit: a server waits for ever when its client fails. Each has a processor of its own: two that poll on
# one take 4 ms for every message.
pair() {
    local tool=$1 port=18515 server status
    local gid=-x
    shift
    [ "$tool" != ibv_rc_pingpong ] || gid=-g
    taskset -c 0 timeout 60 "$tool" -d rxe0 "$gid" 1 -p $port "$@" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        ! listens $port || break
        sleep 0.05
    done
    taskset -c 1 timeout 60 "$tool" -d rxe1 "$gid" 1 -p $port "$@" 127.0.0.1 >"$work/client" 2>&1
    status=$?
    wait $server || status=$?
    [ $status -eq 0 ] || { echo "$tool $*: exit status $status" >&2; tail -n 5 "$work/server" "$work/client" >&2; }
    cat "$work/client"
    return $status
}

# The figure of a peer's client: microseconds of half a round trip (the median; ibv_rc_pingpong: the average), or MB/s (of 2^20 bytes, the average).
figure() {
    # The peers' own time limit, 67 ms, is too short for 4 MiB here: they would send it again and again.
    local tool=$1 size=$2 iterations=$3 flags='-F -u 18'
    [ "$tool" != ibv_rc_pingpong ] || flags=
    # shellcheck disable=SC2086 # several words
    pair "$tool" $flags -s "$size" -n "$iterations" | case $tool in
    ibv_rc_pingpong) awk '/usec\/iter/ {printf "%.2f\n", $(NF - 1) / 2}' ;;
    *_lat) awk -v size="$size" '$1 == size && NF >= 8 {print $5}' ;;
    *_bw) awk -v size="$size" '$1 == size && NF >= 5 {print $4}' ;;
    esac
}

# iterations SIZE: how often a message of that size goes in a measurement of bandwidth: 8 MiB, but 100 messages at the most.
iterations() { echo $(($1 >= 83886 ? (8388608 / $1 < 8 ? 8 : 8388608 / $1) : 100)); }

# counter NAME: the sum of a hardware counter of both devices.
counter() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/"$1" | awk '{sum += $1} END {print sum}'; }
