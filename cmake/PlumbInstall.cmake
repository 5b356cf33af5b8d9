# SPDX-License-Identifier: Apache-2.0
# Installed files, by package (PlumbPackages.cmake). For programs that embed plumb: libplumb,
# plumb.h, find_package(plumb) and pkg-config plumb. For authors of norms: the headers,
# plumb_add_norm_plugin() and pkg-config plumb-norm. For both: the norms and placements. Also the
# command line tool with the pages. Everything is located relative to itself, so the installed tree may be moved.
include(CMakePackageConfigHelpers)

set(PLUMB_INSTALL_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/plumb")
set(PLUMB_INSTALL_PLUGIN_DIR "${CMAKE_INSTALL_LIBDIR}/plumb/norm-v1")

install(TARGETS plumb_shared EXPORT plumb-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development)

# Files that the library, the tool and plugins read at run time.
get_property(norms GLOBAL PROPERTY PLUMB_NORM_TARGETS)
install(TARGETS ${norms}
  LIBRARY DESTINATION "${PLUMB_INSTALL_PLUGIN_DIR}" COMPONENT norms)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/placements/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/plumb/placements" COMPONENT norms
  FILES_MATCHING PATTERN "*.pbtxt")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/adapters/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/plumb/adapters" COMPONENT norms
  FILES_MATCHING PATTERN "*.pbtxt")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/zoo/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/plumb/zoo" COMPONENT norms
  FILES_MATCHING PATTERN "*.pbtxt")

# Files for hosts and for authors of norms.
install(TARGETS plumb_norm_abi EXPORT plumb-targets)
install(TARGETS plumb_static EXPORT plumb-static-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
  FILES_MATCHING REGEX "\\.(h|hpp)$" PATTERN "schemas" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/plugins/abi/plumb/"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/plumb" COMPONENT development FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/schemas/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/plumb/schemas" COMPONENT development
  FILES_MATCHING PATTERN "*.schema.json")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/python/plumb_runtime"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/plumb/python" COMPONENT development
  FILES_MATCHING PATTERN "*.py" PATTERN "palette.json" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
foreach(export plumb-targets plumb-static-targets)
  install(EXPORT ${export} NAMESPACE plumb::
    DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}" COMPONENT development)
endforeach()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/sdk/plumb-config.cmake.in" "${PROJECT_BINARY_DIR}/sdk/plumb-config.cmake"
  INSTALL_DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}"
  PATH_VARS PLUMB_INSTALL_PLUGIN_DIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sdk/plumb-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/sdk/plumb-config.cmake"
  "${PROJECT_BINARY_DIR}/sdk/plumb-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/sdk/PlumbNormPlugin.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/sdk/norm_plugin.map"
  DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}" COMPONENT development)

file(RELATIVE_PATH PLUMB_PC_TO_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" PLUMB_PC_TO_PREFIX "${PLUMB_PC_TO_PREFIX}")
list(JOIN PLUMB_STATIC_LIBRARIES " " PLUMB_PC_STATIC_LIBRARIES)
foreach(name plumb plumb-norm)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/sdk/${name}.pc.in"
    "${PROJECT_BINARY_DIR}/sdk/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/sdk/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endforeach()

# MPI backend of the tool, which searches this directory.
if(PLUMB_HAS_MPI)
  install(TARGETS plumb_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/plumb" COMPONENT mpi)
endif()

if(PLUMB_BUILD_CLI)
  install(TARGETS plumb RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tool)
  install(TARGETS plumb-norm-check
    RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/plumb" COMPONENT tool)
  install(DIRECTORY "${PROJECT_BINARY_DIR}/share/man/man1/"
    DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tool)
  install(DIRECTORY "${PLUMB_DOC_OUTPUT_DIRECTORY}/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT tool)
endif()
