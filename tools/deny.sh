#!/bin/bash
# Licences, sources and duplicate versions of all crates, for each lock file (deny.toml).
#     tools/deny.sh [CHECK…]        default: bans licenses sources; advisories: known flaws, needs access to github.com
# tools/setup.sh lint installs cargo-deny. Prints "skipped: reason" without.
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bans licenses sources
PATH=${DTL_BUILD_DIR:-$PWD/build}/deny/bin:$PATH
if ! cargo-deny --version >/dev/null 2>&1; then
    echo "skipped: cargo-deny is not installed (tools/setup.sh lint, or cargo install cargo-deny --locked)"
    exit 0
fi
failed=0
for lock in Cargo.lock bindings/rust/Cargo.lock bindings/rust/oracle/Cargo.lock tests/models/Cargo.lock tests/fuzz/parsers/Cargo.lock; do
    # One file for all: not every exception occurs in each.
    cargo-deny --locked --config "$PWD/deny.toml" --manifest-path "${lock%lock}toml" check -A license-exception-not-encountered \
        -A unmatched-skip -A unnecessary-skip --hide-inclusion-graph "$@" || { echo "$lock: see above"; failed=1; }
done
exit $failed
