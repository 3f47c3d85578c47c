#!/bin/bash
# Runs the README's commands on a bare Debian or Ubuntu: in a fresh chroot (made by debootstrap, as root) with
# a clean clone of the committed files. Only the base system is installed and, depending on RUST, a compiler.
#
#     tests/full/bare.sh DISTRIBUTION RUST [COMMAND...]
#         DISTRIBUTION  bookworm, trixie, noble
#         RUST          newest (rustup's stable), minimum (rustup's rust-version), apt (the distribution's
#                       cargo or cargo-web), none (what tools/setup.sh installs by itself)
#         COMMAND       run in the clone; default: ./run demo, then ./run test (up to an hour)
#
# Fails if a command fails or if the build prints a warning. The logs of `./run test` are copied to
# build/bare/DISTRIBUTION-RUST. Environment variables:
#     BARE_MIRROR        mirror to use in place of the distribution's own
#     BARE_KEYRING       the keys that sign the archive (Ubuntu's are in its package ubuntu-keyring)
#     BARE_CERTIFICATES  file of certificates (PEM) that the chroot trusts in addition
#     BARE_VARIABLES     NAME=value words for the environment in the chroot, such as a proxy's
#     BARE_FOLDER        where the chroot is made (20 GB; default: a new folder in /var/tmp)
#     BARE_KEEP=1        keep the chroot
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/rust.sh
[ $# -ge 2 ] || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2; exit 2; }
distribution=$1 rust=$2
shift 2
script=()
case $distribution in
bookworm | trixie)
    mirror=${BARE_MIRROR:-http://deb.debian.org/debian} components=main
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
noble)
    mirror=${BARE_MIRROR:-http://archive.ubuntu.com/ubuntu} components=main,universe
    keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    script=(gutsy) ;; # the script of all later Ubuntus; an older debootstrap does not have the name noble
*) echo "bare: DISTRIBUTION is bookworm, trixie or noble, not $distribution" >&2; exit 2 ;;
esac
case $rust in
newest) toolchain=stable ;;
minimum) toolchain=$rust_minimum ;;
apt | none) toolchain= ;;
*) echo "bare: RUST is newest, minimum, apt or none, not $rust" >&2; exit 2 ;;
esac

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
keyring=${BARE_KEYRING:-$keyring}
[ -e "$keyring" ] || skip "no $keyring: install the package that has it, or name the file with BARE_KEYRING"
curl -sSfI --connect-timeout 20 "$mirror/dists/$distribution/Release" >/dev/null ||
    skip "the archive of $distribution cannot be reached ($mirror)"

folder=${BARE_FOLDER:-$(mktemp -d /var/tmp/dtl-bare.XXXXXX)}
root=$folder/$distribution-$rust
logs=${DTL_BUILD_DIR:-build}/bare/$distribution-$rust
# Mounts and processes are in namespaces of their own, which end with the last command.
clean() {
    if [ -n "${BARE_KEEP:-}" ]; then echo "bare: kept $root"; return; fi
    rm -rf --one-file-system "$root"
    [ -n "${BARE_FOLDER:-}" ] || rmdir "$folder"
}
trap clean EXIT
mkdir -p "$root" "$logs"

echo "bare: $distribution from $mirror"
debootstrap --variant=minbase --components="$components" --keyring="$keyring" \
    "$distribution" "$root" "$mirror" "${script[@]}" >"$logs/debootstrap.log" ||
    { tail "$logs/debootstrap.log"; exit 1; }
cp /etc/resolv.conf /etc/hosts "$root/etc/"
if [ -n "${BARE_CERTIFICATES:-}" ]; then
    # The package ca-certificates reads files with one certificate each from here.
    mkdir -p "$root/usr/local/share/ca-certificates"
    awk -v to="$root/usr/local/share/ca-certificates/bare-" \
        '/BEGIN CERTIFICATE/ { n++ } n { print > (to n ".crt") }' "$BARE_CERTIFICATES"
fi
git clone -q --no-hardlinks . "$root/srv/libdtl"

# inside COMMAND...: runs it in the clone, as root in the chroot.
inside() {
    unshare --mount --pid --ipc --fork --kill-child bash -c '
        root=$1 && shift && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" &&
            mount --rbind /dev "$root/dev" && mount -t tmpfs -o size=50% shm "$root/dev/shm" &&
            exec chroot "$root" /usr/bin/env -i HOME=/srv LANG=C.UTF-8 TERM=dumb \
                PATH=/srv/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' bare "$root" ${BARE_VARIABLES:-} bash -c 'cd /srv/libdtl && "$@"' bare "$@"
}

case $rust in
newest | minimum)
    inside bash -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends curl ca-certificates &&
        { curl -sSfL --connect-timeout 20 https://sh.rustup.rs ||
            curl -sSfL https://static.rust-lang.org/rustup/rustup-init.sh; } |
        sh -s -- -y -q --profile minimal --default-toolchain $toolchain" ;;
apt)
    inside bash -c "apt-get update -qq
        apt-get install -y -qq --no-install-recommends cargo-web ||
        apt-get install -y -qq --no-install-recommends cargo" ;;
none) ;;
esac >"$logs/rust.log" 2>&1 || { tail "$logs/rust.log"; exit 1; }

status=0
run() { # COMMAND...
    local begin=$SECONDS result=0
    echo "bare: $distribution, Rust $rust: $*"
    inside "$@" 2>&1 | tee "$logs/output" || result=$?
    cat "$logs/output" >>"$logs/all"
    echo "bare: exit status $result after $((SECONDS - begin)) s"
    [ "$result" -eq 0 ] || status=1
}
rm -f "$logs/all"
if [ $# -gt 0 ]; then run "$@"; else
    run ./run demo
    run ./run test
fi
inside bash -c 'cargo --version && gcc --version | head -n 1 && cmake --version | head -n 1' || true
cp -r "$root/srv/libdtl/build/logs" "$logs/" 2>/dev/null || true
# Not counted: lines that the library logs while tests break its connections ("dtl warning: "), and lines of apt about
# manual pages, which a bare system leaves out ("update-alternatives: ").
if grep -nE '(^|[[:space:]])warning: ' -r "$logs/all" "$logs/logs" 2>/dev/null | grep -vE 'dtl warning: |update-alternatives: '; then
    echo "bare: the build printed these warnings"
    status=1
fi
exit $status
