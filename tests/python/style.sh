#!/bin/bash
# Checks the format and the lints of all Python of the binding.
#     style.sh RUFF      after a change: ruff format --config bindings/python/pyproject.toml FILES
set -euo pipefail
cd "$(dirname "$0")/../.."
files=(bindings/python tests/python examples-python tests/languages/golden.py tests/full/python_cost.py packaging/copyright.py)
for command in "check --quiet" "format --check --diff --quiet"; do
    # shellcheck disable=SC2086 # several words
    "$1" $command --no-cache --config bindings/python/pyproject.toml "${files[@]}"
done
