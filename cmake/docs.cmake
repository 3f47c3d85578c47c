# The documentation site: dtl-manual writes its sources, mdBook the pages. Included by CMakeLists.txt.

if(NOT DTL_DOCS)
  return()
endif()

if(DTL_MDBOOK AND NOT EXISTS "${DTL_MDBOOK}")
  unset(DTL_MDBOOK CACHE) # of an earlier run, removed since
endif()
find_program(DTL_MDBOOK mdbook HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin" DOC "mdBook 0.5")
set(dtl_mdbook_version "")
if(DTL_MDBOOK)
  execute_process(COMMAND "${DTL_MDBOOK}" --version OUTPUT_VARIABLE dtl_mdbook_version
                  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT dtl_mdbook_version MATCHES "^mdbook v0\\.5\\.")
  message(STATUS
    "dtl: mdbook 0.5 was not found, so the documents are installed as Markdown, without the site. "
    "`tools/setup.sh docs` installs it; -DDTL_MDBOOK=/path/to/mdbook names it.")
  set(DTL_MDBOOK "")
endif()

set(DTL_SITE "${DTL_STAGE}/site")
set(dtl_write_site COMMAND ${dtl_emulator} "${dtl_bin_target}/${dtl_out}programs/dtl-manual" --site "${CMAKE_CURRENT_SOURCE_DIR}" "${DTL_SITE}")
if(DTL_MDBOOK)
  list(APPEND dtl_write_site COMMAND "${DTL_MDBOOK}" build "${DTL_SITE}")
endif()
add_custom_target(dtl_docs_build ALL ${dtl_write_site} COMMENT "Documentation site" VERBATIM)
add_dependencies(dtl_docs_build dtl_programs_build)
