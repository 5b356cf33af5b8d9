# Writes a C++ file with a function that returns files, each with its name and content:
#   cmake "-DFILES=a/one.txt;b/two.txt" -DFUNCTION=TemplateFiles -DHEADER=cli/plugin_new.h
#         -DOUTPUT=... -P embed_files.cmake
# HEADER declares `std::vector<EmbeddedFile> FUNCTION()` in plumb::cli.

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

set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" content)
  as_literals("${content}" literals)
  string(APPEND entries "      {\"${name}\",${literals}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cli/embed_files.cmake.
#include \"${HEADER}\"

namespace plumb::cli {

std::vector<EmbeddedFile> ${FUNCTION}() {
  return {
${entries}  };
}

}  // namespace plumb::cli
")
