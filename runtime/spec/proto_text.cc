#include "runtime/spec/proto_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/mistakes.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

namespace pb = google::protobuf;

std::vector<std::string> FieldNames(const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> EnumNames(const pb::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    // The value 0 is "not said", whatever it is called.
    if (type.value(i)->number() != 0) names.push_back(type.value(i)->name());
  }
  return names;
}

// The i-th part of `message` between double quotes; "" if there is none.
std::string Quoted(absl::string_view message, int i) {
  const std::vector<absl::string_view> parts = absl::StrSplit(message, '"');
  const size_t at = 2 * static_cast<size_t>(i) + 1;
  return at < parts.size() ? std::string(parts[at]) : "";
}

// Any field called `name` in the messages of the file: the parser names the field, not its message.
const pb::FieldDescriptor* FindField(const pb::Descriptor& type, const std::string& name) {
  const pb::FileDescriptor* file = type.file();
  std::vector<const pb::Descriptor*> queue;
  for (int i = 0; i < file->message_type_count(); ++i) queue.push_back(file->message_type(i));
  for (size_t i = 0; i < queue.size(); ++i) {
    if (const pb::FieldDescriptor* field = queue[i]->FindFieldByName(name)) return field;
    for (int j = 0; j < queue[i]->nested_type_count(); ++j) {
      queue.push_back(queue[i]->nested_type(j));
    }
  }
  return nullptr;
}

// Turns the parser's sentences into ours, with a suggestion.
std::string Explain(const std::string& message, const pb::Descriptor& root) {
  if (absl::StrContains(message, "has no field named")) {
    const pb::Descriptor* type = root.file()->pool()->FindMessageTypeByName(Quoted(message, 0));
    const std::string field = Quoted(message, 1);
    if (type != nullptr) {
      const std::vector<std::string> names = FieldNames(*type);
      const std::string meant = DidYouMean(field, names);
      return absl::StrCat(
          "unknown field \"", field, "\" in ", type->name(),
          meant.empty() ? absl::StrCat("; it has ", absl::StrJoin(names, ", ")) : meant);
    }
  }
  if (absl::StartsWith(message, "Unknown enumeration value")) {
    const pb::FieldDescriptor* field = FindField(root, Quoted(message, 1));
    if (field != nullptr && field->enum_type() != nullptr) {
      return absl::StrCat("unknown value \"", Quoted(message, 0), "\" for ", field->name(),
                          "; it is one of ", absl::StrJoin(EnumNames(*field->enum_type()), ", "));
    }
  }
  if (absl::EndsWith(message, "got: ")) return "the text ends too early; is a \"}\" missing?";
  return absl::StrReplaceAll(message, {{"plumb.v1.", ""}});
}

// Strings go into messages, JSON and other files; text format takes any bytes ("\377").
absl::Status CheckStrings(const pb::Message& message, const Located& at) {
  const pb::Reflection* r = message.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  r->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? r->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
        if (!FindInvalidUtf8(at.TextOf(field->name().c_str(), index).value)) continue;
        return ErrorAt(at.At(field->name().c_str(), index),
                       absl::StrCat(field->name(), " is not UTF-8 text"));
      }
      if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      const pb::Message& nested =
          index < 0 ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, i);
      PLUMB_RETURN_IF_ERROR(CheckStrings(nested, at.Nested(field->name().c_str(), index)));
    }
  }
  return absl::OkStatus();
}

class ErrorList : public pb::io::ErrorCollector {
 public:
  ErrorList(const std::string& file, const pb::Descriptor& root) : file_(file), root_(root) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    Place place{file_, line + 1, column + 1};
    if (line < 0) place.line = 0;
    errors_.push_back(absl::StrCat(place.ToString(), ": ", Explain(message, root_)));
  }
  // With unknown fields allowed they are warnings, and all of them are found.
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    AddError(line, column, message);
  }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  const std::string& file_;
  const pb::Descriptor& root_;
  std::vector<std::string> errors_;
};

absl::Status BadValue(absl::string_view path, absl::string_view value, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": \"", value, "\" is not ", wanted));
}

