# Refuses a plugin file without its entry, or one that calls libdtl directly. Run by dtl_add_backend once the
# file is linked.      NM  the tool      FILE  the plugin

execute_process(COMMAND "${NM}" -D "${FILE}" RESULT_VARIABLE result OUTPUT_VARIABLE symbols ERROR_VARIABLE text)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "dtl_add_backend: ${NM} -D ${FILE} failed: ${text}")
endif()
if(NOT symbols MATCHES " T dtl_plugin_entry_v1\n")
  file(REMOVE "${FILE}")
  message(FATAL_ERROR "dtl_add_backend: ${FILE} does not export dtl_plugin_entry_v1. Define it with "
    "DTL_PLUGIN_EXPORT in front, as the top of DtlAddBackend.cmake shows.")
endif()
string(REGEX MATCHALL " U dtl_[A-Za-z0-9_]+" used "${symbols}")
if(used)
  file(REMOVE "${FILE}")
  string(REPLACE " U " " " used "${used}")
  message(FATAL_ERROR "dtl_add_backend: ${FILE} calls${used}. A plugin links nothing of the library: use the "
    "functions of the dtl_host_api_t that its entry gets.")
endif()
