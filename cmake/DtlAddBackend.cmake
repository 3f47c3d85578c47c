# dtl_add_backend(NAME <name> [MODULE|SHARED|STATIC] SOURCES <file>… [ENVIRONMENTS <name>…] [COMPONENTS <component>…]
#                 [DESCRIPTION <text>] [PRIORITY <number>] [INSTALL] [AUTO_REGISTER])
#
# Builds a backend of your own. The target is dtl::backend_<name>; its real name, for
# target_link_libraries and its like, is dtl_backend_<name> with characters that C does not know as '_'.
# Nothing of the library is linked, and all that is not exported on purpose is hidden. The sources see dtl.h and, as
# DTL_BACKEND_PRIORITY, the number for the table's auto_priority (0 without PRIORITY: the library's default).
#
# ENVIRONMENTS names what it needs to be built (dtl_add_environment, in DtlAddEnvironment.cmake: "name" or "name>=version"):
# their packages are found here, and the target alone gets what their libraries bring along.
#
# MODULE, which is what it is without a word: a plugin, lib<name>.so, for programs that know nothing of it. One of the sources
# defines
#
#     DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out);
#
# That the entry is there, and that no function of libdtl is called (those of dtl_host_api_t are for plugins), is checked when
# the file has been linked.
#
# SHARED: the same, and programs may link to it, for functions of its own that it exports.
#
# STATIC: a library to link into a program together with dtl::dtl or dtl::static. One of the sources defines
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
# Beside the file lies lib<name>.dtl.toml, the manifest: what it is, readable without loading it. COMPONENTS says there which
# tables it has (device, memory, transfer, exec, comm), DESCRIPTION what it is. INSTALL puts the file, its manifest and what
# finds its packages again into <libdir>/dtl/backends, where the library of the same prefix finds plugins and where
# find_package(dtl COMPONENTS <name>) finds all of them.

include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/DtlAddEnvironment.cmake")

function(dtl_add_backend)
  set(forms STATIC MODULE SHARED)
  cmake_parse_arguments(PARSE_ARGV 0 arg "${forms};AUTO_REGISTER;INSTALL" "NAME;PRIORITY;DESCRIPTION"
                        "SOURCES;COMPONENTS;ENVIRONMENTS")
  dtl_check_backend()
  string(REGEX REPLACE "[^A-Za-z0-9_]" "_" DTL_BACKEND_ID "${arg_NAME}")
  set(target "dtl_backend_${DTL_BACKEND_ID}")
  if(TARGET ${target})
    message(FATAL_ERROR "dtl_add_backend(${arg_NAME}): there is a target ${target} already")
  endif()
  if(form STREQUAL "STATIC")
    dtl_add_static_backend()
  else()
    dtl_add_plugin()
  endif()
  dtl_use_environments(dtl_needs "${dtl_where}" ${target} ${arg_ENVIRONMENTS})
  dtl_describe_backend()
  add_library(dtl::backend_${arg_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_definitions(${target} PRIVATE "DTL_BACKEND_PRIORITY=(${arg_PRIORITY})")
  # The headers only: which dtl library is linked is the program's choice.
  target_include_directories(${target} PUBLIC "$<TARGET_PROPERTY:dtl::dtl,INTERFACE_INCLUDE_DIRECTORIES>")
endfunction()

# What is wrong with the arguments; sets `form`. A macro: it works on the function's variables, as the
# next ones do.
macro(dtl_check_backend)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "dtl_add_backend: unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "dtl_add_backend: nothing follows ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  string(LENGTH "${arg_NAME}" dtl_length)
  if(NOT "${arg_NAME}" MATCHES "^[A-Za-z0-9_.-]+$" OR dtl_length GREATER 63 OR arg_NAME STREQUAL "auto")
    message(FATAL_ERROR "dtl_add_backend: NAME '${arg_NAME}': use 1 to 63 letters, digits, '_', '-' and '.', and not 'auto'")
  endif()
  set(dtl_where "dtl_add_backend(${arg_NAME})")
  set(form "")
  foreach(dtl_form IN LISTS forms)
    if(arg_${dtl_form})
      list(APPEND form ${dtl_form})
    endif()
  endforeach()
  if(form STREQUAL "")
    set(form MODULE)
  elseif(NOT form MATCHES "^(STATIC|MODULE|SHARED)$")
    message(FATAL_ERROR "${dtl_where}: say one of STATIC, MODULE and SHARED, not '${form}'")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "${dtl_where}: SOURCES are missing")
  endif()
  if(NOT DEFINED arg_PRIORITY)
    set(arg_PRIORITY 0)
  elseif(NOT arg_PRIORITY MATCHES "^-?[0-9]+$")
    message(FATAL_ERROR "${dtl_where}: PRIORITY '${arg_PRIORITY}' is not a whole number")
  endif()
  if(arg_AUTO_REGISTER AND NOT form STREQUAL "STATIC")
    message(FATAL_ERROR "${dtl_where}: AUTO_REGISTER is for STATIC; the library loads plugins by itself")
  endif()
  foreach(dtl_word IN LISTS arg_COMPONENTS)
    if(NOT dtl_word MATCHES "^(device|memory|transfer|exec|comm)$")
      message(FATAL_ERROR "${dtl_where}: COMPONENTS '${dtl_word}': the components are device, memory, transfer, exec, comm")
    endif()
  endforeach()
  if("${arg_DESCRIPTION};${arg_ENVIRONMENTS}" MATCHES "[\n\"\\\\]")
    message(FATAL_ERROR "${dtl_where}: DESCRIPTION and ENVIRONMENTS: no quotation marks, backslashes or line ends")
  endif()
endmacro()

macro(dtl_add_static_backend)
  set(DTL_BACKEND_NAME "${arg_NAME}")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.h.in" "${generated}/${target}.h" @ONLY)
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.c.in" "${generated}/${target}_register.c" @ONLY)
  add_library(${target} STATIC ${arg_SOURCES} "${generated}/${target}_register.c")
  target_include_directories(${target} PUBLIC "${generated}")
  if(arg_AUTO_REGISTER)
    target_compile_definitions(${target} PRIVATE DTL_AUTO_REGISTER)
  endif()
  target_link_options(${target} INTERFACE "LINKER:-u,dtl_register_backend_${DTL_BACKEND_ID}")
endmacro()

macro(dtl_add_plugin)
  add_library(${target} ${form} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "lib" OUTPUT_NAME "${arg_NAME}" SUFFIX ".so" DEBUG_POSTFIX "")
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}"
    "-DFILE=$<TARGET_FILE:${target}>" -P "${DTL_ADD_BACKEND_DIR}/DtlCheckPlugin.cmake")
