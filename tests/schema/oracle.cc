// SPDX-License-Identifier: Apache-2.0
#include "tests/schema/oracle.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "plumb/v1/import.schema.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/study.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;
using Random = std::mt19937_64;

class Errors : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    absl::StrAppend(&text_, line + 1, ":", column + 1, ": ", message, "\n");
  }
  // If unknown fields are allowed, protobuf reports them as warnings. plumb accepts none.
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    AddError(line, column, message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string ElementPath(const std::string& path, const std::string& name, int index) {
  return absl::StrCat(path, path.empty() ? "" : ".", name,
                      index < 0 ? "" : absl::StrCat("[", index, "]"));
}

std::string LineAndColumn(int line, int column) { return absl::StrCat(line, ":", column); }

void Collect(const pb::Message& message, const pb::TextFormat::ParseInfoTree& tree, bool lists,
             const std::string& path, Reading* reading) {
  const pb::Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? r.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      const std::string here = ElementPath(path, field->name(), index);
      const pb::TextFormat::ParseLocation location = tree.GetLocation(field, index);
      if (!field->is_repeated() || !lists) {
        reading->locations[here] = LineAndColumn(location.line + 1, location.column + 1);
      }
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Collect(index < 0 ? r.GetMessage(message, field) : r.GetRepeatedMessage(message, field, i),
                *tree.GetTreeForNested(field, index), lists, here, reading);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        const std::string text =
            index < 0 ? r.GetString(message, field) : r.GetRepeatedString(message, field, i);
        if (FindInvalidUtf8(text)) reading->error = absl::StrCat(here, " is not UTF-8");
      }
    }
  }
}

void Collect(const textproto::Message& message, const textproto::Locations& tree, bool lists,
             const std::string& path, Reading* reading) {
  for (const textproto::Field& field : message.Type().fields) {
    for (int i = 0; i < message.Size(field); ++i) {
      const std::string here = ElementPath(path, field.name, field.repeated() ? i : -1);
      const textproto::Location location = tree.At(field, i);
      if (!field.repeated() || !lists) {
        reading->locations[here] = LineAndColumn(location.line, location.column);
      }
      if (field.type == textproto::FieldType::kMessage) {
        Collect(message.GetMessage(field, i), *tree.Nested(field, i), lists, here, reading);
      }
    }
  }
}

bool HasList(const std::string& text) { return text.find('[') != std::string::npos; }

uint64_t Below(Random* random, uint64_t n) { return (*random)() % n; }

