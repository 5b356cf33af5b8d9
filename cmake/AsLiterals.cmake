# SPDX-License-Identifier: Apache-2.0
# as_literals(TEXT RESULT): TEXT as C++ source.
# One literal a 8 kB: compilers must take 64 kB, and some take no more. Adjacent literals are one.
function(as_literals text result)
  set(literals "")
  string(LENGTH "${text}" length)
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND literals "\n       R\"=====(${piece})=====\"")
    math(EXPR at "${at} + 8000")
  endwhile()
  if(literals STREQUAL "")
    set(literals " \"\"")
  endif()
  set(${result} "${literals}" PARENT_SCOPE)
endfunction()
