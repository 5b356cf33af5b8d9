// What a recipe does to each tensor, as text and JSON. Stateless.
#ifndef PLUMB_CLI_UPDATES_TEXT_H_
#define PLUMB_CLI_UPDATES_TEXT_H_

#include <string>
#include <vector>

#include "cli/output.h"
#include "runtime/tools/model.h"

namespace plumb::cli {

// A paragraph for each group: its rule and numbers, then its tensors.
std::string UpdatesText(const std::vector<UpdateInfo>& updates);
Json UpdatesJson(const std::vector<UpdateInfo>& updates);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_UPDATES_TEXT_H_
