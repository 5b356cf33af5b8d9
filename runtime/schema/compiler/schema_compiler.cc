// SPDX-License-Identifier: Apache-2.0
// Generates C++ classes from the messages of .proto files when plumb is built; runtime/schema reads
// and prints them. So the runtime needs no protobuf library, of which a host may have another
// version.
//
//   schema_compiler DESCRIPTORS OUT       DESCRIPTORS: output of protoc --descriptor_set_out
//
// It writes OUT/plumb/v1/model.schema.h and .cc for plumb/v1/model.proto. The accessors are the
// subset of protobuf's C++ accessors that plumb uses, in the package's namespace. It supports the
// proto3 features that plumb's schema uses: messages without cycles, enums, oneofs, optional and
// repeated fields of the types in textproto::FieldType. Fields have ascending numbers. A reserved
// name is an unknown field to plumb's reader, while protobuf's skips it. Anything else fails the
// build.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::OneofDescriptor;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "schema_compiler: " << what << "\n";
  std::exit(1);
}

// Returns `text` with every "$name$" replaced.
std::string Fill(std::string text, const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [name, value] : names) {
    const std::string key = "$" + name + "$";
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key)) {
      text.replace(at, key.size(), value);
    }
  }
  return text;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Returns "KaimingUniform" for "kaiming_uniform".
std::string Camel(const std::string& name) {
  std::string camel;
  bool start = true;
  for (const char c : name) {
    if (c != '_') camel += start ? Upper(std::string(1, c)) : std::string(1, c);
    start = c == '_';
  }
  return camel;
}

// Returns the class of a type. Nested types are top-level classes, and their parents have aliases:
// Init_Normal is Init::Normal.
template <class Type>
std::string ClassName(const Type& type) {
  return (type.containing_type() == nullptr ? "" : ClassName(*type.containing_type()) + "_") +
         type.name();
}

std::string Namespace(const FileDescriptor& file) {
  std::string name = file.package();
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    name.replace(dot, 1, "::");
  }
  return name;
}

bool KnowsPresence(const FieldDescriptor& field) {
  return !field.is_repeated() && field.has_presence();
}

struct TypeNames {
  std::string constant;  // enumerator of FieldType
  std::string stored;    // type of the member
  std::string passed;    // type that accessors take and return
};

TypeNames GetNames(const FieldDescriptor& field) {
  if (field.is_map()) Fail(field.full_name() + ": maps are not supported");
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT32:
      return {"kInt32", "int32_t", "int32_t"};
    case FieldDescriptor::TYPE_UINT64:
      return {"kUint64", "uint64_t", "uint64_t"};
    case FieldDescriptor::TYPE_DOUBLE:
      return {"kDouble", "double", "double"};
    case FieldDescriptor::TYPE_BOOL:
      if (field.is_repeated()) Fail(field.full_name() + ": repeated bool is not supported");
      return {"kBool", "bool", "bool"};
    case FieldDescriptor::TYPE_ENUM:
      if (field.is_repeated()) Fail(field.full_name() + ": repeated enums are not supported");
      return {"kEnum", "int32_t", ClassName(*field.enum_type())};
    case FieldDescriptor::TYPE_STRING:
      return {"kString", "std::string", "const std::string&"};
    case FieldDescriptor::TYPE_MESSAGE:
      return {"kMessage", ClassName(*field.message_type()),
              "const " + ClassName(*field.message_type()) + "&"};
    default:
      Fail(field.full_name() + ": fields of type " + field.type_name() + " are not supported");
  }
}

// The messages of a file, each after those that it contains.
class MessageOrder {
 public:
  explicit MessageOrder(const FileDescriptor& file) : file_(file) {
    for (int i = 0; i < file.message_type_count(); ++i) Visit(*file.message_type(i));
  }
  const std::vector<const Descriptor*>& messages() const { return order_; }

