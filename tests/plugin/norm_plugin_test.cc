// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/norm_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "runtime/base/parallel.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class NormPluginTest : public ::testing::Test {
 protected:
  ~NormPluginTest() override {
    test_norm::layout_answer = {};
    test_norm::forward_answer = PLUMB_OK;
  }

  plumb_norm_plugin table_ = test_norm::Table();
  std::unique_ptr<NormPlugin> plugin_ = NormPlugin::Create(&table_, "").value();
};

TEST_F(NormPluginTest, PrintsAnInstanceWithAllItsAttributesByName) {
  const auto instance = plugin_->Instantiate(16, {{"groups", 2.0}, {"label", std::string("a\"b")}});
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(
      (*instance)->ToString(),
      "org.example.test(affine=true, axis=\"row\", eps=1e-05, groups=2, label=\"a\\\"b\")[16]");
}

TEST_F(NormPluginTest, PrintsDifferentNumbersDifferently) {
  const auto a = plugin_->Instantiate(4, {{"eps", 0.1}});
  const auto b = plugin_->Instantiate(4, {{"eps", 0.1 + 1e-18}});
  const auto c = plugin_->Instantiate(4, {{"eps", 0.10000000000000002}});
  EXPECT_EQ((*a)->ToString(), (*b)->ToString());  // the same double
  EXPECT_NE((*a)->ToString(), (*c)->ToString());
}

TEST_F(NormPluginTest, PassesCompleteValuesInOrder) {
  const auto instance = plugin_->Instantiate(4, {{"groups", 3.0}, {"affine", false}});
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(test_norm::last_values[0].f, 1e-5);
  EXPECT_EQ(test_norm::last_values[1].i, 3);
  EXPECT_EQ(test_norm::last_values[2].i, 0);
}

TEST_F(NormPluginTest, PassesAllBitsOfAnInteger) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // not exact in a double
  const auto instance = plugin_->Instantiate(4, {{"groups", std::string("9007199254740993")}});
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(test_norm::last_values[1].i, kOdd);
  EXPECT_THAT((*instance)->ToString(), HasSubstr("groups=9007199254740993"));
}

// The layout of a 1.0 plugin does not set a number of chunks.
TEST_F(NormPluginTest, ReadsMaxChunks) {
  EXPECT_EQ(plugin_->Instantiate(4, {}).value()->max_chunks(), 0);
  test_norm::layout_answer.max_chunks = 3;
  EXPECT_EQ(plugin_->Instantiate(4, {}).value()->max_chunks(), 3);
}

TEST_F(NormPluginTest, NamesUnknownKindsOfInitialValues) {
  plumb_tensor_def tensor{};
  tensor.name = "weight";
  tensor.init = 77;
  tensor.lr_scale = 1;
  test_norm::layout_answer.n_params = 1;
  test_norm::layout_answer.params = &tensor;
  test_norm::layout_answer.tensor_stride = sizeof(tensor);
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}).status().message()),
              AllOf(HasSubstr("parameter weight"), HasSubstr("kind 77"), HasSubstr("ABI 1.")));
}

// -- Heads

TEST_F(NormPluginTest, AnInstanceReceivesItsHeads) {
  static uint32_t told;
  table_.create = [](const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                     plumb_norm_instance** out, char* err, size_t cap) {
    told = host->heads;
    return test_norm::Create(host, dim, values, out, err, cap);
  };
  plugin_ = NormPlugin::Create(&table_, "").value();
  const auto alike = plugin_->Instantiate(4, {}, 3).value();
  EXPECT_EQ(told, 3u);
  EXPECT_EQ(alike->heads(), 0);  // like a norm of 1.0
  EXPECT_THAT(alike->ToString(), EndsWith("[4]"));
  test_norm::layout_answer.heads = 3;
  const auto apart = plugin_->Instantiate(4, {}, 3).value();
  EXPECT_EQ(apart->heads(), 3);
  EXPECT_THAT(apart->ToString(), EndsWith("[3 x 4]"));
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}, 2).status().message()),
              HasSubstr("is for 3 heads; there are 2 here"));
  EXPECT_FALSE(plugin_->Instantiate(4, {}).ok());
}

// -- Initial values that the norm writes

