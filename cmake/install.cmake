# What `cmake --install` and `cpack` give. Everything in it finds its neighbours by relative paths, so
# the prefix can be moved. Included by CMakeLists.txt.

include(CMakePackageConfigHelpers)
set(dtl_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dtl")
set(dtl_generated "${CMAKE_CURRENT_BINARY_DIR}/generated")

# Paths from the pkg-config file to the prefix, whatever CMAKE_INSTALL_LIBDIR is.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(dtl_pc_libdir "${CMAKE_INSTALL_LIBDIR}")
  set(dtl_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  set(dtl_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH dtl_up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
  string(REGEX REPLACE "/$" "" dtl_up "${dtl_up}")
  set(dtl_pc_prefix "\${pcfiledir}/${dtl_up}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(dtl_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(dtl_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/libdtl.pc.in "${dtl_generated}/libdtl.pc" @ONLY)

set(DTL_BIN_DIR "${CMAKE_INSTALL_BINDIR}")
set(DTL_LIB_DIR "${CMAKE_INSTALL_LIBDIR}")
set(DTL_INCLUDE_DIR "${CMAKE_INSTALL_INCLUDEDIR}")
set(DTL_DATA_DIR "${CMAKE_INSTALL_DATADIR}/dtl")
configure_package_config_file(cmake/dtlConfig.cmake.in "${dtl_generated}/dtlConfig.cmake"
  INSTALL_DESTINATION "${dtl_cmake_dir}"
  PATH_VARS DTL_BIN_DIR DTL_LIB_DIR DTL_INCLUDE_DIR DTL_DATA_DIR)
configure_file(cmake/dtlTargets.cmake.in "${dtl_generated}/dtlTargets.cmake" @ONLY)
# 0.x: a minor version may change the interface.
write_basic_package_version_file("${dtl_generated}/dtlConfigVersion.cmake" COMPATIBILITY SameMinorVersion)

install(FILES include/dtl.h include/dtl_backend.h include/dtl_rdma.h include/dtl_select.h include/dtl.hpp
              include/dtl_kernel.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/include/dtl" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(PROGRAMS "${DTL_SHARED_FILE}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${DTL_SYMBOLS_FILE}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/.debug")
install(FILES "${DTL_STAGE}/lib/${DTL_SONAME}" "${DTL_STAGE}/lib/libdtl.so" "${DTL_STATIC_FILE}"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}")
foreach(program IN LISTS DTL_PROGRAMS)
  install(PROGRAMS "${DTL_STAGE}/bin/${program}" DESTINATION "${CMAKE_INSTALL_BINDIR}")
endforeach()
install(FILES "${dtl_generated}/dtlConfig.cmake" "${dtl_generated}/dtlConfigVersion.cmake"
              "${dtl_generated}/dtlTargets.cmake" "${CMAKE_CURRENT_SOURCE_DIR}/cmake/DtlAddBackend.cmake"
              "${CMAKE_CURRENT_SOURCE_DIR}/cmake/DtlAddEnvironment.cmake"
              "${CMAKE_CURRENT_SOURCE_DIR}/cmake/DtlCheckPlugin.cmake"
              "${CMAKE_CURRENT_SOURCE_DIR}/cmake/dtl_backend_register.c.in"
              "${CMAKE_CURRENT_SOURCE_DIR}/cmake/dtl_backend_register.h.in"
        DESTINATION "${dtl_cmake_dir}")
# For Environment Modules and Lmod. Paths inside the prefix only, because the file finds the prefix from its own place.
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}")
  set(dtl_modulefiles "${CMAKE_INSTALL_DATADIR}/modulefiles/dtl")
  file(RELATIVE_PATH dtl_module_up "/p/${dtl_modulefiles}" "/p")
  string(REGEX REPLACE "/$" "" dtl_module_up "${dtl_module_up}")
  configure_file(cmake/modulefile.in "${dtl_generated}/modulefile" @ONLY)
  install(FILES "${dtl_generated}/modulefile" DESTINATION "${dtl_modulefiles}" RENAME "${PROJECT_VERSION}")
endif()
install(FILES "${dtl_generated}/libdtl.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(FILES LICENSE-MIT LICENSE-APACHE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

if(DTL_DOCS)
  install(DIRECTORY "${DTL_MANUAL}/man1" "${DTL_MANUAL}/man3" DESTINATION "${CMAKE_INSTALL_MANDIR}")
  install(DIRECTORY "${DTL_MANUAL}/bash/" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(DIRECTORY "${DTL_MANUAL}/zsh/" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(DIRECTORY "${DTL_MANUAL}/fish/" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
  # The site, and its pages as Markdown: the header names them.
  install(DIRECTORY "${DTL_SITE}/src/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" PATTERN SUMMARY.md EXCLUDE)
  if(DTL_MDBOOK)
    install(DIRECTORY "${DTL_SITE}/html/" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  endif()
endif()

# The interface as data, for generators of bindings.
install(FILES include/dtl-api.json include/dtl-api.schema.json DESTINATION "${CMAKE_INSTALL_DATADIR}/dtl")

# The Fortran modules, which a project compiles with its own compiler.
install(FILES bindings/fortran/dtl_c.f90 bindings/fortran/dtl_support.f90 bindings/fortran/dtl_types.F90
              bindings/fortran/dtl_typed.inc bindings/fortran/dtl.f90
        DESTINATION "${CMAKE_INSTALL_DATADIR}/dtl/fortran")

# Sources to learn from: the plugins that the how-tos name.
install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/examples-plugins" DESTINATION "${CMAKE_INSTALL_DATADIR}/dtl")

# The part that is compiled with the user's MPI.
if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/mpi/dtl_mpi.c")
  install(FILES mpi/dtl_mpi.c DESTINATION "${CMAKE_INSTALL_DATADIR}/dtl")
  install(FILES include/dtl_mpi.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
endif()

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME dtl)
set(CPACK_PACKAGE_VENDOR "libdtl")
set(CPACK_PACKAGE_FILE_NAME "dtl-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
include(CPack)
