#!/bin/bash
# Installs what is missing on Debian or Ubuntu. The one list of packages.
#     tools/setup.sh build    what building the library and the demo needs
#     tools/setup.sh test     that, and what the tests need
# Uses apt-get as root, else with sudo; installs Rust with rustup where cargo is missing or too old.
# What is there is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# program package: the program tells whether the package is needed.
build_packages=(gcc:gcc ld:binutils cmake:cmake make:make curl:curl)
test_packages=(g++:g++ clang:clang pkg-config:pkg-config mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin
               mpicc.mpich:libmpich-dev mpirun.mpich:mpich unshare:util-linux)

case "${1:-}" in
build) wanted=("${build_packages[@]}") ;;
test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
*) echo "usage: tools/setup.sh build|test" >&2; exit 2 ;;
esac

missing=()
for pair in "${wanted[@]}"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
# A compiler without the C library's headers is of no use.
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    root=(); if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
    if ! command -v apt-get >/dev/null || { [ ${#root[@]} -gt 0 ] && ! command -v sudo >/dev/null; }; then
        echo "setup: cannot install (no apt-get, or neither root nor sudo). Install these yourself: ${missing[*]}" >&2
        exit 1
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" ca-certificates
fi

export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(cargo --version 2>/dev/null | sed 's/cargo \([0-9.]*\).*/\1/' || true)
if [ "$(printf '%s\n%s\n' "$needed" "${have:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    echo "setup: cargo is ${have:-missing}, $needed or newer is needed: installing Rust with rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal -c rustfmt -c clippy
fi
