// SPDX-License-Identifier: Apache-2.0
// Fuzzes recipes and studies: a parsed text is printed, and its print parses to the same.
#include "runtime/base/check.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/train_spec.h"
#include "runtime/study/study.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

PLUMB_FUZZER(recipe) {
  const absl::string_view text = AsText(data, size);
  if (const auto recipe = ParseTrainSpec(text, "train.pbtxt", {}); recipe.ok()) {
    const std::string printed = recipe->text;
    const auto again = ParseTrainSpec(printed, "again.pbtxt", {});
    PLUMB_CHECK(again.ok() && again->text == printed, "a recipe does not read itself");
  }
  if (const auto study = ParseStudy(text, "study.pbtxt"); study.ok()) {
    const std::string printed = textproto::PrintText(study->fields);
    const auto again = ParseStudy(printed, "again.pbtxt");
    PLUMB_CHECK(again.ok() && textproto::PrintText(again->fields) == printed,
                "a study does not read itself");
  }
}

}  // namespace
}  // namespace plumb
