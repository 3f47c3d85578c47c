# The named tests of dtl-ctk on every backend and kind of communicator that is built in, and on the
# registered ones that dtl-ctk brings along. Included by tests/CMakeLists.txt, whose variables it uses.

# ctk(NAME ARGUMENT…): a run of dtl-ctk. Tests of backends use less than one processor. The ranks of a communicator
# use two, except those of kind nccl, which wait most of their time.
function(ctk name)
  add_test(NAME "tests/ctk.${name}" COMMAND "${DTL_STAGE}/bin/dtl-ctk" run ${ARGN})
  set_tests_properties("tests/ctk.${name}" PROPERTIES TIMEOUT ${guard})
  if("--kind" IN_LIST ARGN AND NOT name STREQUAL "nccl")
    set_tests_properties("tests/ctk.${name}" PROPERTIES PROCESSORS 2)
  endif()
endfunction()

ctk(abi --component abi)
ctk(null --backend null)
# The host has no exec table: what the library makes of streams, events and loops is tested by naming it.
ctk(host --backend host --component device,memory,transfer,exec)
# On PoCL's CPU, pretended to be two devices, so that what concerns several is tested.
find_file(DTL_TEST_POCL pocl.icd PATHS /etc/OpenCL/vendors NO_DEFAULT_PATH)
mark_as_advanced(DTL_TEST_POCL)
if(DTL_TEST_POCL)
  ctk(opencl --backend opencl --component device,memory,transfer,exec)
  set_tests_properties(tests/ctk.opencl PROPERTIES ENVIRONMENT "POCL_DEVICES=pthread pthread")
else()
  skipped(tests/ctk.opencl "PoCL is not installed (Debian: pocl-opencl-icd)")
endif()
# Over the driver that is none: two devices; with the real NVRTC if it was fetched.
ctk(cuda --backend cuda --component device,memory,transfer,exec)
set_tests_properties(tests/ctk.cuda PROPERTIES ENVIRONMENT
  "DTL_CUDA_LIBRARY=${fake_cuda};DTL_NVRTC_LIBRARY=${real_nvrtc};FAKE_CUDA_KERNELS=${bin}/cuda/kernels.so;DTL_CACHE_DIR=${kernels}")
# Over the NCCL that is none, too: ranks of a node on devices of their own.
ctk(nccl --kind nccl --ranks 3 --only comm.open,comm.close,comm.coll)
set_tests_properties(tests/ctk.nccl PROPERTIES ENVIRONMENT
  "DTL_CUDA_LIBRARY=${fake_cuda};DTL_NCCL_LIBRARY=${fake_nccl};FAKE_CUDA_DEVICES=4")
ctk(sample --backend sample --ranks 3)
ctk(self --kind self)
ctk(minimal --kind minimal --ranks 3)
foreach(ranks 1 2 4)
  ctk(threads-${ranks} --kind threads --ranks ${ranks})
  ctk(shm-${ranks} --kind shm --ranks ${ranks})
endforeach()
# Pretended nodes, with shared memory between them too.
foreach(nodes 2x2 1x3 3x1 2,1)
  if(nodes MATCHES "x")
    string(REPLACE "x" "*" ranks "${nodes}")
  else()
    string(REPLACE "," "+" ranks "${nodes}")
  endif()
  math(EXPR ranks "${ranks}")
  ctk(hier-${nodes} --kind hier --ranks ${ranks})
  set_tests_properties(tests/ctk.hier-${nodes} PROPERTIES
    ENVIRONMENT "DTL_HIER_ACROSS=shm;DTL_FAKE_NODES=${nodes}")
endforeach()
# Counters and stories of many ranks at once: by shared memory, and by messages.
foreach(kind threads shm minimal)
  ctk(windows-${kind}-8 --kind ${kind} --ranks 8 --only "comm.window.*")
endforeach()
if(test_plugins)
  ctk(plugin --plugin "${test_plugins}/good.so")
endif()

# What proves that these tests can fail.
add_test(NAME tests/ctk.faults COMMAND "${CMAKE_CURRENT_LIST_DIR}/faults.sh" "${DTL_STAGE}/bin/dtl-ctk")
set_tests_properties(tests/ctk.faults PROPERTIES TIMEOUT ${guard})
# Compiled kernels: not in the home of whoever runs the tests.
set_property(TEST tests/ctk.host tests/ctk.sample tests/ctk.faults APPEND PROPERTY ENVIRONMENT "DTL_CACHE_DIR=${kernels}")
