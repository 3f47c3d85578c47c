# Tests that run under each installed MPI: every tests/mpi/*.c, examples-c/mpi/*.c and examples-cpp/mpi/*.cpp, compiled
# with mpicc.<mpi> or mpicxx.<mpi> (together with mpi/dtl_mpi.c where it is used) and run by mpirun.<mpi>. Runs, ranks and
# arguments come from the runs.txt of the folder, else one run with 2 ranks. tests/mpi/plain has programs that are linked
# with no MPI: compiled once, run by each mpirun. tests/mpi/plugin is the table of mpi/dtl_mpi.c for dtl-ctk.
# tests/mpi/launcher.sh has two installations of one MPI; tests/mpi/interop.sh runs mpi4py in the environments of DTL_TEST_MPI.
# Where ranks poll one test runs at a time (RESOURCE_LOCK): these begin early (COST), or the last minute were theirs alone.

file(GLOB mpi_sources CONFIGURE_DEPENDS "${top}/tests/mpi/*.c" "${top}/examples-c/mpi/*.c")
file(GLOB mpi_cpp_sources CONFIGURE_DEPENDS "${top}/examples-cpp/mpi/*.cpp")
set(mpi_file "${top}/mpi/dtl_mpi.c")
if(NOT EXISTS "${mpi_file}")
  return()
endif()

file(GLOB mpi_headers CONFIGURE_DEPENDS "${top}/tests/mpi/*.h")
list(APPEND headers ${mpi_headers} "${mpi_file}")

# Programs without MPI, and what is no MPI although it begins as one.
set(mpi_part "${bin}/tests/mpi/plain/part.so")
file(MAKE_DIRECTORY "${bin}/tests/mpi/plain")
if(DTL_TEST_GCC)
  add_custom_command(OUTPUT "${mpi_part}"
    COMMAND "${DTL_TEST_GCC}" -std=c11 ${strict} -fPIC -shared "${top}/tests/mpi/plain/part/part.c" -o "${mpi_part}"
    DEPENDS "${top}/tests/mpi/plain/part/part.c" VERBATIM)
  add_custom_target(build_mpi_part DEPENDS "${mpi_part}")
  add_dependencies(dtl_tests build_mpi_part)
  foreach(name session windows integers memory grow)
    program("tests/mpi/plain/${name}" "${top}/tests/mpi/plain/${name}.c" "${DTL_TEST_GCC}" shared -std=c11)
  endforeach()
endif()

