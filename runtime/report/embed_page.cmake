# SPDX-License-Identifier: Apache-2.0
# Writes the C++ file that contains the report's page, in two parts: before and after its data.
#   cmake -DSOURCE=runtime/report "-DSTYLES=a.css;b.css" "-DSCRIPTS=a.js;b.js" -DPALETTE=palette.json
#         -DOUTPUT=... -P embed_page.cmake
function(read_asset name result)
  file(READ "${SOURCE}/${name}" content)
  set(${result} "${content}" PARENT_SCOPE)
endfunction()

# Third-party files must be the reviewed ones.
file(STRINGS "${SOURCE}/uplot/SHA256SUMS" sums)
foreach(line IN LISTS sums)
  string(REGEX MATCH "^([0-9a-f]+)  (.*)$" matched "${line}")
  set(expected "${CMAKE_MATCH_1}")
  set(name "${CMAKE_MATCH_2}")
  file(SHA256 "${SOURCE}/uplot/${name}" actual)
  if(NOT actual STREQUAL expected)
    message(FATAL_ERROR "runtime/report/uplot/${name} has SHA-256 ${actual}, "
                        "and SHA256SUMS says ${expected}")
  endif()
endforeach()

set(style "")
foreach(name IN LISTS STYLES)
  read_asset("${name}" content)
  string(APPEND style "${content}")
endforeach()
set(script "")
foreach(name IN LISTS SCRIPTS)
  read_asset("${name}" content)
  string(APPEND script "${content}")
endforeach()
read_asset(uplot/uPlot.min.css uplot_style)
read_asset(uplot/uPlot.iife.min.js uplot_script)
read_asset(uplot/LICENSE uplot_license)

file(READ "${PALETTE}" palette)

read_asset(page.html page)
string(FIND "${page}" "{{data}}" at)
string(LENGTH "{{data}}" marker)
math(EXPR after "${at} + ${marker}")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${after} -1 after)
foreach(half before after)
  foreach(name uplot_style uplot_script uplot_license style script palette)
    string(REPLACE "{{${name}}}" "${${name}}" ${half} "${${half}}")
  endforeach()
endforeach()

include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/AsLiterals.cmake")
as_literals("${before}" before)
as_literals("${after}" after)
file(WRITE "${OUTPUT}" "// Made from runtime/report.
#include \"runtime/report/report.h\"

namespace plumb {

absl::string_view PageBeforeData() {
  return ${before};
}

absl::string_view PageAfterData() {
  return ${after};
}

}  // namespace plumb
")
