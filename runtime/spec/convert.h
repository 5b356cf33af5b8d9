// SPDX-License-Identifier: Apache-2.0
// Converts the schema's messages to plumb's own values. Stateless. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_CONVERT_H_
#define PLUMB_RUNTIME_SPEC_CONVERT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plumb/v1/model.schema.h"
#include "runtime/schema/located.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

// Parsed file of a ModelSpec. Copies share the locations; a field that is set later keeps its old
// location.
struct ModelProto {
  std::string file;
  v1::Model message;
  std::shared_ptr<const textproto::Locations> locations;

  Located located() const { return Located(file, message, locations.get()); }
};

// Returns true if `name` has the form of a name in a formula.
bool IsIdentifier(const std::string& name);

// The functions below fail with kInvalidArgument and a source location. `at` locates the fields of
// `message`, `place` the message as a whole. Requires: `base` is the placement that `message`
// extends, or null.
absl::StatusOr<PlacementSpec> ToPlacement(const v1::Placement& message, const Located& at,
                                          const PlacementSpec* base);
absl::StatusOr<InsideSpec> ToInside(const v1::Inside& message, const Located& at);
absl::StatusOr<InitRule> ToInitRule(const v1::Init& message, const Located& at);
absl::StatusOr<AttentionSpec> ToAttention(const v1::Attention& message, const Located& at);
absl::StatusOr<PositionSpec> ToPositions(const v1::Positions& message, const Located& at);
absl::StatusOr<MlpSpec> ToMlp(const v1::Mlp& message, const Located& at);
absl::StatusOr<ExpertsSpec> ToExperts(const v1::Experts& message, const Located& at,
                                      const SourceLocation& place);
absl::StatusOr<ConvSpec> ToConv(const v1::Conv& message, const Located& at);
absl::StatusOr<LinearAttentionSpec> ToLinearAttention(const v1::LinearAttention& message,
                                                      const Located& at);
// Returns the model's embedding_width, evaluated in `scope`.
absl::StatusOr<int64_t> ToEmbeddingWidth(const Located& model, const ScalarScope& scope);
// Evaluates the table's width in `scope`.
absl::StatusOr<TokenTable> ToTokenTable(const v1::Embedding& message, const Located& at,
                                        const SourceLocation& place, const ScalarScope& scope);
absl::StatusOr<NormAttrs> ToNormAttrs(const v1::Norm& message, const Located& at);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_CONVERT_H_
