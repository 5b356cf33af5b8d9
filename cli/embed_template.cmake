# Writes the C++ file that holds plugins/template: cmake -DTEMPLATE=... -DOUTPUT=... -P embed_template.cmake
file(GLOB names RELATIVE "${TEMPLATE}" "${TEMPLATE}/*")
list(SORT names)
set(entries "")
foreach(name IN LISTS names)
  file(READ "${TEMPLATE}/${name}" content)
  string(APPEND entries "      {\"${name}\", R\"=====(${content})=====\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made from plugins/template.
#include \"cli/plugin_new.h\"

namespace plumb::cli {

std::vector<ProjectFile> TemplateFiles() {
  return {
${entries}  };
}

}  // namespace plumb::cli
")
