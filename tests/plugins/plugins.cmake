# The example plugins: compiled by gcc and clang without a warning, then tested: each by the test in this folder,
# "tcp" also by dtl-ctk and by the tests of communicators. Included by tests/CMakeLists.txt.

set(plugin_strict -Wall -Wextra -Wpedantic -Werror -O2 -g -fPIC -shared -fvisibility=hidden -I "${top}/include")
file(GLOB plugin_headers CONFIGURE_DEPENDS "${top}/examples-plugins/*/*.h" "${top}/examples-plugins/*/*.hpp"
     "${top}/examples-plugins/*/*/*.h")
file(MAKE_DIRECTORY "${bin}/tests/plugins")

# Compiles a plugin into the folder plugins/<compiler>.
function(plugin folder compiler name) # sources, flags
  set(file "${bin}/plugins/${folder}/lib${name}.so")
  file(MAKE_DIRECTORY "${bin}/plugins/${folder}")
  list(TRANSFORM ARGN PREPEND "${top}/examples-plugins/" REGEX "^[^/].*\\.c(pp)?$" OUTPUT_VARIABLE arguments)
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
# In folders of their own: opening libfabric takes its time, and other tests need not do it.
find_path(DTL_TEST_LIBFABRIC rdma/fi_tagged.h)
mark_as_advanced(DTL_TEST_LIBFABRIC)
if(DTL_TEST_LIBFABRIC)
  set(libfabric plugin api endpoint join message failure window atomic)
  list(TRANSFORM libfabric REPLACE "(.+)" "libfabric/\\1.c")
  plugin(libfabric ${DTL_TEST_GCC} libfabric -std=c11 ${libfabric} tcp/meet.c tcp/net.c)
  plugin(libfabric_clang ${DTL_TEST_CLANG} libfabric -std=c11 ${libfabric} tcp/meet.c tcp/net.c)
else()
  skipped(plugins/libfabric "libfabric's headers are not installed")
endif()
set(tree reduce_tree/comm.c reduce_tree/open.c reduce_tree/switch.c)
plugin(gcc ${DTL_TEST_GCC} reduce_tree -std=c11 ${tree})
plugin(clang ${DTL_TEST_CLANG} reduce_tree -std=c11 ${tree})
# The simulated accelerator. Its compiler takes dtl_kernel.h of the sources.
set(sim sim/plugin.c sim/device.c sim/memory.c sim/transfer.c sim/stream.c sim/event.c sim/kernel.c
    sim/trace.c)
include("${top}/examples-plugins/sim/card/card.cmake")
set(card ${card_files} "-DSIM_INCLUDE=\"${top}/include\"")
plugin(gcc ${DTL_TEST_GCC} sim -std=c11 ${sim} ${card})
plugin(clang ${DTL_TEST_CLANG} sim -std=c11 ${sim} ${card})
# Its C++ version, over the same driver, which is C.
set(card_flags ${plugin_strict})
list(REMOVE_ITEM card_flags -shared)
foreach(folder gcc clang)
  string(TOUPPER ${folder} upper)
  string(REPLACE GCC GXX upper_cpp ${upper})
  string(REPLACE CLANG CLANGXX upper_cpp ${upper_cpp})
  set(object "${bin}/plugins/${folder}/card.o")
  add_custom_command(OUTPUT "${object}" VERBATIM DEPENDS ${card_files} ${plugin_headers}
    COMMAND "${DTL_TEST_${upper}}" -std=c11 ${card_flags} -r -nostdlib ${card} -o "${object}")
  plugin(${folder} ${DTL_TEST_${upper_cpp}} sim_cpp -std=c++17 sim_cpp/sim.cpp "${object}")
  add_custom_command(OUTPUT "${bin}/plugins/${folder}/libsim_cpp.so" DEPENDS "${object}" APPEND)
