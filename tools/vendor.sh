#!/bin/sh
# Fetches every crate the library needs, for -DDTL_OFFLINE=ON on machines without internet.
#     tools/vendor.sh          into vendor/, and packs that into dtl-VERSION-vendor.tar.gz to take along
#     tools/vendor.sh FOLDER   into a folder (for -DDTL_VENDOR_DIR=…), no archive
set -eu
cd "$(dirname "$0")/.."
folder=${1:-vendor}
cargo vendor --locked --quiet "$folder" >/dev/null
if [ $# -eq 0 ]; then
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    tar -czf "dtl-$version-vendor.tar.gz" vendor
    echo "archive: dtl-$version-vendor.tar.gz"
fi
echo "$folder is ready. Now: cmake -B build -DDTL_OFFLINE=ON"
