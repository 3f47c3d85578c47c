#!/usr/bin/env bash
# Two minor versions of the library beside each other. The second is built from a copy of the tree with the next minor version
# (not optimised). Both prefixes are moved after the installation. Then: module files switch, pkg-config and CMake choose, a
# program keeps the version that it is linked with, and both in one process do not disturb each other.
#
#     two_versions.sh BUILD [FOLDER]    BUILD: a build of this tree. FOLDER: for the second (BUILD/two-versions; 4 GB); what
#                                       is there is used again
#
# Prints a line for each case; exit status 1 if one failed.
set -uo pipefail
build=$(cd "${1:?usage: two_versions.sh BUILD [FOLDER]}" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "${2:-$build/two-versions}" && folder=$(cd "${2:-$build/two-versions}" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
status=0 log=$work/log
now=$(sed -nE 's/^version = "([0-9.]+)"/\1/p' Cargo.toml | head -n 1)
IFS=. read -r major minor _ <<<"$now"
next=$major.$((minor + 1)).0
report() { if [ "$2" -eq 0 ]; then echo "PASS $1"; else echo "FAIL $1"; tail -n 20 "$log" | sed 's/^/    /'; status=1; fi; }

if ! [ -e "$folder/build/done" ]; then
    rm -rf "$folder/tree" && mkdir -p "$folder/tree" &&
        git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/tree" &&
        (cd "$folder/tree" && grep -rlF -e "\"$now\"" -e "so.$major.$minor" --include=Cargo.toml --include='*.rs' --include='*.h' . |
            xargs sed -i "s/\"$now\"/\"$next\"/g; s/so\.$major\.$minor\b/so.$major.$((minor + 1))/g" &&
            sed -i "s/^#define DTL_VERSION_MINOR .*/#define DTL_VERSION_MINOR $((minor + 1))/" include/*.h &&
            cargo update -q --workspace --offline &&
            export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 &&
            cmake -B "$folder/build" -DDTL_DOCS=OFF && cmake --build "$folder/build") >"$folder/log" 2>&1 &&
        touch "$folder/build/done" || { tail "$folder/log"; exit 1; }
fi
# moved BUILD NAME: installs, and moves what was installed.
moved() {
    DESTDIR=$work/stage-$2 cmake --install "$1" --prefix /opt/first >"$log" 2>&1 && mkdir -p "$work/moved" &&
        mv "$work/stage-$2/opt/first" "$work/moved/$2"
}
a=$work/moved/$now b=$work/moved/$next
moved "$build" "$now" && moved "$folder/build" "$next" && ! grep -rlE "/opt/first" "$work/moved" --include='*.cmake' --include='*.pc' >"$log"
report "both prefixes are moved" $?
[ $status -eq 0 ] || exit 1

# A program prints the version of the library that it runs with, after it has used it.
cat >"$work/version.c" <<'END'
#include <dtl.h>
int main(void)
{
    DTL_CHECK(dtl_init(NULL));
    printf("header %s, library %s\n", DTL_VERSION_STRING, dtl_version_string());
    return dtl_finalize() == DTL_SUCCESS ? 0 : 1;
}
END
expect() { # NAME VERSION COMMAND...: the program says this version, twice
    local name=$1 version=$2
    shift 2
    "$@" >>"$log" 2>&1 && grep -qx "header $version, library $version" "$log"
    report "$name" $?
}
for version in "$now" "$next"; do
    prefix=$work/moved/$version
    PKG_CONFIG_PATH=$a/lib/pkgconfig:$b/lib/pkgconfig
    [ "$version" = "$now" ] || PKG_CONFIG_PATH=$b/lib/pkgconfig:$a/lib/pkgconfig
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046 # several options
    cc "$work/version.c" $(pkg-config --cflags --libs "libdtl = $version") -Wl,-rpath,"$(pkg-config --variable=libdir libdtl)" \
        -o "$work/pkg-config-$version" >"$log" 2>&1
    expect "pkg-config chooses $version" "$version" "$work/pkg-config-$version"
    mkdir -p "$work/cmake"
    printf '%s\n' "cmake_minimum_required(VERSION 3.16)" "project(version C)" "find_package(dtl \${WANTED} REQUIRED)" \
        "add_executable(version ../version.c)" "target_link_libraries(version dtl::dtl)" >"$work/cmake/CMakeLists.txt"
    # Both prefixes, in both orders: the version decides.
    for path in "$a;$b" "$b;$a"; do
        rm -rf "$work/cmake/build"
        cmake -S "$work/cmake" -B "$work/cmake/build" -DWANTED="${version%.*}" -DCMAKE_PREFIX_PATH="$path" >"$log" 2>&1 &&
            cmake --build "$work/cmake/build" >"$log" 2>&1
        expect "find_package(dtl ${version%.*}) chooses $version" "$version" "$work/cmake/build/version"
    done
done
if command -v modulecmd >/dev/null; then
    export MODULEPATH=$a/share/modulefiles:$b/share/modulefiles LOADEDMODULES= _LMFILES_=
    unset PKG_CONFIG_PATH dtl_ROOT LD_LIBRARY_PATH
    for version in "$now" "$next"; do
        action=load; [ "$version" = "$now" ] || action="switch dtl/$now"
        # shellcheck disable=SC2086 # two words
        eval "$(modulecmd bash $action "dtl/$version" 2>"$log")"
        cc "$work/version.c" -ldtl -o "$work/module-$version" >>"$log" 2>&1 &&
            [ "$(command -v dtlrun)" = "$work/moved/$version/bin/dtlrun" ]
        report "module $action dtl/$version: the programs" $?
        expect "module $action dtl/$version" "$version" "$work/module-$version"
    done
    # The module of the next version is loaded.
    expect "a program keeps its version under the other's module" "$now" "$work/pkg-config-$now"
    "$work/module-$now" >"$log" 2>&1
    [ $? -eq 127 ] && grep -q "libdtl.so.$major.$minor: cannot open shared object file" "$log"
    report "a program without a run path needs its module" $?
    eval "$(modulecmd bash unload dtl)"
fi

# Both in one process.
shared() { cc -shared -fPIC -I"$1/include" tests/consumer/version/user.c -L"$1/lib" -ldtl -Wl,-rpath,"$1/lib" -o "$2"; }
shared "$b" "$work/user.so" && cc -I"$a/include" tests/consumer/version/main.c -L"$a/lib" -ldtl -Wl,-rpath,"$a/lib" -o "$work/main" &&
    { "$work/main" "$work/user.so" >"$log" 2>&1; [ $? -eq 2 ]; } && grep -q "^status 0: version $next" "$log"
report "a library of $next in a program of $now calls its own version" $?
# A program that is linked with neither, as Python is: each library has its own version.
cat >"$work/neither.c" <<'END'
#include <dlfcn.h>
#include <stddef.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int (*use)(void);
        void *user = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (user == NULL || (*(void **)&use = dlsym(user, "use")) == NULL || use() != 0) return i;
    }
    return argc > 2 ? 0 : 1;
}
END
shared "$a" "$work/own.so" && cc "$work/neither.c" -ldl -o "$work/neither" && "$work/neither" "$work/own.so" "$work/user.so" >"$log" 2>&1
report "libraries of $now and $next, both local, do not disturb each other" $?
exit $status