# The runs of a program under one MPI's launcher (the rest of the arguments). In a line, @MPI@ is the name of the MPI,
# @PART@ the fake library, @CUDA@ the fake driver. A line that ends with the name of an MPI is run with that MPI only.
function(mpi_runs folder name output mpi)
  set(lines "")
  if(EXISTS "${top}/${folder}/runs.txt")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${top}/${folder}/runs.txt")
    file(STRINGS "${top}/${folder}/runs.txt" lines REGEX "^${name}[ \t]")
  endif()
  if(NOT lines)
    set(lines "${name} 2")
  endif()
  foreach(line IN LISTS lines)
    if(line MATCHES " (openmpi|mpich)$" AND NOT CMAKE_MATCH_1 STREQUAL mpi)
      continue()
    endif()
    string(REGEX REPLACE " @(PART|CUDA)@" "" suffix "${line}")
    string(REPLACE "@MPI@" "${mpi}" suffix "${suffix}")
    string(REPLACE "@MPI@" "${mpi}" line "${line}")
    string(REPLACE "@PART@" "${mpi_part}" line "${line}")
    string(REPLACE "@CUDA@" "${fake_cuda}" line "${line}")
    separate_arguments(suffix UNIX_COMMAND "${suffix}")
    list(REMOVE_AT suffix 0)
    string(REPLACE ";" "-" suffix "${suffix}")
    separate_arguments(words UNIX_COMMAND "${line}")
    list(REMOVE_AT words 0)
    list(GET words 0 ranks)
    list(REMOVE_AT words 0)
    add_test(NAME "${output}.${suffix}" COMMAND ${ARGN} -n ${ranks} "${bin}/${output}" ${words})
    set_tests_properties("${output}.${suffix}" PROPERTIES TIMEOUT ${guard} COST 60
      SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")
    # A single rank does not poll for others.
    if(ranks GREATER 1)
      set_tests_properties("${output}.${suffix}" PROPERTIES PROCESSORS 2 RESOURCE_LOCK polling)
    endif()
  endforeach()
endfunction()

foreach(mpi openmpi mpich)
  set(mpirun "${DTL_TEST_MPIRUN_${mpi}}")
  if(mpi STREQUAL "openmpi")
    list(APPEND mpirun --allow-run-as-root --oversubscribe)
  endif()
  foreach(source IN LISTS mpi_sources)
    get_filename_component(name "${source}" NAME_WE)
    get_filename_component(folder "${source}" DIRECTORY)
    file(RELATIVE_PATH folder "${top}" "${folder}")
    file(MAKE_DIRECTORY "${bin}/${folder}")
    if(NOT DTL_TEST_MPICC_${mpi} OR NOT DTL_TEST_MPIRUN_${mpi})
      skipped("${folder}/${name}.${mpi}" "mpicc.${mpi} and mpirun.${mpi} are not installed, or start no job of several ranks")
      continue()
    endif()
    set(output "${folder}/${name}.${mpi}")
    # Programs that need no more than libdtl show that by being compiled without it.
    file(STRINGS "${source}" used REGEX "#include .*(dtl_mpi|mpi_check)\\.h")
    set(with "")
    if(used)
      set(with "${mpi_file}")
    endif()
    program("${output}" "${source}" "${DTL_TEST_MPICC_${mpi}}" shared -std=c11 ${with})
    mpi_runs("${folder}" "${name}" "${output}" ${mpi} ${mpirun})
    if(folder STREQUAL "examples-c/mpi")
      # Also as C++, without the C++ bindings of old, whose headers are not pedantically clean.
      set(output "${output}-cpp17")
      program("${output}" "${source}" "${DTL_TEST_MPICC_${mpi}}" shared -x c++ -std=c++17 -DOMPI_SKIP_MPICXX
              -DMPICH_SKIP_MPICXX ${with})
      mpi_runs("${folder}" "${name}" "${output}" ${mpi} ${mpirun})
    endif()
  endforeach()
  foreach(source IN LISTS mpi_cpp_sources)
    get_filename_component(name "${source}" NAME_WE)
    set(output "examples-cpp/mpi/${name}.${mpi}")
    file(MAKE_DIRECTORY "${bin}/examples-cpp/mpi")
    if(NOT DTL_TEST_MPICXX_${mpi} OR NOT DTL_TEST_MPIRUN_${mpi})
      skipped("${output}" "mpicxx.${mpi} and mpirun.${mpi} are not installed")
      continue()
    endif()
    program("${output}" "${source}" "${DTL_TEST_MPICXX_${mpi}}" shared -std=c++17 -DOMPI_SKIP_MPICXX
            -DMPICH_SKIP_MPICXX)
    mpi_runs(examples-cpp/mpi "${name}" "${output}" ${mpi} ${mpirun})
  endforeach()

  if(DTL_TEST_MPIRUN_${mpi} AND DTL_TEST_GCC)
    mpi_runs("tests/mpi/plain" session "tests/mpi/plain/session" ${mpi} ${mpirun})
    mpi_runs("tests/mpi/plain" windows "tests/mpi/plain/windows" ${mpi} ${mpirun})
    mpi_runs("tests/mpi/plain" integers "tests/mpi/plain/integers" ${mpi} ${mpirun})
    mpi_runs("tests/mpi/plain" grow "tests/mpi/plain/grow" ${mpi} ${mpirun})
    foreach(name test_comm_device test_comm_gated test_comm_make test_comm_revoke)
      mpi_runs("tests/mpi" "${name}" "tests/c/${name}.gcc-c11" ${mpi} ${mpirun})
    endforeach()
  else()
    skipped("tests/mpi/plain/session.${mpi}" "mpirun.${mpi} is not installed, or starts no job of several ranks")
  endif()

  if(DTL_TEST_MPIRUN_${mpi} AND DTL_TEST_GCC)
    add_test(NAME "tests/mpi/plain/grow.lacks-${mpi}" COMMAND "${top}/tests/mpi/lacks.sh" "${bin}/tests/mpi/plain/grow" ${mpi}
      ${mpirun})
    set_tests_properties("tests/mpi/plain/grow.lacks-${mpi}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling
      SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")
  endif()

  add_test(NAME "tests/mpi/launcher.${mpi}" COMMAND "${top}/tests/mpi/launcher.sh" ${mpi} "${DTL_STAGE}/bin/dtl-info")
  set_tests_properties("tests/mpi/launcher.${mpi}" PROPERTIES TIMEOUT 300 SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")

  # Kind mpi of the library, by the conformance kit, in both of its ways. With 3 ranks, more than there are
  # processors in many places, what depends on their number; with 8, counters that all fetch from.
  foreach(ranks 1 2 3 8)
    set(test "tests/ctk.kind-mpi-${mpi}-${ranks}")
    if(NOT DTL_TEST_MPIRUN_${mpi})
      skipped("${test}" "mpirun.${mpi} is not installed, or starts no job of several ranks")
      continue()
    endif()
    set(patterns all)
    set(cases 100)
    if(ranks EQUAL 3)
      set(patterns "comm.coll.*_random_cases,comm.coll.reduce_scatter_to_some,comm.split")
      set(cases 30)
    elseif(ranks EQUAL 8)
      set(patterns comm.window.counters_are_exact)
      set(cases 0)
    endif()
    add_test(NAME "${test}" COMMAND "${top}/tests/mpi/kit.sh" "${DTL_STAGE}/bin/dtl-ctk" ${ranks} ${cases}
      "${patterns}" ${mpirun} -n "{ranks}")
    set_tests_properties("${test}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 80)
  endforeach()

  # Kind hier: MPI between two pretended nodes, shared memory inside. With two ranks no node has a second one, and
  # with four more ranks poll than there are processors, so those run what depends on their number.
  foreach(nodes 1,1 2,1 2x2)
    set(test "tests/ctk.kind-hier-${mpi}-${nodes}")
    if(NOT DTL_TEST_MPIRUN_${mpi})
      skipped("${test}" "mpirun.${mpi} is not installed, or starts no job of several ranks")
      continue()
    endif()
    string(REGEX REPLACE "x|," "+" ranks "${nodes}")
    if(nodes STREQUAL "2x2")
      set(ranks 4)
    else()
      math(EXPR ranks "${ranks}")
    endif()
    set(patterns --only "comm.coll.*,comm.match.*,comm.split.*")
    if(ranks EQUAL 2)
      set(patterns "")
    endif()
    string(REPLACE ";" " " launcher "${mpirun}")
    add_test(NAME "${test}" COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --kind hier --ranks ${ranks} ${patterns}
      --launcher "${launcher} -n {ranks}")
    set_tests_properties("${test}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 60
      ENVIRONMENT "DTL_FAKE_NODES=${nodes};OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()

  # Kind rdma, whose ranks meet through this MPI, over the verbs that are none.
  set(test "tests/ctk.kind-rdma-${mpi}")
  if(NOT DTL_TEST_MPIRUN_${mpi} OR fake_verbs_missing)
    skipped("${test}" "mpirun.${mpi} is not installed, or there are no verbs for tests")
  else()
    string(REPLACE ";" " " launcher "${mpirun}")
    add_test(NAME "${test}" COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --kind rdma --ranks 3 --only "comm.match.*,comm.split.*"
      --launcher "${launcher} -n {ranks}")
    set_tests_properties("${test}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 60
      ENVIRONMENT "DTL_RDMA_MEETING=mpi;DTL_RDMA_LIBRARY=${fake_verbs};DTL_FAKE_VERBS_FABRIC=${bin}/rdma/fabric.${mpi};OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endif()

  # The table itself, as a plugin, by the conformance kit.
  if(NOT DTL_TEST_MPICC_${mpi} OR NOT DTL_TEST_MPIRUN_${mpi})
    skipped("tests/ctk.mpi-${mpi}" "mpicc.${mpi} and mpirun.${mpi} are not installed, or start no job of several ranks")
    continue()
  endif()
  set(plugin "${bin}/tests/mpi/shim.${mpi}.so")
  add_custom_command(OUTPUT "${plugin}"
    COMMAND "${DTL_TEST_MPICC_${mpi}}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden
            "${top}/tests/mpi/plugin/shim.c" -o "${plugin}"
    DEPENDS "${top}/tests/mpi/plugin/shim.c" "${mpi_file}" ${headers} VERBATIM)
  add_custom_target("build_mpi_shim_${mpi}" DEPENDS "${plugin}")
  add_dependencies(dtl_tests "build_mpi_shim_${mpi}")
  string(REPLACE ";" " " launcher "${mpirun}")
  foreach(ranks 1 2)
    add_test(NAME "tests/ctk.mpi-${mpi}-${ranks}" COMMAND "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${plugin}"
      --component comm --ranks ${ranks} --launcher "${launcher} -n {ranks}")
    set_tests_properties("tests/ctk.mpi-${mpi}-${ranks}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 60)
  endforeach()
endforeach()

# The MPIs of PyPI; tests/mpi_constants.rs looks there, too. They may come after this file is read.
set(mpi_folder "${CMAKE_BINARY_DIR}/mpi")
if(NOT "$ENV{DTL_TEST_MPI}" STREQUAL "")
  get_filename_component(mpi_folder "$ENV{DTL_TEST_MPI}" ABSOLUTE BASE_DIR "${top}")
endif()

# The standard binary interface of MPI 5, which no distribution has yet. Installs the MPICH of PyPI.
add_test(NAME "tests/ctk.kind-mpi-standard-2" COMMAND "${top}/tests/mpi/wheel.sh" "${mpi_folder}"
  "${DTL_STAGE}/bin/dtl-ctk" 2 100 all)
set_tests_properties("tests/ctk.kind-mpi-standard-2" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 90
  SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")

# A Python program with mpi4py and libdtl, in what that has installed.
foreach(mpi wheel-mpich debian-openmpi debian-mpich)
  add_test(NAME "tests/mpi/interop.${mpi}" COMMAND "${top}/tests/mpi/interop.sh" ${mpi} "${mpi_folder}"
    "${DTL_STAGE}/lib/libdtl.so" 2)
  set_tests_properties("tests/mpi/interop.${mpi}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 60
    DEPENDS "tests/ctk.kind-mpi-standard-2" SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")
endforeach()
