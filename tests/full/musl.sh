#!/usr/bin/env bash
# The library with musl: a static libdtl.a, with which the C tests are linked by musl-gcc -static. They run on their kinds
# with up to three ranks (dtlrun of BUILD is a glibc program). Needs the package musl-tools and rustup's target
# x86_64-unknown-linux-musl. Half an hour.
#
#     musl.sh BUILD [NAME...]     the tests (default: all)
#
# Tests that need the dynamic loader, glibc or more ranks are left out, with the reason (docs/adr/0048-musl.md has the last
# result). Prints the failures; exit status 1 if there are some.
set -uo pipefail
build=$(cd "${1:?usage: musl.sh BUILD [NAME...]}" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
shift
[ $# -gt 0 ] || set -- $(basename -s .c tests/c/*.c)
. tools/rust.sh
target=x86_64-unknown-linux-musl
skip() { echo "skipped: $1"; exit 77; }
command -v musl-gcc >/dev/null || skip "musl-gcc is not installed (package musl-tools)"
rustup target list --installed --toolchain "$rust_pinned" 2>/dev/null | grep -qx $target || skip "rustup has no target $target"
out=$build/musl
mkdir -p "$out"
# cargo warns that it drops the shared library.
cargo "+$rust_pinned" build -q --locked --lib --target $target --target-dir "$out/target" 2>"$out/log" || { cat "$out/log"; exit 1; }
# Debian's libgcc_eh is for glibc: the unwinder of Rust's target takes its place.
unwind=$(rustc "+$rust_pinned" --print sysroot)/lib/rustlib/$target/lib/self-contained/libunwind.a
# musl gives a thread 128 KiB of stack unless the program asks for more.
link() { # SOURCE OUTPUT
    musl-gcc -static -nodefaultlibs -Wl,-z,stack-size=1048576 -std=gnu11 -O1 -pthread -Iinclude -Itests/c "$1" "$out/target/$target/debug/libdtl.a" "$unwind" \
        -lc -lgcc -lc -o "$2"
}
passed=0 failed=0 left_out=0
trap 'echo "ended after $passed passed, $failed failed, $left_out left out or skipped"; exit 1' TERM
verdict() { # NAME STATUS
    case $2 in
    0) passed=$((passed + 1)) ;;
    77) left_out=$((left_out + 1)) ;;
    *) failed=$((failed + 1)) && echo "FAIL $1 (status $2): $(grep -avE '^(dtlrun|$)' "$out/log" | tail -n 2 | tr '\n' ' ')" ;;
    esac
}
link tests/full/musl/loads.c "$out/loads" && "$out/loads" "$build/tests/bin/plugins/acme.so" >"$out/log" 2>&1
verdict "texts without a dynamic loader" $?
for name in "$@"; do
    case $name in # they expect the dynamic loader or its messages
    test_registry | test_plugin* | test_trace_plugin | test_cuda* | test_nccl* | test_opencl* | test_rdma* | test_mem_foreign | test_module*)
        left_out=$((left_out + 1))
        continue ;;
    esac
    mapfile -t runs < <(awk -v name="$name" '$1 == name && $2 <= 3 && !/@/ { $1 = ""; print }' tests/c/runs.txt)
    if [ ${#runs[@]} -eq 0 ]; then grep -qE "^$name( |\$)" tests/c/runs.txt || runs=("1"); fi
    [ ${#runs[@]} -gt 0 ] || continue
    if ! link "tests/c/$name.c" "$out/$name" >"$out/log" 2>&1; then
        left_out=$((left_out + 1))
        echo "left out: $name: $(grep -m 1 -oE 'error: .*|undefined reference.*|fatal error: .*' "$out/log")"
        continue
    fi
    for run in "${runs[@]}"; do
        read -ra words <<<"$run"
        ranks=${words[0]} variables=() arguments=()
        for word in "${words[@]:1}"; do
            if [[ $word =~ ^[A-Z_]+= ]]; then variables+=("$word"); else arguments+=("$word"); fi
        done
        starter=(); [ "$ranks" = 1 ] || starter=("$build/stage/bin/dtlrun" -n "$ranks")
        timeout 120 env "${variables[@]}" "${starter[@]}" "$out/$name" "${arguments[@]}" >"$out/log" 2>&1 </dev/null
        verdict "$name $run" $?
    done
done
echo "$passed passed, $failed failed, $left_out left out or skipped"
[ $failed -eq 0 ]
