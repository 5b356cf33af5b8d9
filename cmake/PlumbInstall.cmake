# What is installed for authors of norms: the header, find_package(plumb), pkg-config plumb-norm; and for
# programs that embed plumb: libplumb.so, plumb.h, find_package(plumb), pkg-config plumb. All of it finds
# itself by where it lies, so the installed tree may be moved.
include(CMakePackageConfigHelpers)

set(PLUMB_INSTALL_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/plumb")
set(PLUMB_INSTALL_PLUGIN_DIR "${CMAKE_INSTALL_LIBDIR}/plumb/norm-v1")

install(TARGETS plumb_norm_abi plumb_shared EXPORT plumb-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/runtime/include/plumb.h" "${PROJECT_SOURCE_DIR}/runtime/include/plumb.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/runtime/include/plumb/base.hpp" "${PROJECT_SOURCE_DIR}/runtime/include/plumb/texts.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/plumb")
install(EXPORT plumb-targets NAMESPACE plumb:: DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/sdk/plumb-config.cmake.in" "${PROJECT_BINARY_DIR}/sdk/plumb-config.cmake"
  INSTALL_DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}"
  PATH_VARS PLUMB_INSTALL_PLUGIN_DIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sdk/plumb-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/sdk/plumb-config.cmake"
  "${PROJECT_BINARY_DIR}/sdk/plumb-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/sdk/PlumbNormPlugin.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/sdk/norm_plugin.map"
  DESTINATION "${PLUMB_INSTALL_CMAKE_DIR}")

file(RELATIVE_PATH PLUMB_PC_TO_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" PLUMB_PC_TO_PREFIX "${PLUMB_PC_TO_PREFIX}")
foreach(name plumb plumb-norm)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/sdk/${name}.pc.in"
    "${PROJECT_BINARY_DIR}/sdk/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/sdk/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
