#!/bin/bash
# Installs libdtl with EasyBuild from the archives of a release, without network, loads the module, and runs a C program on
# two ranks. The code is not optimised, which takes minutes and shows nothing about a recipe.
#     tests/full/easybuild.sh ARCHIVES [FOLDER]     ARCHIVES: build/release; FOLDER: what is installed, default build/easybuild
# Needs environment-modules (tools/setup.sh test) and PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."
archives=$(realpath "$1") folder=$(realpath -m "${2:-build/easybuild}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
. tools/rust.sh
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN-$rust_pinned}
[ -x "$folder/venv/bin/eb" ] || {
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q --disable-pip-version-check easybuild==5.4.1 pycodestyle==2.14.0
}
export PATH=$folder/venv/bin:$PATH
eval "$(modulecmd bash autoinit)"
export EASYBUILD_PREFIX=$folder/prefix EASYBUILD_SOURCEPATH=$archives EASYBUILD_MODULES_TOOL=EnvironmentModules
export EASYBUILD_MODULE_SYNTAX=Tcl EASYBUILD_DISABLE_JOB=1 EASYBUILD_ROBOT_PATHS=$folder/recipes
# The namespace without network has one user, root.
export EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1
rm -rf "$folder/recipes" "$folder/prefix"
tools/release/recipes.sh "$archives" "$folder/recipes"
recipe=$folder/recipes/easybuild/dtl-$version.eb

eb --check-contrib "$recipe"
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_PROGRAMS_OPT_LEVEL=0
# An empty CARGO_HOME shows that no crate is taken from there.
unshare -rn env CARGO_HOME="$folder/empty" eb "$recipe" --parallel "$(nproc)"

module use "$folder/prefix/modules/all"
module load "dtl/$version"
cc examples-c/ring.c -ldtl -o "$folder/ring"
dtlrun -n 2 "$folder/ring"
[ "$(command -v dtlrun)" = "$folder/prefix/software/dtl/$version/bin/dtlrun" ] ||
    { echo "easybuild: dtlrun is not the installed one" >&2; exit 1; }
echo "ok: EasyBuild $(eb --version | grep -oE '[0-9.]+' | head -n 1) has installed dtl/$version"
