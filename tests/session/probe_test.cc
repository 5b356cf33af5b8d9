// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/compile/differentiate.h"
#include "runtime/session/train_session.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"
#include "tests/compile/reference_run.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Globs = std::vector<std::string>;

const Globs kAll = {"*", "grad.*", "param.*"};

class ProbeTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelContext> Context(const std::string& placement) {
    TinyModel model;
    model.placement = placement;
    return MakeContext(runtime_.get(), model.Text());
  }

  static std::vector<std::string> GetNames(const std::vector<ProbePoint>& points) {
    std::vector<std::string> names;
    for (const ProbePoint& point : points) names.push_back(point.FullName());
    return names;
  }

  static const TensorStats* Find(const std::vector<ProbeResult::Tensor>& tensors,
                                 const std::string& name) {
    for (const ProbeResult::Tensor& tensor : tensors) {
      if (tensor.name == name) return &tensor.stats;
    }
    return nullptr;
  }

  static double Rms(const std::vector<double>& values) {
    double sum = 0;
    for (const double e : values) sum += e * e;
    return std::sqrt(sum / static_cast<double>(values.size()));
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

// Returns the mean entropy of a causal attention's weights in [2, 6] tokens, from its queries and
// keys.
double NaiveEntropy(const Attrs& attrs, const std::vector<double>& q,
                    const std::vector<double>& k) {
  const auto heads = static_cast<size_t>(attrs.GetInt("n_head")),
             shared = heads / static_cast<size_t>(attrs.GetInt("n_kv_head"));
  constexpr size_t kRows = 2, kTokens = 6;
  const size_t width = q.size() / kRows / kTokens / heads;
  double sum = 0;
  for (size_t query = 0; query < kRows * kTokens * heads; ++query) {
    const size_t token = query / heads, head = query % heads;
    std::vector<double> p;
    for (size_t key = token / kTokens * kTokens; key <= token; ++key) {
      double dot = 0;
      for (size_t e = 0; e < width; ++e) {
        dot += q[query * width + e] * k[(key * heads + head) / shared * width + e];
      }
      p.push_back(std::exp(attrs.GetDouble("scale") * dot));
    }
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (const double e : p) sum -= e / total * std::log(e / total);
  }
  return sum / static_cast<double>(kRows * kTokens * heads);
}

class ProbePlacementTest : public ProbeTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(ProbePlacementTest, StreamsAndGradientsArePoints) {
  const auto context = Context(GetParam());
  const std::vector<ProbePoint> points = *ListProbePoints(*context);
  const std::vector<std::string> names = GetNames(points);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  const std::vector<std::string> defaults = GetNames(DefaultProbePoints(points));
  // Some rules carry their streams only under indexed names; then x ends with the embedding.
  const PlacementSpec& placement = *context->model.layers[0]->placement;
  const auto sets_x = [](const Statement& s) { return s.target == "x" && s.index.empty(); };
  const bool has_x = std::any_of(placement.each.begin(), placement.each.end(), sets_x) ||
                     std::any_of(placement.block.begin(), placement.block.end(), sets_x);
  if (has_x) {
    for (const char* name : {"embedding.residual", "layers.0.residual", "layers.1.residual"}) {
      EXPECT_THAT(defaults, Contains(name));
      EXPECT_THAT(defaults, Contains(absl::StrCat("grad.", name)));
    }
    EXPECT_THAT(defaults, Contains("layers.1.mlp.residual"));
  }
  EXPECT_THAT(defaults, Contains("layers.0.attention.context"));
  EXPECT_THAT(defaults, Contains("logits"));
  EXPECT_THAT(defaults, Contains("param.head.weight"));
  EXPECT_THAT(defaults, Not(Contains("grad.layers.0.attention.context")));
}

// The reference is the graph before any pass, run in double, op by op.
TEST_P(ProbePlacementTest, FiguresMatchTheReference) {
  const auto context = Context(GetParam());
  const ParameterStore parameters = GenericParameters(*context);
  const Tokens tokens = RandomTokens(2, 6, 5);
  BuildOptions options;
  options.batch = 2;
  options.seq = 6;
  options.drop = false;
  Graph graph = *BuildForward(context->model, context->parameters, *context->ops, options);
  const std::vector<StreamPoint> streams =
      *ListStreams(context->model, context->parameters, *context->ops, options);
  graph = *Differentiate(std::move(graph), *context->ops, "loss");
  for (const StreamPoint& stream : streams) {
    ASSERT_NE(graph.FindValue(stream.value), kNoValue) << stream.value;
  }
  const size_t outputs = graph.outputs.size();
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::kComputed || value.type.dtype != DType::kF32) continue;
    graph.outputs.push_back({absl::StrCat("value ", value.name), graph.FindValue(value.name)});
  }
  ASSERT_GT(graph.outputs.size(), outputs + 40);
  const auto want = ReferenceRun(graph, Feeds(parameters, tokens));
  ASSERT_TRUE(want.ok()) << want.status();

  const auto result = ProbeBatch(*context, parameters, tokens, kAll, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  std::set<std::string> compared;
  const auto compare = [&](const std::vector<ProbeResult::Tensor>& tensors,
                           const std::string& prefix) {
    for (const ProbeResult::Tensor& tensor : tensors) {
      std::string value = tensor.name;
      for (const StreamPoint& stream : streams) {
        if (stream.name == tensor.name) value = stream.value;
      }
      const auto at = want->find(absl::StrCat("value ", prefix, value));
      if (at == want->end()) continue;  // the gradient has another name there
      const double rms = Rms(at->second.f);
      EXPECT_NEAR(tensor.stats.Rms(), rms, 1e-4 * rms + 1e-7) << prefix << tensor.name;
      EXPECT_EQ(tensor.stats.nonfinite, 0) << tensor.name;
      compared.insert(prefix + tensor.name);
    }
  };
  compare(result->activations, "");
  compare(result->gradients, "grad.");
  const std::vector<ProbePoint> points = *ListProbePoints(*context);
  for (const ProbePoint& point : points) {
    if (point.reading != ProbePoint::Reading::kProduct) continue;
    EXPECT_THAT(compared, Contains(point.name)) << "a product that is part of a sum";
  }
  for (const Node& node : graph.nodes) {
    if (node.op->name != "attention") continue;
    std::string name = graph.value(node.outputs[0]).name;
    name.resize(name.size() - std::strlen("context"));
    const auto values = [&](size_t i) {
      return want->at(absl::StrCat("value ", graph.value(node.inputs[i]).name)).f;
    };
    const TensorStats* entropy = Find(result->activations, absl::StrCat(name, "entropy"));
    ASSERT_NE(entropy, nullptr) << name;
    EXPECT_NEAR(entropy->Mean(), NaiveEntropy(node.attrs, values(0), values(1)), 1e-5) << name;
    EXPECT_NE(Find(result->activations, absl::StrCat(name, "max_logit")), nullptr);
  }
  EXPECT_THAT(compared, AllOf(Contains("layers.0.residual"), Contains("layers.1.residual"),
                              Contains("grad.layers.0.residual"), Contains("grad.logits")));
}