endforeach()
# Classes as plugins: the kit judges them, and the linker finds no function of the library in them.
function(class_plugin folder compiler name standard)
  set(file "${bin}/plugins/${name}-${folder}/lib${name}.so")
  file(MAKE_DIRECTORY "${bin}/plugins/${name}-${folder}")
  add_custom_command(OUTPUT "${file}" COMMAND ${compiler} -std=${standard} ${plugin_strict} -Wl,--no-undefined
    "${top}/tests/plugins/${name}.cpp" -pthread -o "${file}"
    DEPENDS "${top}/tests/plugins/${name}.cpp" "${top}/tests/cpp/dtl_guide.hpp" ${headers} VERBATIM)
  add_custom_target("plugin_${folder}_${name}" DEPENDS "${file}")
  add_dependencies(dtl_tests "plugin_${folder}_${name}")
  plugin_test(conformance.${name}.${folder} ${name}-${folder} 3 "" "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${file}" ${ARGN})
endfunction()
class_plugin(gcc ${DTL_TEST_GXX} classes c++20)
class_plugin(clang ${DTL_TEST_CLANGXX} classes c++20)
# Without exec: how soon a query finds an event of StepMesh's complete depends on the load of the machine.
class_plugin(gcc ${DTL_TEST_GXX} stepmesh c++17 --only "abi,device,memory,transfer")
class_plugin(clang ${DTL_TEST_CLANGXX} stepmesh c++17 --only "abi,device,memory,transfer")
set(parts --ranks 3 --only "comm.slots,comm.match,comm.coll,comm.close")
class_plugin(gcc ${DTL_TEST_GXX} mail c++20 ${parts})
class_plugin(clang ${DTL_TEST_CLANGXX} mail c++20 ${parts})
find_path(DTL_TEST_TBB oneapi/tbb/parallel_for.h)
mark_as_advanced(DTL_TEST_TBB)
if(DTL_TEST_TBB)
  plugin(tbb ${DTL_TEST_GXX} workers -std=c++17 -DWORKERS_TBB workers/workers.cpp -ltbb)
else()
  skipped(plugins/workers.tbb "oneTBB is not installed")
endif()

program(tests/plugins/test_pool "${top}/tests/plugins/test_pool.c" ${DTL_TEST_GCC} shared -std=c11)
program(tests/plugins/test_network "${top}/tests/plugins/test_network.c" ${DTL_TEST_GCC} shared -std=c11)
program(tests/plugins/test_sim "${top}/tests/plugins/test_sim.c" ${DTL_TEST_GCC} shared -std=c11)
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
plugin_test(tcp gcc 4 "" "${bin}/tests/plugins/test_network" tcp)
plugin_test(sim clang 1 "" "${bin}/tests/plugins/test_sim")
plugin_test(sim_cpp clang 1 "" "${bin}/tests/plugins/test_sim" sim_cpp)

# The plugin with a dialect of dtl_kernel.h (tests/plugins.cmake): its streams, modules and kernels, by the kit.
plugin_test(conformance.acme gcc 1 "" "${DTL_STAGE}/bin/dtl-ctk" run --plugin "${test_plugins}/acme.so")

# All of them by the conformance kit, each as one of the two compilers built it.
foreach(plugin gcc/pool clang/workers gcc/tcp clang/reduce_tree gcc/sim clang/sim_cpp)
  get_filename_component(folder ${plugin} DIRECTORY)
  get_filename_component(name ${plugin} NAME)
  plugin_test(conformance.${name} ${folder} 3 "" "${DTL_STAGE}/bin/dtl-ctk" run
    --plugin "${bin}/plugins/${folder}/lib${name}.so" --ranks 3 --timeout 120s)
endforeach()

# What is tested on GPUs: the kernels of tests/kernels, with the threads of a block, shared memory and atomics.
foreach(name saxpy reduce matmul histogram)
  plugin_test(sim.kernels.${name} gcc 1 "" "${bin}/tests/gpu/kernels" "${top}/tests/kernels" ${name} sim)
endforeach()

# The communicator, by what all communicators are tested by.
foreach(ranks 1 2 3 4 8)
  plugin_test(tcp.ctk.${ranks} clang ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run --kind tcp --ranks ${ranks} --cases 60)
  foreach(name p2p collectives forms groups probe random)
    plugin_test(tcp.${name}.${ranks} gcc ${ranks} "DTL_COMM=tcp"
      "${dtlrun}" -n ${ranks} "${bin}/tests/c/test_comm_${name}.gcc-c11" tcp)
  endforeach()
