// plumb demo: the files that it puts into its directory.
#ifndef PLUMB_CLI_DEMO_H_
#define PLUMB_CLI_DEMO_H_

#include <vector>

#include "cli/embedded_file.h"

namespace plumb::cli {

// examples/why_normalise's models and recipe, the names, and a README.md, embedded when plumb is
// built.
std::vector<EmbeddedFile> DemoFiles();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_DEMO_H_
