#!/bin/bash
# Uses the package as a stranger would: installs it, moves the prefix, builds and runs the projects in
# this folder against it.
#     tests/consumer/run.sh BUILD_DIR            one line per project; exit status 1 if one failed
#     tests/consumer/run.sh --installed PREFIX   with the package in PREFIX, into which it installs plugins
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build='' prefix=$work/moved/dtl
if [ "$1" = --installed ]; then prefix=$(cd "$2" && pwd); else build=$(cd "$1" && pwd); fi
log=$work/log
failed=0

report() { # name status-of-last-command
    if [ "$2" -eq 0 ]; then echo "PASS consumer/$1"; else echo "FAIL consumer/$1"; sed 's/^/    /' "$log"; failed=1; fi
}
skip() { echo "SKIP consumer/$1: skipped: $2"; }
project() { # name folder cmake-arguments… : configure, build
    local name=$1 folder=$2; shift 2
    cmake -S "$here/$folder" -B "$work/$name" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release "$@" &&
        cmake --build "$work/$name"
}

if [ -n "$build" ]; then
    # The staged install must leave nothing that points to where it was put first.
    { DESTDIR=$work/stage cmake --install "$build" --prefix /opt/first && mkdir -p "$work/moved" &&
        mv "$work/stage/opt/first" "$prefix" && ! grep -rlE "/opt/first|$build" "$prefix" --include='*.cmake' --include='*.pc'; } >"$log" 2>&1
    report install-and-move $?

    # Nor may a file name a folder of this machine: not in the text of a panic, not for a debugger.
    paths=(-e "$build/" -e "$(cd "$here/../.." && pwd)/src/" -e "${CARGO_HOME:-$HOME/.cargo}/" -e "${RUSTUP_HOME:-$HOME/.rustup}/")
    if [ -n "${RUSTFLAGS:-}" ]; then skip no-build-paths "RUSTFLAGS replaces the flags that remap paths"
    else
        { ! grep -rcF "${paths[@]}" "$prefix" | grep -v ':0$'; } >"$log" 2>&1
        report no-build-paths $?
    fi
fi
libdir=$(dirname "$(find "$prefix" -name libdtl.so)")

# Each function has the version of the soname, and a program says which version it needs.
{ library=$(find "$prefix" -name libdtl.so) version=DTL_$(readelf -d "$library" | sed -n 's/.*soname: \[libdtl\.so\.\(.*\)\]/\1/p')
  readelf -W --dyn-syms "$library" | awk '$8 ~ /^dtl_/ { print $8 }' | sort >"$work/symbols"
  sed "s/$/@@$version/" "$here/../dtl.symbols" | sort | diff - "$work/symbols" &&
      cc -I"$prefix/include" "$here/consumer.c" -o "$work/versioned" "$library" -Wl,-rpath,"$(dirname "$library")" &&
      "$work/versioned" && readelf -V "$work/versioned" | grep -q "Name: $version "; } >"$log" 2>&1
report symbol-versions $?

for name in c cpp static backend; do
    { project $name $name && "$work/$name/consumer"; } >"$log" 2>&1
    report $name $?
done

if command -v gfortran >/dev/null; then
    { project fortran fortran && "$work/fortran/consumer" && "$work/fortran/consumer_c"; } >"$log" 2>&1
    report fortran $?
else
    skip fortran "no gfortran"
fi

! ldd "$work/static/consumer" 2>"$log" | grep libdtl >>"$log"
report static-needs-no-libdtl $?

archive=$libdir/libdtl.a
for way in -static -static-pie; do
    { cc -I"$prefix/include" "$here/consumer.c" $way -o "$work/all$way" "$archive" -lpthread -ldl -lm && "$work/all$way"; } >"$log" 2>&1
    report "cc$way" $?
done

if command -v rustc >/dev/null; then
    { rustc --edition 2024 --crate-type staticlib -O "$here/other.rs" -o "$work/libother.a" &&
        cc -I"$prefix/include" "$here/other.c" -o "$work/two" "$archive" "$work/libother.a" -lpthread -ldl -lm && "$work/two"; } >"$log" 2>&1
    report static-beside-rust $?
