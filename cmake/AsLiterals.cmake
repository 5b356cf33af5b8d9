# SPDX-License-Identifier: Apache-2.0
# as_literals(TEXT RESULT): sets RESULT to TEXT as C++ source. Makes one literal per 8 kB, because
# some compilers accept no more than 64 kB; adjacent literals are concatenated.
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
