#!/usr/bin/env bash
# Runs the example cg with 4 ranks on a machine that is poor in some way, and checks that it finds the
# very same as without: every bit of the solution, and the residual.
#
# Usage: run_cg_poor.sh CASE CG MATRIX DTLRUN
#   small-shm   /dev/shm is a tmpfs of 64 KiB, as in a container
#   no-cma      DTL_SHM_COPY=cells: no rank reads another's memory
#   nobody      an unprivileged user, in processes that may not be read (dumpable 0)
# What the machine does not allow is skipped (exit status 77).
set -u

case=$1 cg=$2 matrix=$3 dtlrun=$4

skip() {
    echo "skipped: $case: $1"
    exit 77
}

fail() {
    echo "FAILED: $case: $*" >&2
    exit 1
}

# field NAME: what the table in $output says behind it.
field() {
    sed -n "s/^$1  *//p" <<<"$output"
}

# solve COMMAND…: "hash, residual, iterations" of a run behind the command, in $found.
solve() {
    output=$(timeout 100 "$@" 2>&1) || fail "exit status $?, output: $output"
    [[ $(field communicator) == *", 4 ranks: "* ]] || fail "no 4 ranks that work together: $output"
    [[ $(field "hash of x") =~ ^[0-9a-f]{16}$ ]] || fail "no hash in: $output"
    found="hash $(field "hash of x"), residual $(field "relative residual"), $(field iterations) iterations"
}

# moves WAY: the way that large messages must have taken.
moves() {
    [[ $(field communicator) == *"$1"* ]] || fail "expected '$1', the communicator is: $(field communicator)"
}

small_shm() {
    local unshare=(unshare -m) shell
    [ "$(id -u)" -eq 0 ] || unshare=(unshare -rm)
    # The mount is of this command's own namespace and ends with it.
    shell='mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 77; "$@"'
    "${unshare[@]}" bash -c "$shell" bash true 2>/dev/null || skip "unshare -m and a mount are not allowed here"
    "${unshare[@]}" bash -c "$shell" bash dd if=/dev/zero of=/dev/shm/full bs=1k count=65 2>/dev/null &&
        fail "65 KiB fit into a /dev/shm of 64 KiB"
    solve "${unshare[@]}" bash -c "$shell" bash "$dtlrun" -n 4 "$cg" "$matrix" --reproducible
}

no_cma() {
    solve env DTL_SHM_COPY=cells "$dtlrun" -n 4 "$cg" "$matrix" --reproducible
    moves "two copies (DTL_SHM_COPY=cells)"
}

# A program that its user may run but not read is not dumpable: nobody may read its memory.
nobody() {
    local as=(setpriv --reuid 65534 --regid 65534 --clear-groups) library
    command -v setpriv >/dev/null || skip "setpriv is not installed"
    "${as[@]}" true 2>/dev/null || skip "setpriv is not allowed here (it needs root)"
    folder=$(mktemp -d) || fail "no folder for copies"
    trap 'rm -rf "$folder"' EXIT
    # Copies, because a user without rights may not reach the folder of the build.
    library=$(ldd "$cg" | sed -n 's/.*libdtl[^ ]* => \([^ ]*\) .*/\1/p')
    cp "$dtlrun" "$cg" "$matrix" $library "$folder" || fail "no copies"
    chmod 755 "$folder" "$folder"/* && chmod 644 "$folder/${matrix##*/}" && chmod 711 "$folder/${cg##*/}"
    "${as[@]}" cat "$folder/${cg##*/}" >/dev/null 2>&1 && fail "the user may read the program"
    cd "$folder" || fail "no folder"
    "${as[@]}" "./${cg##*/}" --help >/dev/null 2>&1 || [ $? -ne 126 ] || skip "$folder is mounted noexec"
    solve env LD_LIBRARY_PATH="$folder" "${as[@]}" "$folder/dtlrun" -n 4 "$folder/${cg##*/}" "${matrix##*/}" --reproducible
    moves "two copies (not permitted (EPERM))"
    env DTL_STRICT=1 LD_LIBRARY_PATH="$folder" "${as[@]}" "$folder/dtlrun" -n 4 "$folder/${cg##*/}" "${matrix##*/}" >"$folder/out" 2>&1 &&
        fail "DTL_STRICT=1 accepts copies that the system denies"
    grep -q "copies of large messages: .*refused because DTL_STRICT=1" "$folder/out" || fail "$(cat "$folder/out")"
}

solve "$dtlrun" -n 4 "$cg" "$matrix" --reproducible
expected=$found
case $case in
small-shm) small_shm ;;
no-cma) no_cma ;;
nobody) nobody ;;
*) fail "no such case" ;;
esac
[ "$found" = "$expected" ] || fail "found $found, but without the lack $expected"
echo "$case: $found, $(field communicator)"
