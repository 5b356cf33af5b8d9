// SPDX-License-Identifier: Apache-2.0
// Helpers of the compiler's tests: a registry of ops, graphs built with it, and a check that a
// rewritten graph computes the same outputs.
#ifndef PLUMB_TESTS_COMPILE_GRAPH_TEST_H_
#define PLUMB_TESTS_COMPILE_GRAPH_TEST_H_

#include <gtest/gtest.h>

#include <functional>

#include "runtime/graph/builder.h"
#include "runtime/graph/graph.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/run_graph.h"

namespace plumb {

class GraphTest : public ::testing::Test {
 protected:
  Graph Build(const std::function<void(GraphBuilder&)>& build) {
    GraphBuilder b(&ops_);
    build(b);
    absl::StatusOr<Graph> graph = std::move(b).Finish();
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : Graph();
  }

  static void ExpectSameOutputs(const Graph& before, const Graph& after) {
    const ReferenceTensors feeds = RandomFeeds(before, 3);
    const absl::StatusOr<ReferenceTensors> want = ReferenceRun(before, feeds);
    const absl::StatusOr<ReferenceTensors> got = ReferenceRun(after, feeds);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    ASSERT_EQ(got->size(), want->size());
    for (const auto& [name, tensor] : *want) {
      EXPECT_LT(LargestDifference(got->at(name), tensor), 1e-9) << name << " in\n"
                                                                << ToString(before) << "\nbecame\n"
                                                                << ToString(after);
    }
  }

  OpRegistry ops_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_COMPILE_GRAPH_TEST_H_