INSTANTIATE_TEST_SUITE_P(Shipped, ProbePlacementTest, ::testing::ValuesIn(ShippedPlacements()),
                         TestName);

// The compiler adds the products of both sublayers to the stream.
TEST_F(ProbeTest, GroupsAreNamesOfPoints) {
  const auto context = Context("pre");
  const std::vector<ProbePoint> points = *ListProbePoints(*context);
  const auto select = [&](const Globs& globs) {
    return GetNames(*SelectProbePoints(points, globs));
  };
  EXPECT_THAT(
      select({"attention", "sublayers"}),
      ElementsAre("layers.0.attention.entropy", "layers.0.attention.max_logit",
                  "layers.0.attention.o", "layers.0.mlp.down", "layers.1.attention.entropy",
                  "layers.1.attention.max_logit", "layers.1.attention.o", "layers.1.mlp.down"));
  EXPECT_EQ(select({"default"}), GetNames(DefaultProbePoints(points)));
  EXPECT_EQ(select({"default", "attention"}).size(), DefaultProbePoints(points).size() + 4);
  EXPECT_EQ(GetNames(*ListProbePoints(*context, WeightFormat::kBf16)), GetNames(points));
}

// A gradient without a name of its own in the graph: x after the last layer is only added to a sum.
TEST_F(ProbeTest, AddendsHaveTheGradientOfTheSum) {
  const auto context = Context("resi_dual");
  const ParameterStore parameters = GenericParameters(*context);
  const ProbeResult result = *ProbeBatch(*context, parameters, RandomTokens(2, 6, 5), kAll, 1);
  const TensorStats* last = Find(result.gradients, "layers.1.residual");
  const TensorStats* end = Find(result.gradients, "end.residual");
  ASSERT_NE(last, nullptr);
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(last->sum_squares, end->sum_squares);
  EXPECT_GT(last->sum_squares, 0);
}

