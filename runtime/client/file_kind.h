// SPDX-License-Identifier: Apache-2.0
// Recognizes a file that was given in the place of another: a recipe as a model. Pure functions.
#ifndef PLUMB_RUNTIME_CLIENT_FILE_KIND_H_
#define PLUMB_RUNTIME_CLIENT_FILE_KIND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

enum class FileKind { kModel, kRecipe, kStudy };

// Returns the kind of file of whose fields the text sets most, `expected` if no other has more.
FileKind LikelyFileKind(FileKind expected, absl::string_view text);

// Returns `error`, which parsing the file as `expected` gave, or, if it is likely of another
// kind, an error that names that kind and how to give such a file to a command.
absl::Status ExplainFileKind(FileKind expected, absl::string_view text, const std::string& file,
                             const absl::Status& error);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_FILE_KIND_H_
