# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file with the hash of the sources and of the way in which they are compiled:
#   cmake "-DFILES=a.cc;.." "-DSOURCE_DIR=.." "-DFLAGS=.." "-DOUTPUT=.." -P write_build_id.cmake
set(all "${FLAGS}")
foreach(path IN LISTS FILES)
  file(RELATIVE_PATH name "${SOURCE_DIR}" "${path}")
  file(SHA256 "${path}" hash)
  string(APPEND all "\n${name} ${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 16 id)
file(WRITE "${OUTPUT}" "// Made by runtime/train/write_build_id.cmake.
#include \"runtime/train/run_identity.h\"

namespace plumb {

const char* BuildId() { return \"${id}\"; }

}  // namespace plumb
")
