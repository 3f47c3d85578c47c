# The driver that is none (fake_cuda.h), whole and with functions left out. Included by tests/CMakeLists.txt, whose
# variables it uses; ${fake_cuda} is the library's path, which lines of runs.txt write as @CUDA@.

set(fake_cuda "${bin}/cuda/libcuda.so.1")
set(fake_cuda_files "")
file(MAKE_DIRECTORY "${bin}/cuda")
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.c")
set(fake_cuda_compiler "${DTL_TEST_GCC}")
if(NOT fake_cuda_compiler)
  set(fake_cuda_compiler "${DTL_TEST_CLANG}")
endif()

# fake_cuda_library(FILE [-DFUNCTION=another_name…])
function(fake_cuda_library file)
  add_custom_command(OUTPUT "${file}"
    COMMAND "${fake_cuda_compiler}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden ${ARGN} ${fake_cuda_sources}
            -o "${file}"
    DEPENDS ${fake_cuda_sources} "${top}/tests/cuda/fake_cuda.h" VERBATIM)
  set(fake_cuda_files ${fake_cuda_files} "${file}" PARENT_SCOPE)
endfunction()

fake_cuda_library("${fake_cuda}")
fake_cuda_library("${fake_cuda}.required" -DcuCtxSynchronize=left_out)
fake_cuda_library("${fake_cuda}.optional" -DcuMemPoolCreate=left_out -DcuStreamWaitValue32_v2=left_out_too)
add_custom_target(dtl_fake_cuda DEPENDS ${fake_cuda_files})
add_dependencies(dtl_tests dtl_fake_cuda)
