#!/bin/bash
# Makes the Python wheel of a release from the library that tools/release.sh has built:
#     tools/release/wheels.sh MACHINE PREFIX COMPILER OUT
# MACHINE is x86_64 or aarch64, PREFIX the installed library for it, COMPILER the C compiler that links against the
# release's glibc, OUT the folder for libdtl-VERSION-cp311-abi3-manylinux_2_28_MACHINE.whl. One wheel serves Python 3.11 and
# newer, because the two extension modules use the stable ABI only. Two runs give the same bytes (SOURCE_DATE_EPOCH).
# Needs the distribution's python3-dev, and PyPI for the packages of tests/python/environment.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
machine=$1 prefix=$(realpath "$2") compiler=$(realpath "$3") out=$(realpath "$4") platform=manylinux_2_28_$1
venv=$PWD/build/release-tools/python
tests/python/environment.sh "$venv" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive HEAD bindings/python | tar -C "$work" -xf -
# Debian's pyconfig.h includes the one of the target, which only a package of that machine installs. All that a module
# with the stable ABI reads in it is the same on both: sizes of types and byte order.
include=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
host=$(uname -m)-linux-gnu
mkdir -p "$work/include/$machine-linux-gnu"
ln -s "/usr/include/$host/${include##*/}" "$work/include/$machine-linux-gnu/"

# The paths of this machine would stay in debugging information and in __FILE__.
options="-g0 -O2 -ffile-prefix-map=$work=dtl -I$work/include"
env CC="$compiler" LDSHARED="$compiler -shared" CFLAGS="$options" LDFLAGS=-s \
    DTL_PREFIX="$prefix" _PYTHON_HOST_PLATFORM="linux-$machine" \
    "$venv/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$work/dist" "$work/bindings/python"

# auditwheel finds the oldest system on which every file of the wheel runs, and names the wheel after it.
PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair -w "$work/named" "$work"/dist/libdtl-*.whl
wheel=$(cd "$work/named" && ls libdtl-*.whl)
case $wheel in
libdtl-*-cp311-abi3-*"$platform".whl) cp "$work/named/$wheel" "$out" ;;
*) echo "wheels: the wheel is named $wheel, and $platform is to suffice" >&2; exit 1 ;;
esac
echo "release: $out/$wheel"