endforeach()
foreach(ranks 1 2 3 4 5 6 7 8)
  plugin_test(reduce_tree.${ranks} gcc ${ranks} "DTL_COMM=reduce_tree"
    "${dtlrun}" -n ${ranks} "${bin}/tests/plugins/test_reduce_tree")
endforeach()
foreach(ranks 1 2 4 8)
  plugin_test(reduce_tree.ctk.${ranks} clang ${ranks} "" "${DTL_STAGE}/bin/dtl-ctk" run --kind reduce_tree
    --ranks ${ranks} --cases 60)
  # Not test_comm_collectives: a switch does not detect that ranks make different calls.
  plugin_test(reduce_tree.forms.${ranks} gcc ${ranks} "DTL_COMM=reduce_tree"
    "${dtlrun}" -n ${ranks} "${bin}/tests/c/test_comm_forms.gcc-c11" reduce_tree)
endforeach()
plugin_test(tcp.death gcc 4 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_death.gcc-c11")
foreach(when now late)
  plugin_test(tcp.cut_${when} gcc 4 "DTL_COMM=tcp;DTL_TEST_ROOT=DTL_BACKEND_TCP_ROOT"
    "${top}/tests/plugins/between_nodes.sh" "${bin}/tests/plugins/test_network" tcp ${when} cut)
endforeach()
if(DTL_TEST_LIBFABRIC)
  # Less memory for each communicator: ofi_rxm takes 90 MB by default, and filling it takes its time.
  set(small "FI_OFI_RXM_MSG_TX_SIZE=64;FI_OFI_RXM_MSG_RX_SIZE=64")
  # Over shm: it is cheaper.
  plugin_test(conformance.libfabric libfabric_clang 3 "DTL_BACKEND_LIBFABRIC_PROVIDER=shm" "${DTL_STAGE}/bin/dtl-ctk" run
    --plugin "${bin}/plugins/libfabric_clang/liblibfabric.so" --ranks 3 --component comm)
  # Each rank needs 0.1 s and 40 MB for a communicator over tcp, so most runs are over shm.
  foreach(provider tcp shm)
    set(given "DTL_COMM=libfabric;DTL_BACKEND_LIBFABRIC_PROVIDER=${provider};${small}")
    plugin_test(libfabric.${provider} libfabric 3 "${given}" "${bin}/tests/plugins/test_network" libfabric)
    set(tests_of_tcp p2p collectives random)
    set(ranks_of_tcp 2 8)
    set(tests_of_shm p2p collectives forms groups probe random)
    set(ranks_of_shm 1 4)
    foreach(ranks ${ranks_of_${provider}})
      math(EXPR cases "60 / ${ranks}")
      plugin_test(libfabric.${provider}.ctk.${ranks} libfabric_clang ${ranks} "${given}" "${DTL_STAGE}/bin/dtl-ctk" run
        --kind libfabric --ranks ${ranks} --cases ${cases})
    endforeach()
    foreach(name ${tests_of_${provider}})
      plugin_test(libfabric.${provider}.${name} libfabric 3 "${given}"
        "${dtlrun}" -n 3 "${bin}/tests/c/test_comm_${name}.gcc-c11" libfabric)
    endforeach()
    plugin_test(libfabric.${provider}.window libfabric 3 "${given}"
      "${dtlrun}" -n 3 "${bin}/tests/c/test_win_access.gcc-c11" libfabric)
  endforeach()
  set(given "DTL_COMM=libfabric;${small}")
  # Not over shm: it does not survive each death (docs/adr/0038-libfabric-is-a-plugin.md).
  plugin_test(libfabric.window_death libfabric 3 "${given}"
    "${dtlrun}" -n 3 "${bin}/tests/c/test_win_own.gcc-c11" libfabric)
  plugin_test(libfabric.death libfabric 4 "${given}" "${bin}/tests/c/test_comm_death.gcc-c11")
  plugin_test(libfabric.shrink libfabric 8 "${given}" "${bin}/tests/c/test_comm_shrink.gcc-c11")
  # On several nodes: two network namespaces.
  set(nodes "${given};DTL_TEST_ROOT=DTL_BACKEND_LIBFABRIC_ROOT")
  plugin_test(libfabric.nodes libfabric 4 "${nodes}"
    "${top}/tests/plugins/between_nodes.sh" "${bin}/tests/c/test_comm_collectives.gcc-c11" libfabric)
  foreach(when now late)
    plugin_test(libfabric.cut_${when} libfabric 4 "${nodes}"
      "${top}/tests/plugins/between_nodes.sh" "${bin}/tests/plugins/test_network" libfabric ${when} cut)
  endforeach()
endif()
# As what stands between (pretended) nodes.
set(between "DTL_COMM=hier;DTL_HIER_ACROSS=tcp;DTL_FAKE_NODES=2x2")
plugin_test(hier.ctk gcc 4 "${between}" "${DTL_STAGE}/bin/dtl-ctk" run --kind hier --ranks 4)
plugin_test(hier.death gcc 4 "${between}" "${bin}/tests/c/test_comm_death.gcc-c11")
plugin_test(hier.random gcc 4 "${between}" "${dtlrun}" -n 4 "${bin}/tests/c/test_comm_random.gcc-c11" hier)
plugin_test(tcp.shrink gcc 8 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_shrink.gcc-c11")
plugin_test(tcp.grow gcc 5 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_grow.gcc-c11")
# Deaths are not detected there, so one scenario only.
plugin_test(reduce_tree.grow gcc 5 "DTL_COMM=reduce_tree" "${dtlrun}" -n 2 "${bin}/tests/c/test_comm_grow.gcc-c11" healthy)
plugin_test(tcp.revoke gcc 8 "DTL_COMM=tcp" "${bin}/tests/c/test_comm_revoke.gcc-c11")
if(DTL_BUILD_EXAMPLES)
  plugin_test(tcp.example gcc 4 "DTL_COMM=tcp" "${dtlrun}" -n 4 "${bin}/examples-c/ring.gcc")
  # Kernels, streams, events and messages from device memory on the simulated accelerator.
  foreach(program hello share_array)
    plugin_test(sim.${program} gcc 1 "DTL_BACKEND=sim" "${bin}/examples-c/${program}.gcc")
    set_tests_properties(plugins/sim.${program} PROPERTIES PASS_REGULAR_EXPRESSION "using sim|backend sim")
  endforeach()
  foreach(program examples-c/heat_gpu.gcc examples-cpp/heat_gpu.gxx)
    string(REPLACE "/" "." test "sim.${program}")
    plugin_test(${test} gcc 3 "DTL_BACKEND=sim;DTL_COMM=shm" "${dtlrun}" -n 3 "${bin}/${program}")
    set_tests_properties(plugins/${test} PROPERTIES PASS_REGULAR_EXPRESSION "3 rank.s. of backend sim.*: correct")
    # The devices of all ranks fail in the same step: each rank ends with that, and waits for none.
    plugin_test(${test}.fails gcc 3 "DTL_BACKEND=sim;DTL_COMM=shm;DTL_BACKEND_SIM_FAULT=launch:5" "${dtlrun}" -n 3
      "${bin}/${program}")
    set_tests_properties(plugins/${test}.fails PROPERTIES PASS_REGULAR_EXPRESSION "a command before the event failed")
  endforeach()
  # What the streams worked on is in the traces of all ranks.
  if(DTL_TEST_PYTHON)
    foreach(backend sim sim_cpp)
      plugin_test(${backend}.trace clang 3 "DTL_BACKEND=${backend}" "${DTL_TEST_PYTHON}"
        "${top}/tests/plugins/trace_sim.py" "${dtlrun}" "${bin}/examples-c/heat_gpu.gcc" 10)
    endforeach()
  else()
    skipped(plugins/sim.trace "python3 is not installed")
  endif()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/rust.cmake")
