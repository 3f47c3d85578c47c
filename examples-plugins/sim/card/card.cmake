# The driver for ../CMakeLists.txt and ../../sim_cpp/CMakeLists.txt: its files (card_files).
set(card_files memory.c share.c program.c launch.c fault.c ../../vcard/queue.c ../../vcard/binary.c)
list(TRANSFORM card_files PREPEND "${CMAKE_CURRENT_LIST_DIR}/")

# Adds to a target what the driver needs. At run time the driver compiles kernels with the dtl_kernel.h of the libdtl
# that it was built with.
function(card_link target)
  get_target_property(folders dtl::dtl INTERFACE_INCLUDE_DIRECTORIES)
  list(GET folders 0 folder)
  target_compile_definitions(${target} PRIVATE "SIM_INCLUDE=\"${folder}\"")
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
