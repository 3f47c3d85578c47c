# Builds the library and the programs with cargo. Included by CMakeLists.txt; nothing here is installed.
#
# The libraries are a cargo call of their own: while an rlib is among the crate types, link-time
# optimisation is silently off. The programs have a target folder of their own, because building them
# writes another libdtl.so of the same name, and a profile of their own (Cargo.toml). Neither waits for the other.

if(DTL_CARGO AND NOT EXISTS "${DTL_CARGO}")
  unset(DTL_CARGO CACHE) # of an earlier run, removed since
endif()
find_program(DTL_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin"
             DOC "cargo, Rust's build tool")
if(NOT DTL_CARGO)
  message(FATAL_ERROR
    "dtl: cargo (Rust ${DTL_RUST_VERSION} or newer) was not found, and the library is written in Rust. "
    "Install it with `tools/setup.sh build` or from https://rustup.rs, or name it with "
    "-DDTL_CARGO=/path/to/cargo. A prebuilt package (cmake --install, cpack) needs no cargo.")
endif()

execute_process(COMMAND "${DTL_CARGO}" --version OUTPUT_VARIABLE dtl_cargo_version
                RESULT_VARIABLE dtl_cargo_result OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" dtl_cargo_version "${dtl_cargo_version}")
if(NOT dtl_cargo_result EQUAL 0 OR dtl_cargo_version VERSION_LESS DTL_RUST_VERSION)
  message(FATAL_ERROR
    "dtl: ${DTL_CARGO} is version '${dtl_cargo_version}', and ${DTL_RUST_VERSION} or newer is needed. "
    "Run `rustup update`, or name a newer one with -DDTL_CARGO=/path/to/cargo.")
endif()
message(STATUS "dtl: cargo ${dtl_cargo_version} (${DTL_CARGO})")

set(dtl_cargo_flags --locked)
if(DTL_OFFLINE)
  if(NOT EXISTS "${DTL_VENDOR_DIR}")
    message(FATAL_ERROR
      "dtl: DTL_OFFLINE is on, but there is no folder ${DTL_VENDOR_DIR}. Run `tools/vendor.sh` on a machine with "
      "internet and copy the folder (or unpack the archive it makes) here.")
  endif()
  list(APPEND dtl_cargo_flags --offline --frozen
       --config "source.crates-io.replace-with='dtl-vendor'"
       --config "source.dtl-vendor.directory='${DTL_VENDOR_DIR}'")
endif()

# Without what follows: of a program that is not installed, cargo then reuses what it has compiled for `./run header`.
set(dtl_cargo_sources ${dtl_cargo_flags})

# Panic locations name source files. Nothing that is built names a folder of the machine that built it.
# (cargo's own `trim-paths` is not stable. RUSTFLAGS in the environment replaces these flags.)
if(DEFINED ENV{CARGO_HOME})
  set(dtl_cargo_home "$ENV{CARGO_HOME}")
else()
  set(dtl_cargo_home "$ENV{HOME}/.cargo")
endif()
# Where rustup's component rust-src is installed, rustc names the standard library's sources by their paths there.
get_filename_component(dtl_cargo_folder "${DTL_CARGO}" DIRECTORY)
find_program(dtl_rustc rustc HINTS "${dtl_cargo_folder}")
mark_as_advanced(dtl_rustc)
set(dtl_sysroot "")
if(dtl_rustc)
  execute_process(COMMAND "${dtl_rustc}" --print sysroot WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE dtl_sysroot OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(dtl_remap "")
if(dtl_sysroot)
  set(dtl_remap "'--remap-path-prefix=${dtl_sysroot}/lib/rustlib/src/rust=/rustc',")
endif()
foreach(pair IN ITEMS "${dtl_cargo_home}=cargo" "${CMAKE_CURRENT_SOURCE_DIR}=dtl" "${DTL_VENDOR_DIR}=vendor"
        "${CMAKE_CURRENT_BINARY_DIR}=build")
  string(APPEND dtl_remap "'--remap-path-prefix=${pair}',")
endforeach()
list(APPEND dtl_cargo_flags --config "build.rustflags=[${dtl_remap}]")

# Cross build: the target of a toolchain file, or the one that DTL_RUST_TARGET names.
set(DTL_RUST_TARGET "" CACHE STRING "Rust's name of the target; empty: this machine, or that of the toolchain file")
set(DTL_RUST_LINKER "" CACHE FILEPATH
  "C compiler that links the Rust code for DTL_RUST_TARGET; empty: that of the toolchain file, or cargo's choice")
set(dtl_target "${DTL_RUST_TARGET}")
if(DTL_RUST_LINKER AND NOT dtl_target)
  message(FATAL_ERROR "dtl: DTL_RUST_LINKER is for one target: give DTL_RUST_TARGET as well (rustc -vV shows this machine's).")
endif()
if(NOT dtl_target AND CMAKE_CROSSCOMPILING)
  set(dtl_machines x86_64=x86_64 aarch64=aarch64 arm64=aarch64 ppc64le=powerpc64le riscv64=riscv64gc)
  foreach(pair IN LISTS dtl_machines)
    if(pair MATCHES "^${CMAKE_SYSTEM_PROCESSOR}=(.*)$")
      set(dtl_target "${CMAKE_MATCH_1}-unknown-linux-gnu")
    endif()
  endforeach()
  if(NOT dtl_target)
    message(FATAL_ERROR
      "dtl: Rust's name of the target is not known for CMAKE_SYSTEM_PROCESSOR '${CMAKE_SYSTEM_PROCESSOR}'. "
      "Give it, for example -DDTL_RUST_TARGET=s390x-unknown-linux-gnu (`rustc --print target-list` lists them).")
  endif()
endif()
set(dtl_cargo_env "")
set(dtl_linker cc) # rustc's choice
set(dtl_out "") # below cargo's target folders
if(dtl_target)
  if(dtl_rustc)
    execute_process(COMMAND "${dtl_rustc}" --print target-libdir --target "${dtl_target}"
      WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE dtl_target_std OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT EXISTS "${dtl_target_std}")
      message(FATAL_ERROR
        "dtl: Rust's standard library for ${dtl_target} is not installed. Run `rustup target add ${dtl_target}`.")
    endif()
  endif()
  list(APPEND dtl_cargo_flags --target "${dtl_target}")
  set(dtl_out "${dtl_target}/")
  message(STATUS "dtl: for ${dtl_target}")
endif()
set(dtl_upper "${dtl_target}")
if(NOT dtl_upper AND dtl_rustc)
  execute_process(COMMAND "${dtl_rustc}" -vV WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE dtl_upper ERROR_QUIET)
  string(REGEX REPLACE ".*host: ([^\n]*)\n.*" "\\1" dtl_upper "${dtl_upper}")
endif()
string(TOUPPER "${dtl_upper}" dtl_upper)
string(REPLACE "-" "_" dtl_upper "${dtl_upper}")
if(dtl_target AND DTL_RUST_LINKER)
  set(dtl_linker "${DTL_RUST_LINKER}")
elseif(dtl_target AND CMAKE_CROSSCOMPILING)
  set(dtl_linker "${CMAKE_C_COMPILER}")
elseif(DEFINED ENV{CARGO_TARGET_${dtl_upper}_LINKER})
  set(dtl_linker "$ENV{CARGO_TARGET_${dtl_upper}_LINKER}")
endif()
if(NOT dtl_linker STREQUAL "cc")
  set(dtl_cargo_env "CARGO_TARGET_${dtl_upper}_LINKER=${dtl_linker}")
endif()
# Functions of libdtl.so have a version, which changes with the soname.
set(dtl_library_env "CARGO_TARGET_${dtl_upper}_LINKER=${CMAKE_CURRENT_SOURCE_DIR}/cmake/link-library.sh"
    "DTL_BUILD_LINKER=${dtl_linker}" "DTL_BUILD_SYMBOLS=DTL_${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
# What the build itself runs: the programs write their manual pages and completions.
set(dtl_emulator "")
if(CMAKE_CROSSCOMPILING)
  set(dtl_emulator ${CMAKE_CROSSCOMPILING_EMULATOR})
  if(DTL_DOCS AND NOT dtl_emulator)
    message(STATUS
      "dtl: manual pages, completions and the site are left out: the programs write them, and a cross build cannot "
      "run them without CMAKE_CROSSCOMPILING_EMULATOR.")
    set(DTL_DOCS OFF)
  endif()
endif()

set(DTL_STAGE "${CMAKE_CURRENT_BINARY_DIR}/stage")
set(DTL_SHARED_FILE "${DTL_STAGE}/lib/libdtl.so.${PROJECT_VERSION}")
set(DTL_SYMBOLS_FILE "${DTL_STAGE}/lib/.debug/libdtl.so.${PROJECT_VERSION}.debug")
set(DTL_STATIC_FILE "${DTL_STAGE}/lib/libdtl.a")
set(dtl_lib_target "${CMAKE_CURRENT_BINARY_DIR}/cargo-lib")
set(dtl_bin_target "${CMAKE_CURRENT_BINARY_DIR}/cargo-bin")
# A make that does not know cargo as a make closes its jobserver, and rustc warns that it is named all the same.
set(dtl_env "${CMAKE_COMMAND}" -E env --unset=MAKEFLAGS --unset=MFLAGS)
set(dtl_cargo ${dtl_env} ${dtl_cargo_env} "${DTL_CARGO}")
file(MAKE_DIRECTORY "${DTL_STAGE}/lib" "${DTL_STAGE}/bin")

# Most of the library runs once. So only small functions are inlined, and loops of unknown length are not unrolled. The
# attribute #[inline] marks the functions of the data paths (docs/adr/0047-size.md).
set(dtl_size_flags -Cllvm-args=-inline-threshold=100 -Cllvm-args=-unroll-runtime=false)

# cargo knows best what is up to date, so it is asked each time. One call makes both: they are the same code, optimised once.
add_custom_target(dtl_shared_build ALL
  COMMAND ${dtl_env} ${dtl_library_env} "${DTL_CARGO}" rustc --release ${dtl_cargo_flags} --lib --crate-type cdylib,staticlib
          --target-dir "${dtl_lib_target}" -- ${dtl_size_flags}
  COMMAND "${CMAKE_COMMAND}" "-DINPUT=${dtl_lib_target}/${dtl_out}release/libdtl.so" "-DOUTPUT=${DTL_SHARED_FILE}"
          "-DSYMBOLS=${DTL_SYMBOLS_FILE}" "-DOBJCOPY=${CMAKE_OBJCOPY}"
          -P "${CMAKE_CURRENT_SOURCE_DIR}/cmake/split-symbols.cmake"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "libdtl.so.${PROJECT_VERSION}" "${DTL_STAGE}/lib/${DTL_SONAME}"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "${DTL_SONAME}" "${DTL_STAGE}/lib/libdtl.so"
  WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
  BYPRODUCTS "${DTL_SHARED_FILE}"
  COMMENT "cargo: libdtl.so and libdtl.a" USES_TERMINAL VERBATIM)

add_custom_target(dtl_static_build ALL
  COMMAND "${CMAKE_COMMAND}" "-DINPUT=${dtl_lib_target}/${dtl_out}release/libdtl.a" "-DOUTPUT=${DTL_STATIC_FILE}"
          "-DSYMBOLS=${CMAKE_CURRENT_SOURCE_DIR}/tests/dtl.symbols"
          "-DLINKER=${CMAKE_LINKER}" "-DOBJCOPY=${CMAKE_OBJCOPY}" "-DAR=${CMAKE_AR}"
          -P "${CMAKE_CURRENT_SOURCE_DIR}/cmake/static-archive.cmake"
  BYPRODUCTS "${DTL_STATIC_FILE}"
  COMMENT "libdtl.a: only dtl_ names" VERBATIM)
add_dependencies(dtl_static_build dtl_shared_build)

set(dtl_copy_programs "")
set(dtl_packages "")
foreach(program IN LISTS DTL_PROGRAMS)
  list(APPEND dtl_packages -p "${program}")
  list(APPEND dtl_copy_programs COMMAND "${CMAKE_COMMAND}" -E copy_if_different
       "${dtl_bin_target}/${dtl_out}programs/${program}" "${DTL_STAGE}/bin/${program}")
endforeach()
if(DTL_DOCS)
  list(APPEND dtl_packages -p dtl-manual)
  # Manual pages and shell completions, as the programs write them.
  set(DTL_MANUAL "${DTL_STAGE}/manual")
  list(APPEND dtl_copy_programs COMMAND ${dtl_emulator} "${dtl_bin_target}/${dtl_out}programs/dtl-manual" "${DTL_MANUAL}/man3")
  foreach(program IN LISTS DTL_PROGRAMS)
    list(APPEND dtl_copy_programs COMMAND ${dtl_emulator} "${DTL_STAGE}/bin/${program}" --generate "${DTL_MANUAL}")
  endforeach()
endif()
add_custom_target(dtl_programs_build ALL
  COMMAND ${dtl_cargo} build --profile programs ${dtl_cargo_flags} ${dtl_packages} --target-dir "${dtl_bin_target}"
  ${dtl_copy_programs}
  WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
  COMMENT "cargo: programs" VERBATIM)
