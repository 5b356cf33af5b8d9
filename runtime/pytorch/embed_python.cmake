# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file that contains files of Python code, by folder and name, "pytorch/rms_norm":
#   cmake "-DFILES=a/pytorch/rms_norm.py;.." -DOUTPUT=... -P embed_python.cmake
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/AsLiterals.cmake")

set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME_WE)
  get_filename_component(folder "${path}" DIRECTORY)
  get_filename_component(folder "${folder}" NAME)
  file(READ "${path}" content)
  as_literals("${content}" literals)
  string(APPEND entries "      {\"${folder}/${name}\",${literals}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by runtime/pytorch/embed_python.cmake.
#include \"runtime/pytorch/code.h\"

namespace plumb {

std::map<std::string, std::string> PythonFiles() {
  return {
${entries}  };
}

}  // namespace plumb
")
