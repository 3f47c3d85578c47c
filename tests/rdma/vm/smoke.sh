#!/usr/bin/env bash
# The short test inside the virtual machine: every verb (verbs_probe.c) and one exchange of messages over a kind.
#
#     run-in-rdma-vm.sh -- tests/rdma/vm/smoke.sh [BUILD [KIND]]
set -eu
probe=${1:-build}/tests/bin/rdma/verbs_probe
if [ -e "$probe" ]; then timeout 60 "$probe"; else echo "verbs_probe was not built: no headers of libibverbs"; fi
exec "$(dirname "$0")/faults.sh" "${1:-build}" "${2:-rdma}" none
