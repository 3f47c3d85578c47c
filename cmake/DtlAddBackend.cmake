# dtl_add_backend: CMake function that builds a backend as a plugin, as a static library, or as both
#
#     find_package(dtl REQUIRED)
#     dtl_add_backend(NAME <name> [MODULE | SHARED] [STATIC] SOURCES <file>...
#                     [COMPONENTS <component>...] [DESCRIPTION <text>] [PRIORITY <number>]
#                     [ENVIRONMENTS <environment>...] [INSTALL] [AUTO_REGISTER])
#
# NAME          Name of the backend: 1 to 63 letters, digits, '_', '-' and '.', not "auto". The
#               target is dtl::backend_<name>. For target_link_libraries and its like it is
#               dtl_backend_<name>, where '_' replaces the characters that C identifiers lack.
# SOURCES       Source files. They can include dtl.h, and use the macro DTL_BACKEND_PRIORITY: the
#               value for auto_priority of the table. Symbols are hidden unless they are exported
#               explicitly. The library is not linked.
# MODULE        (default) A plugin, lib<name>.so, for programs that do not name it. One of the
#               sources defines its entry:
#
#     DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host,
#                                                        dtl_plugin_t *out);
#
#               The build checks that the entry exists and that no function of libdtl is called (a
#               plugin calls those of dtl_host_api_t). An undefined symbol is an error of the build
#               (-z defs), except with -fsanitize, whose symbols are in the program. The installed
#               plugin finds its own libraries in its folder (INSTALL_RPATH $ORIGIN), unless
#               CMAKE_INSTALL_RPATH is set.
# SHARED        A plugin that programs may also link to, for functions that it exports.
# STATIC        A library to link into a program, with dtl::dtl or dtl::static. One of the sources
#               defines dtl_plugin_entry_v1, which is called with the same dtl_host_api_t. If no
#               source has it, one defines (in C++ as extern "C")
#
#     const dtl_backend_vtable_t *dtl_backend_<name>_table(void **out_self);
#
#               It returns the table, or NULL if there is none. The table and *out_self, which is
#               NULL at first, live until the slot `destroy` of the table. The build generates
#
#     dtl_status_t dtl_register_backend_<name>(void);     declared in dtl_backend_<name>.h
#
#               It registers the table as <name>, or what the `load` of the entry registers. Call
#               it after each dtl_init: dtl_finalize removes all backends. The linker keeps the
#               function, so dlsym and other languages find it.
# MODULE STATIC Both (also SHARED STATIC), from the same sources. They are compiled twice, and must
#               define the entry. The plugin is dtl::backend_<name>, the static library
#               dtl::backend_<name>_static (dtl_backend_<name>_static). Options, definitions and
#               libraries are set on both targets.
# COMPONENTS    Tables that the backend has: device, memory, transfer, exec, comm. For the manifest
#               lib<name>.dtl.toml, which describes the plugin without loading it.
# DESCRIPTION   One line for the manifest.
# PRIORITY      Value of DTL_BACKEND_PRIORITY; 0 (default) = the default of the library.
# ENVIRONMENTS  What the build needs (dtl_add_environment): "name" or "name>=version". Their
#               packages are searched for here, and only this target gets their libraries.
# INSTALL       Installs the file, the manifest, and a CMake file that finds the packages again into
#               <libdir>/dtl/backends. The library of the same prefix finds plugins there, and
#               find_package(dtl COMPONENTS <name>) finds all forms.
# AUTO_REGISTER (STATIC) Also registers before main. That initialises the library from the
#               environment: a later dtl_init is only counted, and its configuration is not used.
#
# See docs/how-to/write-a-plugin.md, docs/tutorial/plugin-with-cmake.md and
# docs/how-to/register-a-backend.md.

include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/DtlAddEnvironment.cmake")

function(dtl_add_backend)
  set(forms MODULE SHARED STATIC) # in this order: the first has the name alone
  cmake_parse_arguments(PARSE_ARGV 0 arg "${forms};AUTO_REGISTER;INSTALL" "NAME;PRIORITY;DESCRIPTION"
                        "SOURCES;COMPONENTS;ENVIRONMENTS")
  dtl_check_backend()
  string(REGEX REPLACE "[^A-Za-z0-9_]" "_" DTL_BACKEND_ID "${arg_NAME}")
  set(dtl_targets "")
  foreach(form IN LISTS dtl_wanted)
    dtl_add_form()
  endforeach()
  dtl_describe_backend()
endfunction()

# What is wrong with the arguments; sets `dtl_wanted`, the forms. A macro: it works on the function's variables, as the
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
  set(dtl_wanted "")
  foreach(dtl_form IN LISTS forms)
    if(arg_${dtl_form})
      list(APPEND dtl_wanted ${dtl_form})
    endif()
  endforeach()
  if(dtl_wanted STREQUAL "")
    set(dtl_wanted MODULE)
  elseif("MODULE" IN_LIST dtl_wanted AND "SHARED" IN_LIST dtl_wanted)
    message(FATAL_ERROR "${dtl_where}: MODULE and SHARED are both plugins: give one of them, with or without STATIC")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "${dtl_where}: SOURCES are missing")
  endif()
  if(NOT DEFINED arg_PRIORITY)
    set(arg_PRIORITY 0)
  elseif(NOT arg_PRIORITY MATCHES "^-?[0-9]+$")
    message(FATAL_ERROR "${dtl_where}: PRIORITY '${arg_PRIORITY}' is not a whole number")
  endif()
  if(arg_AUTO_REGISTER AND NOT arg_STATIC)
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

