#!/bin/bash
# Fuzzes the code that reads foreign bytes: each target replays its corpus, then runs for some seconds.
#
#   run.sh [SECONDS=60] [TARGET...]      targets: elf json handle settings words root rank control tcp (src/main.rs)
#
# A finding fails, and its line names the input, which `DTL_TEST_PARSER=TARGET BINARY INPUT` repeats. New inputs stay in
# target/parsers/TARGET. `run.sh merge` adds to the corpora a sample of those that cover more than the others (found-*);
# inputs with other names are real ones, and those of defects that were mended.
# Needs the pinned Rust, whose compiler has the sanitizers (RUSTC_BOOTSTRAP), and clang for plugin tcp.
set -uo pipefail
cd "$(dirname "$0")/../../.."
. tools/rust.sh
here=$PWD/tests/fuzz/parsers out=${CARGO_TARGET_DIR:-$PWD/target}/parsers
all=(elf json handle settings words root rank control tcp)
triple=$(uname -m)-unknown-linux-gnu
binary=$out/build/$triple/debug/dtl-parsers

skip() { echo "SKIP parsers: skipped: $1"; exit 0; }
find_exact "$rust_pinned" || skip "toolchain $rust_pinned is not installed (tools/setup.sh lint installs it where rustup is installed)"
command -v clang >/dev/null || skip "no clang"

# Coverage as cargo fuzz has it. Dependencies are instrumented as well: object and serde_json are what parses.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address"
mkdir -p "$out"
# Two threads of code generation at most: other steps run beside this one.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags --cfg fuzzing -Ccodegen-units=4" "${exact[@]}" build -q -j 2 --locked \
    --manifest-path "$here/Cargo.toml" --target "$triple" --target-dir "$out/build" || exit 1

# An announced size that cannot be allocated is a null pointer, as without the sanitizer. What is never freed is found
# by other tests; here the library keeps tables until the process ends.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0
options=(-malloc_limit_mb=1000000 -rss_limit_mb=3000 -timeout=20 -max_len=4096 -print_final_stats=0 -verbosity=1)

if [ "${1:-}" = merge ]; then
    for target in "${all[@]}"; do
        rm -rf "$out/merged" && mkdir -p "$out/merged" "$out/$target" "$here/corpus/$target"
        DTL_TEST_PARSER=$target "$binary" "${options[@]}" -set_cover_merge=1 "$out/merged" "$here/corpus/$target" "$out/$target" \
            >"$out/$target.log" 2>&1 || { tail -n 20 "$out/$target.log"; exit 1; }
        rm -f "$here/corpus/$target"/found-*
        # A sample is enough, as each run finds more. Names of tracked files begin with a letter.
        for input in $(ls "$out/merged" | head -n 120); do
            cp "$out/merged/$input" "$here/corpus/$target/found-${input::12}"
        done
    done
    exit
fi

seconds=60
case "${1:-}" in [0-9]*) seconds=$1; shift ;; esac
[ $# -gt 0 ] || set -- "${all[@]}"
failed=0
for target in "$@"; do
    log=$out/$target.log runs=0 begin=$SECONDS status=0
    mkdir -p "$out/$target"
    # In rounds: a process makes at most 65536 instances of enumeration words.
    while left=$((seconds - SECONDS + begin)); [ $status -eq 0 ] && [ $left -gt 0 ]; do
        DTL_TEST_PARSER=$target "$binary" "${options[@]}" -max_total_time=$left -runs=50000 \
            -artifact_prefix="$out/$target-" "$out/$target" "$here/corpus/$target" >"$log" 2>&1
        status=$?
        more=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log" | tail -n 1)
        runs=$((runs + ${more:-0}))
    done
    if [ $status -eq 0 ]; then
        coverage=$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        echo "PASS $target: $runs inputs, coverage $coverage, $((SECONDS - begin)) s"
    else
        failed=1
        echo "FAIL $target: $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)   ($log)"
        grep -m 3 -A 3 -E 'panicked at|ERROR: ' "$log"
    fi
done
exit $failed
