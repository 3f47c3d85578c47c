# dtl_add_environment: CMake function that declares what a backend needs to be built
#
#     find_package(dtl REQUIRED)
#     dtl_add_environment(NAME <name> [VERSION <version>] [PACKAGES <package>...]
#                         [VARIABLES <variable>=<value>...] [LIBRARIES <library>...]
#                         [DEPENDS <environment>...] [MINIMUM_CMAKE <version>])
#
# Nothing is searched for before dtl_add_backend(... ENVIRONMENTS <name>) uses it.
#
# NAME           Name of the environment: 1 to 63 letters, digits, '_', '-' and '.', not "auto".
# VERSION        Version, for "name>=version". Versions are compared by their numbers: 3.20 is newer
#                than 3.18.1.
# PACKAGES       Each one is a list of arguments of find_package, as one argument: BLAS,
#                "MPI 3.1 COMPONENTS C". If several environments of a backend name a package, the
#                highest version is required.
# VARIABLES      Variables that are set while the packages are searched for. Two environments of
#                one project that set a variable to different values are an error, because a project
#                finds a package once.
# LIBRARIES      Libraries that the backend is linked with, as in target_link_libraries.
# DEPENDS        Other environments, "name" or "name>=version", which are searched for first.
# MINIMUM_CMAKE  Oldest version of CMake with which the environment can be used.
#
# A second declaration of a name must have the same arguments.
#
# See docs/how-to/environments.md.

include_guard(GLOBAL)

function(dtl_add_environment)
  set(keys VERSION PACKAGES VARIABLES LIBRARIES DEPENDS MINIMUM_CMAKE)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;VERSION;MINIMUM_CMAKE" "PACKAGES;VARIABLES;LIBRARIES;DEPENDS")
  dtl_check_environment()
  get_property(known GLOBAL PROPERTY DTL_ENVIRONMENTS)
  foreach(key IN LISTS keys)
    get_property(before GLOBAL PROPERTY "DTL_ENVIRONMENT_${arg_NAME}_${key}")
    if(arg_NAME IN_LIST known AND NOT "${before}" STREQUAL "${arg_${key}}")
      message(FATAL_ERROR "dtl_add_environment(${arg_NAME}): it was declared before with another ${key}: "
        "'${before}', and now '${arg_${key}}'. Give one of the two another name.")
    endif()
    set_property(GLOBAL PROPERTY "DTL_ENVIRONMENT_${arg_NAME}_${key}" "${arg_${key}}")
  endforeach()
  if(NOT arg_NAME IN_LIST known)
    set_property(GLOBAL APPEND PROPERTY DTL_ENVIRONMENTS "${arg_NAME}")
  endif()
endfunction()

# What is wrong with the arguments. A macro: it works on the function's variables.
macro(dtl_check_environment)
  set(dtl_where "dtl_add_environment(${arg_NAME})")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${dtl_where}: unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${dtl_where}: nothing follows ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  string(LENGTH "${arg_NAME}" dtl_length)
  if(NOT "${arg_NAME}" MATCHES "^[A-Za-z0-9_.-]+$" OR dtl_length GREATER 63 OR "${arg_NAME}" STREQUAL "auto")
    message(FATAL_ERROR "dtl_add_environment: NAME '${arg_NAME}': use 1 to 63 letters, digits, '_', '-' and '.', and not 'auto'")
  endif()
  foreach(dtl_word IN ITEMS "${arg_VERSION}" "${arg_MINIMUM_CMAKE}")
    if(NOT "${dtl_word}" MATCHES "^([0-9][0-9A-Za-z._+~-]*)?$")
      message(FATAL_ERROR "${dtl_where}: version '${dtl_word}' does not begin with a number")
    endif()
  endforeach()
  foreach(dtl_word IN LISTS arg_VARIABLES)
    if(NOT dtl_word MATCHES "^[A-Za-z_][A-Za-z0-9_]*=")
      message(FATAL_ERROR "${dtl_where}: VARIABLES '${dtl_word}': write <variable>=<value>")
    endif()
  endforeach()
  if("${arg_PACKAGES};${arg_VARIABLES};${arg_LIBRARIES}" MATCHES "[\n\"\\\\]")
    message(FATAL_ERROR "${dtl_where}: no quotation marks, backslashes or line ends")
  endif()
