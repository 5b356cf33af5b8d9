// SPDX-License-Identifier: Apache-2.0
// Checks that code which runs in every step allocates nothing, by the operators new of this binary.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/data/batches.h"
#include "runtime/session/sampler.h"
#include "runtime/train/metrics.h"
#include "tests/session/scratch_dir.h"

namespace {

int64_t allocations = 0;

void* CountedAllocation(std::size_t size) {
  ++allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return CountedAllocation(size); }
void* operator new[](std::size_t size) { return CountedAllocation(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace plumb {
namespace {

template <class Body>
int64_t CountAllocations(const Body& body) {
  const int64_t before = allocations;
  body();
  return allocations - before;
}

Dataset MakeDataset(DatasetOptions::Format format, double val_fraction) {
  std::string content;
  for (int i = 0; i < 60; ++i)
    absl::StrAppend(&content, std::string(1 + i % 13, static_cast<char>('a' + i % 26)), "\n");
  DatasetOptions options;
  options.format = format;
  options.val_fraction = val_fraction;
  return *Dataset::FromContent(content, "d.txt", options);
}

TEST(AllocationTest, CountsAllocations) {
  EXPECT_GT(CountAllocations([] {
              std::vector<int> v(100, 1);
              EXPECT_EQ(v[99], 1);
            }),
            0);
}

TEST(AllocationTest, FillingBatchesAllocatesNothing) {
  for (DatasetOptions::Format format :
       {DatasetOptions::Format::kDocuments, DatasetOptions::Format::kText}) {
    const Dataset dataset = MakeDataset(format, 0.3);
    TrainBatches::Options train;
    train.batch_size = 4;
    train.context_length = 10;
    TrainBatches batches = *TrainBatches::Create(&dataset, train);
    Batch batch = batches.MakeBatch();
    // Batches from the first on, over the ends of epochs, and back.
    EXPECT_EQ(CountAllocations([&] {
                for (int64_t i = 0; i < 100; ++i) batches.Fill(i, &batch);
                batches.Fill(7, &batch);
              }),
              0);
    EvalBatches::Options eval;
    eval.batch_size = 4;
    eval.context_length = 10;
    const EvalBatches validation = *EvalBatches::Create(&dataset, Split::kValidation, eval);
    Batch eval_batch = validation.MakeBatch();
    EXPECT_EQ(CountAllocations([&] {
                for (int64_t i = 0; i < validation.size(); ++i) validation.Fill(i, &eval_batch);
              }),
              0);
  }
}

TEST(AllocationTest, DrawingTokensAllocatesNothing) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 10;
  const RngStream stream(1, "test");
  for (double temperature : {0.0, 0.7}) {
    for (int top_k : {0, 40}) {
      for (double top_p : {1.0, 0.9}) {
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = top_k;
        options.top_p = top_p;
        TokenSampler sampler = *TokenSampler::Create(options, 1000);
        int64_t sum = 0;
        EXPECT_EQ(CountAllocations([&] {
                    for (uint64_t i = 0; i < 20; ++i)
                      sum += *sampler.Draw(logits.data(), stream, i);
                  }),
                  0);
        EXPECT_GT(sum, 0);
      }
    }
  }
}

TEST(AllocationTest, AppendingMetricsAllocatesNothing) {
  ScratchDir dir;
  MetricsWriter writer = *MetricsWriter::Open(dir.File("metrics.jsonl"));
  StepMetrics metrics;
  metrics.loss = 1.0 / 3;
  metrics.val_loss = 2.5;
  EXPECT_EQ(CountAllocations([&] {
              for (int64_t i = 0; i < 20; ++i) {
                metrics.step = i;
                writer.Append(metrics).IgnoreError();
              }
            }),
            0);
  EXPECT_EQ(ReadMetrics(dir.File("metrics.jsonl"))->size(), 20u);
}

}  // namespace
}  // namespace plumb
