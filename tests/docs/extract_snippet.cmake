# SPDX-License-Identifier: Apache-2.0
# Writes the page's first block of C++ into a file, unless the file already holds it:
#   cmake -DPAGE=README.md -DOUTPUT=snippet.inc -P extract_snippet.cmake
file(READ "${PAGE}" text)
if(NOT text MATCHES "\n```cpp\n")
  message(FATAL_ERROR "${PAGE} shows no C++")
endif()
string(FIND "${text}" "\n```cpp\n" begin)
math(EXPR begin "${begin} + 8")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "\n```" end)
string(SUBSTRING "${text}" 0 ${end} text)
file(WRITE "${OUTPUT}.new" "${text}\n")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${OUTPUT}.new")
