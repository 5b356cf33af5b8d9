// SPDX-License-Identifier: Apache-2.0
// Results of `plumb theory`: measured and predicted values as text and JSON. Pure.
#ifndef PLUMB_CLI_THEORY_RESULTS_H_
#define PLUMB_CLI_THEORY_RESULTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/theory/measure.h"
#include "cli/theory/predict.h"

namespace plumb::cli {

struct TheoryResults {
  std::string model, file;
  std::vector<std::string> equations;
  int64_t seeds = 0, seq = 0;
  Reading reading;
  std::vector<Measurement> depths;  // at least one, shallowest first
};

// Returns the log-log slope over n_layer of the gradient norm of the last MLP's output weights;
// nullopt for a single depth or without MLPs.
std::optional<double> MeasuredDepthSlope(const TheoryResults& results);

std::string ToText(const TheoryResults& results);
// Returns the results as JSON; numbers that are not finite are null.
nlohmann::ordered_json ToJson(const TheoryResults& results);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_RESULTS_H_
