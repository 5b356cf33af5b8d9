// SPDX-License-Identifier: Apache-2.0
// Files that are compiled into the program (cli/embed_files.cmake).
#ifndef PLUMB_CLI_EMBEDDED_FILES_H_
#define PLUMB_CLI_EMBEDDED_FILES_H_

#include <string>
#include <vector>

namespace plumb::cli {

struct EmbeddedFile {
  std::string name;  // "Makefile"; without a directory
  std::string content;
};

// Returns the models and the recipe of examples/why_normalise, the names, and a README.md, for
// plumb demo.
std::vector<EmbeddedFile> DemoFiles();

// Returns the fields of the schema and their descriptions, one file each for "model", "recipe" and
// so on, generated from the comments of proto/plumb/v1 (runtime/schema/compiler/schema_help.cc).
std::vector<EmbeddedFile> SchemaHelp();

// Return the templates of plugins/template in three languages, in which the norm is called my_norm
// and its id is org.example.my_norm.
std::vector<EmbeddedFile> CTemplate();
std::vector<EmbeddedFile> CppTemplate();
std::vector<EmbeddedFile> RustTemplate();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EMBEDDED_FILES_H_