int32_t SomeInt32(Random* random) {
  const int32_t kEdges[] = {
      0, 1, -1, 10, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  return Below(random, 2) == 0 ? kEdges[Below(random, 6)] : static_cast<int32_t>((*random)());
}

double SomeDouble(Random* random) {
  const double kEdges[] = {0.0,
                           -0.0,
                           0.1,
                           1e15,
                           1e16,
                           123456789012345678.0,
                           1e-5,
                           5e-324,
                           2.2250738585072011e-308,
                           std::numeric_limits<double>::max(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};
  switch (Below(random, 4)) {
    case 0:
      return kEdges[Below(random, std::size(kEdges))];
    case 1:  // any bits
    {
      const uint64_t bits = (*random)();
      double number;
      std::memcpy(&number, &bits, sizeof(number));
      return number;
    }
    case 2:
      return static_cast<double>(Below(random, 100000)) / 1000;
    default:
      return static_cast<double>((*random)()) * 1e-19;
  }
}

std::string SomeString(Random* random) {
  std::string text;
  for (uint64_t n = Below(random, 12); n > 0; --n) {
    switch (Below(random, 4)) {
      case 0:
        AppendUtf8(static_cast<uint32_t>(Below(random, 128)), &text);
        break;
      case 1:
        text += "\"'\\\n\t\r\a?{}"[Below(random, 10)];
        break;
      case 2: {
        const uint32_t code = static_cast<uint32_t>(Below(random, kMaxCodePoint + 1));
        if (code < 0xD800 || code > 0xDFFF) AppendUtf8(code, &text);
        break;
      }
      default:
        text += "x = x + f(norm(x))"[Below(random, 18)];
    }
  }
  return text;
}

}  // namespace

Oracle::Oracle() : factory_(&pool_) {
  std::ifstream file(PLUMB_SCHEMA_DESCRIPTORS, std::ios::binary);
  pb::FileDescriptorSet files;
  PLUMB_CHECK(files.ParseFromIstream(&file), "the build makes the descriptors");
  for (const pb::FileDescriptorProto& proto : files.file()) {
    PLUMB_CHECK(pool_.BuildFile(proto) != nullptr, "the descriptors are valid");
  }
}

const std::vector<std::string>& Oracle::Types() {
  static const auto* const types =
      new std::vector<std::string>{"Model", "Library", "Study", "Train", "RecipeRules", "Import"};
  return *types;
}

std::unique_ptr<pb::Message> Oracle::New(const std::string& type) {
  const pb::Descriptor* descriptor = pool_.FindMessageTypeByName(absl::StrCat("plumb.v1.", type));
  return std::unique_ptr<pb::Message>(factory_.GetPrototype(descriptor)->New());
}

Reading Oracle::Read(const std::string& type, const std::string& text) {
  const std::unique_ptr<pb::Message> message = New(type);
  Errors errors;
  pb::TextFormat::ParseInfoTree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(50);
  parser.AllowUnknownField(true);
  Reading reading;
  const bool parsed = parser.ParseFromString(text, message.get());
  reading.error = errors.text();
  if (!parsed || !reading.error.empty()) return reading;
  Collect(*message, tree, HasList(text), "", &reading);
  reading.accepted = reading.error.empty();
  reading.printed = PrintByProtobuf(*message);
  return reading;
}

std::unique_ptr<textproto::Message> NewMessage(const std::string& type) {
  if (type == "Model") return std::make_unique<v1::Model>();
  if (type == "Library") return std::make_unique<v1::Library>();
  if (type == "Study") return std::make_unique<v1::Study>();
  if (type == "RecipeRules") return std::make_unique<v1::RecipeRules>();
  if (type == "Import") return std::make_unique<v1::Import>();
  return std::make_unique<v1::Train>();
}

Reading ReadByPlumb(const std::string& type, const std::string& text) {
  const std::unique_ptr<textproto::Message> message = NewMessage(type);
  textproto::Locations locations;
  const absl::Status status = textproto::ReadText(text, "text", message.get(), &locations);
  Reading reading;
  reading.accepted = status.ok();
  reading.error = std::string(status.message());
  if (!reading.accepted) return reading;
  reading.printed = textproto::PrintText(*message);
  Collect(*message, locations, HasList(text), "", &reading);
  return reading;
}

std::string Difference(Oracle* oracle, const std::string& type, const std::string& text) {
  const Reading theirs = oracle->Read(type, text);
  const Reading ours = ReadByPlumb(type, text);
  if (ours.accepted != theirs.accepted) {
    if (theirs.accepted && ours.error.find("at most 0010FFFF") != std::string::npos) return "";
    return absl::StrCat("plumb: ", ours.accepted ? "accepted" : ours.error,
                        "\nprotobuf: ", theirs.accepted ? "accepted" : theirs.error);
  }
  if (!ours.accepted) return ours.error.empty() ? "plumb: an error without words" : "";
  if (ours.printed != theirs.printed) {
    return absl::StrCat("plumb prints\n", ours.printed, "protobuf prints\n", theirs.printed);
  }
  if (ours.locations == theirs.locations) return "";
  for (const auto& [field, location] : theirs.locations) {
    const auto found = ours.locations.find(field);
    const std::string own = found == ours.locations.end() ? "nowhere" : found->second;
    if (own != location) return absl::StrCat(field, " is at ", location, ", to plumb at ", own);
  }
  return "plumb has more fields";
}

void FillAtRandom(Random* random, pb::Message* message) {
  const pb::Descriptor& type = *message->GetDescriptor();
  const pb::Reflection& r = *message->GetReflection();
  for (int f = 0; f < type.field_count(); ++f) {
    const FieldDescriptor* field = type.field(f);
    uint64_t count = Below(random, 3) == 0 ? 1 : 0;
    if (field->is_repeated()) count *= 1 + Below(random, 2);
    for (; count > 0; --count) {
      const bool repeated = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          repeated ? r.AddInt32(message, field, SomeInt32(random))
                   : r.SetInt32(message, field, SomeInt32(random));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          repeated ? r.AddUInt64(message, field, (*random)() >> Below(random, 64))
                   : r.SetUInt64(message, field, (*random)() >> Below(random, 64));
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          repeated ? r.AddDouble(message, field, SomeDouble(random))
                   : r.SetDouble(message, field, SomeDouble(random));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          r.SetBool(message, field, Below(random, 2) == 0);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          r.SetEnumValue(
              message, field,
              Below(random, 8) == 0 ? SomeInt32(random) : static_cast<int32_t>(Below(random, 5)));
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          repeated ? r.AddString(message, field, SomeString(random))
                   : r.SetString(message, field, SomeString(random));
          break;
        case FieldDescriptor::CPPTYPE_MESSAGE:
          FillAtRandom(random,
                       repeated ? r.AddMessage(message, field) : r.MutableMessage(message, field));
          break;
        default:
          PLUMB_CHECK(false, "the schema has no other types");
      }
    }
  }
}

void Copy(const pb::Message& from, textproto::Message* to) {
  const pb::Reflection& r = *from.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(from, &fields);
  for (const FieldDescriptor* field : fields) {
    const textproto::Field& own = *to->Type().Find(field->name());
    const bool repeated = field->is_repeated();
    const int count = repeated ? r.FieldSize(from, field) : 1;
    for (int i = 0; i < count; ++i) {
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          to->Put<int32_t>(own,
                           repeated ? r.GetRepeatedInt32(from, field, i) : r.GetInt32(from, field));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          to->Put<uint64_t>(
              own, repeated ? r.GetRepeatedUInt64(from, field, i) : r.GetUInt64(from, field));
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          to->Put<double>(
              own, repeated ? r.GetRepeatedDouble(from, field, i) : r.GetDouble(from, field));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          to->Put<bool>(own, r.GetBool(from, field));
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          to->Put<int32_t>(own, r.GetEnumValue(from, field));
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          to->Put<std::string>(
              own, repeated ? r.GetRepeatedString(from, field, i) : r.GetString(from, field));
          break;
        default:
          Copy(repeated ? r.GetRepeatedMessage(from, field, i) : r.GetMessage(from, field),
               to->PutMessage(own));
      }
    }
  }
}

std::string PrintByProtobuf(const pb::Message& message) {
  pb::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  PLUMB_CHECK(printer.PrintToString(message, &text), "protobuf prints every message");
  return text;
}

std::string PrintInSomeStyle(Random* random, const pb::Message& message) {
  pb::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(Below(random, 2) == 0);
  printer.SetSingleLineMode(Below(random, 3) == 0);
  printer.SetUseShortRepeatedPrimitives(Below(random, 2) == 0);
  printer.SetInitialIndentLevel(static_cast<int>(Below(random, 3)));
  std::string text;
  PLUMB_CHECK(printer.PrintToString(message, &text), "protobuf prints every message");
  return text;
}

}  // namespace plumb
