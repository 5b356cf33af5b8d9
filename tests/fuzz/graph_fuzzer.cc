// SPDX-License-Identifier: Apache-2.0
// Fuzzes the graphs of formulas, which are computed in two ways: by the optimized executable in f32
// and by the naive references in double. The bytes choose a formula from the grammar, so that most
// are valid.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/rng.h"
#include "runtime/session/program.h"
#include "tests/app/test_models.h"
#include "tests/compile/run_graph.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 2, kSeq = 3;

// Draws the text of expressions. Their depth is bounded, so that a formula ends. One factor of a
// product is at most 1, so that values stay in the range in which f32 and double agree.
class Grammar {
 public:
  explicit Grammar(FuzzBytes* bytes) : bytes_(bytes) {}

  // Returns statements of `each` that call the sublayer once.
  std::string Each() {
    std::string text;
    names_ = {"x"};
    const uint32_t before = bytes_->Below(3);
    for (uint32_t i = 0; i < before; ++i) {
      absl::StrAppend(&text, "  each: \"h", i, " = ", Tensor(2), "\"\n");
      names_.push_back(absl::StrCat("h", i));
    }
    sublayer_ = true;
    std::string value = Tensor(3);
    if (sublayer_) value = absl::StrCat(value, " + f(x)");
    // Every name must be used.
    for (const std::string& name : names_) absl::StrAppend(&value, " + ", Small(), " * ", name);
    return absl::StrCat(text, "  each: \"x = ", value, "\"\n");
  }
  const std::set<std::string>& slots() const { return slots_; }
  bool gate() const { return gate_; }

 private:
  std::string Small() {
    static constexpr const char* kNumbers[] = {"0.5", "1", "-0.25", "2", "0.1"};
    return kNumbers[bytes_->Below(5)];
  }
  std::string Scalar(int depth) {
    if (depth == 0) {
      static constexpr const char* kNames[] = {"layer", "sublayer", "n_layer", "1", "2", "0.5"};
      return kNames[bytes_->Below(6)];
    }
    switch (bytes_->Below(6)) {
      case 0:
        return absl::StrCat("sqrt(", Scalar(0), ")");
      case 1:
        return absl::StrCat("tanh(", Scalar(depth - 1), ")");
      case 2:
        return absl::StrCat("sigmoid(", Scalar(depth - 1), ")");
      case 3:
        return absl::StrCat("min(", Scalar(0), ", ", Scalar(depth - 1), ")");
      case 4:
        return absl::StrCat("(", Scalar(depth - 1), " + ", Scalar(0), ")");
      default:
        return absl::StrCat(Scalar(0), " / (1 + ", Scalar(0), ")");
    }
  }
  std::string Tensor(int depth) {
    if (depth == 0) return names_[bytes_->Below(static_cast<uint32_t>(names_.size()))];
    const std::string inner = Tensor(depth - 1);
    switch (bytes_->Below(12)) {
      case 0:
        if (sublayer_) {
          sublayer_ = false;
          return absl::StrCat("f(", inner, ")");
        }
        return inner;
      case 1:
      case 2: {
        const std::string slot = absl::StrCat("norm_", slots_.size());
        slots_.insert(slot);
        return absl::StrCat(slot, "(", inner, ")");
      }
      case 3:
        return absl::StrCat("(", inner, " + ", Tensor(depth - 1), ")");
      case 4:
        return absl::StrCat("(", inner, " - ", Tensor(depth - 1), ")");
      case 5:
        return absl::StrCat(Scalar(2), " * ", inner);
      case 6:
        return absl::StrCat("(", inner, ") / (0.5 + ", Scalar(0), ")");
      case 7:
        return absl::StrCat("tanh(", inner, ")");
      case 8:
        return absl::StrCat("sigmoid(", inner, ")");
      case 9:
        return absl::StrCat("tanh(", inner, ") * (", Tensor(depth - 1), ")");
      case 10:
        gate_ = true;
        return absl::StrCat("gate * (", inner, ")");
      default:
        return absl::StrCat("(", inner, " + ", Small(), ")");
    }
  }

  FuzzBytes* bytes_;
  std::vector<std::string> names_;
  std::set<std::string> slots_;
  bool sublayer_ = false;  // the sublayer is not called yet
  bool gate_ = false;
};

