# The Python binding: a wheel with the library that was built, and programs in Python that use it. Included by
# tests/CMakeLists.txt, whose functions and variables it uses. tools/setup.sh test creates the virtual environment
# (tests/python/environment.sh); without it these tests are skipped.

set(python_work "${CMAKE_BINARY_DIR}/python")
set(python "${python_work}/venv/bin/python")
set(python_sources "${top}/tests/python")

# python_test(NAME RANKS COMMAND…): a command over the installed wheel; with ranks, a program of that many.
function(python_test name ranks)
  set(test "tests/python/${name}")
  if(NOT EXISTS "${python_work}/venv/installed")
    skipped("${test}" "no ${python_work}/venv (tests/python/environment.sh creates it)")
    return()
  endif()
  if(ranks GREATER 1)
    set(start "${dtlrun}" -n ${ranks})
  endif()
  add_test(NAME "${test}" COMMAND ${start} ${ARGN})
  set_tests_properties("${test}" PROPERTIES TIMEOUT ${guard} SKIP_RETURN_CODE 77 SKIP_REGULAR_EXPRESSION "(^|\n)skipped: "
    FIXTURES_REQUIRED python_wheel ENVIRONMENT "PYTHONPATH=${python_work}/site;DTL_CACHE_DIR=${kernels}")
  of_ranks("${test}" ${ranks})
endfunction()

python_test(wheel 1 "${python_sources}/wheel.sh" "${CMAKE_BINARY_DIR}" "${python}")
if(EXISTS "${python_work}/venv/installed")
  set_tests_properties(tests/python/wheel PROPERTIES FIXTURES_REQUIRED "" FIXTURES_SETUP python_wheel)
endif()
python_test(raw_layer 1 "${python}" "${python_sources}/raw_layer.py" "${top}/include/dtl-api.json"
  "${top}/src/runtime/comm/p2p/cancel.rs")
python_test(messages 2 "${python}" "${python_sources}/messages.py")
python_test(request 2 "${python}" "${python_sources}/request.py")
python_test(collectives 3 "${python}" "${python_sources}/collectives.py")
python_test(window 2 "${python}" "${python_sources}/window.py")
python_test(comms 2 "${python}" "${python_sources}/comms.py")
python_test(grow 2 "${python}" "${python_sources}/grow.py")
python_test(host 1 "${python}" "${python_sources}/host.py")
python_test(devices 1 "${python}" "${python_sources}/devices.py")
python_test(registered 1 "${CMAKE_COMMAND}" -E env "PYTHONPATH=${python_work}/site:${top}/examples-python"
  "${python}" "${python_sources}/registered.py")
python_test(ctk 1 "${python_sources}/ctk.sh" "${DTL_STAGE}/bin" "${python}")
foreach(example "ring;4" "heat;3" "kernel;1" "backend;1")
  list(GET example 0 name)
  list(GET example 1 ranks)
  python_test("example_${name}" ${ranks} "${python}" "${top}/examples-python/${name}.py")
  set_tests_properties("tests/python/example_${name}" PROPERTIES FAIL_REGULAR_EXPRESSION "WRONG")
endforeach()
foreach(page from-mpi4py register-a-backend write-python)
  python_test("page.${page}" 1 "${python}" "${python_sources}/page.py" "${top}/docs/how-to/${page}.md" "${dtlrun}")
endforeach()
python_test(install 1 "${python_sources}/install.sh" "${CMAKE_BINARY_DIR}" "${python}")
# mypy reads the sources: it does not report errors of installed packages.
file(GLOB python_typed "${top}/examples-python/*.py" "${top}/tests/languages/*.py")
python_test(types 1 "${python}" -m mypy --strict --cache-dir "${python_work}/mypy" dtl ${python_typed})
set_tests_properties(tests/python/types PROPERTIES WORKING_DIRECTORY "${top}/bindings/python" ENVIRONMENT MYPYPATH=.)
python_test(style 1 "${python_sources}/style.sh" "${python_work}/venv/bin/ruff")
# The wheel of mpi4py finds Open MPI by itself.
if(DTL_TEST_MPIRUN_openmpi)
  python_test(mpi 1 "${DTL_TEST_MPIRUN_openmpi}" --allow-run-as-root --oversubscribe -n 2 "${python}" "${python_sources}/mpi.py")
  set_tests_properties(tests/python/mpi PROPERTIES PROCESSORS 2 RESOURCE_LOCK polling)
else()
  skipped(tests/python/mpi "mpirun.openmpi is not installed")
endif()
