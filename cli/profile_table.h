// A profile of training steps as `plumb train --profile` and `plumb bench --profile` print it.
// Pure.
#ifndef PLUMB_CLI_PROFILE_TABLE_H_
#define PLUMB_CLI_PROFILE_TABLE_H_

#include <string>

#include "cli/output.h"
#include "runtime/tools/profile.h"

namespace plumb::cli {

// Figures of a mean step; a dash where there is nothing to count.
std::string ProfileTable(const Profile& profile);
Json ProfileJson(const Profile& profile);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PROFILE_TABLE_H_
