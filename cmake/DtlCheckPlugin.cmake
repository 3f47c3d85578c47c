# Refuses a backend that cannot work. Run by dtl_add_backend when it builds one.
#   NM  the tool      WHAT  OBJECTS  before a plugin is linked: its objects call libdtl directly
#   FILES                   PLUGIN   the plugin: it does not export its entry
#   ID  of the backend      STATIC   the static library: it defines neither an entry nor a table

set(dynamic "")
if(WHAT STREQUAL "PLUGIN")
  set(dynamic -D)
endif()
execute_process(COMMAND "${NM}" ${dynamic} ${FILES} RESULT_VARIABLE result OUTPUT_VARIABLE symbols ERROR_VARIABLE text)
if(NOT WHAT STREQUAL "PLUGIN" AND (NOT result EQUAL 0 OR symbols STREQUAL ""))
  return() # objects for the optimisation at link time, which this nm does not read; the linker reports what it finds
endif()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "dtl_add_backend: ${NM} ${FILES} failed: ${text}")
endif()
if(WHAT STREQUAL "PLUGIN" AND NOT symbols MATCHES " T dtl_plugin_entry_v1\n")
  file(REMOVE "${FILES}")
  message(FATAL_ERROR "dtl_add_backend: ${FILES} does not export dtl_plugin_entry_v1. Define it with "
    "DTL_PLUGIN_EXPORT in front, as the top of DtlAddBackend.cmake shows.")
endif()
if(WHAT STREQUAL "STATIC" AND symbols MATCHES " T dtl_register_backend_${ID}\n" AND NOT symbols MATCHES " T dtl_backend_${ID}_(entry|table)\n")
  file(REMOVE "${FILES}")
  message(FATAL_ERROR "dtl_add_backend: ${FILES} defines neither dtl_plugin_entry_v1 nor dtl_backend_${ID}_table. Define one, "
    "as the top of DtlAddBackend.cmake shows.")
endif()
if(WHAT STREQUAL "OBJECTS")
  string(REGEX MATCHALL " U dtl_[A-Za-z0-9_]+" used "${symbols}")
  set(calls "")
  foreach(symbol IN LISTS used)
    string(SUBSTRING "${symbol}" 3 -1 symbol)
    if(NOT symbols MATCHES " [TtWVDBR] ${symbol}\n")
      list(APPEND calls "${symbol}")
    endif()
  endforeach()
  if(calls)
    list(REMOVE_DUPLICATES calls)
    string(REPLACE ";" " " calls "${calls}")
    message(FATAL_ERROR "dtl_add_backend: the plugin calls ${calls}. A plugin links nothing of the library: use the "
      "functions of the dtl_host_api_t that its entry gets.")
  endif()
endif()
