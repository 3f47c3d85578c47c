# The plugins that are written in Rust, and the built-in backend "opencl" for comparison. Included by plugins.cmake,
# whose functions it uses.

# Not with the examples of the Rust interface in one call: cargo would then compile both with the same features, and
# plugins do not link libdtl.so. cargo knows best what is up to date, so it is asked each time.
set(rust_target "${CMAKE_CURRENT_BINARY_DIR}/cargo-rust")
set(rust_packages unix)
if(dtl_cargo_version VERSION_GREATER_EQUAL 1.87) # rust-version of the package
  list(APPEND rust_packages opencl3)
endif()
list(TRANSFORM rust_packages REPLACE "(.+)" "--package=dtl-plugin-\\1" OUTPUT_VARIABLE rust_arguments)
list(TRANSFORM rust_packages REPLACE "(.+)" "${rust_target}/release/libdtl_plugin_\\1.so" OUTPUT_VARIABLE rust_files)
add_custom_target(build_tests_plugins_rust
  COMMAND ${dtl_cargo} build --release ${dtl_cargo_flags} --manifest-path bindings/rust/Cargo.toml ${rust_arguments}
          --target-dir "${rust_target}"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${bin}/plugins/rust"
  COMMAND "${CMAKE_COMMAND}" -E copy_if_different ${rust_files} "${bin}/plugins/rust"
  WORKING_DIRECTORY "${top}" COMMENT "cargo: plugins in Rust" VERBATIM)
add_dependencies(dtl_tests build_tests_plugins_rust)

foreach(name ${rust_packages})
  plugin_test(rust.${name}.links_nothing rust 1 "" "${top}/tests/plugins/links_nothing.sh"
    "${bin}/plugins/rust/libdtl_plugin_${name}.so")
endforeach()

# The same tests pass with opencl3 as with the built-in backend, and the others are skipped for the same reasons.
if(NOT opencl3 IN_LIST rust_packages)
  skipped(plugins/rust.opencl3.conformance "cargo is older than 1.87")
elseif(DTL_TEST_PYTHON)
  plugin_test(rust.opencl3.conformance rust 2 "" "${DTL_TEST_PYTHON}" "${top}/tests/plugins/same_tests.py"
    "${DTL_STAGE}/bin/dtl-ctk" opencl "${bin}/plugins/rust/libdtl_plugin_opencl3.so")
else()
  skipped(plugins/rust.opencl3.conformance "python3 is not installed")
endif()

# The communicator, by what all communicators are tested by, and in programs in C that select it by DTL_COMM.
foreach(ranks 2 4)
  plugin_test(rust.unix.conformance.${ranks} rust ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run
    --plugin "${bin}/plugins/rust/libdtl_plugin_unix.so" --ranks ${ranks} --component comm --timeout 120s)
  plugin_test(rust.unix.ctk.${ranks} rust ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run --kind unix --ranks ${ranks} --cases 60)
  foreach(name collectives random)
    plugin_test(rust.unix.${name}.${ranks} rust ${ranks} "DTL_COMM=unix"
      "${dtlrun}" -n ${ranks} "${bin}/tests/c/test_comm_${name}.gcc-c11" unix)
  endforeach()
endforeach()
plugin_test(rust.unix.death rust 4 "DTL_COMM=unix" "${bin}/tests/c/test_comm_death.gcc-c11")
plugin_test(rust.unix.shrink rust 8 "DTL_COMM=unix" "${bin}/tests/c/test_comm_shrink.gcc-c11")
if(DTL_BUILD_EXAMPLES)
  plugin_test(rust.unix.example rust 4 "DTL_COMM=unix" "${dtlrun}" -n 4 "${bin}/examples-c/ring.gcc")
endif()
