# Copies the libdtl.so that cargo has built without the names of its internal functions. They go into a file of their own,
# which gdb, perf, valgrind and Rust's backtraces find by the link in the library.
#   INPUT, OUTPUT  libraries      SYMBOLS  file for the names      OBJCOPY  tool

# Nothing to do if cargo's library has not changed.
if(EXISTS "${OUTPUT}" AND EXISTS "${SYMBOLS}" AND NOT "${INPUT}" IS_NEWER_THAN "${OUTPUT}")
  return()
endif()

if(NOT OBJCOPY)
  message(FATAL_ERROR "dtl: no objcopy: install binutils, or name it with -DCMAKE_OBJCOPY=...")
endif()
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "dtl: separating the symbols of libdtl.so failed: ${ARGN}\n${text}")
  endif()
endfunction()

get_filename_component(folder "${SYMBOLS}" DIRECTORY)
file(MAKE_DIRECTORY "${folder}")
run("${OBJCOPY}" --only-keep-debug "${INPUT}" "${SYMBOLS}")
# In place at the end: a program that runs keeps the library that it has loaded.
run("${OBJCOPY}" --strip-unneeded "--add-gnu-debuglink=${SYMBOLS}" "${INPUT}" "${OUTPUT}.new")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
