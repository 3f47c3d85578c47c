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
fake_cuda_library("${fake_cuda}.old" -DcuFuncGetParamInfo=left_out)

# NVRTC that is counted, and as others have it (nvrtc/counting.c).
function(counting_nvrtc file)
  add_custom_command(OUTPUT "${bin}/cuda/${file}"
    COMMAND "${fake_cuda_compiler}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden ${ARGN}
            "${top}/tests/cuda/nvrtc/counting.c" -o "${bin}/cuda/${file}"
    DEPENDS "${top}/tests/cuda/nvrtc/counting.c" VERBATIM)
  set(fake_cuda_files ${fake_cuda_files} "${bin}/cuda/${file}" PARENT_SCOPE)
endfunction()
counting_nvrtc(counting.so)
counting_nvrtc(counting_too.so)
counting_nvrtc(no_compile.so -DNO_COMPILE)
counting_nvrtc(old.so -DOLD)

# What the driver that is none does launches with.
file(GLOB fake_cuda_kernels CONFIGURE_DEPENDS "${top}/tests/kernels/*.c" "${top}/tests/cuda/kernels/*.c")
add_custom_command(OUTPUT "${bin}/cuda/kernels.so"
  COMMAND "${fake_cuda_compiler}" -std=gnu11 -O2 -fPIC -shared -I "${top}/include" ${fake_cuda_kernels}
          -o "${bin}/cuda/kernels.so"
  DEPENDS ${fake_cuda_kernels} "${top}/include/dtl_kernel.h" VERBATIM)
list(APPEND fake_cuda_files "${bin}/cuda/kernels.so")
# tools/setup.sh puts it there.
set(real_nvrtc "${CMAKE_BINARY_DIR}/wheels/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
add_custom_target(dtl_fake_cuda DEPENDS ${fake_cuda_files})
add_dependencies(dtl_tests dtl_fake_cuda)
