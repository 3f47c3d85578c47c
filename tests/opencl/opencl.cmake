# OpenCL loaders that fail as they are told, for tests/c/test_opencl_faults.c: fake.c three times. Included by
# ../CMakeLists.txt; ${test_loaders} is the folder that they lie in. Without Khronos' headers there are none.

set(test_loaders "${bin}/opencl")
find_path(DTL_TEST_CL_HEADERS CL/cl.h)
mark_as_advanced(DTL_TEST_CL_HEADERS)
if(DTL_TEST_CL_HEADERS AND DTL_TEST_GCC)
  file(MAKE_DIRECTORY "${test_loaders}")
  foreach(name IN ITEMS fake old broken)
    string(TOUPPER "${name}" macro)
    add_custom_command(OUTPUT "${test_loaders}/${name}.so"
      COMMAND "${DTL_TEST_GCC}" -std=gnu11 -Wall -Wextra -Werror -Wno-deprecated-declarations -O1 -fPIC -shared "-D${macro}"
              -I "${DTL_TEST_CL_HEADERS}" "${top}/tests/opencl/fake.c" -o "${test_loaders}/${name}.so" -ldl
      DEPENDS "${top}/tests/opencl/fake.c" "${top}/tests/opencl/fake.h" VERBATIM)
    list(APPEND test_loader_files "${test_loaders}/${name}.so")
  endforeach()
endif()
add_custom_target(dtl_test_loaders DEPENDS ${test_loader_files})
add_dependencies(dtl_tests dtl_test_loaders)