class FillTest : public NormPluginTest {
 protected:
  // Returns an instance with one parameter of five numbers, which `fill` writes.
  absl::StatusOr<std::shared_ptr<const NormInstance>> With(
      plumb_status (*fill)(const plumb_norm_instance*, const plumb_fill_call*)) {
    tensor_.name = "weight";
    tensor_.ndim = 1;
    tensor_.dims[0] = 5;
    tensor_.init = PLUMB_INIT_FILL;
    tensor_.fill = fill;
    tensor_.lr_scale = 1;
    test_norm::layout_answer.n_params = 1;
    test_norm::layout_answer.params = &tensor_;
    test_norm::layout_answer.tensor_stride = sizeof(tensor_);
    return plugin_->Instantiate(4, {});
  }

  plumb_tensor_def tensor_{};
};

TEST_F(FillTest, PassesSeedSizeAndZeros) {
  const auto instance = With([](const plumb_norm_instance*, const plumb_fill_call* call) {
    for (int64_t i = 0; i < call->elements; ++i) {
      call->values[i] += static_cast<float>(call->seed) + static_cast<float>(call->tensor);
    }
    return plumb_status{PLUMB_OK};
  });
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ((*instance)->params()[0].InitToString(), "fill");
  std::array<float, 5> values = {9, 9, 9, 9, 9};
  ASSERT_TRUE((*instance)->Fill(0, 3, 5, values.data()).ok());
  EXPECT_EQ(values, (std::array<float, 5>{3, 3, 3, 3, 3}));
}

TEST_F(FillTest, RefusesAFillWithoutFunction) {
  EXPECT_THAT(std::string(With(nullptr).status().message()),
              AllOf(HasSubstr("parameter weight"), HasSubstr("no fill function")));
}

TEST_F(FillTest, RefusesNumbersThatAreNotFinite) {
  const auto instance = With([](const plumb_norm_instance*, const plumb_fill_call* call) {
    call->values[2] = INFINITY;
    return plumb_status{PLUMB_OK};
  });
  std::array<float, 5> values;
  EXPECT_THAT(std::string((*instance)->Fill(0, 3, 5, values.data()).message()),
              AllOf(HasSubstr("fill of parameter weight"), HasSubstr("value 2 is not finite")));
}

// -- Extensions of 1.1

TEST_F(NormPluginTest, CombineReturnsTheNormsStatus) {
  static const plumb_norm_combine combine = {
      sizeof(plumb_norm_combine), 0,
      [](const plumb_norm_instance*, uint32_t, const plumb_norm_call* call, void*,
         const void*) -> plumb_status {
        std::snprintf(call->err, call->err_cap, "variance of nothing");
        return PLUMB_STATUS_OUT_OF_RANGE;
      }};
  table_.flags = PLUMB_NORM_CROSS_ROW;
  test_norm::AddStatistics(&table_);
  test_norm::layout_answer.partial_elems = 1;
  char text[64] = "";
  plumb_norm_call call{};
  call.err = text;
  call.err_cap = sizeof(text);
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_TRUE(plugin_->Instantiate(4, {})
                  .value()
                  ->StatsCombine(PLUMB_PHASE_FORWARD, call, text, text)
                  .ok());
  table_.get_extension = [](const char* id) -> const void* {
    return std::strcmp(id, PLUMB_EXT_COMBINE) == 0 ? &combine : nullptr;
  };
  plugin_ = NormPlugin::Create(&table_, "").value();
  const absl::Status status =
      plugin_->Instantiate(4, {}).value()->StatsCombine(PLUMB_PHASE_FORWARD, call, text, text);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stats_combine: variance of nothing"));
}

// The instance without a gain can fuse the sum, the one with a gain cannot.
TEST_F(NormPluginTest, AsksAnInstanceForItsExtensions) {
  static const plumb_norm_instance_extensions of_instance = {
      sizeof(plumb_norm_instance_extensions), 0,
      [](const plumb_norm_instance* instance, const char* id) -> const void* {
        return instance->values[2].i == 0 ? test_norm::GetExtension(id) : nullptr;
      }};
  test_norm::residual_answer = test_norm::Residual();
  table_.get_extension = [](const char* id) -> const void* {
    return std::strcmp(id, PLUMB_EXT_INSTANCE) == 0 ? &of_instance : nullptr;
  };
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_FALSE(plugin_->has_residual());
  const auto with = plugin_->Instantiate(4, {{"affine", true}}).value();
  const auto without = plugin_->Instantiate(4, {{"affine", false}}).value();
  EXPECT_FALSE(with->has_residual());
  ASSERT_TRUE(without->has_residual());
  EXPECT_TRUE(without->ForwardResidual({}, {}, 0, 0).ok());
  table_.get_extension = test_norm::GetExtension;  // like 1.0: the same for all instances
  const auto old = NormPlugin::Create(&table_, "").value();
  EXPECT_TRUE(old->Instantiate(4, {}).value()->has_residual());
}