absl::Status SetScalar(pb::Message* message, const pb::FieldDescriptor* field,
                       absl::string_view path, absl::string_view value) {
  const pb::Reflection* r = message->GetReflection();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32: {
      int32_t number;
      if (!absl::SimpleAtoi(value, &number)) {
        int64_t longer;
        return BadValue(
            path, value,
            absl::SimpleAtoi(value, &longer) ? "a number of 32 bits" : "a whole number");
      }
      r->SetInt32(message, field, number);
      return absl::OkStatus();
    }
    case pb::FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t number;
      if (!absl::SimpleAtoi(value, &number)) return BadValue(path, value, "a whole number >= 0");
      r->SetUInt64(message, field, number);
      return absl::OkStatus();
    }
    case pb::FieldDescriptor::CPPTYPE_DOUBLE: {
      double number;
      if (!absl::SimpleAtod(value, &number) || !std::isfinite(number)) {
        return BadValue(path, value, "a number");
      }
      r->SetDouble(message, field, number);
      return absl::OkStatus();
    }
    case pb::FieldDescriptor::CPPTYPE_BOOL: {
      bool flag;
      if (!absl::SimpleAtob(value, &flag)) return BadValue(path, value, "true or false");
      r->SetBool(message, field, flag);
      return absl::OkStatus();
    }
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      const pb::EnumValueDescriptor* number =
          field->enum_type()->FindValueByName(absl::AsciiStrToUpper(value));
      if (number == nullptr) {
        return BadValue(
            path, value,
            absl::StrCat("one of ", absl::StrJoin(EnumNames(*field->enum_type()), ", ")));
      }
      r->SetEnum(message, field, number);
      return absl::OkStatus();
    }
    case pb::FieldDescriptor::CPPTYPE_STRING:
      if (FindInvalidUtf8(value)) return BadValue(path, "...", "UTF-8 text");
      r->SetString(message, field, std::string(value));
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is a group of fields; set one of ",
                       absl::StrJoin(FieldNames(*field->message_type()), ", ")));
  }
}

}  // namespace

absl::Status ParseProtoText(absl::string_view text, const std::string& file, pb::Message* message,
                            LocationTree* tree) {
  ErrorList errors(file, *message->GetDescriptor());
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(tree);
  parser.SetRecursionLimit(50);
  parser.AllowUnknownField(true);
  const bool parsed = parser.ParseFromString(std::string(text), message);
  if (parsed && errors.errors().empty()) {
    return CheckStrings(*message, Located(file, *message, tree));
  }
  return absl::InvalidArgumentError(errors.errors().empty()
                                        ? absl::StrCat(file, ": is not protobuf text")
                                        : ListMistakes(errors.errors()));
}

std::string PrintProtoText(const pb::Message& message) {
  pb::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  PLUMB_CHECK(printer.PrintToString(message, &text), "protobuf prints every message");
  return text;
}

absl::Status SetProtoField(pb::Message* message, absl::string_view path, absl::string_view value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::string_view name = parts[i];
    int index = -1;
    if (const size_t bracket = name.find('['); bracket != absl::string_view::npos) {
      absl::string_view digits = name.substr(bracket + 1);
      if (!absl::ConsumeSuffix(&digits, "]") || !absl::SimpleAtoi(digits, &index) || index < 0) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": bad index in \"", name, "\""));
      }
      name = name.substr(0, bracket);
    }
    const pb::Descriptor* type = message->GetDescriptor();
    const pb::FieldDescriptor* field = type->FindFieldByName(std::string(name));
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", type->name(), " has no field \"",
                                                     name, "\"",
                                                     DidYouMean(name, FieldNames(*type))));
    }
    const pb::Reflection* r = message->GetReflection();
    if (!field->is_repeated() && index >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " takes no index"));
    }
    if (field->is_repeated()) {
      if (r->FieldSize(*message, field) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": there is no ", name, " to set"));
      }
      if (index < 0 || index >= r->FieldSize(*message, field)) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " needs an index below ",
                                                       r->FieldSize(*message, field), ": ", name,
                                                       "[0]"));
      }
      if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING && i + 1 == parts.size()) {
        if (FindInvalidUtf8(value)) return BadValue(path, "...", "UTF-8 text");
        r->SetRepeatedString(message, field, index, std::string(value));
        return absl::OkStatus();
      }
    }
    if (i + 1 == parts.size()) return SetScalar(message, field, path, value);
    if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " has no fields"));
    }
    message = field->is_repeated() ? r->MutableRepeatedMessage(message, field, index)
                                   : r->MutableMessage(message, field);
  }
  return absl::OkStatus();
}

Place Located::At(const char* field, int index) const {
  Place place{file_, 0, 0};
  if (tree_ == nullptr) return place;
  const pb::FieldDescriptor* descriptor = message_->GetDescriptor()->FindFieldByName(field);
  PLUMB_CHECK(descriptor != nullptr, "the schema has every field that is looked up");
  const pb::TextFormat::ParseLocation location = tree_->GetLocation(descriptor, index);
  if (location.line < 0) return place;
  place.line = location.line + 1;
  place.column = location.column + 1;
  return place;
}

Text Located::TextOf(const char* field, int index) const {
  const pb::FieldDescriptor* descriptor = message_->GetDescriptor()->FindFieldByName(field);
  const pb::Reflection* r = message_->GetReflection();
  return {index < 0 ? r->GetString(*message_, descriptor)
                    : r->GetRepeatedString(*message_, descriptor, index),
          At(field, index)};
}

Located Located::Nested(const char* field, int index) const {
  const pb::FieldDescriptor* descriptor = message_->GetDescriptor()->FindFieldByName(field);
  const pb::Reflection* r = message_->GetReflection();
  const pb::Message& nested = index < 0 ? r->GetMessage(*message_, descriptor)
                                        : r->GetRepeatedMessage(*message_, descriptor, index);
  const LocationTree* tree =
      tree_ == nullptr ? nullptr : tree_->GetTreeForNested(descriptor, index);
  return Located(file_, nested, tree);
}

}  // namespace plumb
