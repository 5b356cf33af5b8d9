# SPDX-License-Identifier: Apache-2.0
# Debian packages of the files that PlumbInstall.cmake installs: tools/make_packages.sh, or cpack in
# a build with the preset `package`.
#
#   libplumb0.3    libplumb.so.0.3. Policy (8.1) names the package after the SONAME, so that the library of
#                  another minor version can be installed next to it
#   plumb-norms    norms and placements. Their paths do not contain the library's version (policy 8.2),
#                  and the tool uses them without the library
#   libplumb-dev   headers, libplumb.a, CMake package, pkg-config
#   plumb          the tool, its manual pages, the pages of docs/ and the examples
#   plumb-mpi      libplumb-mpi.so, with which the tool runs on several machines; the only package that
#                  depends on an MPI. Builds without MPI (PLUMB_MPI) do not have it
#   *-dbgsym       debug symbols of each, if the build has them: functions and lines (-g1), in the preset
get_target_property(soversion plumb_shared SOVERSION)
set(library "libplumb${soversion}")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME plumb)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_COMPONENTS_ALL library norms development tool)
if(PLUMB_HAS_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
if("${CMAKE_CXX_FLAGS}" MATCHES "-g")
  set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)  # also strips the files
else()
  set(CPACK_STRIP_FILES ON)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE none)  # finish.cmake compresses
set(CPACK_PLUMB_COMPRESSION -Zxz)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SOURCE plumb)
set(PLUMB_PACKAGE_MAINTAINER "plumb maintainers <maintainers@plumb.example.org>" CACHE STRING
  "Maintainer field of the packages: name and address of whoever makes them")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${PLUMB_PACKAGE_MAINTAINER}")

# Dependencies that dpkg-shlibdeps cannot detect, by package. oneDNN is one of them if it is loaded
# on first use and not linked: without it everything works, but more slowly. Its package depends on
# the Debian that builds: libdnnl2 in 12, libdnnl3.6 in 13.
set(loaded_libraries "")
if(NOT "-ldnnl" IN_LIST PLUMB_STATIC_LIBRARIES)
  string(REPLACE ".so." "" loaded_libraries "${PLUMB_ONEDNN_SONAME}")  # name by policy 8.1
endif()
set(version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
# Norms of a later version may need a newer library, and its placements newer words.
set(norms_needed "plumb-norms (>= ${PROJECT_VERSION}), plumb-norms (<< ${PROJECT_VERSION_MAJOR}.${next_minor}~)")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "${norms_needed}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "${loaded_libraries}")
set(CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS "${norms_needed}")
set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS "${loaded_libraries}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library} (= ${version})")
set(CPACK_DEBIAN_TOOL_PACKAGE_SUGGESTS "plumb-mpi")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "plumb (= ${version})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin | mpi-default-bin")
# Packages that libplumb.a is linked with.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS
  "g++, libabsl-dev, libhwy-dev, libpcre2-dev, pkg-config, cmake")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME "${library}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "library that trains and samples transformers
plumb runs transformers on CPUs whose normalization placement is a formula
in a text file: it trains them, samples from them, and prints what they
compute.

This package contains the library with the C interface plumb.h.")
set(CPACK_DEBIAN_NORMS_PACKAGE_NAME plumb-norms)
set(CPACK_DEBIAN_NORMS_PACKAGE_SECTION science)
set(CPACK_COMPONENT_NORMS_DESCRIPTION "norms and norm placements for plumb
plumb runs transformers on CPUs whose normalization placement is a formula
in a text file.

This package contains the normalizations, which are plugins, and the
placements, which are texts. The library and the command line tool use them.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libplumb-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "headers and static library of plumb
plumb runs transformers on CPUs whose normalization placement is a formula
in a text file.

This package contains what programs need that embed it, and authors of
norms: headers, the static library, files for CMake and pkg-config.")
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME plumb)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION science)
set(CPACK_COMPONENT_TOOL_DESCRIPTION "trains and samples transformers whose norm placement is a formula
plumb runs transformers on CPUs whose normalization placement is a formula
in a text file: pre-norm, post-norm, or one of your own. It trains models
side by side and reports how they compare, samples from them, and shows
what it computes and how fast.

This package contains the command line tool and its documentation.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME plumb-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_COMPONENT_MPI_DESCRIPTION "MPI for plumb
plumb runs transformers on CPUs whose normalization placement is a formula
in a text file.

This package contains the library by which the command line tool trains on
several machines, when mpirun starts it.")

# (finish.cmake makes the first lines the synopses.)

# Control files that cpack does not support.
set(packages_dir "${PROJECT_BINARY_DIR}/packaging")
file(WRITE "${packages_dir}/triggers" "activate-noawait ldconfig\n")
file(WRITE "${packages_dir}/shlibs" "libplumb ${soversion} ${library} (>= ${PROJECT_VERSION})\n")
configure_file("${PROJECT_SOURCE_DIR}/cmake/packages/${library}.symbols" "${packages_dir}/symbols" COPYONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
  "${packages_dir}/triggers;${packages_dir}/shlibs;${packages_dir}/symbols")

# Before packaging: copyright, changelog, compression and file times. After: corrections of cpack's
# errors.
set(CPACK_PLUMB_COMPONENTS "library=${library};norms=plumb-norms;development=libplumb-dev;tool=plumb")
if(PLUMB_HAS_MPI)
  list(APPEND CPACK_PLUMB_COMPONENTS "mpi=plumb-mpi")
endif()
set(CPACK_PLUMB_PACKAGING_DIR "${PROJECT_SOURCE_DIR}/cmake/packages")
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/packages/stage.cmake")
set(CPACK_POST_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/packages/finish.cmake")
include(CPack)
