#!/bin/bash
# Makes the Debian packages of a release from its dtl-VERSION.tar.gz. Called by tools/release.sh.
#     tools/release/debian.sh FOLDER GLIBC BUILDS MACHINE…
# They contain library and programs of the archives, built for GLIBC in BUILDS/MACHINE. So one file of each package is
# for Debian 12, Ubuntu 24.04 and newer.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath "$1") floor=$2 builds=$(realpath "$3")
shift 3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
case $(dpkg-parsechangelog -l packaging/debian/changelog -S Version) in "$version"-*) ;; *)
    echo "release: packaging/debian/changelog does not begin with version $version" >&2
    exit 1
esac
packaging/copyright.py --check
declare -A architectures=([x86_64]=amd64 [aarch64]=arm64)

for machine in "$@"; do
    work=$(mktemp -d "$folder/debian.XXXXXX")
    tar -xzf "$folder/dtl-$version.tar.gz" -C "$work"
    cp -r packaging/debian "$work/dtl-$version/debian"
    (
        # The distribution's Python, where another comes first.
        export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH DTL_BUILD=$builds/$machine DTL_GLIBC=$floor
        options=()
        if [ "$machine" != "$(uname -m)" ]; then
            # Without python3-dtl, for which the other machine's Python would have to be installed.
            options=(-a"${architectures[$machine]}" -d -Pcross,nocheck,pkg.libdtl.nopython)
            export DEB_BUILD_OPTIONS=nocheck
        fi
        cd "$work/dtl-$version" && dpkg-buildpackage -b --no-sign "${options[@]}" &&
            if command -v lintian >/dev/null; then lintian --fail-on error,warning "$work"/*.changes; fi
    ) >"$folder/debian-$machine.log" 2>&1 || {
        tail -n 20 "$folder/debian-$machine.log" >&2
        exit 1
    }
    for package in "$work"/*.deb; do
        newest=$(dpkg-deb -f "$package" Depends | grep -oP 'libc6 \(>= \K[0-9.]+' || true)
        if dpkg --compare-versions "${newest:-0}" gt "$floor"; then
            echo "release: ${package##*/} needs glibc $newest, and a release promises $floor" >&2
            exit 1
        fi
        mv "$package" "$folder"
        echo "release: $folder/${package##*/}"
    done
    rm -rf "$work"
done
