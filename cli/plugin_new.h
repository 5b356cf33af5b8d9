// SPDX-License-Identifier: Apache-2.0
// plumb plugin new: the files of a new norm project, under a name that the user chose.
#ifndef PLUMB_CLI_PLUGIN_NEW_H_
#define PLUMB_CLI_PLUGIN_NEW_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/embedded_files.h"

namespace plumb::cli {

// Fails with kInvalidArgument and the syntax of ids if `id` is malformed or has one word, which is
// reserved for the norms that ship with plumb.
absl::Status CheckId(const std::string& id);

// Project of a norm in one language.
struct NormProject {
  std::vector<EmbeddedFile> files;
  std::string check;  // shell commands that build and check it, run in its directory
};

// Returns the template of a language ("c", "c++", "rust") with `name` and `id` filled in, in
// contents and file names. Errors: kInvalidArgument with a suggestion if `name` is not a lower-case
// C identifier, or `id` or `language` is not valid.
absl::StatusOr<NormProject> NewProject(const std::string& name, const std::string& id,
                                       const std::string& language);

// Writes the files to `directory`, which must not exist yet or be empty. All or nothing: they are
// written to a directory next to it, which is renamed. Errors: kAlreadyExists if `directory` is
// not empty.
absl::Status WriteProject(const std::vector<EmbeddedFile>& files, const std::string& directory);

// Returns the assembler text (GNU as and clang) of the section that PLUMB_NORM_NOTE(id) creates.
// Errors: kInvalidArgument if `id` is not valid.
absl::StatusOr<std::string> NoteAssembly(const std::string& id);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_NEW_H_
