#!/usr/bin/env bash
# Everything of tests/rdma/vm: the virtual machine itself, then in it every verb, the communicator suite, the faults, and the
# comparison with perftest. A quarter of an hour. Needs what tools/setup.sh rdma-vm installs.
#
#     rdma_vm.sh [BUILD [KIND]]      BUILD: CMake's build folder (build), built with the tests. KIND: rdma
#
# Each part in a boot of its own. Fails if one failed; 77 where the virtual machine cannot run.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") kind=${2:-rdma} vm=$PWD/tests/rdma/vm failed=0
export RDMA_VM_CACHE=${RDMA_VM_CACHE:-$build/rdma-vm}
"$vm/run-in-rdma-vm.sh" true || exit
part() { # NAME COMMAND…
    local name=$1
    shift
    echo "== $name"
    "$@" || { echo "FAILED: $name: exit status $?"; failed=1; }
}
part machine "$vm/test-run-in-rdma-vm.sh"
part smoke "$vm/run-in-rdma-vm.sh" -- "$vm/smoke.sh" "$build" "$kind"
part suite "$vm/run-in-rdma-vm.sh" --timeout 1800 -- "$vm/suite.sh" "$build" "$kind"
part faults "$vm/run-in-rdma-vm.sh" --timeout 600 -- "$vm/faults.sh" "$build" "$kind"
part compare "$vm/run-in-rdma-vm.sh" --timeout 900 -- "$vm/compare.sh" "$build" "$kind"
exit $failed