 private:
  void Visit(const Descriptor& message) {
    if (message.file() != &file_ || done_.count(&message) > 0) return;
    if (!open_.insert(&message).second) Fail(message.full_name() + ": holds itself");
    for (int i = 0; i < message.nested_type_count(); ++i) Visit(*message.nested_type(i));
    for (int i = 0; i < message.field_count(); ++i) {
      if (message.field(i)->message_type() != nullptr) Visit(*message.field(i)->message_type());
    }
    done_.insert(&message);
    order_.push_back(&message);
  }

  const FileDescriptor& file_;
  std::set<const Descriptor*> open_, done_;
  std::vector<const Descriptor*> order_;
};

// ----------------------------------------------------------------------------------- The header

std::string EnumDefinition(const EnumDescriptor& type) {
  std::string text = "enum " + ClassName(type) + " : int32_t {\n";
  const std::string prefix = type.containing_type() == nullptr ? "" : ClassName(type) + "_";
  for (int i = 0; i < type.value_count(); ++i) {
    text += "  " + prefix + type.value(i)->name() + " = " +
            std::to_string(type.value(i)->number()) + ",\n";
  }
  return text + "};\n\n";
}

std::string OneofDefinition(const OneofDescriptor& oneof) {
  std::string text = "  enum " + Camel(oneof.name()) + "Case : int {\n";
  for (int i = 0; i < oneof.field_count(); ++i) {
    text += "    k" + Camel(oneof.field(i)->name()) + " = " +
            std::to_string(oneof.field(i)->number()) + ",\n";
  }
  return text + Fill(
                    "    $UPPER$_NOT_SET = 0,\n  };\n"
                    "  $Camel$Case $name$_case() const {\n"
                    "    return static_cast<$Camel$Case>(OneofCase($index$));\n  }\n",
                    {{"UPPER", Upper(oneof.name())},
                     {"Camel", Camel(oneof.name())},
                     {"name", oneof.name()},
                     {"index", std::to_string(oneof.index())}});
}

std::string Accessors(const FieldDescriptor& field) {
  const TypeNames type = GetNames(field);
  const bool is_message = type.constant == "kMessage";
  std::string text = "\n";
  if (field.is_repeated()) {
    text +=
        "  int $name$_size() const { return static_cast<int>($name$_.size()); }\n"
        "  const std::vector<$stored$>& $name$() const { return $name$_; }\n"
        "  $passed$ $name$(int i) const { return $name$_[static_cast<size_t>(i)]; }\n"
        "  void clear_$name$() { $name$_.clear(); }\n";
    text += is_message
                ? "  $stored$* add_$name$() { return &$name$_.emplace_back(); }\n"
                : "  void add_$name$($stored$ value) { $name$_.push_back(std::move(value)); }\n";
  } else {
    const bool is_enum = type.constant == "kEnum";
    const std::string mark = KnowsPresence(field) ? "    MarkSet($index$);\n" : "";
    if (KnowsPresence(field)) text += "  bool has_$name$() const { return IsSet($index$); }\n";
    text += is_enum ? "  $passed$ $name$() const { return static_cast<$passed$>($name$_); }\n"
                    : "  $passed$ $name$() const { return $name$_; }\n";
    if (is_message) {
      text += "  $stored$* mutable_$name$() {\n" + mark + "    return &$name$_;\n  }\n";
    } else {
      text +=
          "  void set_$name$($value$ value) {\n" + mark + "    $name$_ = std::move(value);\n  }\n";
    }
  }
  return Fill(text, {{"name", field.name()},
                     {"index", std::to_string(field.index())},
                     {"value", type.constant == "kEnum" ? type.passed : type.stored},
                     {"stored", type.stored},
                     {"passed", type.passed}});
}

// Messages are printed in the order of the schema, and by protobuf in that of the numbers.
void CheckFieldOrder(const Descriptor& message) {
  for (int i = 1; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.number() < message.field(i - 1)->number()) {
      Fail(field.full_name() + ": its number is below that of the field before it");
    }
  }
}