TEST_F(NormPluginTest, RefusesImpossibleDimensions) {
  for (const int64_t dim : {int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    EXPECT_EQ(plugin_->Instantiate(dim, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(NormPluginTest, DestroysInstances) {
  {
    const auto instance = plugin_->Instantiate(4, {});
    EXPECT_EQ(test_norm::live, 1);
  }
  EXPECT_EQ(test_norm::live, 0);
  test_norm::layout_answer.scratch_bytes = size_t{1} << 40;
  EXPECT_FALSE(plugin_->Instantiate(4, {}).ok());
  EXPECT_EQ(test_norm::live, 0);
}

TEST_F(NormPluginTest, RefusesAnIdentityWithState) {
  table_.flags = PLUMB_NORM_IDENTITY;
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_TRUE(plugin_->identity());
  test_norm::layout_answer.saved_per_row = 1;
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}).status().message()), HasSubstr("identity"));
}

TEST_F(NormPluginTest, ReturnsThePluginsMessage) {
  const auto instance = plugin_->Instantiate(4, {}).value();
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  EXPECT_TRUE(instance->Forward(call, 0, 0).ok());
  test_norm::forward_answer = PLUMB_STATUS_OUT_OF_RANGE;
  char text[64] = "";
  call.err = text;
  call.err_cap = sizeof(text);
  const absl::Status status = instance->Backward(call, 0, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("org.example.test("));
  EXPECT_THAT(std::string(status.message()), HasSubstr("backward: not today"));
  call.err = nullptr;
  test_norm::forward_answer = 4711;  // not a status code
  EXPECT_EQ(instance->Forward(call, 0, 0).code(), absl::StatusCode::kInternal);
}

// -- Exceptions, which the ABI forbids

class ThrowingNormTest : public NormPluginTest {
 protected:
  std::shared_ptr<const NormInstance> Instance() {
    plugin_ = NormPlugin::Create(&table_, "").value();
    return plugin_->Instantiate(4, {}).value();
  }
  plumb_norm_call call_{};
};

TEST_F(ThrowingNormTest, TurnsAnExceptionOfTheHotPathIntoAStatus) {
  table_.forward = [](const plumb_norm_instance*, const plumb_norm_call*, int64_t,
                      int64_t) -> plumb_status { throw std::bad_alloc(); };
  table_.backward = [](const plumb_norm_instance*, const plumb_norm_call*, int64_t,
                       int64_t) -> plumb_status { throw std::runtime_error("no more abacuses"); };
  const auto instance = Instance();
  const absl::Status forward = instance->Forward(call_, 0, 1);
  EXPECT_EQ(forward.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(forward.message()),
      AllOf(HasSubstr("org.example.test("), HasSubstr("exception std::bad_alloc left forward()")));
  EXPECT_THAT(std::string(instance->Backward(call_, 0, 1).message()),
              HasSubstr("exception std::runtime_error left backward(): no more abacuses"));
}

TEST_F(ThrowingNormTest, EndsExceptionsInsideAParallelRegion) {
  table_.forward = [](const plumb_norm_instance*, const plumb_norm_call*, int64_t r0,
                      int64_t) -> plumb_status { throw r0; };
  const auto instance = Instance();
  std::array<absl::Status, 8> status;
  ParallelFor(8, 4, [&](int64_t i) {
    status[static_cast<size_t>(i)] = instance->Forward(call_, i, i + 1);
  });
  for (const absl::Status& s : status) {
    EXPECT_THAT(std::string(s.message()), HasSubstr("exception long left forward()"));
  }
}

TEST_F(ThrowingNormTest, TurnsExceptionsOfStatisticsAndResidualsIntoStatus) {
  table_.flags = PLUMB_NORM_CROSS_ROW;
  test_norm::layout_answer.partial_elems = 1;
  table_.stats_partial = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*, int64_t,
                            int64_t, void*) -> plumb_status { throw 1; };
  table_.stats_combine = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*, void*,
                            const void*) { throw 1; };
  table_.stats_finalize = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*,
                             void*) -> plumb_status { throw 1; };
  const auto cross = Instance();
  for (const absl::Status& status :
       {cross->StatsPartial(PLUMB_PHASE_FORWARD, call_, 0, 1, nullptr),
        cross->StatsCombine(PLUMB_PHASE_FORWARD, call_, nullptr, nullptr),
        cross->StatsFinalize(PLUMB_PHASE_FORWARD, call_, nullptr)}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("exception int left stats_"));
  }

  table_ = test_norm::Table();
  test_norm::layout_answer = {};
  table_.get_extension = test_norm::GetExtension;
  test_norm::residual_answer = test_norm::Residual();
  test_norm::residual_answer.forward = test_norm::residual_answer.backward =
      [](const plumb_norm_instance*, const plumb_norm_call*, const plumb_residual_call*, int64_t,
         int64_t) -> plumb_status { throw 1; };
  // The plugin must outlive its instance.
  const std::unique_ptr<NormPlugin> plugin = NormPlugin::Create(&table_, "").value();
  const auto row_wise = plugin->Instantiate(4, {}).value();
  const plumb_residual_call residual{};
  EXPECT_EQ(row_wise->ForwardResidual(call_, residual, 0, 1).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(row_wise->BackwardResidual(call_, residual, 0, 1).code(), absl::StatusCode::kInternal);
}

