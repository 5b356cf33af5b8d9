// SPDX-License-Identifier: Apache-2.0
// Texts of every type of the schema, to plumb's reader and printer and to protobuf's own: they
// agree.
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
