# The part of run.sh that is about plugins: dtl_add_backend MODULE and SHARED, components, the examples.
# Sourced by it; uses its functions.
folder=$libdir/dtl/backends
into=("-DCMAKE_INSTALL_PREFIX=$prefix" "-DCMAKE_INSTALL_LIBDIR=${libdir#"$prefix/"}")

refused() { # name expected-text project cmake-arguments… : building the project must fail with the text
    local name=$1 text=$2; shift 2
    if project "refused" "$@" >"$log" 2>&1; then echo "it was not refused" >>"$log"; report "$name" 1
    else tr -s ' \n' ' ' <"$log" | grep -qF "$text"; report "$name" $?; fi
    rm -rf "$work/refused"
}
misuse() { refused "misuse: $2" "$2" misuse "-DARGUMENTS=$1"; }

{ project plugin plugin "${into[@]}" && "$work/plugin/consumer" &&
    cmake --install "$work/plugin" && [ -e "$folder/libtwo.parts.so" ] && ! [ -e "$folder/libshared.so" ] &&
    grep -qx 'components = \["memory", "exec"\]' "$folder/libtwo.parts.dtl.toml" &&
    grep -qx 'environments = \["openblas", "mpi"\]' "$folder/libtwo.parts.dtl.toml" &&
    ! ldd "$folder/libtwo.parts.so" | grep libdtl; } >"$log" 2>&1
report plugin $?

# Both forms of one backend, and the static one as an installed component.
{ project both both "${into[@]}" && "$work/both/consumer" &&
    cmake --install "$work/both" && grep -qx 'static = "libdtl_backend_both_forms.a"' "$folder/libboth-forms.dtl.toml" &&
    project linked linked -DWANTED=both-forms && "$work/linked/consumer" | grep "the memory of both-forms is used up"; } >"$log" 2>&1
report both $?

for name in pool workers tcp sim sim_cpp; do
    { project "example-$name" "../../examples-plugins/$name" "${into[@]}" &&
        cmake --install "$work/example-$name" && project "component-$name" component "-DWANTED=$name" &&
        [ -e "$work/component-$name/lib$name.so" ]; } >"$log" 2>&1
    report "example-$name" $?
done

sed 's/libpool.so/libgone.so/' "$folder/libpool.dtl.toml" >"$folder/libbroken.dtl.toml"
refused "component without its file" "but its plugin" component -DWANTED=broken
sed 's/^abi = .*/abi = [90, 91]/' "$folder/libpool.dtl.toml" >"$folder/libnew.dtl.toml"
refused "component of a newer ABI" "works with ABI versions 90 to 91, and this package has" component -DWANTED=new
rm "$folder/libbroken.dtl.toml" "$folder/libnew.dtl.toml"
refused "component that nobody installed" "Known: MPI" component -DWANTED=nothing

misuse "NAME;x;SHARED;MODULE;STATIC;SOURCES;no_entry.c" "MODULE and SHARED are both plugins"
misuse "NAME;x;STATIC;SOURCES;no_entry.c" "defines neither dtl_plugin_entry_v1 nor dtl_backend_x_table"
misuse "NAME;x;MODULE;SOURCES;undefined.c" nowhere_defined
misuse "NAME;x;STATIC;SHARED;SOURCES;undefined.c" nowhere_defined
misuse "NAME;a/b;MODULE;SOURCES;no_entry.c;COMPONENTS;comm" "NAME 'a/b'"
misuse "MODULE;SOURCES;no_entry.c;COMPONENTS;comm" "NAME ''"
misuse "NAME;x;MODULE;COMPONENTS;comm" "SOURCES are missing"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;ENVIRONMENTS;nobody" "there is no environment nobody (nobody)"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;memories" "COMPONENTS 'memories'"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm;PRIORITY;high" "PRIORITY 'high'"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm;PRIORITY" "nothing follows PRIORITY"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm;AUTO_REGISTER" "AUTO_REGISTER is for STATIC"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm;DESCRIPTION;say \"hi\"" "no quotation marks"
misuse "LIBRARY;NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm" "unknown argument LIBRARY"
misuse "NAME;x;MODULE;SOURCES;no_entry.c;COMPONENTS;comm" "does not export dtl_plugin_entry_v1"
misuse "NAME;x;MODULE;SOURCES;calls_library.c;COMPONENTS;comm" "calls dtl_backend_set_error"