TEST_F(ThrowingNormTest, TurnsExceptionsOfTheSetupIntoStatus) {
  table_.create = [](const plumb_host*, uint32_t, const plumb_attr_value*, plumb_norm_instance**,
                     char*, size_t) -> plumb_status { throw std::bad_alloc(); };
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}).status().message()),
              HasSubstr("exception std::bad_alloc left create()"));
  table_ = test_norm::Table();
  table_.layout = [](const plumb_norm_instance*, plumb_norm_layout*) -> plumb_status { throw 1; };
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}).status().message()),
              HasSubstr("exception int left layout()"));
  EXPECT_EQ(test_norm::live, 0);
}

TEST_F(ThrowingNormTest, ReportsAnExceptionOfDestroy) {
  table_.destroy = [](plumb_norm_instance* instance) {
    test_norm::Destroy(instance);
    throw std::runtime_error("would rather stay");
  };
  std::shared_ptr<const NormInstance> instance = Instance();
  testing::internal::CaptureStderr();
  instance.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("org.example.test: exception std::runtime_error left destroy(): would "
                        "rather stay"));
}

// A norm must not print, but printing is not an error.
TEST_F(ThrowingNormTest, LetsANormPrint) {
  table_.forward = [](const plumb_norm_instance*, const plumb_norm_call*, int64_t,
                      int64_t) -> plumb_status {
    std::fputs("hello\n", stdout);
    return PLUMB_OK;
  };
  const auto instance = Instance();
  testing::internal::CaptureStdout();
  EXPECT_TRUE(instance->Forward(call_, 0, 1).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello\n");
}

// -- Cross-row norms

TEST_F(NormPluginTest, PacksBuffersIntoOneState) {
  table_.flags = PLUMB_NORM_CROSS_ROW;
  test_norm::AddStatistics(&table_);
  plugin_ = NormPlugin::Create(&table_, "").value();
  plumb_tensor_def buffers[3] = {};
  const char* const names[] = {"mean", "variance", "steps"};
  for (int i = 0; i < 3; ++i) {
    buffers[i].name = names[i];
    buffers[i].ndim = i < 2 ? 1 : 0;
    buffers[i].dims[0] = i < 2 ? 20 : 0;
    buffers[i].lr_scale = 1;
  }
  test_norm::layout_answer.buffers = buffers;
  test_norm::layout_answer.tensor_stride = sizeof(plumb_tensor_def);
  test_norm::layout_answer.n_buffers = 3;
  test_norm::layout_answer.partial_elems = 40;
  test_norm::layout_answer.saved_per_call = 41;
  const auto instance = plugin_->Instantiate(20, {}).value();
  EXPECT_TRUE(instance->cross_row());
  EXPECT_FALSE(instance->cross_row_eval());
  EXPECT_EQ(instance->buffers().size(), 3u);
  EXPECT_EQ(instance->buffer_offset(0), 0);
  EXPECT_EQ(instance->buffer_offset(1), 32);
  EXPECT_EQ(instance->buffer_offset(2), 64);
  EXPECT_EQ(instance->state_elements(), 80);
  EXPECT_EQ(instance->partial_elems(), 40);
  EXPECT_EQ(instance->saved_per_call(), 41);
  test_norm::layout_answer.n_buffers = 0;
  EXPECT_EQ(plugin_->Instantiate(20, {}).value()->state_elements(), 16);
}

}  // namespace
}  // namespace plumb
