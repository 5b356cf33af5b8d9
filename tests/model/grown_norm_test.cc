// What norms of ABI 1.1 can do in a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/parameters.h"
#include "runtime/session/parameter_store.h"
#include "tests/api/grown_norm.h"
#include "tests/api/test_models.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GrownNormTest : public ::testing::Test {
 protected:
  GrownNormTest() { EXPECT_TRUE(runtime_->RegisterPlugin(GrownNorm()).ok()); }

  // The gains of a model as it starts, by name.
  std::map<std::string, std::vector<float>> Gains(const ModelContext& context, uint64_t seed) {
    const ParameterStore store(context.parameters, context.states);
    EXPECT_TRUE(DrawParameters(context.parameters, context.states, seed, 1, store).ok());
    std::map<std::string, std::vector<float>> gains;
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      const ParameterSpec& parameter = context.parameters[i];
      if (parameter.role != ParameterSpec::Role::kNorm) continue;
      const float* begin = store.floats(i);
      gains[parameter.name] = {begin, begin + parameter.shape.num_elements()};
    }
    return gains;
  }

  static TinyModel Model() {
    TinyModel model;
    model.norm = "test.grown";
    return model;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

// -- Initial values

TEST_F(GrownNormTest, WritesInitialValuesFromASeedOfEachTensor) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const auto gains = Gains(*context, 7);
  EXPECT_EQ(gains, Gains(*context, 7));
  const std::vector<float>& first = gains.at("layers.0.attention.norm.gain");
  ASSERT_EQ(first.size(), 8u);
  EXPECT_NE(first, gains.at("layers.0.mlp.norm.gain"));
  EXPECT_NE(first, Gains(*context, 8).at("layers.0.attention.norm.gain"));
  for (const float value : first) {
    EXPECT_GE(value, 1);
    EXPECT_LE(value, 2);
  }
  EXPECT_NE(first[0], first[1]);
}

TEST_F(GrownNormTest, InitRulesScaleAndReplaceWhatTheNormWrites) {
  const auto plain = MakeContext(runtime_.get(), Model().Text());
  TinyModel model = Model();
  model.more =
      "init { match: \"*attention.norm.gain\" scale: \"-3\" } "
      "init { match: \"*mlp.norm.gain\" constant { value: \"0.5\" } }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const std::vector<float> before = Gains(*plain, 7).at("layers.0.attention.norm.gain");
  const auto gains = Gains(*context, 7);
  const std::vector<float>& scaled = gains.at("layers.0.attention.norm.gain");
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(scaled[i], static_cast<float>(-3.0 * static_cast<double>(before[i])));
  }
  EXPECT_EQ(gains.at("layers.0.mlp.norm.gain"), std::vector<float>(8, 0.5f));
  for (const ParameterSpec& parameter : context->parameters) {
    if (parameter.name != "layers.0.attention.norm.gain") continue;
    EXPECT_EQ(parameter.init.ToString(), "fill(test.grown) * -3");
  }
}

TEST_F(GrownNormTest, SaysWhichTensorWasNotFilled) {
  TinyModel model = Model();
  model.norm = "n";
  model.more =
      R"pbtxt(norm { name: "n" plugin: "test.grown" attr { name: "fails" flag: true } })pbtxt";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const ParameterStore store(context->parameters, context->states);
  const absl::Status status = DrawParameters(context->parameters, context->states, 1, 1, store);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("layers.0.attention.norm.gain"), HasSubstr("test.grown"),
                    HasSubstr("no values today")));
}

}  // namespace
}  // namespace plumb
