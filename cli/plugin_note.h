// plumb plugin note: the ELF note of a norm, for languages without PLUMB_NORM_NOTE.
#ifndef PLUMB_CLI_PLUGIN_NOTE_H_
#define PLUMB_CLI_PLUGIN_NOTE_H_

#include <string>

#include "absl/status/statusor.h"

namespace plumb::cli {

// Assembler text (GNU as and clang's) of the section that PLUMB_NORM_NOTE(id) makes.
// kInvalidArgument for an id that plumb would not take.
absl::StatusOr<std::string> NoteAssembly(const std::string& id);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_NOTE_H_
