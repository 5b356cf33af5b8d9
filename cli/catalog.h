// SPDX-License-Identifier: Apache-2.0
// Texts about the placements and norms that models can name: plumb help placements, plumb help
// norms, plumb plugin. Stateless.
#ifndef PLUMB_CLI_CATALOG_H_
#define PLUMB_CLI_CATALOG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "runtime/client/host_runtime.h"

namespace plumb::cli {

// Returns the norms of a report of plumb_runtime_describe as {id, path, problem}: the loaded ones
// sorted by id, then the files on the plugin path in search order.
std::vector<Json> ListNorms(const Json& report);

// Returns the text about a norm that DescribePlugin returned as JSON.
std::string NormText(const Json& norm);

// Return a list with what each placement or norm is, or, if `name` is not empty, all about one.
// Errors: kNotFound with a suggestion.
absl::StatusOr<std::string> PlacementsHelp(const std::string& name, HostRuntime* runtime);
absl::StatusOr<std::string> NormsHelp(const std::string& name, HostRuntime* runtime);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_CATALOG_H_
