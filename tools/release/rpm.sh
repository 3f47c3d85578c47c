#!/bin/bash
# Makes the RPM packages of a release from its two source archives. Called by tools/release.sh.
#     tools/release/rpm.sh FOLDER GLIBC BUILDS MACHINE…
# They contain library and programs of the archives, built for GLIBC in BUILDS/MACHINE.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath "$1") floor=$2 builds=$(realpath "$3")
shift 3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
grep -qx "Version: *$version" packaging/rpm/dtl.spec || {
    echo "release: packaging/rpm/dtl.spec is not of version $version" >&2
    exit 1
}
for machine in "$@"; do
    if [ "$machine" != "$(uname -m)" ]; then echo "release: no RPM for $machine: they are made on a machine of that architecture"; continue; fi
    work=$(mktemp -d "$folder/rpm.XXXXXX")
    # Times and the name of the machine are not in the packages. Debian's rpm does not know what is installed.
    DTL_BUILD=$builds/$machine rpmbuild -bb --nodeps --define "_topdir $work" --define "_sourcedir $folder" --define "_rpmdir $work" \
        --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' --define '_buildhost release' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        packaging/rpm/dtl.spec >"$folder/rpm-$machine.log" 2>&1 || {
        tail -n 20 "$folder/rpm-$machine.log" >&2
        exit 1
    }
    if command -v rpmlint >/dev/null; then rpmlint --rpmlintrc packaging/rpm/rpmlintrc "$work"/*.rpm; fi >>"$folder/rpm-$machine.log" || {
        grep ': [EW]: ' "$folder/rpm-$machine.log" >&2
        exit 1
    }
    for package in "$work"/*.rpm; do
        newest=$(rpm -qp --requires "$package" | grep -oP '^libc\.so\.6\(GLIBC_\K[0-9.]+' | sort -V | tail -n 1 || true)
        if [ "$(printf '%s\n%s\n' "$floor" "$newest" | sort -V | tail -n 1)" != "$floor" ]; then
            echo "release: ${package##*/} needs glibc $newest, and a release promises $floor" >&2
            exit 1
        fi
        mv "$package" "$folder"
        echo "release: $folder/${package##*/}"
    done
    rm -rf "$work"
done
