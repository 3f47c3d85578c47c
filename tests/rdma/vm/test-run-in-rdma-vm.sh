#!/usr/bin/env bash
# Tests run-in-rdma-vm.sh itself: what comes back from the machine, and what is left when it ends. Four minutes.
set -u
vm=$(realpath "$(dirname "$0")")/run-in-rdma-vm.sh
cache=${RDMA_VM_CACHE:-$(realpath -m "$(dirname "$0")/../../../build/rdma-vm")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The kernel that is there, and a place of its own for what runs leave: others may run meanwhile.
export RDMA_VM_CACHE=$cache
[ -e "$cache/vm/version" ] || "$vm" --prepare || exit
export RDMA_VM_CACHE=$work/cache
mkdir "$RDMA_VM_CACHE" && ln -s "$cache/vm" "$RDMA_VM_CACHE/vm"
number=0 bad=0

is() { # WHAT EXPECTED GOT
    number=$((number + 1))
    if [ "$2" = "$3" ]; then echo "ok $number $1"; else echo "not ok $number $1: wanted '$2', got '$3'"; bad=1; fi
}
lives() { [ -n "$1" ] && [ -e "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status"; }

# booted SCRIPT_PID: waits until its qemu runs, and prints that one's pid.
booted() {
    local pid
    for _ in $(seq 100); do
        pid=$(pgrep -P "$1" -x qemu-system-x86) && { echo "$pid"; return; }
        sleep 0.1
    done
}

"$vm" true; is success 0 $?
"$vm" false; is failure 1 $?
"$vm" sh -c 'exit 42'; is 'status 42' 42 $?
"$vm" /no/such/program 2>/dev/null; is 'no such program' 127 $?
"$vm" sh -c 'kill -SEGV $$' 2>/dev/null; is 'killed by SIGSEGV' 139 $?

got=$("$vm" sh -c 'echo out; echo err >&2' 2>"$work/err")
is stdout out "$got"
is stderr err "$(cat "$work/err")"
got=$("$vm" printf '<%s>' 'a b' '' '*' $'new\nline' '"q"')
is arguments $'<a b><><*><new\nline><"q">' "$got"
got=$("$vm" sh -c 'head -c 20000000 /dev/zero | tr "\0" x' | wc -c)
is '20 MB of output' 20000000 "$got"

mkdir "$work/rw"
"$vm" --rw "$work/rw" sh -c "echo hi >$work/rw/file; echo no >/etc/rdma-vm-test"
is 'a folder that may be written to' hi "$(cat "$work/rw/file")"
[ -e /etc/rdma-vm-test ]; is 'all else is not written to' 1 $?
got=$(cd /usr/lib && FOO=bar "$vm" --env FOO sh -c 'pwd; echo $FOO')
is 'working directory, environment' $'/usr/lib\nbar' "$got"

"$vm" --timeout 3 sleep 100 2>/dev/null; is 'time limit' 124 $?
"$vm" --timeout 2 sh -c 'trap "" TERM; sleep 100' 2>/dev/null; status=$?
[ $status -eq 124 ] || [ $status -eq 137 ]; is 'time limit, SIGTERM ignored' 0 $?
"$vm" sh -c 'sleep 1000 & exit 3'; is 'a daemon is left' 3 $?
RDMA_VM_BOOT_TIMEOUT=2 "$vm" true 2>/dev/null; is 'time limit of the boot' 124 $?
"$vm" sh -c 'echo c >/proc/sysrq-trigger' 2>/dev/null; is 'the kernel panics' 125 $?

mkdir "$work/path"
for program in bash dirname realpath sed; do ln -s "$(command -v $program)" "$work/path"; done
PATH=$work/path "$vm" true >/dev/null 2>&1; is 'no qemu: skipped' 77 $?
RDMA_VM_CACHE=$work/none "$vm" --no-prepare true >"$work/out" 2>&1; is 'no kernel: skipped' 77 $?
grep -q '^skipped: .*tools/setup.sh rdma-vm' "$work/out"; is 'no kernel: says how to get it' 0 $?

"$vm" sleep 100 & script=$!
qemu=$(booted $script); sleep 1
kill -TERM $script; wait $script; is 'SIGTERM to the script' 143 $?
[ -n "$qemu" ] && ! lives "$qemu"; is 'its qemu is gone' 0 $?
setsid "$vm" sleep 100 & script=$!
qemu=$(booted $script); sleep 1
kill -KILL $script; sleep 1
[ -n "$qemu" ] && ! lives "$qemu"; is 'SIGKILL to the script: its qemu is gone' 0 $?
rm -rf "$RDMA_VM_CACHE"/run.* # that one could not
"$vm" sleep 4 & one=$!
"$vm" sh -c 'exit 5' & two=$!
wait $one; is 'two at once: the first' 0 $?
wait $two; is 'two at once: the second' 5 $?
compgen -G "$RDMA_VM_CACHE/run.*" >/dev/null; is 'nothing is left' 1 $?
echo "1..$number"
exit $bad
