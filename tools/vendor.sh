#!/bin/sh
# Fetches every crate the library needs into vendor/, and packs them, for -DDTL_OFFLINE=ON on machines
# without internet. Run it where there is internet; take vendor/ or the archive along.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
cargo vendor --locked --quiet vendor >/dev/null
tar -czf "dtl-$version-vendor.tar.gz" vendor
echo "vendor/ is ready (archive: dtl-$version-vendor.tar.gz). Now: cmake -B build -DDTL_OFFLINE=ON"
