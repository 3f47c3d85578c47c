#!/bin/bash
# Compiles the backend of examples-python/backend.py as a plugin, and has dtl-ctk judge it.
#     ctk.sh BIN PYTHON      BIN: folder with dtl-ctk
set -euo pipefail
cd "$(dirname "$0")/../../examples-python"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The library loads no plugin that a group may write to.
umask 022
"$2" -m dtl --plugin backend:Counting "$scratch/libcounting.so"
"$1/dtl-ctk" run --plugin "$scratch/libcounting.so" | tee "$scratch/out"
# At least the named tests that it passed when this was written.
awk '$1 == "all" { exit !($3 >= 380 && $4 == 0) }' "$scratch/out"
