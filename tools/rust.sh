# Sourced by `run`, .ci/run and tools/setup.sh: the two exact versions of Rust that the checks need.
#
# Cargo.toml has both. Everything else runs with the cargo in PATH, if that is new enough.
#     $rust_minimum   rust-version: the oldest compiler that must compile the library, the programs and the bindings
#     $rust_pinned    formatting, lints, releases and the table of instructions

rust_minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust_pinned=$(sed -n 's/^pinned-toolchain = "\(.*\)"/\1/p' Cargo.toml)
# rustup's "1.85" is the latest 1.85.x; the minimum is 1.85.0.
case "$rust_minimum" in *.*.*) ;; *) rust_minimum=$rust_minimum.0 ;; esac

# find_exact VERSION [COMMAND...]: sets `exact` to the words that run cargo of exactly this version:
# rustup's, or the cargo in PATH. Fails if there is none, or if it lacks one of the commands (clippy, fmt).
find_exact() {
    local version=$1 command
    shift
    # rustup must not install a toolchain only because this asks for it.
    if RUSTUP_AUTO_INSTALL=0 cargo "+$version" --version >/dev/null 2>&1; then
        exact=(cargo "+$version")
    elif [ "$(cargo --version 2>/dev/null | cut -d' ' -f2)" = "$version" ]; then
        exact=(cargo)
    else
        return 1
    fi
    for command in "$@"; do
        "${exact[@]}" "$command" --version >/dev/null 2>&1 || return 1
    done
}
