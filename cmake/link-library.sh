#!/bin/sh
# Links libdtl.so: gives its functions the version DTL_BUILD_SYMBOLS (DTL_0.2), then calls the linker DTL_BUILD_LINKER.
# cmake/cargo.cmake sets both, and names this script as cargo's linker.
#
# rustc writes the list of exported functions as a version script without a version name, and GNU ld accepts no second
# script beside it. So the name is put into that list (docs/adr/0049-symbol-versions.md).
for word; do
    case $word in
    -Wl,--version-script=*)
        list=${word#-Wl,--version-script=}
        # Procedural macros are linked by this script too.
        if grep -q ' dtl_init;' "$list"; then sed -i "1s/^{/${DTL_BUILD_SYMBOLS:?} {/" "$list" || exit; fi
        ;;
    esac
done
exec "$DTL_BUILD_LINKER" "$@"
