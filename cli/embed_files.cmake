# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file with a function that returns files, each with its name and content:
#   cmake "-DFILES=a/one.txt;b/two.txt" -DFUNCTION=CTemplate -DOUTPUT=... -P embed_files.cmake
# cli/embedded_files.h declares the function.

include("${CMAKE_CURRENT_LIST_DIR}/../cmake/AsLiterals.cmake")

set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" content)
  as_literals("${content}" literals)
  string(APPEND entries "      {\"${name}\",${literals}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cli/embed_files.cmake.
#include \"cli/embedded_files.h\"

namespace plumb::cli {

std::vector<EmbeddedFile> ${FUNCTION}() {
  return {
${entries}  };
}

}  // namespace plumb::cli
")
