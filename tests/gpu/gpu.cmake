# What is packed for machines with a GPU (pack.sh), and a test of the pack itself over the driver that is none. Included by
# tests/CMakeLists.txt, whose variables it uses.

if(DTL_TEST_GCC)
  file(MAKE_DIRECTORY "${bin}/tests/gpu")
  program(tests/gpu/bench "${top}/tests/gpu/bench.c" "${DTL_TEST_GCC}" shared -std=c11)
  program(tests/gpu/comm "${top}/tests/gpu/comm.c" "${DTL_TEST_GCC}" shared -std=c11)
  program(tests/gpu/kernels "${top}/tests/gpu/kernels.c" "${DTL_TEST_GCC}" shared -std=c11)
  foreach(measured bench comm)
    add_custom_command(OUTPUT "${bin}/tests/gpu/${measured}"
      DEPENDS "${top}/benches/measure.h" "${top}/tests/gpu/driver.h" APPEND)
  endforeach()
  add_custom_command(OUTPUT "${bin}/tests/gpu/kernels" DEPENDS ${fake_cuda_kernels} APPEND)
  add_test(NAME tests/gpu/pack
    COMMAND "${top}/tests/gpu/test_pack.sh" "${CMAKE_BINARY_DIR}" "${fake_cuda}" "${bin}/cuda/kernels.so" "${fake_nccl}")
  set_tests_properties(tests/gpu/pack PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77 PROCESSORS 2)
else()
  skipped(tests/gpu/pack "gcc is not installed")
endif()
