// SPDX-License-Identifier: Apache-2.0
#include "tests/picture/picture_models.h"

#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

constexpr const char* kBodies[] = {
    // One stream is read and never assigned.
    R"pbtxt(begin: "e = x" block: "x = x + attention(norm_1(x))" block: "x = x + mlp(norm_2(x + e))")pbtxt",
    // Each stream is computed from the others.
    R"pbtxt(begin: "a = x" begin: "b = 2 * norm_b(x)"
       each: "y = f(norm(x))" each: "a = a + 0.5 * y" each: "b = b - y + 3"
       each: "x = x + tanh(y) * a" end: "x = norm(x + a * b)")pbtxt",
    // The streams are swapped.
    R"pbtxt(begin: "d = x" each: "y = f(norm(x))" each: "t = x + y" each: "x = d" each: "d = t"
       end: "x = x + d")pbtxt",
    R"pbtxt(begin: "d = x" begin: "e = x" block: "t = x" block: "x = d" block: "d = e" block: "e = t"
       block: "x = x + attention(d)" block: "x = x + mlp(e)" end: "x = x + d + e")pbtxt",
    // One stream ends and another starts.
    R"pbtxt(begin: "d = x" block: "y = attention(x) + 0.5 * x" block: "x = mlp(norm(d))"
       block: "d = d + y" end: "x = x + d")pbtxt",
    R"pbtxt(block: "a = attention(x)" block: "x = mlp(norm(a))")pbtxt",
    // Values are read far from their computation.
    R"pbtxt(block: "a = attention(norm_1(x))" block: "m = mlp(norm_2(x + a))" block: "p = a * m"
       block: "q = tanh(a) + sigmoid(m)" block: "x = norm_3(p + q + x) + a + x")pbtxt",
    R"pbtxt(block: "h = norm(x)" block: "g = h * h" block: "x = h + attention(g + x)"
       block: "x = g * mlp(x + h) + h * x" end: "x = 2 * x + 1")pbtxt",
    // Learned values, and a static hyper-connection of two streams.
    R"pbtxt(learned { name: "a11" init: 1 } learned { name: "a12" init: 0 }
       learned { name: "a21" init: 0 } learned { name: "a22" init: 1 }
       learned { name: "b1" init: 1 } learned { name: "b2" init: 1 }
       begin: "h = x" each: "y = f(norm(x + h))" each: "n = a11 * x + a12 * h + b1 * y"
       each: "h = a21 * x + a22 * h + b2 * y" each: "x = n" end: "x = norm(x + h)")pbtxt",
};

std::unique_ptr<ModelContext> Context(const TinyModel& model) {
  static Runtime* const runtime = MakeRuntime().release();
  return MakeContext(runtime, model.Text());
}

TinyModel Own(const std::string& body, int n_layer) {
  TinyModel model;
  model.placement = "mine";
  model.n_layer = n_layer;
  model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
  return model;
}

FlowNode Stream(FlowKind kind, int index) {
  FlowNode node;
  node.kind = kind;
  node.label = absl::StrCat("s", index);
  return node;
}

// Returns a section with streams, inner nodes that read earlier nodes, and streams that end at
// random nodes.
FlowSection RandomSection(int streams, int inner, std::mt19937* random) {
  const auto draw = [random](size_t below) { return static_cast<int>((*random)() % below); };
  constexpr FlowKind kKinds[] = {FlowKind::kNorm,     FlowKind::kSublayer, FlowKind::kAdd,
                                 FlowKind::kMultiply, FlowKind::kGain,     FlowKind::kFunction,
                                 FlowKind::kParameter};
  FlowSection section;
  section.title = "random";
  for (int i = 0; i < streams; ++i) section.nodes.push_back(Stream(FlowKind::kEnter, i));
  for (int i = 0; i < inner; ++i) {
    FlowNode node;
    node.kind = kKinds[draw(std::size(kKinds))];
    node.label = "n";
    const bool many = node.kind == FlowKind::kAdd || node.kind == FlowKind::kMultiply;
    const int inputs = node.kind == FlowKind::kParameter ? 0 : many ? 2 + draw(3) : 1;
    for (int k = 0; k < inputs; ++k) {
      node.inputs.emplace_back();
      node.inputs.back().from = draw(section.nodes.size());
      if (draw(4) == 0) node.inputs.back().coefficient = {0.5, 2, ""};
    }
    section.nodes.push_back(std::move(node));
  }
  const size_t inside = section.nodes.size();
  for (int i = 0; i < streams; ++i) {
    section.nodes.push_back(Stream(FlowKind::kLeave, i));
    section.nodes.back().inputs.emplace_back();
    section.nodes.back().inputs.back().from = draw(inside);
  }
  return section;
}

}  // namespace

absl::StatusOr<FlowPicture> MakeFlow(const TinyModel& model, const PictureOptions& options) {
  return RecordFlow(Context(model)->model, options);
}

FlowPicture FlowOfPlacement(const std::string& placement, int n_layer) {
  TinyModel model;
  model.placement = placement;
  model.n_layer = n_layer;
  return *MakeFlow(model);
}

FlowPicture FlowOfBody(const std::string& body, int n_layer) {
  return *MakeFlow(Own(body, n_layer));
}

FlowSection LargeSection(int inner) {
  std::mt19937 random(1);
  return RandomSection(3, inner, &random);
}

std::vector<NamedFlow> FlowsOfAllSorts() {
  // In these wirings many streams mix with each other, and their lines overlap (layout.h).
  const std::set<std::string> crowded = {"altup_gemma3n",
                                         "block_attention_residuals",
                                         "hyper_connections",
                                         "kimi_k3",
                                         "kromhc",
                                         "kromhc_static",
                                         "mhc_static",
                                         "muddformer",
                                         "muddformer_norm"};
  std::vector<NamedFlow> flows;
  for (const std::string& placement : ShippedPlacements()) {
    if (crowded.count(placement) > 0) continue;
    // If twelve different layers are too many kinds, four are tried. A few pictures are still too
    // large.
    for (const int n_layer : {12, 4}) {
      TinyModel model;
      model.placement = placement;
      model.n_layer = n_layer;
      absl::StatusOr<FlowPicture> flow = MakeFlow(model);
      if (!flow.ok()) continue;
      flows.push_back({placement, *std::move(flow)});
      break;
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    NamedFlow flow;
    flow.name = absl::StrCat("random flow ", i);
    const int streams = 1 + i % 3;
    for (int k = 0; k < streams; ++k) flow.picture.streams.push_back(absl::StrCat("s", k));
    for (int k = 0; k < 2; ++k) {
      const int inner = 1 + static_cast<int>(random() % 14);
      flow.picture.sections.push_back(RandomSection(streams, inner, &random));
    }
    flows.push_back(std::move(flow));
  }
  for (const char* body : kBodies) flows.push_back({body, FlowOfBody(body)});
  return flows;
}

}  // namespace plumb