TEST_F(ProbeTest, ParameterFiguresMatchTheBuffers) {
  const auto context = Context("pre");
  const ParameterStore parameters = GenericParameters(*context);
  const Tokens tokens = RandomTokens(2, 6, 5);
  const ProbeResult result = *ProbeBatch(*context, parameters, tokens, kAll, 1);
  const BatchOutputs outputs = *RunBatch(*context, parameters, tokens, true, 1);
  const auto& entries = parameters.layout().entries;
  ASSERT_EQ(result.parameters.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(result.parameters[i].name, entries[i].name);
    double value = 0, gradient = 0;
    for (int64_t e = entries[i].begin; e < entries[i].end; ++e) {
      value += std::pow(static_cast<double>(parameters.data()[e]), 2);
      gradient += std::pow(static_cast<double>(outputs.gradients[static_cast<size_t>(e)]), 2);
    }
    EXPECT_NEAR(result.parameters[i].value.sum_squares, value, 1e-9 * value);
    EXPECT_NEAR(result.parameters[i].gradient.sum_squares, gradient, 1e-9 * gradient);
    EXPECT_EQ(result.parameters[i].value.count, entries[i].end - entries[i].begin);
  }
}

TEST_F(ProbeTest, GlobsSelectPointsInOrder) {
  const std::vector<ProbePoint> points = *ListProbePoints(*Context("pre"));
  const auto select = [&](const std::vector<std::string>& globs) {
    return GetNames(*SelectProbePoints(points, globs));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(select({"layers.?.attention.residual"}),
            (Names{"layers.0.attention.residual", "layers.1.attention.residual"}));
  EXPECT_EQ(select({"param.head.weight", "logits", "grad.log*", "logits"}),
            (Names{"logits", "grad.logits", "param.head.weight"}));
  EXPECT_EQ(select({"*.1*.q"}), (Names{"layers.1.attention.q"}));
  EXPECT_EQ(select({"param.*.norm.*"}).size(), 5u);
  for (const std::string& name : select({"*"})) {
    EXPECT_FALSE(absl::StartsWith(name, "grad.") || absl::StartsWith(name, "param.")) << name;
  }
  EXPECT_EQ(select(kAll).size(), points.size());
}

TEST_F(ProbeTest, AGlobWithoutMatchesIsAnError) {
  const auto context = Context("pre");
  for (const char* glob :
       {"layers.0.atention.residual", "head.weight", "layers.2.*", "", "grad."}) {
    const absl::Status status = Probe::Create(*context, Globs{"logits", glob}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << glob;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("no probe point matches \"", glob, "\"")));
  }
  EXPECT_THAT(std::string(Probe::Create(*context, Globs{"layers.0.atention.q"}).status().message()),
              HasSubstr("did you mean \"layers.0.attention.q\""));
}

// Losses and weights, to the bit, and the statistics of the probed steps.
struct Trace {
  std::vector<double> numbers, figures;
  std::vector<int64_t> probed;
};

class ProbedSessionTest : public ProbeTest {
 protected:
  static Trace Train(const ModelContext& context, const Dataset& data, const TrainSpec& spec,
                     int steps, int threads, int64_t every) {
    const auto session = *TrainSession::Create(&context, &data, spec, threads);
    EXPECT_TRUE(session->SetProbe(every, kAll).ok());
    Trace trace;
    const auto add = [&trace](const TensorStats& s) {
      trace.figures.insert(trace.figures.end(), {s.Rms(), s.Mean(), static_cast<double>(s.max_abs),
                                                 static_cast<double>(s.count)});
    };
    for (int i = 0; i < steps; ++i) {
      const auto step = session->Step();
      EXPECT_TRUE(step.ok()) << step.status();
      trace.numbers.insert(trace.numbers.end(), {step->loss, step->grad_norm});
      const ProbeResult* probe = session->probe();
      if (probe == nullptr) continue;
      EXPECT_EQ(probe->step, step->step);
      trace.probed.push_back(probe->step);
      double square = 0;
      for (const auto& tensor : probe->activations) add(tensor.stats);
      for (const auto& tensor : probe->gradients) add(tensor.stats);
      for (const auto& parameter : probe->parameters) {
        add(parameter.value);
        add(parameter.gradient);
        square += parameter.gradient.sum_squares;
      }
      EXPECT_NEAR(std::sqrt(square), step->grad_norm, 1e-9 * step->grad_norm);
    }
    const ParameterStore& parameters = session->parameters();
    trace.numbers.insert(trace.numbers.end(), parameters.data(),
                         parameters.data() + parameters.layout().size);
    return trace;
  }
};