else
    skip static-beside-rust "rustc is not installed"
fi

. "$here/plugins.sh"
. "$here/versions.sh"

{ ! project missing missing && grep -q "there is no such component" "$log"; } >"$log" 2>&1
report unknown-component $?

if command -v pkg-config >/dev/null; then
    { export PKG_CONFIG_PATH=$libdir/pkgconfig
      cc "$here/consumer.c" -o "$work/with-pkg-config" $(pkg-config --cflags --libs libdtl) \
          -Wl,-rpath,"$(pkg-config --variable=libdir libdtl)" && "$work/with-pkg-config"; } >"$log" 2>&1
    report pkg-config $?
else
    skip pkg-config "pkg-config is not installed"
fi

# The module file, from the prefix that was moved: compiler, pkg-config and programs find everything, and unloading
# leaves nothing.
if [ ! -d "$prefix/share/modulefiles" ]; then skip module "this package has no module file"
elif command -v modulecmd >/dev/null; then
    { ( export MODULEPATH=$prefix/share/modulefiles LOADEDMODULES= _LMFILES_=
        unset dtl_ROOT LD_LIBRARY_PATH PKG_CONFIG_PATH
        before=$(env | grep -vE '^(_|LOADEDMODULES|_LMFILES_|__MODULES.*)=' | sort)
        eval "$(modulecmd bash load dtl)" && [ "$dtl_ROOT" = "$prefix" ] && [ "$(command -v dtlrun)" = "$prefix/bin/dtlrun" ] &&
            cc "$here/consumer.c" -o "$work/with-module" -ldtl && "$work/with-module" && pkg-config --exists libdtl &&
            eval "$(modulecmd bash unload dtl)" &&
            diff <(echo "$before") <(env | grep -vE '^(_|LOADEDMODULES|_LMFILES_|__MODULES.*)=' | sort) ); } >"$log" 2>&1
    report module $?
else
    skip module "no modulecmd (environment-modules)"
fi

LD_LIBRARY_PATH=$libdir "$prefix/bin/dtl-info" >"$log" 2>&1
report dtl-info $?
(for file in dtl_comm_send.3 dtlrun.1 dtl-bench-comm.1 dtl-api.json dtl-info.bash _dtlrun dtl-ctk.fish; do
    test -s "$(find "$prefix" -name $file -o -name $file.gz)" || { echo "$file is missing"; exit 1; }
done && "$prefix/bin/dtl-info" explain dtl_comm_send DTL_ERROR_TIMEOUT DTL_TIMEOUT) >"$log" 2>&1
report manual $?
# The documents that the headers name, and the site where mdBook is installed.
(doc=$(find "$prefix/share/doc" -path '*dtl*' -name glossary.md -printf %h) pages=$(grep -rhoE 'docs/[a-z/-]+\.md' "$prefix/include" | sort -u)
for page in $pages; do test -s "$doc/${page#docs/}" || { echo "$page is missing"; exit 1; }; done
test -n "$pages" && { ! mdbook --version 2>/dev/null | grep -q ' v0\.5\.' || grep -q "reference/names.html" "$doc/index.html"; }) >"$log" 2>&1
report documents $?
"$prefix/bin/dtl-bench" comm -n 2 --quick --only barrier >"$log" 2>&1
report dtl-bench $?

for mpi in openmpi mpich; do
    if ! find "$prefix" -name dtl_mpi.c | grep -q .; then
        skip mpi-$mpi "this package has no dtl_mpi.c"
    elif ! command -v mpicc.$mpi >/dev/null; then
        skip mpi-$mpi "mpicc.$mpi is not installed"
    else
        flags=(); if [ $mpi = openmpi ]; then flags=(--allow-run-as-root --oversubscribe); fi
        { project mpi-$mpi mpi -DMPI_C_COMPILER="$(command -v mpicc.$mpi)" &&
            mpirun.$mpi "${flags[@]}" -n 2 "$work/mpi-$mpi/consumer"; } >"$log" 2>&1
        report mpi-$mpi $?
    fi
done
exit $failed
