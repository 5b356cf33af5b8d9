// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/random_graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/rng.h"
#include "runtime/graph/builder.h"

namespace plumb {
namespace {

class Generator {
 public:
  Generator(const OpRegistry& ops, uint64_t seed) : rng_(seed, "random graph"), b_(&ops) {}

  Graph Run(const RandomGraphOptions& options) {
    for (int i = 0; i < 3; ++i) values_.push_back(b_.Parameter(absl::StrCat("w", i), Type()));
    values_.push_back(b_.Input("x", Type()));
    if (options.states) {
      for (int i = 0; i < 2; ++i) states_.push_back(b_.State(absl::StrCat("s", i), Type()));
    }
    for (int i = 0; i < options.nodes; ++i) AddNode();

    std::vector<ValueId> sums;
    for (int i = 0; i < 4; ++i) sums.push_back(b_.Apply("sum", {Any()}));
    b_.Output("loss", b_.Apply("combine", sums, {{"coefs", std::vector<double>{1, 0.5, -1, 0.25}}},
                               "loss"));
    for (int i = 0; i < options.outputs; ++i) {
      const ValueId value = Any();
      const bool leaf = b_.graph().value(value).kind != ValueKind::kComputed;
      if (leaf && !options.awkward_outputs) continue;
      b_.Output(absl::StrCat("out", i), value);
      if (options.awkward_outputs && Below(2) == 0) b_.Output(absl::StrCat("again", i), value);
    }
    absl::StatusOr<Graph> graph = std::move(b_).Finish();
    PLUMB_CHECK(graph.ok(), std::string(graph.status().message()).c_str());
    return *std::move(graph);
  }

 private:
  uint64_t Below(uint64_t n) { return rng_.Below(draws_++, n); }
  TensorType Type() { return F32({int64_t{8} << Below(3)}); }
  ValueId Any() { return values_[Below(values_.size())]; }

  // Returns a value of the same type as `value`, perhaps itself.
  ValueId Like(ValueId value) {
    for (int tries = 0; tries < 20; ++tries) {
      const ValueId other = Any();
      if (b_.type(other) == b_.type(value)) return other;
    }
    return value;
  }

  void AddNode() {
    const ValueId x = Any();
    const int64_t n = b_.type(x).num_elements();
    switch (Below(8)) {
      case 0:
      case 1: {
        std::vector<ValueId> terms = {x};
        std::vector<double> coefs = {0.5};
        for (uint64_t i = Below(3); i > 0; --i) {
          terms.push_back(Like(x));
          coefs.push_back(i == 1 ? 1.0 : -0.75);
        }
        values_.push_back(b_.Apply("combine", terms, {{"coefs", coefs}, {"constant", 0.125}}));
        break;
      }
      case 2:  // an identity
        values_.push_back(b_.Apply("combine", {x}, {{"coefs", std::vector<double>{1}}}));
        break;
      case 3:
        values_.push_back(b_.Apply("mul", {x, Like(x)}));
        break;
      case 4:
        values_.push_back(b_.Apply("reverse", {x}));
        break;
      case 5:
        if (n % 2 == 0) {
          for (const ValueId half : b_.ApplyAll("split", {x})) values_.push_back(half);
        }
        break;
      case 6:
        values_.push_back(b_.Apply("sum", {x}));
        break;
      default:
        if (!states_.empty()) Update();
        break;
    }
  }

  // Overwrites a state with itself plus a term, and uses the result as the state; sometimes reads
  // the old state before.
  void Update() {
    ValueId& state = states_[Below(states_.size())];
    const ValueId read = b_.Apply("reverse", {state});
    values_.push_back(read);
    state = b_.Apply("accumulate", {state, Like(read)});
    values_.push_back(b_.Apply("mul", {state, read}));
  }

  RngStream rng_;
  uint64_t draws_ = 0;
  GraphBuilder b_;
  std::vector<ValueId> values_;
  std::vector<ValueId> states_;
};

}  // namespace

Graph RandomGraph(const OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options) {
  return Generator(ops, seed).Run(options);
}

ReferenceTensors RandomFeeds(const Graph& graph, uint64_t seed) {
  ReferenceTensors feeds;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kComputed) continue;
    ReferenceTensor feed;
    feed.type = value.type;
    const size_t elements = static_cast<size_t>(value.type.num_elements());
    if (value.type.dtype == DType::kI32) {
      feed.i.assign(elements, 0);
    } else if (value.type.dtype == DType::kI8) {
      const RngStream rng(seed, value.name);
      for (size_t j = 0; j < elements; ++j) {
        feed.i.push_back(static_cast<int32_t>(254 * rng.Uniform(j)) - 127);
      }
    } else {
      const RngStream rng(seed, value.name);
      for (size_t j = 0; j < elements; ++j) {
        // Representable in f32, so that kernels and references start from the same numbers.
        feed.f.push_back(static_cast<float>(2 * rng.Uniform(j) - 1));
      }
    }
    feeds[value.name] = std::move(feed);
  }
  return feeds;
}

}  // namespace plumb
