// SPDX-License-Identifier: Apache-2.0
// plumb plugin new: the files of a norm's project, under the name that the user chose.
#ifndef PLUMB_CLI_PLUGIN_NEW_H_
#define PLUMB_CLI_PLUGIN_NEW_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/embedded_files.h"

namespace plumb::cli {

// kInvalidArgument, with how ids are made, for one that plumb would not take or that is kept for
// the norms that ship with it.
absl::Status CheckId(const std::string& id);

// The files of TemplateFiles with the name and id put in, in contents and file names.
// kInvalidArgument, with a suggestion, for a name that is no C identifier in lower case or an id
// that plumb would not take.
absl::StatusOr<std::vector<EmbeddedFile>> NewProject(const std::string& name,
                                                     const std::string& id);

// Writes the files to `directory`, which must not exist yet or be empty. All or nothing: they
// are put together beside it and renamed. kAlreadyExists when something is there.
absl::Status WriteProject(const std::vector<EmbeddedFile>& files, const std::string& directory);

// Assembler text (GNU as and clang's) of the section that PLUMB_NORM_NOTE(id) makes.
// kInvalidArgument for an id that plumb would not take.
absl::StatusOr<std::string> NoteAssembly(const std::string& id);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_NEW_H_
