// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

absl::Status AppendId(const JsonFields& fields, const Json& json, int32_t vocab_size,
                      std::vector<int32_t>* ids) {
  const absl::optional<int64_t> id = AsInt64(json);
  if (!id || *id < 0 || *id >= vocab_size) {
    return fields.Error(absl::StrCat("is no id of the ", vocab_size,
                                     " tokens: ", Excerpt(json.dump(-1, ' ', true))));
  }
  ids->push_back(static_cast<int32_t>(*id));
  return absl::OkStatus();
}

// Takes a field such as ["[SEP]", 102] and appends its id.
absl::Status TakePair(JsonFields* fields, const char* name, int32_t vocab_size,
                      std::vector<int32_t>* ids) {
  PLUMB_ASSIGN_OR_RETURN(const Json* pair, fields->NeededArray(name));
  if (pair->size() != 2) return fields->Error(absl::StrCat(name, " is not a token and its id"));
  return AppendId(*fields, (*pair)[1], vocab_size, ids);
}

// Appends the ids that special_tokens lists for one piece of a template.
absl::Status AppendSpecial(const JsonFields& fields, const Json& piece, const Json* special_tokens,
                           int32_t vocab_size, std::vector<int32_t>* ids) {
  const Json* name = FindMember(piece, "id");
  const Json* entry = name == nullptr || !name->is_string() || special_tokens == nullptr
                          ? nullptr
                          : FindMember(*special_tokens, name->get_ref<const std::string&>());
  const Json* list = entry == nullptr ? nullptr : FindMember(*entry, "ids");
  if (list == nullptr || !list->is_array()) {
    return fields.Error(
        absl::StrCat("special_tokens has no ids for ", Excerpt(piece.dump(-1, ' ', true))));
  }
  for (const Json& id : *list) {
    PLUMB_RETURN_IF_ERROR(AppendId(fields, id, vocab_size, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<PostProcessor> ReadTemplate(JsonFields* fields, int32_t vocab_size) {
  PLUMB_ASSIGN_OR_RETURN(const Json* single, fields->NeededArray("single"));
  fields->Ignore("pair");  // template for pairs of texts, which plumb does not encode
  const Json* special_tokens = fields->Take("special_tokens");
  PostProcessor made;
  bool seen = false;
  for (const Json& piece : *single) {
    if (const Json* special = FindMember(piece, "SpecialToken")) {
      PLUMB_RETURN_IF_ERROR(AppendSpecial(*fields, *special, special_tokens, vocab_size,
                                          seen ? &made.after : &made.before));
    } else if (FindMember(piece, "Sequence") != nullptr && !seen) {
      seen = true;
    } else {
      return fields->Error(absl::StrCat("single: ", Excerpt(piece.dump(-1, ' ', true)),
                                        " is neither a SpecialToken nor the one Sequence"));
    }
  }
  if (!seen) return fields->Error("single has no Sequence: texts would be dropped");
  return made;
}

}  // namespace

absl::StatusOr<PostProcessor> ReadPostProcessor(const Json* json, const std::string& place,
                                                int32_t vocab_size) {
  PostProcessor made;
  if (json == nullptr) return made;
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(*json, place));
  PLUMB_ASSIGN_OR_RETURN(const std::string type, fields.NeededString("type"));
  if (type == "TemplateProcessing") {
    PLUMB_ASSIGN_OR_RETURN(made, ReadTemplate(&fields, vocab_size));
    for (const char* name : {"trim_offsets", "add_prefix_space", "use_regex"}) fields.Ignore(name);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    PLUMB_RETURN_IF_ERROR(TakePair(&fields, "cls", vocab_size, &made.before));
    PLUMB_RETURN_IF_ERROR(TakePair(&fields, "sep", vocab_size, &made.after));
    fields.Ignore("trim_offsets");
    fields.Ignore("add_prefix_space");  // affects offsets only; the pre-tokenizer has its own
  } else if (type == "ByteLevel") {     // affects offsets only
    for (const char* name : {"trim_offsets", "add_prefix_space", "use_regex"}) fields.Ignore(name);
  } else if (type == "Sequence") {
    PLUMB_ASSIGN_OR_RETURN(const Json* list, fields.NeededArray("processors"));
    PLUMB_RETURN_IF_ERROR(CheckPartCount(list->size(), fields.GetPlace("processors")));
    for (size_t i = 0; i < list->size(); ++i) {
      PLUMB_ASSIGN_OR_RETURN(
          const PostProcessor next,
          ReadPostProcessor(&(*list)[i], absl::StrCat(fields.GetPlace("processors"), "[", i, "]"),
                            vocab_size));
      made.before.insert(made.before.begin(), next.before.begin(), next.before.end());
      made.after.insert(made.after.end(), next.after.begin(), next.after.end());
    }
  } else {
    return UnsupportedType(
        fields, type,
        {"Sequence", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"});
  }
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  return made;
}

}  // namespace plumb
