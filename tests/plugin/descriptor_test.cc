// SPDX-License-Identifier: Apache-2.0
// Tests of the checks of a plugin's table and layout, and of reading longer and shorter structs.
#include "runtime/plugin/descriptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <new>

#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const plumb_norm_plugin& table) {
  const auto plugin = NormPlugin::Create(&table, "/lib/test.so");
  EXPECT_EQ(plugin.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(plugin.status().message());
}

TEST(DescriptorTest, ReadsTheTable) {
  const plumb_norm_plugin table = test_norm::Table();
  const auto plugin = NormPlugin::Create(&table, "/lib/test.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ((*plugin)->id(), "org.example.test");
  EXPECT_EQ((*plugin)->version(), "1.2.3");
  EXPECT_EQ((*plugin)->vendor(), "");
  EXPECT_EQ((*plugin)->path(), "/lib/test.so");
  EXPECT_FALSE((*plugin)->identity());
  EXPECT_FALSE((*plugin)->has_f64());
  ASSERT_EQ((*plugin)->attrs().size(), 5u);
  EXPECT_EQ((*plugin)->attrs()[3].TypeName(), "one of row, column");
}

TEST(DescriptorTest, RefusesNoTableAndAShortOne) {
  EXPECT_FALSE(NormPlugin::Create(nullptr, "/lib/test.so").ok());
  plumb_norm_plugin table = test_norm::Table();
  table.struct_size = sizeof(table) - 8;
  EXPECT_THAT(Refusal(table), AllOf(HasSubstr("152"), HasSubstr("160")));
  table.struct_size = 0;
  EXPECT_THAT(Refusal(table), HasSubstr("0 bytes"));
}

TEST(DescriptorTest, ReadsALongerTableOfALaterMinor) {
  struct {
    plumb_norm_plugin table;
    char tail[256];
  } later;
  std::memset(&later, 0xa5, sizeof(later));
  later.table = test_norm::Table();
  later.table.struct_size = sizeof(later);
  EXPECT_TRUE(NormPlugin::Create(&later.table, "").ok());
}

TEST(DescriptorTest, WalksArraysByTheirOwnStride) {
  struct LaterAttr {
    plumb_attr_def def;
    char tail[24];
  };
  LaterAttr attrs[2];
  std::memset(&attrs, 0xa5, sizeof(attrs));
  attrs[0].def = test_norm::kAttrs[0];
  attrs[1].def = test_norm::kAttrs[2];
  plumb_norm_plugin table = test_norm::Table();
  table.attrs = &attrs[0].def;
  table.n_attrs = 2;
  table.attr_stride = sizeof(LaterAttr);
  const auto plugin = NormPlugin::Create(&table, "");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ((*plugin)->attrs()[1].name, "affine");
}

TEST(DescriptorTest, NamesAllMissingFunctions) {
  plumb_norm_plugin table = test_norm::Table();
  table.backward = nullptr;
  EXPECT_EQ(Refusal(table),
            "/lib/test.so: norm \"org.example.test\" lacks the mandatory function backward");
  table.layout = nullptr;
  EXPECT_THAT(Refusal(table), HasSubstr("functions layout, backward"));
}

TEST(DescriptorTest, NamesUnknownMandatoryFlags) {
  plumb_norm_plugin table = test_norm::Table();
  table.flags = 1u << 20;
  EXPECT_THAT(Refusal(table), AllOf(HasSubstr("bit 20"), HasSubstr("unknown to this version")));
  table.flags |= PLUMB_NORM_STOCHASTIC;
  EXPECT_THAT(Refusal(table),
              AllOf(HasSubstr("bit 18"), HasSubstr("draw random numbers"), HasSubstr("bit 20")));
}

TEST(DescriptorTest, AsksForStatisticsExactlyOfCrossRowNorms) {
  plumb_norm_plugin table = test_norm::Table();
  table.flags = PLUMB_NORM_CROSS_ROW;
  EXPECT_THAT(Refusal(table), HasSubstr("functions stats_partial, stats_combine, stats_finalize"));
  test_norm::AddStatistics(&table);
  EXPECT_TRUE(NormPlugin::Create(&table, "").ok());
  table.stats_combine = nullptr;
  EXPECT_THAT(Refusal(table), HasSubstr("lacks the mandatory function stats_combine"));
  test_norm::AddStatistics(&table);
  table.flags = 0;
  EXPECT_THAT(Refusal(table), HasSubstr("stats_finalize without the flag CROSS_ROW"));
}

TEST(DescriptorTest, RefusesFlagsThatContradictEachOther) {
  plumb_norm_plugin table = test_norm::Table();
  table.flags = PLUMB_NORM_CROSS_ROW_EVAL;
  EXPECT_THAT(Refusal(table), HasSubstr("CROSS_ROW_EVAL without CROSS_ROW"));
  test_norm::AddStatistics(&table);
  table.flags = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_IDENTITY;
  EXPECT_THAT(Refusal(table), HasSubstr("the identity and a cross-row norm"));
  table.flags = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL;
  const auto plugin = NormPlugin::Create(&table, "");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_TRUE((*plugin)->cross_row());
  EXPECT_TRUE((*plugin)->cross_row_eval());
}

TEST(DescriptorTest, KnowsNormsOfTwoInputs) {
  plumb_norm_plugin table = test_norm::Table();
  table.flags = PLUMB_NORM_TWO_INPUTS;
  const auto plugin = NormPlugin::Create(&table, "");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_TRUE((*plugin)->two_inputs());
  table.flags |= PLUMB_NORM_IDENTITY;
  EXPECT_THAT(Refusal(table), HasSubstr("TWO_INPUTS together with IDENTITY"));
  table.flags = PLUMB_NORM_TWO_INPUTS | PLUMB_NORM_CROSS_ROW;
  test_norm::AddStatistics(&table);
  EXPECT_THAT(Refusal(table), HasSubstr("TWO_INPUTS together with CROSS_ROW"));
}

TEST(DescriptorTest, ReadsHintsAndElementTypes) {
  plumb_norm_plugin table = test_norm::Table();
  table.dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64;
  table.flags = PLUMB_NORM_SHIFT_INVARIANT | PLUMB_NORM_APPROXIMATE_GRADIENT |
                PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED;
  const auto plugin = NormPlugin::Create(&table, "").value();
  EXPECT_EQ(plugin->dtypes(), table.dtypes);
  EXPECT_TRUE(plugin->has_f64());
  EXPECT_TRUE(plugin->shift_invariant());
  EXPECT_TRUE(plugin->approximate_gradient());
  EXPECT_TRUE(plugin->dx_may_be_dy());
  EXPECT_TRUE(plugin->nan_isolated());
  EXPECT_FALSE(plugin->scale_invariant());
  EXPECT_FALSE(plugin->in_place());
  EXPECT_FALSE(plugin->cross_row());
}

TEST(DescriptorTest, FindsTheResidualExtension) {
  plumb_norm_plugin table = test_norm::Table();
  EXPECT_FALSE(NormPlugin::Create(&table, "").value()->has_residual());
  table.get_extension = test_norm::GetExtension;
  test_norm::residual_answer = test_norm::Residual();
  EXPECT_TRUE(NormPlugin::Create(&table, "").value()->has_residual());
  test_norm::residual_answer.struct_size -= 8;  // the size of a draft that ended with forward
  EXPECT_FALSE(NormPlugin::Create(&table, "").value()->has_residual());
  test_norm::residual_answer = test_norm::Residual();
  test_norm::residual_answer.forward = nullptr;
  EXPECT_FALSE(NormPlugin::Create(&table, "").value()->has_residual());
  test_norm::residual_answer = test_norm::Residual();
  test_norm::AddStatistics(&table);
  table.flags = PLUMB_NORM_CROSS_ROW;
  EXPECT_FALSE(NormPlugin::Create(&table, "").value()->has_residual());
}

TEST(DescriptorTest, ExceptionsOfThePluginAreErrors) {
  plumb_norm_plugin table = test_norm::Table();
  table.available = [](char*, size_t) -> plumb_status { throw std::bad_alloc(); };
  EXPECT_THAT(std::string(NormPlugin::Create(&table, "").status().message()),
              HasSubstr("exception std::bad_alloc left available()"));
  table = test_norm::Table();
  table.get_extension = [](const char*) -> const void* { throw 7; };
  EXPECT_THAT(std::string(NormPlugin::Create(&table, "").status().message()),
              HasSubstr("exception int left get_extension()"));
}

TEST(DescriptorTest, IgnoresUnknownHints) {
  plumb_norm_plugin table = test_norm::Table();
  table.flags = 1u << 15;
  EXPECT_TRUE(NormPlugin::Create(&table, "").ok());
}

TEST(DescriptorTest, NamesTheRequiredMinor) {
  plumb_norm_plugin table = test_norm::Table();
  table.min_host_minor = 7;
  EXPECT_THAT(Refusal(table), AllOf(HasSubstr("1.7"), HasSubstr("has 1.1")));
}

TEST(DescriptorTest, ReturnsWhyANormIsUnavailable) {
  plumb_norm_plugin table = test_norm::Table();
  table.available = [](char* err, size_t cap) -> plumb_status {
    std::snprintf(err, cap, "this machine has no abacus");
    return PLUMB_STATUS_FAILED_PRECONDITION;
  };
  EXPECT_THAT(Refusal(table), HasSubstr("this machine has no abacus"));
}

TEST(DescriptorTest, RefusesImproperIds) {
  const std::string long_id(64, 'a');
  for (const char* id : {"", "Norm", "1norm", "a..b", "a.", ".a", "a/b", "a b", long_id.c_str()}) {
    plumb_norm_plugin table = test_norm::Table();
    table.id = id;
    EXPECT_THAT(Refusal(table), HasSubstr("no proper id")) << id;
  }
  plumb_norm_plugin table = test_norm::Table();
  table.id = nullptr;
  EXPECT_THAT(Refusal(table), HasSubstr("no proper id"));
}

TEST(DescriptorTest, RequiresF32) {
  plumb_norm_plugin table = test_norm::Table();
  table.dtypes = PLUMB_DTYPE_F64;
  EXPECT_THAT(Refusal(table), HasSubstr("f32"));
}

TEST(DescriptorTest, RefusesABrokenSchema) {
  plumb_attr_def attrs[2] = {test_norm::kAttrs[0], test_norm::kAttrs[0]};
  plumb_norm_plugin table = test_norm::Table();
  table.attrs = attrs;
  table.n_attrs = 2;
  EXPECT_THAT(Refusal(table), HasSubstr("attribute eps is there twice"));
  table.n_attrs = 1;
  attrs[0].def.f = 3;
  EXPECT_THAT(Refusal(table), HasSubstr("attribute eps has a default outside its range: 3"));
  attrs[0] = test_norm::kAttrs[0];
  attrs[0].type = 77;
  EXPECT_THAT(Refusal(table), HasSubstr("unknown type 77"));
  attrs[0] = test_norm::kAttrs[3];
  attrs[0].def.s = "diagonal";
  EXPECT_THAT(Refusal(table), HasSubstr("not one of its choices"));
  attrs[0] = test_norm::kAttrs[0];
  attrs[0].name = "Eps";
  EXPECT_THAT(Refusal(table), HasSubstr("not of the form"));
  table.attr_stride = 4;
  EXPECT_THAT(Refusal(table), HasSubstr("stride 4"));
  table.attrs = nullptr;
  EXPECT_THAT(Refusal(table), HasSubstr("gives none"));
  table.n_attrs = 100000;
  EXPECT_THAT(Refusal(table), HasSubstr("100000 attributes"));
}

class LayoutTest : public ::testing::Test {
 protected:
  LayoutTest() {
    layout_.tensor_stride = sizeof(plumb_tensor_def);
    layout_.n_params = 1;
    layout_.params = params_;
    params_[0].name = "weight";
    params_[0].ndim = 1;
    params_[0].dims[0] = 16;
    params_[0].init = PLUMB_INIT_NORMAL;
    params_[0].init_b = 0.02;
    params_[0].lr_scale = 1;
    params_[0].offset = 1;
    params_[1] = params_[0];
  }
  std::string Refusal() const {
    const auto tensors = ReadLayout(layout_, 16, cross_row_);
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(tensors.status().message());
  }

  plumb_tensor_def params_[2] = {};
  plumb_norm_layout layout_ = {};
  bool cross_row_ = false;
};

TEST_F(LayoutTest, ReadsParameters) {
  const auto tensors = ReadLayout(layout_, 16, cross_row_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->params.size(), 1u);
  const NormParam& weight = tensors->params[0];
  EXPECT_EQ(weight.name, "weight");
  EXPECT_EQ(weight.dims, std::vector<int64_t>{16});
  EXPECT_EQ(weight.InitToString(), "normal(0, 0.02)");
  EXPECT_FALSE(weight.weight_decay);
  EXPECT_EQ(weight.offset, 1);
}

TEST_F(LayoutTest, BoundsMemory) {
  layout_.scratch_bytes = (size_t{64} << 20) + 1;
  EXPECT_THAT(Refusal(), HasSubstr("67108865 bytes of scratch"));
  layout_.scratch_bytes = 0;
  layout_.scratch_bytes_per_row = size_t{1} << 40;
  EXPECT_THAT(Refusal(), HasSubstr("scratch a row"));
  layout_.scratch_bytes_per_row = 0;
  layout_.saved_per_row = 1u << 31;
  EXPECT_THAT(Refusal(), HasSubstr("numbers a row"));
}

TEST_F(LayoutTest, RefusesBuffersOfANormThatIsNotCrossRow) {
  layout_.n_buffers = 1;
  EXPECT_THAT(Refusal(), HasSubstr("cross-row"));
}

TEST_F(LayoutTest, ReadsBuffersOfACrossRowNorm) {
  cross_row_ = true;
  layout_.partial_elems = 32;
  layout_.n_buffers = 1;
  plumb_tensor_def mean = params_[0];
  mean.name = "running_mean";
  layout_.buffers = &mean;
  const auto tensors = ReadLayout(layout_, 16, cross_row_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->buffers.size(), 1u);
  EXPECT_EQ(tensors->buffers[0].name, "running_mean");
  mean.name = "weight";
  EXPECT_THAT(Refusal(), HasSubstr("buffer weight is there twice"));
  layout_.buffers = nullptr;
  EXPECT_THAT(Refusal(), HasSubstr("counts 1 buffers but gives none"));
  layout_.n_buffers = 1000;
  EXPECT_THAT(Refusal(), HasSubstr("1000 buffers; the most"));
}

TEST_F(LayoutTest, BoundsStatistics) {
  cross_row_ = true;
  EXPECT_THAT(Refusal(), HasSubstr("takes no statistics"));
  layout_.partial_elems = 1u << 31;
  EXPECT_THAT(Refusal(), HasSubstr("statistics of 2147483648 numbers"));
  layout_.partial_elems = 1;
  layout_.saved_per_call = 1u << 31;
  EXPECT_THAT(Refusal(), HasSubstr("numbers a call"));
}

TEST_F(LayoutTest, RefusesImpossibleParameters) {
  params_[0].dims[0] = 0;
  EXPECT_THAT(Refusal(), HasSubstr("parameter weight has an impossible size"));
  params_[0].dims[0] = 0xffffffffu;
  params_[0].ndim = 4;
  EXPECT_THAT(Refusal(), HasSubstr("impossible size"));
  params_[0].ndim = 5;
  EXPECT_THAT(Refusal(), HasSubstr("5 dimensions"));
  params_[0].ndim = 0;
  params_[0].offset = NAN;
  EXPECT_THAT(Refusal(), HasSubstr("offset that is not finite"));
  params_[0].offset = 0;
  params_[0].init = 9;
  EXPECT_THAT(Refusal(), HasSubstr("kind 9"));
  params_[0] = params_[1];
  layout_.n_params = 2;
  EXPECT_THAT(Refusal(), HasSubstr("parameter weight is there twice"));
  layout_.n_params = 1u << 30;
  EXPECT_THAT(Refusal(), HasSubstr("parameters; the most"));
}

TEST_F(LayoutTest, OnlyNormsOfTwoInputsReadTheSecond) {
  layout_.backward_needs = PLUMB_BACKWARD_READS_X | PLUMB_BACKWARD_READS_X2;
  EXPECT_THAT(Refusal(), HasSubstr("does not know"));
  EXPECT_TRUE(ReadLayout(layout_, 16, cross_row_, /*two_inputs=*/true).ok());
}

TEST_F(LayoutTest, RefusesUnknownOperands) {
  layout_.backward_needs = 1u << 5;
  EXPECT_THAT(Refusal(), HasSubstr("does not know"));
}

}  // namespace
}  // namespace plumb