# From the template to a passing backend: what docs/how-to/new-backend.md says, and how much there is to write.
template() { # name components
    local name=$1 made=$work/new-$1
    "$prefix/bin/dtl-info" new-backend "$name" --components "$2" --dir "$made" &&
        cmake -S "$made" -B "$made/build" -DCMAKE_PREFIX_PATH="$prefix" "${into[@]}" &&
        cmake --build "$made/build" && ctest --test-dir "$made/build" | tee "$work/ctest" && grep -q "$name.loads .* Passed" "$work/ctest" &&
        grep -q "$name.conformance .*Skipped" "$work/ctest" &&
        cp -r "$made" "$made.before" && cp "$prefix/share/dtl/examples-plugins/steps/$name/"*.c "$made" &&
        sed -i 's/\*out_yes = 0; .*/*out_yes = 1;/' "$made/plugin.c" && cmake --build "$made/build" &&
        ctest --test-dir "$made/build" --output-on-failure | tee "$work/ctest" &&
        grep -q "$name.conformance .* Passed" "$work/ctest" && cmake --install "$made/build" &&
        project "component-$name" component "-DWANTED=$name"
}
added() { # name : lines of C that are not in the template, without empty ones and those that are comments only
    diff -r --exclude=build "$work/new-$1.before" "$work/new-$1" | grep '^>' | grep -vc '^> *$\|^> */\*\|^> *\*.*\*/$'
}
# The exec component works as it is written.
for language in c c++; do
    { "$prefix/bin/dtl-info" new-backend npu --components exec --language $language --dir "$work/npu-$language" &&
        cmake -S "$work/npu-$language" -B "$work/npu-$language/build" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$work/npu-$language/build" && ctest --test-dir "$work/npu-$language/build" | tee "$work/ctest" &&
        grep -q "npu.loads .* Passed" "$work/ctest" && grep -q "npu.conformance .* Passed" "$work/ctest"; } >"$log" 2>&1
    report "template-exec-$language" $?
done
# The function of the template that sets a failure's text works in both forms.
template_forms() {
    local made=$work/new-forms
    "$prefix/bin/dtl-info" new-backend forms --components memory --dir "$made" &&
        sed -i 's/\*out_yes = 0; .*/*out_yes = 1;/' "$made/plugin.c" && sed -i 's/NAME forms MODULE/& STATIC/' "$made/CMakeLists.txt" &&
        cmake -S "$made" -B "$made/build" -DCMAKE_PREFIX_PATH="$prefix" "${into[@]}" \
            -DCMAKE_EXPORT_COMPILE_COMMANDS=ON &&
        cmake --build "$made/build" && cmake --install "$made/build" &&
        [ "$(grep -c '"command":.*-Werror.*memory\.c' "$made/build/compile_commands.json")" = 2 ] &&
        project forms linked -DWANTED=forms && "$work/forms/consumer" | grep "memory_alloc is not written yet"
}
template_forms >"$log" 2>&1
report template-forms $?
# STATIC alone makes no file that a test could load: there are no tests. In a project without C it can be registered, too.
template_static() {
    local made=$work/new-alone
    "$prefix/bin/dtl-info" new-backend alone --components memory,exec --language c++ --dir "$made" &&
        sed -i 's/NAME alone MODULE/NAME alone STATIC/' "$made/CMakeLists.txt" &&
        cmake -S "$made" -B "$made/build" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$made/build" &&
        nm "$made/build/libdtl_backend_alone.a" | grep -q ' T dtl_register_backend_alone$' &&
        ctest --test-dir "$made/build" 2>&1 | tee "$work/ctest" && grep -q "No tests were found" "$work/ctest"
}
template_static >"$log" 2>&1
report template-static $?

for name in ram uds; do
    { if [ $name = uds ]; then template uds comm; else template ram device,memory,transfer; fi &&
        lines=$(added $name) && echo "$lines lines" && [ "$lines" -gt 10 ] && [ "$lines" -le 150 ]; } >"$log" 2>&1
    report "template-$name" $?
done
