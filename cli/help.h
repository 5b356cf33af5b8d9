// What plumb help explains beside commands: the files that people write.
#ifndef PLUMB_CLI_HELP_H_
#define PLUMB_CLI_HELP_H_

#include <vector>

#include "cli/embedded_file.h"

namespace plumb::cli {

// The fields of the schema and what they mean, "model", "recipe" and so on, from the comments of
// proto/plumb/v1 (proto/schema_help.cc).
std::vector<EmbeddedFile> SchemaHelp();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_HELP_H_
