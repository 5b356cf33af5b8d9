// SPDX-License-Identifier: Apache-2.0
// Fuzzes families of checkpoints and their config.json: "FAMILY
// ---
// JSON", or a JSON alone, which the shipped families read. Every description of a model must be
// text format, and a shipped family must have one for every accepted config.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plumb/v1/model.schema.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/formats/strict_json.h"
#include "runtime/schema/reader.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"
#include "runtime/zoo/family_template.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

absl::StatusOr<FamilyText> ReadShipped(const std::string& file_name) {
  const std::string path = std::string(PLUMB_SOURCE_DIR) + "/plugins/zoo/" + file_name;
  absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  if (!text.ok()) return text.status();
  return FamilyText{path, *std::move(text)};
}

absl::StatusOr<FamilyText> ReadShippedPart(const std::string& name) {
  return ReadShipped(name + ".part.pbtxt");
}

const std::vector<Family>& ShippedFamilies() {
  static const std::vector<Family>& families = *new std::vector<Family>([] {
    std::vector<Family> read;
    for (const char* name : {"gpt2", "llama"}) {
      const absl::StatusOr<FamilyText> text = ReadShipped(std::string(name) + ".import.pbtxt");
      PLUMB_CHECK(text.ok(), "a family that ships is there");
      absl::StatusOr<Family> family = ParseFamily(*text, ReadShippedPart);
      PLUMB_CHECK(family.ok(), "a family that ships is one");
      read.push_back(*std::move(family));
    }
    return read;
  }());
  return families;
}

// Applies a family to a config.json. `trusted`: the family has a description for any config.
void Apply(const Family& family, absl::string_view json, bool trusted) {
  constexpr int kDepth = 32;
  const absl::StatusOr<nlohmann::json> config = ParseStrictJson(json, kDepth);
  if (!config.ok() || !config->is_object()) return;
  const absl::StatusOr<ConfigValues> values = ReadConfigValues(family, *config, "config.json");
  if (!values.ok()) {
    PLUMB_CHECK(!values.status().message().empty(), "an error without words");
    return;
  }
  const absl::StatusOr<std::string> text = ModelText(family, *values);
  PLUMB_CHECK(text.ok() || !trusted, "what was read has a description");
  if (!text.ok()) return;
  v1::Model model;
  textproto::Locations locations;
  PLUMB_CHECK(textproto::ReadText(*text, "model", &model, &locations).ok(),
              "a description is text format");
}

PLUMB_FUZZER(family) {
  const absl::string_view text = AsText(data, size);
  constexpr absl::string_view kBetween = "\n---\n";
  const size_t at = text.find(kBetween);
  if (at == absl::string_view::npos) {
    for (const Family& family : ShippedFamilies()) Apply(family, text, /*trusted=*/true);
    return;
  }
  const absl::StatusOr<Family> family =
      ParseFamily({"family", std::string(text.substr(0, at))}, ReadShippedPart);
  if (family.ok()) Apply(*family, text.substr(at + kBetween.size()), /*trusted=*/false);
}

}  // namespace
}  // namespace plumb
