#!/bin/bash
# Runs a program with 4 ranks in two network namespaces, which a virtual cable connects, as on two nodes:
#     between_nodes.sh PROGRAM ARGUMENT...
# DTL_TEST_ROOT names the variable that gets the address of rank 0. If the last argument is "cut", the cable is cut when
# the program writes "cut the cable". Exits with 77 where namespaces are not allowed.
set -euo pipefail

skip() { echo "skipped: $1"; exit 77; }
command -v ip >/dev/null || skip "ip is not there (apt-get install iproute2)"
if [ "${DTL_TEST_INSIDE:-}" != yes ]; then
    unshare=(unshare -n)
    [ "$(id -u)" -eq 0 ] || unshare=(unshare -rn)
    "${unshare[@]}" true 2>/dev/null || skip "unshare -n is not allowed here"
    DTL_TEST_INSIDE=yes exec "${unshare[@]}" "$0" "$@"
fi

output=$(mktemp)
nodes=()
trap 'kill "${nodes[@]}" 2>/dev/null || true; rm -f "$output"' EXIT
for _ in 1 2; do
    unshare -n sleep 900 &
    nodes+=($!)
done
for pid in "${nodes[@]}"; do # until it has left this namespace
    while [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
done
at() { nsenter -t "${nodes[$1]}" -n "${@:2}"; } # NODE COMMAND...

ip link add cable0 type veth peer name cable1 2>/dev/null || skip "virtual network cables are not allowed here"
for node in 0 1; do
    ip link set "cable$node" netns "${nodes[$node]}"
    at $node ip address add "10.77.0.$((node + 1))/24" dev "cable$node"
    at $node ip link set "cable$node" up
    at $node ip link set lo up
done

export DTL_SIZE=4 DTL_JOB="nodes-$$" "${DTL_TEST_ROOT:?}=10.77.0.1:20077"
ranks=()
for rank in 0 1 2 3; do
    DTL_RANK=$rank at $((rank / 2)) timeout 300 "$@" >>"$output" &
    ranks+=($!)
done
if [ "${!#}" = cut ]; then
    for _ in $(seq 3000); do grep -q "cut the cable" "$output" && break; sleep 0.01; done
    at 1 ip link set cable1 down
fi
status=0
for rank in 0 1 2 3; do
    wait "${ranks[$rank]}" || { echo "rank $rank failed"; status=1; }
done
cat "$output"
exit $status
