#!/bin/bash
# Copies the recipes for EasyBuild, Spack and Conda, with the sums of the archives of a release:
#     tools/release/recipes.sh ARCHIVES OUT
# ARCHIVES is the folder with dtl-VERSION.tar.gz and dtl-VERSION-vendor.tar.gz. An archive cannot contain its own sum, so the
# recipes in packaging/ have "SHA256 of FILE" instead, and only these copies can be installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
archives=$1 out=$2
mkdir -p "$out"
cp -r packaging/{easybuild,spack,conda} "$out"
while read -r recipe; do
    { grep -oE 'SHA256 of [a-z0-9.-]+' "$recipe" || true; } | sort -u | while read -r _ _ file; do
        sum=$(sha256sum "$archives/$file") || { echo "recipes: $recipe needs $file" >&2; exit 1; }
        sed -i "s/SHA256 of ${file//./\\.}/${sum%% *}/" "$recipe"
    done
done < <(find "$out" -type f)
