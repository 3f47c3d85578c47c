# The example plugins: compiled by gcc and clang without a warning, then tested: each by the test in this folder,
# "tcp" also by dtl-ctk and by the tests of communicators. Included by tests/CMakeLists.txt.

set(plugin_strict -Wall -Wextra -Wpedantic -Werror -O2 -g -fPIC -shared -fvisibility=hidden -I "${top}/include")
file(GLOB plugin_headers CONFIGURE_DEPENDS "${top}/examples-plugins/*/*.h")
file(MAKE_DIRECTORY "${bin}/tests/plugins")

# Compiles a plugin into the folder plugins/<compiler>.
function(plugin folder compiler name) # sources, flags
  set(file "${bin}/plugins/${folder}/lib${name}.so")
  file(MAKE_DIRECTORY "${bin}/plugins/${folder}")
  list(TRANSFORM ARGN PREPEND "${top}/examples-plugins/" REGEX "\\.c(pp)?$" OUTPUT_VARIABLE arguments)
  set(sources "${arguments}")
  list(FILTER sources INCLUDE REGEX "\\.c(pp)?$")
  add_custom_command(OUTPUT "${file}" COMMAND ${compiler} ${plugin_strict} ${arguments} -pthread -o "${file}"
    DEPENDS ${sources} ${plugin_headers} "${top}/include/dtl.h" "${top}/include/dtl_select.h"
      "${top}/include/dtl_backend.h" VERBATIM)
  add_custom_target("plugin_${folder}_${name}" DEPENDS "${file}")
  add_dependencies(dtl_tests "plugin_${folder}_${name}")
endfunction()

function(plugin_test name folder ranks environment) # command
  add_test(NAME "plugins/${name}" COMMAND ${ARGN})
  set_tests_properties("plugins/${name}" PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77
    ENVIRONMENT "DTL_PLUGIN_PATH=${bin}/plugins/${folder};DTL_TEST_DTLRUN=${dtlrun};${environment}")
  of_ranks("plugins/${name}" ${ranks})
endfunction()

if(NOT (DTL_TEST_GCC AND DTL_TEST_GXX AND DTL_TEST_CLANG AND DTL_TEST_CLANGXX))
  skipped(plugins "gcc, g++, clang and clang++ are not all installed")
  return()
endif()

plugin(gcc ${DTL_TEST_GCC} pool -std=c11 pool/pool.c)
plugin(clang ${DTL_TEST_CLANG} pool -std=c11 pool/pool.c)
plugin(gcc ${DTL_TEST_GXX} workers -std=c++17 workers/workers.cpp)
plugin(clang ${DTL_TEST_CLANGXX} workers -std=c++17 workers/workers.cpp)
set(tcp tcp/plugin.c tcp/meet.c tcp/net.c tcp/progress.c tcp/match.c)
plugin(gcc ${DTL_TEST_GCC} tcp -std=c11 ${tcp})
plugin(clang ${DTL_TEST_CLANG} tcp -std=c11 ${tcp})
set(tree reduce_tree/comm.c reduce_tree/open.c reduce_tree/switch.c)
plugin(gcc ${DTL_TEST_GCC} reduce_tree -std=c11 ${tree})
plugin(clang ${DTL_TEST_CLANG} reduce_tree -std=c11 ${tree})
find_path(DTL_TEST_TBB oneapi/tbb/parallel_for.h)
mark_as_advanced(DTL_TEST_TBB)
if(DTL_TEST_TBB)
  plugin(tbb ${DTL_TEST_GXX} workers -std=c++17 -DWORKERS_TBB workers/workers.cpp -ltbb)
else()
  skipped(plugins/workers.tbb "oneTBB is not installed")
endif()

program(tests/plugins/test_pool "${top}/tests/plugins/test_pool.c" ${DTL_TEST_GCC} shared -std=c11)
program(tests/plugins/test_tcp "${top}/tests/plugins/test_tcp.c" ${DTL_TEST_GCC} shared -std=c11)
program(tests/plugins/test_reduce_tree "${top}/tests/plugins/test_reduce_tree.c" ${DTL_TEST_GCC} shared -std=c11)
# A program with the library inside can load plugins, too.
program(tests/plugins/test_workers "${top}/tests/plugins/test_workers.cpp" ${DTL_TEST_GXX} static -std=c++17)
foreach(folder gcc clang)
  plugin_test(pool.${folder} ${folder} 1 "DTL_BACKEND_POOL_MIB=4" "${bin}/tests/plugins/test_pool")
  plugin_test(workers.${folder} ${folder} 3 "DTL_BACKEND_WORKERS_THREADS=3" "${bin}/tests/plugins/test_workers")
endforeach()
if(DTL_TEST_TBB)
  plugin_test(workers.tbb tbb 3 "DTL_BACKEND_WORKERS_THREADS=3" "${bin}/tests/plugins/test_workers")
endif()
plugin_test(tcp gcc 4 "" "${bin}/tests/plugins/test_tcp")

# All of them, by the conformance kit.
foreach(folder gcc clang)
  foreach(name pool workers tcp reduce_tree)
    plugin_test(conformance.${name}.${folder} ${folder} 3 "" "${DTL_STAGE}/bin/dtl-ctk" run
      --plugin "${bin}/plugins/${folder}/lib${name}.so" --ranks 3)
  endforeach()
endforeach()

# The communicator, by what all communicators are tested by.
foreach(ranks 1 2 3 4 8)
  plugin_test(tcp.ctk.${ranks} clang ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run --kind tcp --ranks ${ranks} --cases 60)
  foreach(name p2p collectives forms groups probe random)
    plugin_test(tcp.${name}.${ranks} gcc ${ranks} "DTL_COMM=tcp"
      "${dtlrun}" -n ${ranks} "${bin}/tests/c/test_comm_${name}.gcc-c11" tcp)
  endforeach()
endforeach()
foreach(ranks 1 2 4 8)
  plugin_test(reduce_tree.${ranks} gcc ${ranks} "DTL_COMM=reduce_tree"
    "${dtlrun}" -n ${ranks} "${bin}/tests/plugins/test_reduce_tree")
  plugin_test(reduce_tree.ctk.${ranks} clang ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run --kind reduce_tree
    --ranks ${ranks} --cases 60)
  # Not test_comm_collectives: a switch does not detect that ranks make different calls.
  plugin_test(reduce_tree.forms.${ranks} gcc ${ranks} "DTL_COMM=reduce_tree"
    "${dtlrun}" -n ${ranks} "${bin}/tests/c/test_comm_forms.gcc-c11" reduce_tree)
endforeach()
plugin_test(tcp.death gcc 4 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_death.gcc-c11")
# As what stands between (pretended) nodes.
set(between "DTL_COMM=hier;DTL_HIER_ACROSS=tcp;DTL_FAKE_NODES=2x2")
plugin_test(hier.ctk gcc 4 "${between}" "${DTL_STAGE}/bin/dtl-ctk" run --kind hier --ranks 4)
plugin_test(hier.death gcc 4 "${between}" "${bin}/tests/c/test_comm_death.gcc-c11")
plugin_test(hier.random gcc 4 "${between}" "${dtlrun}" -n 4 "${bin}/tests/c/test_comm_random.gcc-c11" hier)
plugin_test(tcp.shrink gcc 8 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_shrink.gcc-c11")
if(DTL_BUILD_EXAMPLES)
  plugin_test(tcp.example gcc 4 "DTL_COMM=tcp" "${dtlrun}" -n 4 "${bin}/examples-c/ring.gcc")
endif()