endmacro()

# The environments that some need, dependencies first, each once. Fails for one that is not declared, a version that is too
# low, a circle. Sets `out`.
function(dtl_environment_order out where)
  set(order "")
  foreach(need IN LISTS ARGN)
    dtl_visit_environment("${need}" "")
  endforeach()
  set(${out} "${order}" PARENT_SCOPE)
endfunction()

# One step of it: works on `order` and `where` of its caller. `path` are the names that led here.
function(dtl_visit_environment need path)
  string(REGEX MATCH "^([^>= ]*)( *>= *(.*))?$" match "${need}")
  set(name "${CMAKE_MATCH_1}")
  set(least "${CMAKE_MATCH_3}")
  string(REPLACE ";" " -> " way "${path};${name}")
  string(REGEX REPLACE "^ -> " "" way "${way}")
  if(name IN_LIST path)
    message(FATAL_ERROR "${where}: environments depend on each other in a circle: ${way}")
  endif()
  get_property(known GLOBAL PROPERTY DTL_ENVIRONMENTS)
  if(NOT name IN_LIST known)
    string(REPLACE ";" ", " known "${known}")
    message(FATAL_ERROR "${where}: there is no environment ${name} (${way}); declare it before: "
      "dtl_add_environment(NAME ${name} …). Known: ${known}")
  endif()
  get_property(version GLOBAL PROPERTY "DTL_ENVIRONMENT_${name}_VERSION")
  if(least AND (NOT version OR version VERSION_LESS least))
    message(FATAL_ERROR "${where}: environment ${name} has version '${version}', and ${need} is wanted (${way})")
  endif()
  if(NOT name IN_LIST order)
    get_property(depends GLOBAL PROPERTY "DTL_ENVIRONMENT_${name}_DEPENDS")
    foreach(below IN LISTS depends)
      dtl_visit_environment("${below}" "${path};${name}")
    endforeach()
    list(APPEND order "${name}")
  endif()
  set(order "${order}" PARENT_SCOPE)
endfunction()

# Whether an environment may set a variable: sets `out` to the reason if another one that is used has set it differently.
function(dtl_claim_variable out environment variable value)
  get_property(claim GLOBAL PROPERTY "DTL_ENVIRONMENT_CLAIM_${variable}")
  set(${out} "" PARENT_SCOPE)
  if(NOT claim)
    set_property(GLOBAL PROPERTY "DTL_ENVIRONMENT_CLAIM_${variable}" "${environment}=${value}")
    return()
  endif()
  string(REGEX MATCH "^([^=]*)=(.*)$" claim "${claim}")
  set(other "${CMAKE_MATCH_1}")
  set(before "${CMAKE_MATCH_2}")
  if(NOT before STREQUAL "${value}")
    string(CONCAT text "environments ${other} and ${environment} set ${variable} to different values: "
      "'${before}' (${other}) and '${value}' (${environment})")
    set(${out} "${text}" PARENT_SCOPE)
  endif()
endfunction()