endmacro()

# The manifest, the file that finds packages again, and the installation of all.
macro(dtl_describe_backend)
  dtl_header_abi(dtl_abi)
  set(dtl_entry "entry = \"dtl_plugin_entry_v1\"\n")
  set(dtl_lists COMPONENTS ENVIRONMENTS)
  if(form STREQUAL "STATIC")
    set(dtl_entry "")
    if("${arg_SOURCES}" MATCHES "\\.(cc|cpp|cxx|C)(;|$)")
      string(APPEND dtl_needs "set(dtl_languages CXX)\n")
    endif()
  endif()
  foreach(dtl_list IN LISTS dtl_lists)
    string(REPLACE ";" "\", \"" dtl_${dtl_list} "\"${arg_${dtl_list}}\"")
    string(REPLACE "\"\"" "" dtl_${dtl_list} "${dtl_${dtl_list}}")
  endforeach()
  string(TOLOWER "${form}" dtl_kind)
  file(GENERATE OUTPUT "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.toml" CONTENT
"# What the file that is named here is. dtl-info and find_package read it without loading that.
name = \"${arg_NAME}\"
file = \"$<TARGET_FILE_NAME:${target}>\"
kind = \"${dtl_kind}\"
${dtl_entry}abi = [2, ${dtl_abi}]
components = [${dtl_COMPONENTS}]
environments = [${dtl_ENVIRONMENTS}]
priority = ${arg_PRIORITY}
description = \"${arg_DESCRIPTION}\"
")
  if(arg_INSTALL)
    include(GNUInstallDirs)
    set(dtl_folder "${CMAKE_INSTALL_LIBDIR}/dtl/backends")
    file(GENERATE OUTPUT "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.cmake" CONTENT
"# What backend ${arg_NAME} needs. Generated by dtl_add_backend; included by dtlConfig.cmake.
${dtl_needs}")
    install(TARGETS ${target} DESTINATION "${dtl_folder}")
    install(FILES "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.toml" "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.cmake"
            DESTINATION "${dtl_folder}")
    if(form STREQUAL "STATIC")
      install(FILES "${generated}/${target}.h" DESTINATION "${dtl_folder}/include")
    endif()
  endif()
endmacro()

# DTL_ABI_VERSION of the header that plugins are compiled with.
function(dtl_header_abi out)
  get_target_property(folder dtl::dtl INTERFACE_INCLUDE_DIRECTORIES)
  file(STRINGS "${folder}/dtl.h" line REGEX "^#define DTL_ABI_VERSION " LIMIT_COUNT 1)
  if(NOT line MATCHES "DTL_ABI_VERSION ([0-9]+)")
    message(FATAL_ERROR "dtl: ${folder}/dtl.h does not say which DTL_ABI_VERSION it has; install it again")
  endif()
  set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

set(DTL_ADD_BACKEND_DIR "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "where the templates of dtl_add_backend are")
