#!/bin/bash
# Builds the wheel of the Python binding with the library of a build folder, and installs it for the tests.
#     wheel.sh BUILD PYTHON      the wheel is in BUILD/python/dist, installed in BUILD/python/site
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)/python
python=$2
rm -rf "$work/prefix" "$work/source" "$work/dist" "$work/site"
cmake --install "$1" --prefix "$work/prefix" >/dev/null
# setuptools writes into the source folder.
cp -r "$here/../../bindings/python" "$work/source"
DTL_PREFIX=$work/prefix "$python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$work/dist" "$work/source"
"$python" -m pip install -q --disable-pip-version-check --no-deps --target "$work/site" "$work"/dist/libdtl-*.whl
# Any Python from 3.11 on loads it: no name of a version, and the library is found beside it.
ls "$work"/dist/libdtl-*-cp311-abi3-*.whl "$work"/site/dtl/_raw.abi3.so "$work"/site/dtl/_fast.abi3.so