TEST_F(ProbedSessionTest, ProbingChangesNoBitAndThreadsChangeNoFigure) {
  TinyModel wide;  // wide enough that ops share their work between threads
  wide.placement = "double";
  wide.norm = "layer_norm";
  wide.n_head = wide.n_kv_head = 4;
  wide.d_model = 128;
  wide.d_ff = 512;
  wide.context_length = 64;
  wide.vocab_size = 26;
  const auto context = MakeContext(runtime_.get(), wide.Text());
  const Dataset data = TextDataset(3000, 26);
  TrainSpec spec;
  spec.batch_size = 4;
  const Trace off = Train(*context, data, spec, 4, 1, 0);
  EXPECT_TRUE(off.probed.empty());
  const Trace on = Train(*context, data, spec, 4, 1, 2);
  EXPECT_EQ(on.numbers, off.numbers);
  EXPECT_EQ(on.probed, (std::vector<int64_t>{1, 2, 4}));
  for (const int threads : {2, 4}) {
    const Trace more = Train(*context, data, spec, 4, threads, 2);
    EXPECT_EQ(more.numbers, off.numbers);
    EXPECT_EQ(more.figures, on.figures);
  }
}

TEST_F(ProbedSessionTest, DocumentsOfAllLengthsAreProbed) {
  TinyModel model;
  model.placement = "post";
  model.vocab_size = 27;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(30, 2, 5);
  TrainSpec spec;
  spec.batch_size = 1;
  const Trace off = Train(*context, data, spec, 30, 1, 0);
  const Trace on = Train(*context, data, spec, 30, 1, 1);
  EXPECT_EQ(on.numbers, off.numbers);
  EXPECT_EQ(on.probed.size(), 30u);
}

// Two micro-batches of two sequences have the statistics of one batch of four.
TEST_F(ProbedSessionTest, MicroBatchesAreProbedAsOneStep) {
  TinyModel model;
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec whole;
  whole.batch_size = 4;
  TrainSpec parts = whole;
  parts.batch_size = 2;
  parts.gradient_accumulation_steps = 2;
  const auto session = *TrainSession::Create(context.get(), &data, parts, 1);
  ASSERT_TRUE(session->SetProbe(1, Globs{"logits", "grad.logits"}).ok());
  ASSERT_TRUE(session->Step().ok());
  const auto single = *TrainSession::Create(context.get(), &data, whole, 1);
  ASSERT_TRUE(single->SetProbe(1, Globs{"logits", "grad.logits"}).ok());
  ASSERT_TRUE(single->Step().ok());
  const TensorStats got = session->probe()->gradients[0].stats;
  const TensorStats want = single->probe()->gradients[0].stats;
  EXPECT_EQ(got.count, want.count);
  EXPECT_NEAR(got.Rms(), want.Rms(), 1e-5 * want.Rms());
  EXPECT_NEAR(static_cast<double>(got.max_abs), static_cast<double>(want.max_abs), 1e-6);
  EXPECT_NEAR(session->probe()->activations[0].stats.Rms(),
              single->probe()->activations[0].stats.Rms(), 1e-5);
}

TEST_F(ProbedSessionTest, ProbesDivergedSteps) {
  const auto context = Context("pre");
  const Dataset data = TextDataset(400, 5);
  TrainSpec spec;
  const auto session = *TrainSession::Create(context.get(), &data, spec, 1);
  ASSERT_TRUE(session->SetProbe(100, {}).ok());
  ASSERT_TRUE(session->Step().ok());
  EXPECT_NE(session->probe(), nullptr);
  ASSERT_TRUE(session->Step().ok());
  EXPECT_EQ(session->probe(), nullptr);
  for (const ParameterLayout::Entry& entry : session->parameters().layout().entries) {
    if (entry.name != "layers.1.mlp.up.weight") continue;
    session->parameters().data()[entry.begin] = std::nanf("");
  }
  EXPECT_TRUE(absl::IsAborted(session->Step().status()));
  const ProbeResult* probe = session->probe();
  ASSERT_NE(probe, nullptr);
  EXPECT_TRUE(probe->diverged);
  EXPECT_EQ(probe->step, 3);
  EXPECT_EQ(Find(probe->activations, "layers.1.attention.residual")->nonfinite, 0);
  EXPECT_GT(Find(probe->activations, "layers.1.mlp.residual")->nonfinite, 0);
  EXPECT_GT(Find(probe->activations, "layers.1.attention.residual")->Rms(), 0);
}

TEST_F(ProbedSessionTest, RefusesInvalidIntervals) {
  const auto context = Context("pre");
  const Dataset data = TextDataset(100, 5);
  const auto session = *TrainSession::Create(context.get(), &data, TrainSpec(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(session->SetProbe(-1, {})));
  EXPECT_TRUE(absl::IsInvalidArgument(session->SetProbe(1, Globs{"nonsense"})));
  EXPECT_TRUE(session->SetProbe(0, Globs{"nonsense"}).ok());
  EXPECT_TRUE(session->Step().ok());
}

}  // namespace
}  // namespace plumb
