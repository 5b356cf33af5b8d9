// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/program_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/session/program.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using Numbers = LastUsed<int>;

absl::StatusOr<Numbers::Shared> Made(int number) { return std::make_shared<const int>(number); }

TEST(LastUsedTest, EvictsTheLeastRecentlyUsed) {
  Numbers numbers(2);
  int made = 0;
  const auto get = [&](const std::string& key, int number) {
    return **numbers.Get(key, [&] { return ++made, Made(number); });
  };
  EXPECT_EQ(get("a", 1), 1);
  EXPECT_EQ(get("b", 2), 2);
  EXPECT_EQ(get("a", 3), 1);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(get("c", 4), 4);  // b is evicted
  EXPECT_EQ(get("a", 5), 1);
  EXPECT_EQ(get("b", 6), 6);
  EXPECT_EQ(made, 4);
}

TEST(LastUsedTest, DoesNotCacheErrors) {
  Numbers numbers(2);
  const auto fail = []() -> absl::StatusOr<Numbers::Shared> {
    return absl::InternalError("not now");
  };
  EXPECT_EQ(numbers.Get("a", fail).status().message(), "not now");
  EXPECT_EQ(**numbers.Get("a", [] { return Made(7); }), 7);
}

class ProgramCacheTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<ModelContext> Context(const std::string& placement, bool gated) {
    TinyModel model;
    model.positions = gated ? "ROPE" : "LEARNED";
    model.placement = placement;
    model.n_layer = placement == "swin_v2" ? 6 : 3;
    model.context_length = 16;
    model.more = gated ? "mlp { activation: SILU gated: true }" : "mlp { activation: GELU }";
    return MakeContext(runtime_.get(), model.Text());
  }

  std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

// A graph for one length, converted from another length, equals the graph built for that length.
TEST_P(ProgramCacheTest, LengthsShareTheForwardPass) {
  for (const bool gated : {false, true}) {
    for (const Program program : {Program::kTrain, Program::kEval, Program::kCached}) {
      const auto shared = Context(GetParam(), gated), fresh = Context(GetParam(), gated);
      ASSERT_NE(shared->cache, nullptr);
      fresh->cache = nullptr;
      for (const int64_t seq : {9, 2, 16, 1}) {
        BuildOptions options;
        options.program = program;
        options.batch = 2;
        options.seq = seq;
        const bool gradients = program == Program::kTrain;
        const auto got = BuildProgram(*shared, options, gradients);
        const auto want = BuildProgram(*fresh, options, gradients);
        ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
        ASSERT_EQ(ToString(*got), ToString(*want)) << "of " << seq << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, ProgramCacheTest, testing::ValuesIn(ShippedPlacements()),
                         [](const auto& test) { return test.param; });

class SharedProgramTest : public ProgramCacheTest {};

TEST_F(SharedProgramTest, EqualModelsSharePrograms) {
  const auto a = Context("pre", false), b = Context("pre", false), c = Context("post", false);
  const auto program_of = [](const ModelContext& context, bool drop) {
    BuildOptions options;
    options.program = Program::kTrain;
    options.drop = drop;
    ExecutableCache executables(&context, options, /*gradients=*/true);
    EXPECT_TRUE(executables.Prepare(8).ok());
    return executables.prepared(8).program();
  };
  const auto program = program_of(*a, true);
  EXPECT_EQ(program_of(*a, true), program);
  EXPECT_EQ(program_of(*b, true), program);
  EXPECT_NE(program_of(*b, false), program);
  EXPECT_NE(program_of(*c, true), program);
}

}  // namespace
}  // namespace plumb
