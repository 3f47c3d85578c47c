# Makes libdtl.a out of cargo's: one object in which only the dtl_ functions are global.
#
# Two Rust static libraries in one program would clash over the runtime that each carries. So all is
# linked into one relocatable object and every other name is made local.
#   INPUT, OUTPUT  archives      SYMBOLS  file with the names to keep, one a line
#   LINKER, OBJCOPY, AR  tools

# Nothing to do if cargo's archive has not changed.
if(EXISTS "${OUTPUT}" AND NOT "${INPUT}" IS_NEWER_THAN "${OUTPUT}" AND NOT "${SYMBOLS}" IS_NEWER_THAN "${OUTPUT}")
  return()
endif()

file(STRINGS "${SYMBOLS}" names)
set(wanted "")
foreach(name IN LISTS names)
  list(APPEND wanted -u "${name}")
endforeach()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "dtl: making libdtl.a failed: ${ARGN}\n${text}")
  endif()
endfunction()

set(object "${OUTPUT}.o")
run("${LINKER}" -r --force-group-allocation ${wanted} "${INPUT}" -o "${object}")
run("${OBJCOPY}" -R .llvmbc -R .llvmcmd "--keep-global-symbols=${SYMBOLS}" "${object}")
file(REMOVE "${OUTPUT}")
run("${AR}" rcs "${OUTPUT}" "${object}")
file(REMOVE "${object}")
