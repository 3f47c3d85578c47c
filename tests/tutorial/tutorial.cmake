# The tutorials, run as printed. install.md and overview.md are not tutorials: they build the library,
# or list what it has.
file(GLOB pages CONFIGURE_DEPENDS "${top}/docs/tutorial/*.md")
list(FILTER pages EXCLUDE REGEX "/(install|overview)\\.md$")
if(DTL_TEST_PYTHON)
  foreach(page IN LISTS pages)
    get_filename_component(name "${page}" NAME_WE)
    add_test(NAME "tests/tutorial/${name}"
      COMMAND "${DTL_TEST_PYTHON}" "${top}/tests/tutorial/run.py" "${CMAKE_BINARY_DIR}" "${page}")
    set_tests_properties("tests/tutorial/${name}" PROPERTIES TIMEOUT ${guard}
      SKIP_RETURN_CODE 77)
  endforeach()
  # Pages that the script must refuse.
  add_test(NAME tests/tutorial/refused
    COMMAND "${DTL_TEST_PYTHON}" "${top}/tests/tutorial/refused.py")
  set_tests_properties(tests/tutorial/refused PROPERTIES TIMEOUT ${guard})
else()
  skipped(tests/tutorial "python3 is not installed")
endif()