std::string ClassDefinition(const Descriptor& message) {
  const std::string name = ClassName(message);
  CheckFieldOrder(message);
  std::string text = "class " + name + " final : public textproto::Message {\n public:\n";
  for (int i = 0; i < message.nested_type_count(); ++i) {
    const Descriptor& nested = *message.nested_type(i);
    text += "  using " + nested.name() + " = " + ClassName(nested) + ";\n";
  }
  for (int i = 0; i < message.enum_type_count(); ++i) {
    const EnumDescriptor& nested = *message.enum_type(i);
    const std::string full = ClassName(nested);
    text += "  using " + nested.name() + " = " + full + ";\n";
    for (int j = 0; j < nested.value_count(); ++j) {
      text += Fill("  static constexpr $type$ $value$ = $type$_$value$;\n",
                   {{"type", full}, {"value", nested.value(j)->name()}});
    }
  }
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    text += OneofDefinition(*message.oneof_decl(i));
  }
  text +=
      "  static const textproto::MessageType kType;\n"
      "  const textproto::MessageType& Type() const override { return kType; }\n";
  for (int i = 0; i < message.field_count(); ++i) text += Accessors(*message.field(i));
  text += "\n private:\n";
  if (message.field_count() > 0) text += "  static const textproto::Field kFields[];\n\n";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string stored = GetNames(field).stored;
    text += "  " + (field.is_repeated() ? "std::vector<" + stored + ">" : stored) + " " +
            field.name() + "_{};\n";
  }
  return text + "};\n\n";
}

void AppendEnums(const Descriptor& message, std::string* text) {
  for (int i = 0; i < message.enum_type_count(); ++i) {
    *text += EnumDefinition(*message.enum_type(i));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) AppendEnums(*message.nested_type(i), text);
}

std::string OutputName(const FileDescriptor& file, const std::string& ending) {
  return file.name().substr(0, file.name().rfind('.')) + ".schema." + ending;
}

std::string Header(const FileDescriptor& file) {
  std::string guard = Upper(OutputName(file, "h")) + "_";
  for (char& c : guard) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  std::string text = Fill(
      "// Made from $file$ by schema_compiler.cc.\n#ifndef $guard$\n#define $guard$\n\n"
      "#include <cstddef>\n#include <cstdint>\n#include <string>\n#include <utility>\n"
      "#include <vector>\n\n#include \"runtime/schema/message.h\"\n",
      {{"file", file.name()}, {"guard", guard}});
  for (int i = 0; i < file.dependency_count(); ++i) {
    text += "#include \"" + OutputName(*file.dependency(i), "h") + "\"\n";
  }
  text += "\nnamespace " + Namespace(file) + " {\n\n";
  for (int i = 0; i < file.enum_type_count(); ++i) text += EnumDefinition(*file.enum_type(i));
  for (int i = 0; i < file.message_type_count(); ++i) AppendEnums(*file.message_type(i), &text);
  const MessageOrder order(file);
  for (const Descriptor* message : order.messages()) text += ClassDefinition(*message);
  return text + "}  // namespace " + Namespace(file) + "\n\n#endif  // " + guard + "\n";
}

// ----------------------------------------------------------------------------------- The tables

std::string EnumTable(const EnumDescriptor& type) {
  std::string text = "constexpr EnumValue k" + ClassName(type) + "Values[] = {\n";
  for (int i = 0; i < type.value_count(); ++i) {
    text += "    {\"" + type.value(i)->name() + "\", " + std::to_string(type.value(i)->number()) +
            "},\n";
  }
  return text + Fill("};\nconstexpr EnumType k$class$Enum = {k$class$Values};\n\n",
                     {{"class", ClassName(type)}});
}

