#!/bin/bash
# dtl_add_environment and dtl_add_backend against an installed prefix: what they find, link, leak, refuse and install.
#     tests/cmake/run.sh BUILD_DIR       says what failed; exit status 1 if something did
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix backends=$work/prefix/lib/dtl/backends
log=$work/log
failed=0
export CMAKE_PREFIX_PATH=$prefix:$here/packages

report() { # name status
    if [ "$2" -ne 0 ]; then echo "FAIL $1"; sed 's/^/    /' "$log"; failed=1; fi
}
configure() { # name folder arguments… : the compiler need not be tried
    local name=$1 folder=$2; shift 2
    cmake -S "$here/$folder" -B "$work/$name" -DCMAKE_C_COMPILER_FORCED=ON -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib "$@"
}
refused() { # name expected-text commands [arguments…] : configuring fails with the text (spaces and line ends are one)
    local name=$1 text=$2 status
    echo "$3" >"$work/code.cmake"; shift 3
    if configure refused bad "-DCODE=$work/code.cmake" "$@" >"$log" 2>&1; then
        echo "it was not refused" >>"$log"; status=1
    else tr -s ' \n' ' ' <"$log" | grep -qF -- "$text"; status=$?; fi
    [ $status -eq 0 ] || echo "wanted: $text" >>"$log"
    report "$name" $status
    rm -rf "$work/refused"
}

cmake --install "$build" --prefix "$prefix" >"$log" 2>&1
report install $?
[ $failed -eq 0 ] || exit 1

{ configure good good && cmake --build "$work/good" && cmake --install "$work/good"; } >"$log" 2>&1
report "backends with environments" $?
{ cat "$backends/"*.dtl.* && for line in 'plug:environments = \["blas>=3.18.1", "newer"\]' 'plug:priority = 50' 'plug:kind = "module"' \
    'plug:file = "libplug.so"' 'plug:entry = "dtl_plugin_entry_v1"' 'keep:kind = "static"' 'keep:file = "libdtl_backend_keep.a"' \
    'keep:environments = \["blas"\]' 'keep:description = "a static one"'; do
    grep -qx "${line#*:}" "$backends/lib${line%%:*}.dtl.toml" || { echo "no $line"; false; } || break
done; } >"$log" 2>&1
report manifests $?
{ nm -D --defined-only "$backends/libplug.so"; [ "$(nm -D --defined-only "$backends/libplug.so" | sed 's/.* //')" = dtl_plugin_entry_v1 ]; } >"$log" 2>&1
report "nothing but the entry is visible" $?

{ configure user user && cmake --build "$work/user" && "$work/user/user" &&
    nm "$work/user/user" | grep -q ' T dtl_register_backend_keep'; } >"$log" 2>&1
report "static backend of an installed package" $?

two="dtl_add_environment(NAME a VARIABLES V=1)
dtl_add_environment(NAME b VARIABLES V=2)"
refused "variables in conflict" "environments a and b set V to different values: '1' (a) and '2' (b)" "$two
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS a b)"
refused "variables in conflict over two backends" "dtl_add_backend(y): environments a and b set V" "$two
dtl_add_backend(NAME x STATIC SOURCES x.c ENVIRONMENTS a)
dtl_add_backend(NAME y STATIC SOURCES x.c ENVIRONMENTS b)"
refused "unknown environment" "there is no environment c (a -> c); declare it before" \
    "dtl_add_environment(NAME a DEPENDS c)
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS a)"
refused "circle" "in a circle: a -> b -> a" "dtl_add_environment(NAME a DEPENDS b)
dtl_add_environment(NAME b DEPENDS a)
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS a)"
refused "version" "environment a has version '3.18.1', and a>=3.20 is wanted (b -> a)" "dtl_add_environment(NAME a VERSION 3.18.1)
dtl_add_environment(NAME b DEPENDS a>=3.20)
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS b)"
refused "another description" "declared before with another VERSION: '1', and now '2'" "dtl_add_environment(NAME a VERSION 1)
dtl_add_environment(NAME a VERSION 2)"
refused "highest CMake" "environment b needs CMake 99.10" "dtl_add_environment(NAME a MINIMUM_CMAKE 99.9)
dtl_add_environment(NAME b MINIMUM_CMAKE 99.10 DEPENDS a)
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS b)"
refused "package that is not there" "environment a needs the package 'nowhere'" "dtl_add_environment(NAME a PACKAGES nowhere)
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS a)"
refused "highest version of a package" "environment a needs the package 'fakeblas;3.100'" \
    "dtl_add_environment(NAME a PACKAGES \"fakeblas 3.20\" VARIABLES FAKE_VENDOR=OpenBLAS)
dtl_add_environment(NAME b PACKAGES \"fakeblas 3.100\")
dtl_add_backend(NAME x SOURCES x.c ENVIRONMENTS a b)"
refused "bad variable" "VARIABLES 'V': write" "dtl_add_environment(NAME a VARIABLES V)"
refused "bad name" "NAME 'a/b'" "dtl_add_environment(NAME a/b)"

component="find_package(dtl 0.2 REQUIRED COMPONENTS"
refused "absent component" "component gone: there is no such component, and no plugin of this name" "$component gone)" -DWITHOUT_DTL=1
CMAKE_PREFIX_PATH=$prefix refused "component without its package" "could not be found because dependency fakempi could not be found. (environment mpi)" \
    "$component keep)" -DWITHOUT_DTL=1
refused "component in conflict" "environments mine and blas set FAKE_VENDOR to different values: 'MKL' (mine) and 'OpenBLAS' (blas)" \
    "dtl_add_environment(NAME mine VARIABLES FAKE_VENDOR=MKL)
dtl_add_backend(NAME x STATIC SOURCES x.c ENVIRONMENTS mine)
$component keep)"
sed -i 's/^abi = .*/abi = [90, 91]/' "$backends/libplug.dtl.toml"
refused "component of another ABI" "works with ABI versions 90 to 91" "$component plug)" -DWITHOUT_DTL=1
[ -z "${SHOW:-}" ] || cat "$backends/"*.dtl.*
exit $failed
