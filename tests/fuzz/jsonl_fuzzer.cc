// SPDX-License-Identifier: Apache-2.0
// Fuzzes JSONL training data: an error has a place, and batches have the targets that were counted.
#include "absl/strings/match.h"
#include "runtime/base/check.h"
#include "runtime/data/batches.h"
#include "runtime/data/data.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

PLUMB_FUZZER(jsonl) {
  DatasetOptions options;
  options.format = DatasetOptions::Format::kJsonl;
  options.vocabulary = Tokenizer::Kind::kBytes;
  options.val_fraction = 0;
  const auto dataset = Dataset::FromContent(AsText(data, size), "f.jsonl", options);
  if (!dataset.ok()) {
    PLUMB_CHECK(absl::StartsWith(dataset.status().message(), "f.jsonl:"),
                "an error with its place");
    return;
  }
  EvalBatches::Options eval;
  eval.context_length = 1 << 20;
  const auto batches = EvalBatches::Create(&*dataset, Split::kTrain, eval);
  PLUMB_CHECK(batches.ok(), "every document has a target, its end token");
  Batch batch = batches->MakeBatch();
  int64_t targets = 0;
  for (int64_t i = 0; i < batches->size(); ++i) {
    batches->Fill(i, &batch);
    PLUMB_CHECK(batch.valid_targets >= 2, "a completion is not empty");
    targets += batch.valid_targets;
  }
  PLUMB_CHECK(targets == batches->num_targets(), "targets are counted");
  PLUMB_CHECK(targets == dataset->num_targets(Split::kTrain), "targets are counted");
}

}  // namespace
}  // namespace plumb
