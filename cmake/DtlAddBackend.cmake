# dtl_add_backend(NAME <name> STATIC SOURCES <file>… [AUTO_REGISTER])
#
# Builds a backend of your own into a static library, target dtl::backend_<name>. Link it into a
# program together with dtl::dtl or dtl::static.
#
# Contract. One of the sources defines
#
#     const dtl_backend_vtable_t *dtl_backend_<name>_table(void **out_self);
#
# which returns the table (it and `*out_self`, NULL at first, must live until the table's destroy), or
# NULL if there can be none. In C++ it is extern "C". From it these are generated:
#
#     dtl_status_t dtl_register_backend_<name>(void);     declared in dtl_backend_<name>.h
#
# registers the backend under <name>. Call it after dtl_init (and again after a later dtl_init: the last
# dtl_finalize takes every backend away). The linker is told to keep it, so it can also be found by
# dlsym or from another language. With AUTO_REGISTER it is called before main as well; that initialises
# the library from the environment, so a later dtl_init is only counted and its configuration unused.
#
# In the C names, characters of <name> that C does not know become '_'.

function(dtl_add_backend)
  cmake_parse_arguments(PARSE_ARGV 0 arg "STATIC;AUTO_REGISTER" "NAME" "SOURCES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "dtl_add_backend: unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME MATCHES "^[A-Za-z0-9_.-]+$")
    message(FATAL_ERROR "dtl_add_backend: NAME '${arg_NAME}': use letters, digits, '_', '-' and '.'")
  endif()
  if(NOT arg_STATIC)
    message(FATAL_ERROR "dtl_add_backend(${arg_NAME}): say STATIC; it is the only form so far")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "dtl_add_backend(${arg_NAME}): SOURCES are missing")
  endif()
  set(DTL_BACKEND_NAME "${arg_NAME}")
  string(REGEX REPLACE "[^A-Za-z0-9_]" "_" DTL_BACKEND_ID "${arg_NAME}")
  set(target "dtl_backend_${DTL_BACKEND_ID}")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.h.in" "${generated}/${target}.h" @ONLY)
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.c.in" "${generated}/${target}_register.c" @ONLY)

  add_library(${target} STATIC ${arg_SOURCES} "${generated}/${target}_register.c")
  add_library(dtl::backend_${arg_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  # The headers only: which dtl library is linked is the program's choice.
  target_include_directories(${target} PUBLIC "${generated}"
    "$<TARGET_PROPERTY:dtl::dtl,INTERFACE_INCLUDE_DIRECTORIES>")
  if(arg_AUTO_REGISTER)
    target_compile_definitions(${target} PRIVATE DTL_AUTO_REGISTER)
  endif()
  target_link_options(${target} INTERFACE "LINKER:-u,dtl_register_backend_${DTL_BACKEND_ID}")
endfunction()

set(DTL_ADD_BACKEND_DIR "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "where the templates of dtl_add_backend are")
