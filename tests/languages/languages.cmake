# The golden program: one program in each language, with one output, also in a job whose ranks are in different
# languages. Included by tests/CMakeLists.txt after fortran/fortran.cmake, whose functions and variables it uses.

set(languages "${top}/tests/languages")
set(golden "${bin}/tests/languages/golden")
set(golden_programs "")   # a command for each language
file(MAKE_DIRECTORY "${bin}/tests/languages")

# golden_test NAME LAUNCHER…: compares the output of five ranks.
function(golden_test name)
  add_test(NAME "tests/languages/${name}" COMMAND "${languages}/golden.sh" ${ARGN})
  set_tests_properties("tests/languages/${name}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2
    ENVIRONMENT "DTL_CACHE_DIR=${kernels}")
endfunction()

# golden_language LANGUAGE COMMAND: the program in this language, by itself.
macro(golden_language language)
  list(APPEND golden_programs "${ARGN}")
  golden_test("golden.${language}" "${dtlrun}" -n 5 "${languages}/mixed.sh" "${ARGN}" "${ARGN}" "${ARGN}" "${ARGN}" "${ARGN}")
endmacro()

if(DTL_TEST_GCC)
  program(tests/languages/golden.c "${languages}/golden.c" "${DTL_TEST_GCC}" shared -std=c11)
  golden_language(c "${golden}.c")
endif()
if(DTL_TEST_GXX)
  program(tests/languages/golden.cpp "${languages}/golden.cpp" "${DTL_TEST_GXX}" shared -std=c++17)
  golden_language(cpp "${golden}.cpp")
endif()
if(DTL_TEST_GFORTRAN)
  fortran_program(tests/languages golden gfortran "${DTL_TEST_GFORTRAN}" "${languages}/golden.f90" ${gfortran_flags})
  golden_language(fortran "${golden}.gfortran")
endif()

# Needs the wheel that tests/python/wheel installs.
set(golden_needs "")
if(EXISTS "${python_work}/venv/installed")
  golden_language(python "${CMAKE_COMMAND} -E env PYTHONPATH=${python_work}/site ${python} ${languages}/golden.py")
  set_tests_properties(tests/languages/golden.python PROPERTIES FIXTURES_REQUIRED python_wheel)
  set(golden_needs python_wheel)
else()
  skipped(tests/languages/golden.python "no ${python_work}/venv (tests/python/environment.sh creates it)")
endif()

# cargo knows best what is up to date, so it is asked each time.
set(rust_examples "${CMAKE_CURRENT_BINARY_DIR}/cargo-rust")
add_custom_target(build_tests_languages_rust
  COMMAND "${CMAKE_COMMAND}" -E env "DTL_LIB_DIR=${DTL_STAGE}/lib"
          ${dtl_cargo} build --release ${dtl_cargo_flags} --manifest-path bindings/rust/Cargo.toml
          -p dtl-binding --examples --target-dir "${rust_examples}"
  WORKING_DIRECTORY "${top}"
  COMMENT "cargo: examples of the Rust interface" VERBATIM)
add_dependencies(build_tests_languages_rust dtl_shared_build)
add_dependencies(dtl_tests build_tests_languages_rust)
golden_language(rust "${rust_examples}/release/examples/golden")
# A send through the safe Rust interface, and an event query of a backend in Rust, compared with C.
add_test(NAME tests/languages/instructions.rust COMMAND "${languages}/instructions.sh" "${top}"
  "${DTL_STAGE}/lib/libdtl.so" "${rust_examples}/release/examples/send"
  "${rust_examples}/release/examples/event_query")
set_tests_properties(tests/languages/instructions.rust PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77)

# Rank r runs the program of language r modulo their number.
list(LENGTH golden_programs count)
set(mixed "")
foreach(rank RANGE 4)
  math(EXPR index "${rank} % ${count}")
  list(GET golden_programs ${index} command)
  list(APPEND mixed "${command}")
endforeach()
golden_test(mixed.dtlrun "${dtlrun}" -n 5 "${languages}/mixed.sh" ${mixed})
set_tests_properties(tests/languages/mixed.dtlrun PROPERTIES FIXTURES_REQUIRED "${golden_needs}")
foreach(mpi openmpi mpich)
  if(NOT DTL_TEST_MPIRUN_${mpi})
    skipped("tests/languages/mixed.${mpi}" "mpirun.${mpi} is not installed, or starts no job of several ranks")
    continue()
  endif()
  set(launcher "${DTL_TEST_MPIRUN_${mpi}}")
  if(mpi STREQUAL "openmpi")
    list(APPEND launcher --allow-run-as-root --oversubscribe)
  endif()
  golden_test(mixed.${mpi} ${launcher} -n 5 "${languages}/mixed.sh" ${mixed})
  set_tests_properties("tests/languages/mixed.${mpi}" PROPERTIES RESOURCE_LOCK polling
    FIXTURES_REQUIRED "${golden_needs}")
endforeach()
