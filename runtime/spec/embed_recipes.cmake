# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file that contains the shipped recipes, by name:
#   cmake "-DFILES=a/mup.pbtxt;.." -DOUTPUT=... -P embed_recipes.cmake
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/AsLiterals.cmake")

set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME_WE)
  file(READ "${path}" content)
  as_literals("${content}" literals)
  string(APPEND entries "      {\"${name}\",${literals}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by runtime/spec/embed_recipes.cmake.
#include \"runtime/spec/shipped_recipes.h\"

namespace plumb {

std::vector<ShippedRecipe> ShippedRecipes() {
  return {
${entries}  };
}

}  // namespace plumb
")