# What environments need, each in `order`: sets `packages` ("environment|find_package's arguments", each with the highest
# version that is asked for), `variables` ("environment|variable=value"), `libraries`, `minimum` (the highest MINIMUM_CMAKE)
# and `minimum_of` (whose it is) for its caller.
function(dtl_collect_environments)
  foreach(name IN ITEMS packages variables libraries minimum minimum_of)
    set(${name} "")
  endforeach()
  foreach(name IN LISTS ARGN)
    foreach(key IN ITEMS PACKAGES VARIABLES LIBRARIES MINIMUM_CMAKE)
      get_property(${key} GLOBAL PROPERTY "DTL_ENVIRONMENT_${name}_${key}")
    endforeach()
    foreach(package IN LISTS PACKAGES)
      list(APPEND packages "${name}|${package}")
      if(package MATCHES "^([^ ]+) +([0-9][^ ]*)")
        set(version "${CMAKE_MATCH_2}")
        if(NOT highest_${CMAKE_MATCH_1} OR version VERSION_GREATER highest_${CMAKE_MATCH_1})
          set(highest_${CMAKE_MATCH_1} "${version}")
        endif()
      endif()
    endforeach()
    list(TRANSFORM VARIABLES PREPEND "${name}|")
    list(APPEND variables ${VARIABLES})
    list(APPEND libraries ${LIBRARIES})
    if(MINIMUM_CMAKE AND (NOT minimum OR MINIMUM_CMAKE VERSION_GREATER minimum))
      set(minimum "${MINIMUM_CMAKE}")
      set(minimum_of "${name}")
    endif()
  endforeach()
  set(asked "")
  foreach(package IN LISTS packages)
    string(REGEX MATCH "^([^|]*)\\|([^ ]+)( +[0-9][^ ]*)?(.*)$" match "${package}")
    if(highest_${CMAKE_MATCH_2})
      set(package "${CMAKE_MATCH_1}|${CMAKE_MATCH_2} ${highest_${CMAKE_MATCH_2}}${CMAKE_MATCH_4}")
    endif()
    list(APPEND asked "${package}")
  endforeach()
  list(REMOVE_DUPLICATES asked)
  set(packages "${asked}")
  # Who depends stands before what it depends on, as linkers want it.
  list(REVERSE libraries)
  list(REMOVE_DUPLICATES libraries)
  foreach(name IN ITEMS packages variables libraries minimum minimum_of)
    set(${name} "${${name}}" PARENT_SCOPE)
  endforeach()
endfunction()

# Finds the packages of environments for a target and links it with their libraries: the target alone. Sets `out` to the
# text of a file that does the same for who uses the installed target, in the function dtl_find_needs of dtlConfig.cmake.
function(dtl_use_environments out where target)
  dtl_environment_order(dtl_order "${where}" ${ARGN})
  dtl_collect_environments(${dtl_order})
  set(dtl_text "")
  if(minimum)
    if(CMAKE_VERSION VERSION_LESS minimum)
      message(FATAL_ERROR "${where}: environment ${minimum_of} needs CMake ${minimum}, and this is ${CMAKE_VERSION}")
    endif()
    string(APPEND dtl_text "dtl_need_cmake(${minimum_of} ${minimum})\n")
  endif()
  foreach(dtl_entry IN LISTS variables)
    string(REGEX MATCH "^([^|]*)\\|([^=]*)=(.*)$" dtl_entry "${dtl_entry}")
    set(dtl_value "${CMAKE_MATCH_3}")
    set(dtl_variable "${CMAKE_MATCH_2}")
    string(APPEND dtl_text "dtl_need_variable(${CMAKE_MATCH_1} ${dtl_variable} \"${dtl_value}\")\n")
    dtl_claim_variable(dtl_conflict "${CMAKE_MATCH_1}" "${dtl_variable}" "${dtl_value}")
    if(dtl_conflict)
      message(FATAL_ERROR "${where}: ${dtl_conflict}")
    endif()
    set(${dtl_variable} "${dtl_value}")
  endforeach()
  foreach(dtl_entry IN LISTS packages)
    string(REGEX MATCH "^([^|]*)\\|(([^ ]+).*)$" dtl_entry "${dtl_entry}")
    set(dtl_environment "${CMAKE_MATCH_1}")
    set(dtl_arguments "${CMAKE_MATCH_2}")
    set(dtl_package "${CMAKE_MATCH_3}")
    string(APPEND dtl_text "dtl_need_for(${dtl_environment})\nfind_dependency(${dtl_arguments})\n")
    separate_arguments(dtl_arguments)
    find_package(${dtl_arguments} QUIET)
    if(NOT ${dtl_package}_FOUND)
      message(FATAL_ERROR "${where}: environment ${dtl_environment} needs the package '${dtl_arguments}', which was not found. "
        "${${dtl_package}_NOT_FOUND_MESSAGE} Install it, or say where it is with ${dtl_package}_ROOT.")
    endif()
  endforeach()
  if(libraries)
    string(APPEND dtl_text "set(dtl_libraries \"${libraries}\")\n")
    target_link_libraries(${target} PRIVATE ${libraries})
  endif()
  set(${out} "${dtl_text}" PARENT_SCOPE)
endfunction()