std::string DrawModel(FuzzBytes* bytes) {
  Grammar grammar(bytes);
  const std::string each = grammar.Each();
  std::string text =
      "n_layer: 2 n_head: 2 d_model: 8 d_ff: \"8\" vocab_size: 5 context_length: 4\nplacement {\n  "
      "name: "
      "\"p\"\n";
  if (grammar.gate()) {
    absl::StrAppend(&text, "  learned { name: \"gate\" ",
                    bytes->Below(2) ? "per_channel: true " : "", "init: 0.5 }\n");
  }
  absl::StrAppend(&text, each, "  end: \"x = norm_end(x)\"\n}\nblock { placement: \"p\" ");
  static constexpr const char* kNorms[] = {"rms_norm", "layer_norm"};
  absl::StrAppend(&text, "norm: \"", kNorms[bytes->Below(2)], "\" ");
  if (bytes->Below(2)) absl::StrAppend(&text, "mlp { activation: SILU gated: true } ");
  return absl::StrCat(text, "}\n");
}

// Returns the largest |a - b| / max(1, |b|) of each output.
std::map<std::string, double> Differences(const ReferenceTensors& a, const ReferenceTensors& b) {
  std::map<std::string, double> differences;
  for (const auto& [name, tensor] : a) differences[name] = LargestDifference(tensor, b.at(name));
  return differences;
}

bool IsOrdinary(const ReferenceTensors& outputs) {
  for (const auto& [name, tensor] : outputs) {
    for (const double value : tensor.f) {
      if (!std::isfinite(value) || std::fabs(value) > 1e4) return false;
    }
  }
  return true;
}

// Returns how far rounding moves the results: the change of the reference if inputs change by a few
// units in the last place of f32, for two random directions.
std::map<std::string, double> Sensitivity(const Graph& graph, const ReferenceTensors& feeds,
                                          const ReferenceTensors& exact) {
  std::map<std::string, double> largest;
  for (const uint64_t seed : {1, 2}) {
    ReferenceTensors moved = feeds;
    for (auto& [name, tensor] : moved) {
      const RngStream stream(seed, name);
      for (size_t i = 0; i < tensor.f.size(); ++i) tensor.f[i] *= 1 + 1e-6 * stream.Normal(i);
    }
    const auto outputs = ReferenceRun(graph, moved);
    PLUMB_CHECK(outputs.ok(), "the reference does not run");
    for (const auto& [name, difference] : Differences(exact, *outputs)) {
      largest[name] = std::max(largest[name], difference);
    }
  }
  return largest;
}

PLUMB_FUZZER(graph) {
  FuzzBytes bytes(data, size);
  const std::string text = DrawModel(&bytes);
  static Runtime* const runtime = MakeRuntime().release();
  const auto context = TryContext(runtime, text);
  runtime->TakeWarnings();
  if (!context.ok()) return;
  const ParameterStore parameters = GenericParameters(**context);
  const ReferenceTensors feeds = Feeds(parameters, RandomTokens(kBatch, kSeq, 5));
  BuildOptions options;
  options.batch = kBatch;
  options.seq = kSeq;
  options.output_logits = true;
  const auto plain = BuildProgram(**context, options, /*gradients=*/true, OnlyPasses({}));
  auto optimized = BuildProgram(**context, options, /*gradients=*/true);
  PLUMB_CHECK(plain.ok() && optimized.ok(), "a formula that resolves does not become a graph");
  const auto expected = ReferenceRun(*plain, feeds);
  PLUMB_CHECK(expected.ok(), "the reference does not run");
  if (!IsOrdinary(*expected)) return;
  auto executable = Executable::Compile(*std::move(optimized));
  PLUMB_CHECK(executable.ok(), "a graph does not compile");
  const BoundMemory memory(executable->get(), feeds);
  PLUMB_CHECK((*executable)->Run(1).ok(), "a graph does not run");
  const auto sensitivity = Sensitivity(*plain, feeds, *expected);
  for (const auto& [name, tensor] : *expected) {
    const double difference = LargestDifference(memory.Read(name), tensor);
    if (difference <= 2e-3 + 1000 * sensitivity.at(name)) continue;
    fprintf(stderr, "%s%s: differs by %g, and by %g where inputs move by 1e-6\n", text.c_str(),
            name.c_str(), difference, sensitivity.at(name));
    PLUMB_CHECK(false, "the executable differs from the reference");
  }
}

}  // namespace
}  // namespace plumb
