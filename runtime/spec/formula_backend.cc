// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/formula_backend.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr const char* kAttentionPoints[] = {
    "attention.q",     "attention.k",     "attention.v",       "attention.q_rot",
    "attention.k_rot", "attention.decay", "attention.context", "attention.o"};
constexpr const char* kLinearAttentionPoints[] = {
    "linear_attention.decay", "linear_attention.beta", "linear_attention.q",
    "linear_attention.k",     "linear_attention.v",    "linear_attention.context",
    "linear_attention.o"};
// The first point is that of gated ones only.
constexpr const char* kMlpPoints[] = {"mlp.gate", "mlp.up", "mlp.hidden", "mlp.down"};
constexpr const char* kExpertsPoints[] = {"experts.gate", "experts.up", "experts.hidden",
                                          "experts.down"};
constexpr const char* kSharedPoints[] = {"shared.gate", "shared.up", "shared.hidden",
                                         "shared.down"};

const char* GetKind(const SublayerSpec& sublayer) {
  switch (sublayer.kind) {
    case SublayerSpec::Kind::kAttention:
      return "attention";
    case SublayerSpec::Kind::kMlp:
      return "mlp";
    case SublayerSpec::Kind::kExperts:
      return "experts";
    case SublayerSpec::Kind::kLinearAttention:
      return "linear_attention";
    case SublayerSpec::Kind::kConv:
      break;
  }
  return "conv";
}

}  // namespace

std::string LastName(absl::string_view point) {
  return std::string(point.substr(point.rfind('.') + 1));
}

bool SublayerSite::projects(absl::string_view point) const {
  return std::find(replaced.begin(), replaced.end(), point) == replaced.end();
}

bool IsPointOf(const SublayerSpec& sublayer, absl::string_view point, absl::string_view wanted) {
  const std::string last = absl::StrCat(".", LastName(point));
  return wanted == absl::StrCat(GetKind(sublayer), last) ||
         wanted == absl::StrCat(sublayer.name, last);
}

std::vector<const char*> ListPoints(const SublayerSpec& sublayer) {
  if (sublayer.kind == SublayerSpec::Kind::kAttention) {
    std::vector<const char*> points(std::begin(kAttentionPoints), std::end(kAttentionPoints));
    if (!sublayer.attention.decay) points.erase(points.begin() + 5);
    if (sublayer.attention.keys_as_values) points.erase(points.begin() + 2);  // attention.v
    return points;
  }
  if (sublayer.kind == SublayerSpec::Kind::kLinearAttention) {
    std::vector<const char*> points(std::begin(kLinearAttentionPoints),
                                    std::end(kLinearAttentionPoints));
    const LinearAttentionSpec& spec = sublayer.linear_attention;
    if (!spec.delta) points.erase(points.begin() + 1);
    if (spec.decay == LinearAttentionSpec::Decay::kNone) points.erase(points.begin());
    return points;
  }
  if (sublayer.kind == SublayerSpec::Kind::kMlp) {
    return {std::begin(kMlpPoints) + (sublayer.mlp.gated ? 0 : 1), std::end(kMlpPoints)};
  }
  if (sublayer.kind != SublayerSpec::Kind::kExperts) return {};
  const int first = sublayer.experts.mlp.gated ? 0 : 1;
  std::vector<const char*> points(std::begin(kExpertsPoints) + first, std::end(kExpertsPoints));
  if (sublayer.experts.shared_d_ff.has_value()) {
    points.insert(points.end(), std::begin(kSharedPoints) + first, std::end(kSharedPoints));
  }
  return points;
}

namespace {

// Returns the points by the kinds of sublayers, and the head's.
std::vector<std::string> AllPoints() {
  std::vector<std::string> points(std::begin(kAttentionPoints), std::end(kAttentionPoints));
  points.insert(points.end(), std::begin(kLinearAttentionPoints), std::end(kLinearAttentionPoints));
  points.insert(points.end(), std::begin(kMlpPoints), std::end(kMlpPoints));
  points.insert(points.end(), std::begin(kExpertsPoints), std::end(kExpertsPoints));
  points.push_back(kHeadPoint);
  return points;
}

}  // namespace

bool MayBePoint(absl::string_view point) {
  const absl::string_view owner = point.substr(0, point.rfind('.'));
  const std::vector<std::string> points = AllPoints();
  return std::any_of(points.begin(), points.end(), [&](const std::string& known) {
    const bool is_kind =
        owner == "attention" || owner == "linear_attention" || owner == "mlp" || owner == "experts";
    return point == known ||
           (!is_kind && owner != "head" && !owner.empty() && known != kHeadPoint &&
            point == absl::StrCat(owner, ".", LastName(known)));
  });
}

absl::Status UnknownPoint(const InsideSpec& inside, const std::vector<std::string>& own) {
  std::vector<std::string> points = AllPoints();
  for (const std::string& point : own) {
    if (std::count(points.begin(), points.end(), point) == 0) points.push_back(point);
  }
  const std::string what = inside.point.empty()
                               ? "point is missing"
                               : absl::StrCat("unknown point \"", inside.point, "\"");
  return ErrorAt(inside.place,
                 absl::StrCat("inside: ", what, "; the points are ", absl::StrJoin(points, ", "),
                              DidYouMean(inside.point, points)));
}

absl::StatusOr<TensorHandle> NullBackend::Sublayer(const SublayerSite& site,
                                                   absl::Span<const TensorHandle> inputs,
                                                   AtPoint at_point) {
  for (const char* point : ListPoints(*site.spec)) {
    PLUMB_RETURN_IF_ERROR(at_point(point, inputs[0]).status());
  }
  return inputs[0];
}

absl::Status NullBackend::Head(TensorHandle x, AtPoint at_point) {
  return at_point(kHeadPoint, x).status();
}

}  // namespace plumb
