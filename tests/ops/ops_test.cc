// SPDX-License-Identifier: Apache-2.0
// Tests every op of the registry with its cases.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/ops/ops.h"
#include "tests/kernels/simd_targets.h"
#include "tests/ops/norm_cases.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

std::vector<OpCase> AllCases() {
  std::vector<OpCase> cases = DenseOpCases();
  for (OpCase& c : MatmulOpCases()) cases.push_back(std::move(c));
  for (OpCase& c : BroadcastOpCases()) cases.push_back(std::move(c));
  for (OpCase& c : ProgramOpCases()) cases.push_back(std::move(c));
  for (OpCase& c : SequenceOpCases()) cases.push_back(std::move(c));
  for (OpCase& c : Int8OpCases()) cases.push_back(std::move(c));
  for (OpCase& c : ExpertOpCases()) cases.push_back(std::move(c));
  for (OpCase& c : NormOpCases()) cases.push_back(std::move(c));
  return cases;
}

TEST(OpRegistryTest, EveryOpHasACase) {
  OpRegistry registry;
  RegisterOps(&registry);
  std::set<std::string> covered;
  for (const OpCase& c : AllCases()) {
    covered.insert(c.op);
    EXPECT_NE(registry.Find(c.op), nullptr) << "a case for " << c.op << ", which is no op";
  }
  for (const OpDef* op : registry.All()) {
    EXPECT_EQ(covered.count(op->name), 1u) << op->name << " has no case in tests/ops/op_cases_*.cc";
  }
}

TEST(OpRegistryTest, EveryTokenWiseOpHasACaseWithTokens) {
  OpRegistry registry;
  RegisterOps(&registry);
  std::set<std::string> covered;
  for (const OpCase& c : AllCases()) {
    if (HasTokens(registry, c)) covered.insert(c.op);
  }
  for (const OpDef* op : registry.All()) {
    EXPECT_EQ(covered.count(op->name), op->token_wise == nullptr ? 0u : 1u) << op->name;
  }
}

class OpTest : public testing::TestWithParam<OpCase> {
 protected:
  OpTest() { RegisterOps(&registry_); }
  OpRegistry registry_;
};

TEST_P(OpTest, KernelMatchesReference) {
  ForEachSimdTarget([this](const std::string& target) {
    SCOPED_TRACE(target);
    ExpectKernelMatchesReference(registry_, GetParam());
  });
}

TEST_P(OpTest, IsTokenWiseAsDeclared) { ExpectTokenWiseAsDeclared(registry_, GetParam()); }

TEST_P(OpTest, VjpMatchesDifferences) { ExpectVjpMatchesDifferences(registry_, GetParam()); }

std::string TestName(const testing::TestParamInfo<OpCase>& test) {
  std::string name = absl::StrCat(test.param.op, "_", test.param.name, "_", test.index);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, OpTest, testing::ValuesIn(AllCases()), TestName);

}  // namespace
}  // namespace plumb
