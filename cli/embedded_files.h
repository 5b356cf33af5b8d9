// SPDX-License-Identifier: Apache-2.0
// The files that the program carries (cli/embed_files.cmake). A value, and functions that return
// them.
#ifndef PLUMB_CLI_EMBEDDED_FILES_H_
#define PLUMB_CLI_EMBEDDED_FILES_H_

#include <string>
#include <vector>

namespace plumb::cli {

struct EmbeddedFile {
  std::string name;  // "Makefile": no directory
  std::string content;
};

// The scripts of cli/completion.
std::vector<EmbeddedFile> CompletionScripts();

// examples/why_normalise's models and recipe, the names, and a README.md, for plumb demo.
std::vector<EmbeddedFile> DemoFiles();

// The fields of the schema and their meaning, "model", "recipe" and so on, from the comments of
// proto/plumb/v1 (runtime/schema/compiler/schema_help.cc).
std::vector<EmbeddedFile> SchemaHelp();

// The template of plugins/template. There the norm is called my_norm, and its id is
// org.example.my_norm.
std::vector<EmbeddedFile> TemplateFiles();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EMBEDDED_FILES_H_
