# Examples that a line in a runs.txt does not describe: cg, which has several files and runs alone, under
# dtlrun and under each installed MPI's launcher; shrink, of which a rank is killed; what uses windows, also
# over kind "mpi". Included by tests/CMakeLists.txt, whose functions and variables it uses.

set(cg_matrix "${top}/examples-c/data/bcsstk16.mtx")
set(cg_bad "${top}/tests/data/mtx")
set(cg_scripts "${top}/tests/examples")

# cg_tests NAME PROGRAM [LAUNCHER…]: what it computes, and what it says to malformed files.
function(cg_tests name binary)
  add_test(NAME "${name}" COMMAND "${cg_scripts}/run_cg.sh" "${binary}" "${cg_matrix}" ${ARGN})
  add_test(NAME "${name}.malformed" COMMAND "${cg_scripts}/run_bad_mtx.sh" "${binary}" "${cg_bad}" ${ARGN})
  set_tests_properties("${name}" "${name}.malformed" PROPERTIES TIMEOUT ${guard} PROCESSORS 2)
endfunction()

# find_launcher MPI TEST: in ${launcher} how that MPI starts programs; if it is not installed, TEST says so.
function(find_launcher mpi test)
  set(launcher "${DTL_TEST_MPIRUN_${mpi}}")
  if(NOT launcher)
    skipped("${test}" "mpirun.${mpi} is not installed, or starts no job of several ranks")
  elseif(mpi STREQUAL "openmpi")
    list(APPEND launcher --allow-run-as-root --oversubscribe)
  endif()
  set(launcher "${launcher}" PARENT_SCOPE)
endfunction()

# cg_mpi_tests NAME PROGRAM: the same under each MPI's launcher.
function(cg_mpi_tests name binary)
  foreach(mpi openmpi mpich)
    find_launcher(${mpi} "${name}.${mpi}")
    if(launcher)
      cg_tests("${name}.${mpi}" "${binary}" ${launcher} -n)
    endif()
  endforeach()
endfunction()

# cg_poor_tests NAME PROGRAM: the same solution on machines that lack something.
function(cg_poor_tests name binary)
  foreach(case small-shm no-cma nobody)
    add_test(NAME "${name}.${case}" COMMAND "${cg_scripts}/run_cg_poor.sh" ${case} "${binary}" "${cg_matrix}" "${dtlrun}")
    set_tests_properties("${name}.${case}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 SKIP_RETURN_CODE 77
      SKIP_REGULAR_EXPRESSION "(^|\n)skipped: ")
  endforeach()
endfunction()

# cg_example FOLDER EXTENSION VARIANT COMPILER LINK FLAG…
function(cg_example folder extension variant compiler link)
  set(output "${folder}/cg.${variant}")
  if(NOT ${compiler})
    skipped("${output}" "the compiler of ${compiler} is not installed")
    return()
  endif()
  file(MAKE_DIRECTORY "${bin}/${folder}")
  file(GLOB others CONFIGURE_DEPENDS "${top}/${folder}/cg/*.${extension}")
  file(GLOB own_headers CONFIGURE_DEPENDS "${top}/${folder}/cg/*.h*")
  list(REMOVE_ITEM others "${top}/${folder}/cg/cg.${extension}")
  list(APPEND headers ${others} ${own_headers}) # so that program() depends on them
  program("${output}" "${top}/${folder}/cg/cg.${extension}" "${${compiler}}" ${link} ${ARGN} ${others})
  cg_tests("${output}" "${bin}/${output}")
  cg_tests("${output}.dtlrun" "${bin}/${output}" "${dtlrun}" -n)
  if(link STREQUAL "shared") # launching takes its time: one variant of each language
    cg_mpi_tests("${output}" "${bin}/${output}")
    cg_poor_tests("${output}" "${bin}/${output}")
  endif()
endfunction()

cg_example(examples-c c gcc DTL_TEST_GCC shared -std=c11)
cg_example(examples-c c clang DTL_TEST_CLANG static -std=c11)
cg_example(examples-cpp cpp gxx DTL_TEST_GXX shared -std=c++17)
cg_example(examples-cpp cpp clangxx DTL_TEST_CLANGXX static -std=c++17)

# shrink and recover survive a loss; the launcher must let them. (Alone, they run as runs.txt says.)
foreach(output examples-c/recover.gcc examples-c/recover.clang examples-c/shrink.gcc examples-c/shrink.clang examples-cpp/shrink.gxx examples-cpp/shrink.clangxx)
  string(REPLACE "/" "_" target "${output}")
  if(TARGET "build_${target}")
    add_test(NAME "${output}.survivors" COMMAND "${cg_scripts}/run_shrink.sh" "${bin}/${output}" "${dtlrun}")
    set_tests_properties("${output}.survivors" PROPERTIES TIMEOUT ${guard} PROCESSORS 2)
  endif()
endforeach()

# Windows whose targets are reached by MPI's messages: launching takes its time, so one variant of each language.
foreach(output examples-c/work_queue.gcc examples-c/hash_table.gcc examples-cpp/work_queue.gxx examples-cpp/hash_table.gxx)
  string(REPLACE "/" "_" target "${output}")
  foreach(mpi openmpi mpich)
    find_launcher(${mpi} "${output}.${mpi}")
    if(launcher AND TARGET "build_${target}")
      add_test(NAME "${output}.${mpi}" COMMAND ${launcher} -n 3 "${bin}/${output}" 200 20)
      set_tests_properties("${output}.${mpi}" PROPERTIES TIMEOUT ${guard} PROCESSORS 2 RESOURCE_LOCK polling COST 60
        ENVIRONMENT "DTL_COMM=mpi")
    endif()
  endforeach()
endforeach()
