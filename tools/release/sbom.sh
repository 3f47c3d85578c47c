#!/bin/bash
# Writes what the library and the programs contain of others:
#     tools/release/sbom.sh MACHINE FOLDER
#     FOLDER/NAME.cdx.json           software bill of materials (CycloneDX 1.5) of the library and of each program
#     FOLDER/LICENSES.txt            the licence texts of these crates
#     FOLDER/RUST-COPYRIGHT.html     those of Rust's standard library, as the toolchain has them
# Fails unless the crates in these files are exactly those that `cargo tree` lists for the target. Two runs give the same bytes
# (SOURCE_DATE_EPOCH), and no path of this machine is in them. Needs crates.io once, for cargo-cyclonedx and cargo-about.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$1-unknown-linux-gnu out=$(realpath -m "$2") top=$PWD tools=$PWD/build/release-tools
programs=(dtlrun dtl-info dtl-ctk dtl-bench)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
export LC_ALL=C

# tool NAME VERSION: compiles it with little optimisation, which takes half of the time.
tool() {
    grep -q "^\"$1 $2 " "$tools/.crates.toml" 2>/dev/null ||
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
            cargo install -q --locked --root "$tools" "$1@$2" --features "${3:-}"
}
tool cargo-cyclonedx 0.5.9
tool cargo-about 0.9.3 cli

# Both tools read the features of all packages in the workspace: dtl-header, which is not installed, would add crates.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive HEAD | tar -C "$work" -xf -
sed -i 's|"tools/header", ||' "$work/Cargo.toml"
# tree PACKAGE…: name, version and, for ours, the mark "ours" of each crate that these packages are linked with.
tree() {
    cargo tree -q --locked -e normal --target "$target" --prefix none -f '{p}' "${@/#/-p}" |
        awk 'NF { print $1, substr($2, 2) (/ \(\// ? " ours" : "") }' | sort -u
}
tree dtl "${programs[@]}" >"$work/all"
tree dtl | cut -d' ' -f1,2 >"$work/library"

mkdir -p "$out"
cd "$work"
"$tools/bin/cargo-cyclonedx" cyclonedx -q --format json --all --no-build-deps --spec-version 1.5 --target "$target"
for file in dtl.cdx.json "${programs[@]/#/tools/}"; do
    [ -f "$file" ] || file=$file/${file##*/}.cdx.json
    # It lists optional crates that only a weak feature ("crate?/feature") names, and that are not compiled.
    python3 - "$file" all "file://$work" "file:///dtl-$version" <<'PYTHON' >"$out/${file##*/}"
import json, sys
path, names, here, there = sys.argv[1:]
with open(path) as file:
    bill = json.loads(file.read().replace(here, there))
with open(names) as file:
    linked = {tuple(line.split()[:2]) for line in file}
gone = {c["bom-ref"] for c in bill["components"] if (c["name"], c["version"]) not in linked}
bill["components"] = [c for c in bill["components"] if c["bom-ref"] not in gone]
bill["dependencies"] = [d for d in bill["dependencies"] if d["ref"] not in gone]
for crate in bill["dependencies"]:
    if "dependsOn" in crate:
        crate["dependsOn"] = [ref for ref in crate["dependsOn"] if ref not in gone]
print(json.dumps(bill, indent=2))
PYTHON
done
"$tools/bin/cargo-about" about generate --offline --fail --workspace --target "$target" \
    -c "$top/tools/release/about.toml" "$top/tools/release/about.hbs" -o "$out/LICENSES.txt"
cp "$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html" "$out/RUST-COPYRIGHT.html"

# components FILE…: name and version of each crate in bills of materials.
components() {
    python3 - "$@" <<'PYTHON' | sort -u
import json, sys
for path in sys.argv[1:]:
    with open(path) as file:
        bill = json.load(file)
    for crate in [bill["metadata"]["component"], *bill["components"]]:
        print(crate["name"], crate["version"])
PYTHON
}
# same WHAT EXPECTED: fails unless standard input is that file.
same() { diff - "$2" >&2 || { echo "sbom: $1 (<) does not have the crates of cargo tree (>)" >&2; exit 1; }; }
components "$out/dtl.cdx.json" | same dtl.cdx.json library
components "$out"/*.cdx.json | same "the union of *.cdx.json" <(cut -d' ' -f1,2 all)
sed -n 's/^crate \([^ ]* [^ :]*\): .*/\1/p' "$out/LICENSES.txt" | sort -u | same LICENSES.txt <(grep -v ' ours$' all)
if grep -rlF -e "$work" -e "$top" -e "${CARGO_HOME:-$HOME/.cargo}" "$out"; then
    echo "sbom: these name folders of this machine" >&2
    exit 1
fi
echo "sbom: $out: $(wc -l <all) crates"