# One form; adds its target to dtl_targets.
macro(dtl_add_form)
  set(target "dtl_backend_${DTL_BACKEND_ID}")
  set(dtl_alias "dtl::backend_${arg_NAME}")
  if(dtl_targets)
    string(APPEND target _static)
    string(APPEND dtl_alias _static)
  endif()
  if(TARGET ${target})
    message(FATAL_ERROR "dtl_add_backend(${arg_NAME}): there is a target ${target} already")
  endif()
  list(APPEND dtl_targets ${target})
  if(form STREQUAL "STATIC")
    dtl_add_static_backend()
  else()
    dtl_add_plugin()
  endif()
  dtl_use_environments(dtl_needs "${dtl_where}" ${target} ${arg_ENVIRONMENTS})
  add_library(${dtl_alias} ALIAS ${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_definitions(${target} PRIVATE "DTL_BACKEND_PRIORITY=(${arg_PRIORITY})")
  # The headers only: which dtl library is linked is the program's choice.
  target_include_directories(${target} PUBLIC "$<TARGET_PROPERTY:dtl::dtl,INTERFACE_INCLUDE_DIRECTORIES>")
endmacro()

macro(dtl_add_static_backend)
  set(DTL_BACKEND_NAME "${arg_NAME}")
  set(DTL_BACKEND_HAS_ENTRY 0)
  foreach(dtl_source IN LISTS arg_SOURCES)
    get_filename_component(dtl_source "${dtl_source}" ABSOLUTE)
    if(EXISTS "${dtl_source}")
      file(STRINGS "${dtl_source}" dtl_line REGEX "dtl_plugin_entry_v1" LIMIT_COUNT 1)
      if(dtl_line)
        set(DTL_BACKEND_HAS_ENTRY 1)
      endif()
    endif()
  endforeach()
  if(dtl_wanted MATCHES "MODULE|SHARED")
    set(DTL_BACKEND_HAS_ENTRY 1)
  endif()
  set(dtl_generated "dtl_backend_${DTL_BACKEND_ID}")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${dtl_generated}")
  # CMake silently ignores a .c file in a project without C.
  get_property(dtl_enabled GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(dtl_register "${generated}/${dtl_generated}_register.c")
  if(NOT "C" IN_LIST dtl_enabled)
    string(APPEND dtl_register "pp")
  endif()
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.h.in" "${generated}/${dtl_generated}.h" @ONLY)
  configure_file("${DTL_ADD_BACKEND_DIR}/dtl_backend_register.c.in" "${dtl_register}" @ONLY)
  add_library(${target} STATIC ${arg_SOURCES} "${dtl_register}")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME "${dtl_generated}")
  target_include_directories(${target} PUBLIC "${generated}")
  # The entry of each backend in a program needs a name of its own.
  target_compile_definitions(${target} PRIVATE "dtl_plugin_entry_v1=${dtl_generated}_entry")
  if(arg_AUTO_REGISTER)
    target_compile_definitions(${target} PRIVATE DTL_AUTO_REGISTER)
  endif()
  target_link_options(${target} INTERFACE "LINKER:-u,dtl_register_backend_${DTL_BACKEND_ID}")
  dtl_check_file(POST_BUILD STATIC "$<TARGET_FILE:${target}>")
endmacro()

macro(dtl_add_plugin)
  add_library(${target} ${form} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "lib" OUTPUT_NAME "${arg_NAME}" SUFFIX ".so" DEBUG_POSTFIX "")
  if(NOT DEFINED CMAKE_INSTALL_RPATH)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}" MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE "LINKER:-z,defs")
  endif()
  # Before the linker names a function of the library as undefined: linking the library is not the remedy.
  dtl_check_file(PRE_LINK OBJECTS "$<TARGET_OBJECTS:${target}>")
  dtl_check_file(POST_BUILD PLUGIN "$<TARGET_FILE:${target}>")
endmacro()

macro(dtl_check_file when dtl_what files)
  add_custom_command(TARGET ${target} ${when} VERBATIM COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DWHAT=${dtl_what}"
    "-DID=${DTL_BACKEND_ID}" "-DFILES=${files}" -P "${DTL_ADD_BACKEND_DIR}/DtlCheckPlugin.cmake")
endmacro()

# The manifest, the file that finds packages again, and the installation of all.
macro(dtl_describe_backend)
  dtl_header_abi(dtl_abi)
  list(GET dtl_wanted 0 form)
  list(GET dtl_targets 0 target)
  set(dtl_entry "entry = \"dtl_plugin_entry_v1\"\n")
  set(dtl_static "")
  set(dtl_lists COMPONENTS ENVIRONMENTS)
  if(form STREQUAL "STATIC")
    set(dtl_entry "")
  elseif(arg_STATIC)
    set(dtl_static "static = \"$<TARGET_FILE_NAME:${target}_static>\"\n")
  endif()
  if(arg_STATIC AND "${arg_SOURCES}" MATCHES "\\.(cc|cpp|cxx|C)(;|$)")
    string(APPEND dtl_needs "set(dtl_languages CXX)\n")
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
${dtl_static}${dtl_entry}abi = [2, ${dtl_abi}]
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
    install(TARGETS ${dtl_targets} DESTINATION "${dtl_folder}")
    install(FILES "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.toml" "$<TARGET_FILE_DIR:${target}>/lib${arg_NAME}.dtl.cmake"
            DESTINATION "${dtl_folder}")
    if(arg_STATIC)
      install(FILES "${generated}/${dtl_generated}.h" DESTINATION "${dtl_folder}/include")
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
