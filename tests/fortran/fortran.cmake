# The Fortran modules, their tests and the examples in Fortran, with each compiler that is installed.
# Included by tests/CMakeLists.txt, whose functions and variables it uses. CMake supports one compiler per
# language, so the commands are spelled out; tests/consumer/fortran uses the package as projects do.

find_program(DTL_TEST_GFORTRAN gfortran)
find_program(DTL_TEST_FLANG NAMES flang-22 flang-21 flang-20 flang)
mark_as_advanced(DTL_TEST_GFORTRAN DTL_TEST_FLANG)

set(fortran_modules "${top}/bindings/fortran")
set(fortran_tests "${top}/tests/fortran")
file(GLOB fortran_includes CONFIGURE_DEPENDS "${fortran_tests}/*.inc")

# fortran_compiler NAME COMMAND FLAGS…: the modules by one compiler, as bin/fortran/NAME.
function(fortran_compiler name compiler)
  set(folder "${bin}/fortran/${name}")
  file(MAKE_DIRECTORY "${folder}")
  set(sources "${fortran_modules}/dtl_c.f90" "${fortran_modules}/dtl_support.f90" "${fortran_modules}/dtl_types.F90"
              "${fortran_modules}/dtl.f90" "${fortran_tests}/checks.f90")
  set(objects "")
  set(commands "")
  foreach(source IN LISTS sources)
    get_filename_component(object "${source}" NAME_WE)
    list(APPEND objects "${folder}/${object}.o")
    list(APPEND commands COMMAND "${compiler}" ${ARGN} -O1 -fPIC "-I${fortran_modules}" -c "${source}" -o "${object}.o")
  endforeach()
  add_custom_command(OUTPUT "${folder}/modules" ${commands}
    COMMAND "${CMAKE_COMMAND}" -E touch "${folder}/modules"
    DEPENDS ${sources} "${fortran_modules}/dtl_typed.inc" WORKING_DIRECTORY "${folder}" VERBATIM)
  add_custom_target("build_fortran_modules_${name}" DEPENDS "${folder}/modules")
endfunction()

# fortran_program FOLDER NAME COMPILER COMMAND SOURCES FLAGS…: a program with these modules.
function(fortran_program folder name compiler command sources)
  set(modules "${bin}/fortran/${compiler}")
  set(output "${folder}/${name}.${compiler}")
  set(work "${bin}/${output}.modules") # for the module files of the program itself
  file(MAKE_DIRECTORY "${work}")
  add_custom_command(OUTPUT "${bin}/${output}"
    COMMAND "${command}" ${ARGN} -O1 -g "-I${modules}" "-I${fortran_tests}" ${sources} "${modules}/dtl_c.o"
      "${modules}/dtl_support.o" "${modules}/dtl_types.o" "${modules}/dtl.o" "${modules}/checks.o"
      -o "${bin}/${output}" ${shared}
    DEPENDS ${sources} ${fortran_includes} "${modules}/modules" "build_fortran_modules_${compiler}"
      dtl_shared_build "${DTL_SHARED_FILE}"
    WORKING_DIRECTORY "${work}" VERBATIM)
  string(REPLACE "/" "_" target "build_${output}")
  add_custom_target("${target}" DEPENDS "${bin}/${output}")
  add_dependencies(dtl_tests "${target}")
endfunction()

set(gfortran_flags -std=f2018 -Wall -Wextra -Wno-compare-reals -Werror)
set(flang_flags "")
if(DTL_TEST_GFORTRAN)
  fortran_compiler(gfortran "${DTL_TEST_GFORTRAN}" ${gfortran_flags})
endif()
if(DTL_TEST_FLANG)
  fortran_compiler(flang "${DTL_TEST_FLANG}" ${flang_flags})
endif()

# fortran_variants FOLDER NAME SOURCES: a program by each compiler, and its runs.
function(fortran_variants folder name sources)
  foreach(compiler IN ITEMS gfortran flang)
    string(TOUPPER "DTL_TEST_${compiler}" command)
    if(NOT ${command})
      skipped("${folder}/${name}.${compiler}" "no ${compiler}")
      continue()
    endif()
    set(flags ${${compiler}_flags})
    if(compiler STREQUAL "gfortran" AND folder STREQUAL "tests/fortran")
      list(APPEND flags -fcheck=all,no-array-temps)
    endif()
    fortran_program("${folder}" "${name}" ${compiler} "${${command}}" "${sources}" ${flags})
    runs("${folder}" "${name}" "${folder}/${name}.${compiler}")
  endforeach()
endfunction()

if(DTL_BUILD_TESTS)
  fortran_variants(tests/fortran messages "${fortran_tests}/messages.F90")
  fortran_variants(tests/fortran collectives "${fortran_tests}/collectives.f90")
  fortran_variants(tests/fortran interface "${fortran_tests}/interface.f90")
  fortran_variants(tests/fortran stops "${fortran_tests}/stops.f90")
  foreach(compiler IN ITEMS gfortran flang)
    string(TOUPPER "DTL_TEST_${compiler}" command)
    if(${command})
      set_tests_properties("tests/fortran/stops.${compiler}" PROPERTIES PASS_REGULAR_EXPRESSION
        "dtl_comm_send: dest 5: the communicator has ranks 0 to 1 .DTL_ERROR_INVALID_RANK..*exited with status 1"
        FAIL_REGULAR_EXPRESSION "not reached")
    endif()
  endforeach()
  # Sizes and values against those of the C compiler; instructions of a send against those of a send in C.
  foreach(name IN ITEMS layouts instructions)
    add_test(NAME tests/fortran/${name} COMMAND "${fortran_tests}/${name}.sh" "${top}" "${bin}/fortran/gfortran"
      "${DTL_STAGE}/lib/libdtl.so")
    set_tests_properties(tests/fortran/${name} PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77)
  endforeach()
endif()
if(DTL_BUILD_EXAMPLES)
  file(GLOB sources CONFIGURE_DEPENDS "${top}/examples-fortran/*.f90")
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    fortran_variants(examples-fortran ${name} "${source}")
  endforeach()
  set(cg "${top}/examples-fortran/cg")
  fortran_variants(examples-fortran cg "${cg}/mtx.f90;${cg}/matrix.f90;${cg}/cg.f90")
  foreach(compiler IN ITEMS gfortran flang)
    if(TARGET build_examples-fortran_cg.${compiler})
      add_test(NAME examples-fortran/cg.${compiler}.malformed COMMAND "${top}/tests/examples/run_bad_mtx.sh"
        "${bin}/examples-fortran/cg.${compiler}" "${top}/tests/data/mtx" "${dtlrun}" -n)
      set_tests_properties(examples-fortran/cg.${compiler}.malformed PROPERTIES TIMEOUT ${guard} PROCESSORS 2)
    endif()
  endforeach()
endif()
