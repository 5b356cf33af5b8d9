// SPDX-License-Identifier: Apache-2.0
// Compares plumb's reader and printer of texts with protobuf's, for every type of the schema.
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/schema/oracle.h"

namespace plumb {
namespace {

PLUMB_FUZZER(textproto) {
  static auto* const oracle = new Oracle;
  const std::string text(AsText(data, size));
  for (const std::string& type : Oracle::Types()) {
    const std::string difference = Difference(oracle, type, text);
    PLUMB_CHECK(difference.empty(), absl::StrCat(type, ": ", difference).c_str());
  }
}

}  // namespace
}  // namespace plumb
