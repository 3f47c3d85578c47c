#!/bin/bash
# Installs the files of a release on fresh systems and uses them: Debian 12 and Ubuntu 24.04, and the archive also on
# Debian 11, which has an old glibc. Prints a row of a table for each file and system; docs/how-to/install-packages.md
# has the rows of the last run.
#
#     tests/full/install.sh [RELEASE [TEST:SYSTEM...]]     default: build/release, and all of the pairs below
#
# The systems are chroots that debootstrap makes once, as root (500 MB each). A test changes a copy in memory, which is
# gone when it ends, like its processes and mounts. Environment variables:
#     INSTALL_CHROOTS   where the chroots are (default: build/chroots)
#     BARE_KEYRING      the keys of Ubuntu's archive (package ubuntu-archive-keyring of Debian 13)
#     BARE_VARIABLES    NAME=value words for the environment in the chroot, such as a proxy's
set -uo pipefail
cd "$(dirname "$0")/../.."
release=$(realpath "${1:-build/release}")
[ $# -eq 0 ] || shift
pairs=(archive:bookworm archive:noble archive:bullseye debian:bookworm debian:noble rpm:bookworm)
[ $# -eq 0 ] || pairs=("$@")
chroots=$(realpath -m "${INSTALL_CHROOTS:-build/chroots}")
logs=$chroots/logs
failed=0

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mkdir -p "$chroots/apt" "$logs"

# system NAME: makes the chroot, unless it is there.
system() {
    local root=$chroots/$1 mirror=http://deb.debian.org/debian components=main script=()
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ "$1" = noble ]; then
        mirror=http://archive.ubuntu.com/ubuntu components=main,universe
        keyring=${BARE_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
        script=(gutsy) # the script of all later Ubuntus
    fi
    [ ! -e "$root" ] || return 0
    [ -e "$keyring" ] || { echo "no $keyring: name the file with BARE_KEYRING"; return 1; }
    rm -rf --one-file-system "$root.part"
    debootstrap --variant=minbase --components="$components" --keyring="$keyring" \
        "$1" "$root.part" "$mirror" "${script[@]}" &&
        cp /etc/resolv.conf /etc/hosts "$root.part/etc/" && mv "$root.part" "$root"
}

# inside SYSTEM COMMAND...: runs it as root in a copy of the chroot. /release has the files, /tree the sources.
inside() {
    mkdir -p "$chroots/apt/$1/partial"
    unshare --mount --pid --ipc --fork --kill-child bash -c '
        set -e
        base=$1 cache=$2 release=$3 tree=$4 root=/mnt/root
        shift 4
        mount -t tmpfs -o size=75% copy /mnt
        mkdir /mnt/upper /mnt/work "$root"
        mount -t overlay -o "lowerdir=$base,upperdir=/mnt/upper,workdir=/mnt/work" overlay "$root"
        mkdir "$root/release" "$root/tree"
        mount --bind -o ro "$release" "$root/release"
        mount --bind -o ro "$tree" "$root/tree"
        mount --bind "$cache" "$root/var/cache/apt/archives"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o size=50% shm "$root/dev/shm"
        exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' inside "$chroots/$1" "$chroots/apt/$1" "$release" "$PWD" ${BARE_VARIABLES:-} "${@:2}"
}

# The functions from here on run in a chroot. A test prints what its row says after "row: ".

install_packages() { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; }

# kit PREFIX: the conformance kit on one rank and on two.
kit() { "$1/bin/dtl-ctk" run --kind self && "$1/bin/dtl-ctk" run --kind shm --ranks 2; }

# debian_tests NAME...: tests of the Debian packages (debian/tests).
debian_tests() {
    local test
    for test in "$@"; do AUTOPKGTEST_TMP=$(mktemp -d) "/tree/packaging/debian/tests/$test" || return; done
}

# projects PREFIX: compiles and runs projects with the installed package; CMake 3.20 or newer.
projects() {
    local status=0
    install_packages gcc g++ gfortran make cmake pkg-config || return
    /tree/tests/consumer/run.sh --installed "$1" >/tmp/projects || status=1
    cat /tmp/projects
    echo "row: kit, $(grep -c ^PASS /tmp/projects) projects"
    return $status
}

archive() {
    local file prefix
    file=$(echo /release/dtl-*-linux-"$(uname -m)".tar.gz) prefix=/opt/${file##*/}
    prefix=${prefix%.tar.gz}
    tar -xzf "$file" -C /opt && kit "$prefix" || return
    if [ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = bullseye ]; then # its CMake is 3.18
        install_packages gcc libc6-dev || return
        gcc /tree/tests/consumer/consumer.c -I"$prefix/include" -L"$prefix/lib" -ldtl -Wl,-rpath,"$prefix/lib" -o /tmp/consumer &&
            /tmp/consumer && echo "row: kit, a program in C"
    else
        projects "$prefix"
    fi
}

debian() {
    local files left
    files=$(echo /release/{libdtl0.2,libdtl-dev,dtl-tools,python3-dtl}_*"$(dpkg --print-architecture)".deb)
    # shellcheck disable=SC2086 # words
    install_packages $files python3-numpy && debian_tests conformance python &&
        apt-get purge -y -qq libdtl0.2 libdtl-dev dtl-tools python3-dtl || return
    left=$(find / -xdev -path '*dtl*' ! -path '/var/cache/apt/*' ! -path '/tmp/*' -prune)
    [ -z "$left" ] || { echo "purge left $left"; return 1; }
    # shellcheck disable=SC2086 # words
    install_packages $files && projects /usr && debian_tests compile && echo "row: Python, purge leaves nothing"
}

# The RPMs, unpacked by rpm into a folder. Debian's packages provide what they need, but not by the names of RPM.
rpm() {
    local prefix=/opt/rpm
    export dtl_DIR=$prefix/usr/lib64/cmake/dtl # Debian's CMake does not search lib64
    local root=(command rpm --root "$prefix") packages=(dtl dtl-devel dtl-tools)
    install_packages rpm && mkdir "$prefix" && "${root[@]}" --initdb || return
    "${root[@]}" --install --nodeps --ignorearch /release/dtl-*."$(uname -m)".rpm &&
        "${root[@]}" --verify --nodeps "${packages[@]}" && kit "$prefix/usr" &&
        "${root[@]}" --erase --nodeps "${packages[@]}" || return
    ! find "$prefix" -path '*/usr/*dtl*' | grep . || return
    "${root[@]}" --install --nodeps --ignorearch /release/dtl-*."$(uname -m)".rpm && projects "$prefix/usr" &&
        echo "row: removal leaves nothing"
}

for pair in "${pairs[@]}"; do
    test=${pair%%:*} name=${pair#*:} log=$logs/${pair/:/-}.log begin=$SECONDS
    if { system "$name" && inside "$name" bash -c "set -uo pipefail; $(declare -f install_packages kit debian_tests projects "$test"); $test"; } \
        >"$log" 2>&1; then result=$(sed -n 's/^row: //p' "$log" | paste -sd';' | sed 's/;/, /g'); else
        result="FAILED ($log)"
        failed=1
    fi
    echo "| $(. "$chroots/$name/etc/os-release" && echo "$PRETTY_NAME") | $test | $result | $((SECONDS - begin)) s |"
done
exit $failed