void AppendEnumTables(const Descriptor& message, std::string* text) {
  for (int i = 0; i < message.enum_type_count(); ++i) *text += EnumTable(*message.enum_type(i));
  for (int i = 0; i < message.nested_type_count(); ++i) {
    AppendEnumTables(*message.nested_type(i), text);
  }
}

std::string FieldRow(const FieldDescriptor& field) {
  const OneofDescriptor* oneof = field.real_containing_oneof();
  const bool is_message = field.message_type() != nullptr;
  return Fill(
      "    {\"$name$\", $number$, $index$, FieldType::$type$, Label::$label$, $oneof$, $enum$,\n"
      "     $message$, textproto::AccessTo$access$<&$class$::$name$_>()},\n",
      {{"name", field.name()},
       {"number", std::to_string(field.number())},
       {"index", std::to_string(field.index())},
       {"type", GetNames(field).constant},
       {"label", field.is_repeated()    ? "kRepeated"
                 : KnowsPresence(field) ? "kOptional"
                                        : "kPlain"},
       {"oneof", oneof == nullptr ? "-1" : std::to_string(oneof->index())},
       {"enum",
        field.enum_type() == nullptr ? "nullptr" : "&k" + ClassName(*field.enum_type()) + "Enum"},
       {"message", is_message ? "&" + ClassName(*field.message_type()) + "::kType" : "nullptr"},
       {"access", std::string(is_message ? "Message" : "Value") + (field.is_repeated() ? "s" : "")},
       {"class", ClassName(*field.containing_type())}});
}

std::string MessageTable(const Descriptor& message) {
  const std::string name = ClassName(message);
  std::string text;
  if (message.field_count() > 0) {
    text += "constexpr Field " + name + "::kFields[] = {\n";
    for (int i = 0; i < message.field_count(); ++i) text += FieldRow(*message.field(i));
    text += "};\n";
  }
  return text + "constexpr MessageType " + name + "::kType = {\"" + message.name() + "\", " +
         (message.field_count() > 0 ? "kFields" : "{}") + "};\n\n";
}

std::string Source(const FileDescriptor& file) {
  std::string text = Fill(
      "// Made from $file$ by schema_compiler.cc.\n#include \"$header$\"\n\n"
      "namespace $namespace$ {\n\nusing textproto::EnumType;\nusing textproto::EnumValue;\n"
      "using textproto::Field;\nusing textproto::FieldType;\nusing textproto::Label;\n"
      "using textproto::MessageType;\n\nnamespace {\n\n",
      {{"file", file.name()}, {"header", OutputName(file, "h")}, {"namespace", Namespace(file)}});
  for (int i = 0; i < file.enum_type_count(); ++i) text += EnumTable(*file.enum_type(i));
  for (int i = 0; i < file.message_type_count(); ++i) {
    AppendEnumTables(*file.message_type(i), &text);
  }
  text += "}  // namespace\n\n";
  const MessageOrder order(file);
  for (const Descriptor* message : order.messages()) text += MessageTable(*message);
  return text + "}  // namespace " + Namespace(file) + "\n";
}

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) Fail("cannot write " + path.string());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) Fail("usage: schema_compiler DESCRIPTORS OUT");
  std::ifstream input(argv[1], std::ios::binary);
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromIstream(&input)) Fail(std::string("cannot read ") + argv[1]);
  google::protobuf::DescriptorPool pool;
  for (const auto& proto : files.file()) {
    const FileDescriptor* file = pool.BuildFile(proto);
    if (file == nullptr) Fail(proto.name() + ": its descriptors do not fit together");
    if (file->syntax() != FileDescriptor::SYNTAX_PROTO3) Fail(proto.name() + ": is not proto3");
    if (file->package().rfind("plumb.", 0) != 0) Fail(proto.name() + ": is not plumb's");
    Write(std::filesystem::path(argv[2]) / OutputName(*file, "h"), Header(*file));
    Write(std::filesystem::path(argv[2]) / OutputName(*file, "cc"), Source(*file));
  }
  return 0;
}
