// SPDX-License-Identifier: Apache-2.0
// Describe: equations, norms, parameters and routes of a model, without running it. Stateless.
#ifndef PLUMB_RUNTIME_MODEL_DESCRIBE_H_
#define PLUMB_RUNTIME_MODEL_DESCRIBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/parameters.h"
#include "runtime/model/routes.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Layers of a group whose Jacobians are the same.
struct LayerJacobian {
  std::vector<int64_t> layers;  // from 0, increasing
  std::string text;             // "(I + J_mlp J_norm) (I + J_attention J_norm)"
};

// Consecutive layers with the same block.
struct LayerGroup {
  int64_t first = 0, last = 0;  // from 0, both inclusive
  std::string placement;
  std::string doc;
  std::vector<std::string> equations;  // canonical text: "each: x = x + f(norm(x))"
  // Lets and fields with their values, and learned values: "alpha = 2", "g = layer / n_layer = 0.5
  // .. 1 over the layers".
  std::vector<std::string> scalars;
  std::vector<std::string> norms;  // "norm: rms_norm(affine=true, eps=1e-05, unit_offset=false)"
  // Distinct Jacobians in the order of their first layers. Rules with conditions or scalars of the
  // layer make several.
  std::vector<LayerJacobian> jacobians;
};

// Statement of an adapter at a projection.
struct AdapterStatement {
  // "W.weight += 2 * up.weight * down.weight" for a low-rank update; else a point and its
  // statement: "layers.0.attention.q: q = 2 * q".
  std::string text;
  std::string weight, up, down;  // parameters of a low-rank update; "": it is none
  double scale = 0;
};

struct StackDescription {
  std::vector<std::string> begin, end;
  std::vector<AdapterStatement> adapter;
  std::vector<LayerGroup> groups;
  Routes routes;
};

// Returns "learned", "none" or "rope(theta=10000)", including fields that differ from their
// default.
std::string DescribePositions(const PositionSpec& positions);

absl::StatusOr<StackDescription> DescribeStack(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_DESCRIBE_H_
