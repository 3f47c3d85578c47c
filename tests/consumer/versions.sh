# The part of run.sh that is about several versions: the libraries of a plugin's own, and a second minor version of the
# library in a process. Sourced by it; uses its functions. tests/full/two_versions.sh has two real versions.
info=$prefix/bin/dtl-info

# A library beside the plugin is found in the prefix, and nowhere else after the build folder is gone.
{ project private private "${into[@]}" && cmake --install "$work/private" &&
    rm -rf "$work/private" && ! [ -e "$folder/libnumber.so" ] && "$info" --probe "$folder/libprivate.so"; } >"$log" 2>&1
report plugin-finds-its-library $?

# Without a run path the text says what to do.
mkdir -p "$work/lost"
{ cc -shared -fPIC -Wl,-soname,libnumber.so.1 "$here/private/number.c" -o "$work/lost/libnumber.so.1" &&
    cc -shared -fPIC -I"$prefix/include" "$here/private/plugin.c" "$work/lost/libnumber.so.1" -o "$work/lost/lost.so" &&
    ! "$info" --probe "$work/lost/lost.so" >"$log" 2>&1 &&
    tr -s ' \n' ' ' <"$log" | grep -qF "libnumber.so.1: cannot open shared object file: No such file or directory; put that library beside the plugin and link the plugin with -Wl,-rpath,'\$ORIGIN'"; } >>"$log" 2>&1
report plugin-without-run-path $?

# The stand-in for another version has its soname, not its code: what is tested is which functions are reached.
{ cc -shared -fPIC -I"$prefix/include" -Wl,-soname,libdtl.so.0.9 "$here/version/other.c" -o "$work/lost/libdtl.so.0.9" &&
    cc -shared -fPIC -I"$prefix/include" "$here/private/plugin.c" "$here/private/number.c" -Wl,--no-as-needed \
        "$work/lost/libdtl.so.0.9" -Wl,-rpath,"$work/lost" -o "$work/lost/linked.so" &&
    ! "$info" --probe "$work/lost/linked.so" >"$log" 2>&1 &&
    tr -s ' \n' ' ' <"$log" | grep -qF "it is linked with libdtl.so.0.9, and this library is version"; } >>"$log" 2>&1
report plugin-of-another-version $?

{ cc -shared -fPIC -I"$prefix/include" "$here/version/user.c" "$work/lost/libdtl.so.0.9" -Wl,-rpath,"$work/lost" -o "$work/lost/user.so" &&
    cc -I"$prefix/include" "$here/version/main.c" "$libdir/libdtl.so" -Wl,-rpath,"$libdir" -ldl -o "$work/lost/main" &&
    "$work/lost/main" "$work/lost/user.so" >"$log" 2>&1 &&
    grep -qF "libdtl.so.0.9 is in this process, too, and has the same functions" "$log"; } >>"$log" 2>&1
report two-versions-in-a-process $?
