#!/bin/bash
# Makes the files of a release in build/release, from the commit that is checked out:
#     dtl-VERSION.tar.gz                    the sources
#     dtl-VERSION-vendor.tar.gz             the crates that they need, for machines without internet
#     dtl-VERSION-linux-MACHINE.tar.gz      library, headers, programs and documents in the layout of a prefix; MACHINE is
#                                           x86_64 or aarch64. Runs where glibc is 2.28 or newer (RHEL 8, Debian 10)
#     libdtl-VERSION-…-MACHINE.whl          the same as a Python wheel, with the Python binding (tools/release/wheels.sh)
#     dtl-VERSION-recipes.tar.gz            recipes for EasyBuild, Spack and Conda (tools/release/recipes.sh)
#     libdtl0.2, libdtl-dev, dtl-tools, python3-dtl     for Debian 12 and Ubuntu 24.04 or newer (tools/release/debian.sh)
#     dtl, dtl-devel, dtl-tools             RPMs, for RHEL 8 or newer (tools/release/rpm.sh)
#     SHA256SUMS
#
#     tools/release.sh [MACHINE…]           default: both
#     tools/release.sh --twice [MACHINE…]   makes everything a second time elsewhere, and compares
# Needs what `tools/setup.sh release` installs; for aarch64 also rustup's target, qemu-user and gcc-aarch64-linux-gnu. The linker
# comes from PyPI (zig), cargo-cyclonedx and cargo-about from crates.io (tools/release/sbom.sh).
# Two runs give the same bytes: times are those of the commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/rust.sh
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN-$rust_pinned} LC_ALL=C
umask 022
floor=2.28
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
top=$PWD out=$PWD/build/release

twice=
if [ "${1:-}" = --twice ]; then twice=1; shift; fi
[ $# -gt 0 ] || set -- x86_64 aarch64
[ -z "$(git status --porcelain)" ] || { echo "release: there are changes that are not committed" >&2; exit 1; }

# packed NAME FOLDER ENTRY: FOLDER/ENTRY as a tar.gz with the same bytes each time.
packed() {
    tar -C "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$3" | gzip -9n >"$1"
}

# The linker. cargo-zigbuild leaves out the options of rustc's that zig does not have.
tools=$top/build/release-tools
[ -x "$tools/bin/cargo-zigbuild" ] || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q ziglang==0.17.1 cargo-zigbuild==0.24.1
}
for machine in "$@"; do
    cat >"$tools/cc-$machine" <<END
#!/bin/sh
PATH=$tools/bin:\$PATH exec $tools/bin/cargo-zigbuild zig cc -- -target $machine-linux-gnu.$floor "\$@"
END
    chmod +x "$tools/cc-$machine"
done

# newest_glibc FILE: the newest version of the C library that the file needs.
newest_glibc() { objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1 | cut -d_ -f2; }

# prefix MACHINE BUILD FOLDER: builds, and installs into FOLDER/dtl-VERSION-linux-MACHINE.
prefix() {
    local machine=$1 build=$2 name=dtl-$version-linux-$1 options=() file newest
    [ "$machine" = "$(uname -m)" ] || options=(-DCMAKE_TOOLCHAIN_FILE="$top/cmake/toolchains/$machine-linux-gnu.cmake")
    cmake -S "$top" -B "$build" "${options[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
        -DDTL_RUST_TARGET="$machine-unknown-linux-gnu" -DDTL_RUST_LINKER="$tools/cc-$machine" || return
    cmake --build "$build" -j "$(nproc)" || return
    DESTDIR=$3 cmake --install "$build" --prefix "/$name" || return
    tools/release/sbom.sh "$machine" "$3/$name/share/doc/dtl/third-party" || return 1
    while read -r file; do
        newest=$(newest_glibc "$file")
        if [ "$(printf '%s\n%s\n' "$floor" "$newest" | sort -V | tail -n 1)" != "$floor" ]; then
            echo "release: $file needs glibc $newest, and a release promises $floor" >&2
            return 1
        fi
    done < <(find "$3/$name/bin" "$3/$name/lib" -type f \( -perm -100 -o -name '*.so*' \) ! -name '*.cmake' ! -path '*/.debug/*')
}

# make FOLDER MACHINE…: all files, in FOLDER.
make_files() {
    local folder=$1 machine work
    shift
    work=$(mktemp -d "$folder/work.XXXXXX")
    git archive --format=tar --prefix="dtl-$version/" HEAD | gzip -9n >"$folder/dtl-$version.tar.gz"
    tools/vendor.sh "$work/vendor" >/dev/null
    packed "$folder/dtl-$version-vendor.tar.gz" "$work" vendor
    for machine in "$@"; do
        prefix "$machine" "$work/$machine" "$work/prefix" >"$folder/$machine.log" 2>&1 || {
            tail -n 20 "$folder/$machine.log" >&2
            return 1
        }
        packed "$folder/dtl-$version-linux-$machine.tar.gz" "$work/prefix" "dtl-$version-linux-$machine"
        echo "release: $folder/dtl-$version-linux-$machine.tar.gz"
        tools/release/wheels.sh "$machine" "$work/prefix/dtl-$version-linux-$machine" "$tools/cc-$machine" "$folder"
    done
    tools/release/recipes.sh "$folder" "$work/recipes"
    packed "$folder/dtl-$version-recipes.tar.gz" "$work" recipes
    tools/release/debian.sh "$folder" "$floor" "$work" "$@"
    tools/release/rpm.sh "$folder" "$floor" "$work" "$@"
    rm -rf "$work"
    (shopt -s nullglob && cd "$folder" && sha256sum -- *.tar.gz *.whl *.deb *.rpm >SHA256SUMS)
}

rm -rf "$out" && mkdir -p "$out"
make_files "$out" "$@"
if [ -n "$twice" ]; then
    again=$(mktemp -d)
    trap 'rm -rf "$again"' EXIT
    make_files "$again" "$@"
    diff "$out/SHA256SUMS" "$again/SHA256SUMS"
    echo "release: the second run gave the same bytes"
fi
cat "$out/SHA256SUMS"
