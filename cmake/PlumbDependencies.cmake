# SPDX-License-Identifier: Apache-2.0
# Third-party libraries, all of which are packages of Debian 12 and 13. Each library is included by
# few folders, which are listed next to it.

# plumb_library_file(TARGET RESULT)
#   Sets RESULT to the path of an imported library, "/usr/lib/x86_64-linux-gnu/libdnnl.so.2.6".
function(plumb_library_file target result)
  get_target_property(types "${target}" IMPORTED_CONFIGURATIONS)
  set(location)
  foreach(suffix "" ${types})  # any build type, because the file is the same
    string(TOUPPER "_${suffix}" suffix)
    string(REGEX REPLACE "^_$" "" suffix "${suffix}")
    if(NOT location)
      get_target_property(location "${target}" "IMPORTED_LOCATION${suffix}")
    endif()
  endforeach()
  if(NOT location)
    message(FATAL_ERROR "The CMake package of ${target} does not name the library's file.")
  endif()
  set(${result} "${location}" PARENT_SCOPE)
endfunction()

# plumb_package(NAME DEBIAN_PACKAGES [...])
#   Calls find_package(NAME [...]), and remembers the packages if there is none.
set(PLUMB_MISSING_PACKAGES)
macro(plumb_package name packages)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    list(APPEND PLUMB_MISSING_PACKAGES "${packages}")
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)                                # runtime/base
plumb_package(absl "libabsl-dev")                             # everywhere
plumb_package(Protobuf "libprotobuf-dev protobuf-compiler")   # proto (while building), tests
if(Protobuf_FOUND AND NOT Protobuf_PROTOC_EXECUTABLE)
  list(APPEND PLUMB_MISSING_PACKAGES "protobuf-compiler")
endif()
plumb_package(dnnl "libdnnl-dev ocl-icd-opencl-dev")          # runtime/onednn (headers: it is loaded when needed), bench
plumb_package(hwy "libhwy-dev")                               # runtime/kernels, runtime/ops, plugins/norms
plumb_package(nlohmann_json "nlohmann-json3-dev")             # runtime/formats, tokenizer, data, session, api, cli, plugins/check
# PCRE2 has no CMake package in Debian.                       # runtime/tokenizer
find_path(PLUMB_PCRE2_INCLUDE_DIR pcre2.h DOC "PCRE2 (libpcre2-dev): its header")
find_library(PLUMB_PCRE2_LIBRARY pcre2-8 DOC "PCRE2 (libpcre2-dev): its library for bytes")
if(NOT PLUMB_PCRE2_INCLUDE_DIR OR NOT PLUMB_PCRE2_LIBRARY)
  list(APPEND PLUMB_MISSING_PACKAGES "libpcre2-dev")
endif()
mark_as_advanced(PLUMB_PCRE2_INCLUDE_DIR PLUMB_PCRE2_LIBRARY)
add_library(plumb_pcre2 UNKNOWN IMPORTED)
set_target_properties(plumb_pcre2 PROPERTIES
  IMPORTED_LOCATION "${PLUMB_PCRE2_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${PLUMB_PCRE2_INCLUDE_DIR}"
  INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8)
# Any MPI of version 3. Only libplumb-mpi.so links it, so builds with and without MPI differ in that
# file only.                                                  # runtime/ranks/mpi
set(PLUMB_HAS_MPI OFF)
if(NOT PLUMB_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PLUMB_MPI is \"${PLUMB_MPI}\"; it can be AUTO, ON or OFF")
elseif(PLUMB_MPI STREQUAL "ON")
  find_package(MPI 3 REQUIRED COMPONENTS C)
elseif(PLUMB_MPI STREQUAL "AUTO")
  find_package(MPI 3 QUIET COMPONENTS C)
endif()
if(PLUMB_MPI AND MPI_C_FOUND)
  set(PLUMB_HAS_MPI ON)
endif()
if(PLUMB_BUILD_CLI)
  plumb_package(CLI11 "libcli11-dev")                         # cli, plugins/check
endif()
if(PLUMB_BUILD_TESTS OR PLUMB_FUZZ)
  plumb_package(GTest "libgtest-dev libgmock-dev")            # tests
endif()
if(PLUMB_BUILD_BENCH)
  plumb_package(OpenMP "g++" COMPONENTS CXX)                  # bench (oneDNN is built on it)
endif()
if(PLUMB_MISSING_PACKAGES)
  list(JOIN PLUMB_MISSING_PACKAGES " " packages)
  message(FATAL_ERROR "Libraries are missing. They are these packages of Debian:  apt-get install ${packages}")
endif()

# The name by which plumb loads oneDNN is read from the library's file, because the version does not
# determine it: 3.7 is libdnnl.so.3.6 in Debian 13 and libdnnl.so.3 elsewhere.
plumb_library_file(DNNL::dnnl PLUMB_ONEDNN_FILE)
execute_process(COMMAND "${CMAKE_READELF}" --dynamic "${PLUMB_ONEDNN_FILE}" OUTPUT_VARIABLE PLUMB_ONEDNN_SONAME)
if(NOT PLUMB_ONEDNN_SONAME MATCHES "\\(SONAME\\)[^\n]*\\[([^]\n]+)\\]")
  message(FATAL_ERROR "oneDNN must be a shared library with a SONAME, and ${PLUMB_ONEDNN_FILE} has none.")
endif()
set(PLUMB_ONEDNN_SONAME "${CMAKE_MATCH_1}")
