# Cross build for 64-bit Arm with Debian's compiler (package gcc-aarch64-linux-gnu):
#     cmake -B build -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/aarch64-linux-gnu.cmake
# With qemu-aarch64, manual pages and shell completions are built as well, which run the programs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
find_program(DTL_QEMU_AARCH64 qemu-aarch64)
mark_as_advanced(DTL_QEMU_AARCH64)
if(DTL_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${DTL_QEMU_AARCH64};-L;/usr/aarch64-linux-gnu")
endif()
