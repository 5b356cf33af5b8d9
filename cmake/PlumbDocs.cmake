# SPDX-License-Identifier: Apache-2.0
# Documentation that is installed, for `plumb docs` and for reading: the pages with their images, and
# the examples. They are copied into the build, whose layout is that of an installation, by
# cmake/CopyDocs.cmake. Scripts stay in the source tree, because they build plumb first.
file(GLOB_RECURSE doc_files RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/docs/*.md" "${PROJECT_SOURCE_DIR}/docs/images/*.svg"
  "${PROJECT_SOURCE_DIR}/examples/*.md" "${PROJECT_SOURCE_DIR}/examples/*.pbtxt"
  "${PROJECT_SOURCE_DIR}/examples/*.txt" "${PROJECT_SOURCE_DIR}/examples/*.c"
  "${PROJECT_SOURCE_DIR}/examples/*.cc" "${PROJECT_SOURCE_DIR}/examples/*.h"
  "${PROJECT_SOURCE_DIR}/examples/*.py" "${PROJECT_SOURCE_DIR}/examples/*.rs"
  "${PROJECT_SOURCE_DIR}/examples/*.toml"
  "${PROJECT_SOURCE_DIR}/examples/*.ipynb" "${PROJECT_SOURCE_DIR}/examples/benchmark/results/*.json")
list(FILTER doc_files EXCLUDE REGEX "/(build|\\.[^/]*)/")
list(APPEND doc_files README.md examples/gallery.html plugins/README.md docs/performance/results.json
  docs/images/report-dark.png docs/images/report-light.png)
list(SORT doc_files)

set(doc_output "${CMAKE_INSTALL_DOCDIR}")
if(IS_ABSOLUTE "${doc_output}")  # plumb then finds the pages after the installation only
  set(doc_output "share/doc/plumb")
endif()
set(PLUMB_DOC_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${doc_output}")
list(TRANSFORM doc_files PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE doc_paths)
file(WRITE "${PROJECT_BINARY_DIR}/docs_files.txt.new" "${doc_files}")
file(COPY_FILE "${PROJECT_BINARY_DIR}/docs_files.txt.new" "${PROJECT_BINARY_DIR}/docs_files.txt" ONLY_IF_DIFFERENT)
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/docs.stamp"
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${PLUMB_DOC_OUTPUT_DIRECTORY}"
          "-DLIST=${PROJECT_BINARY_DIR}/docs_files.txt" -P "${PROJECT_SOURCE_DIR}/cmake/CopyDocs.cmake"
  COMMAND "${CMAKE_COMMAND}" -E touch "${PROJECT_BINARY_DIR}/docs.stamp"
  DEPENDS ${doc_paths} "${PROJECT_BINARY_DIR}/docs_files.txt" "${PROJECT_SOURCE_DIR}/cmake/CopyDocs.cmake"
  COMMENT "Copying the pages and the examples" VERBATIM)
add_custom_target(plumb_docs ALL DEPENDS "${PROJECT_BINARY_DIR}/docs.stamp")
