# The NCCL that is none (fake_nccl.c), whole and with a function left out. Included by tests/CMakeLists.txt, whose variables it
# uses, after cuda/cuda.cmake; lines of runs.txt write ${fake_nccl} as @NCCL@ and ${real_nccl} as @REAL_NCCL@.

set(fake_nccl "${bin}/nccl/libnccl.so.2")
set(fake_nccl_source "${CMAKE_CURRENT_LIST_DIR}/fake_nccl.c")
file(MAKE_DIRECTORY "${bin}/nccl")

# fake_nccl_library(FILE [-DFUNCTION=another_name…])
function(fake_nccl_library file)
  add_custom_command(OUTPUT "${file}"
    COMMAND "${fake_cuda_compiler}" -std=gnu11 ${strict} -fPIC -shared -fvisibility=hidden ${ARGN} "${fake_nccl_source}"
            -o "${file}"
    DEPENDS "${fake_nccl_source}" VERBATIM)
endfunction()

fake_nccl_library("${fake_nccl}")
fake_nccl_library("${fake_nccl}.required" -DncclGroupEnd=left_out)
# tools/setup.sh puts it there.
set(real_nccl "${CMAKE_BINARY_DIR}/wheels/nvidia/nccl/lib/libnccl.so.2")
add_custom_target(dtl_fake_nccl DEPENDS "${fake_nccl}" "${fake_nccl}.required")
add_dependencies(dtl_tests dtl_fake_nccl)
