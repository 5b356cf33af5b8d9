// SPDX-License-Identifier: Apache-2.0
// Writes the texts of `plumb help model` and the like: the fields of the schema with their
// comments. The .proto file is the only place that documents a field.
//
//   schema_help DESCRIPTORS OUT      DESCRIPTORS: output of protoc with --include_source_info

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using google::protobuf::SourceLocation;

struct Topic {
  const char* name;
  const char* message;
  const char* title;
};
constexpr Topic kTopics[] = {
    {"model", "plumb.v1.Model", "The fields of a model's description, as in plumb train MODEL."},
    {"recipe", "plumb.v1.Train", "The fields of a recipe, as in plumb train --train FILE."},
    {"study", "plumb.v1.Study", "The fields of a study, as in plumb compare STUDY."},
    {"family", "plumb.v1.Import",
     "The fields of a family of checkpoints, as in plumb import --family FILE; plumb docs zoo "
     "explains them."},
    {"formula", "plumb.v1.Placement",
     "The fields of a placement, whose formulas plumb docs placements explains. plumb describe "
     "shows "
     "a "
     "model's."},
};

constexpr size_t kWidth = 80;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "schema_help: " << what << "\n";
  std::exit(1);
}

// Wraps `text` into lines. Empty lines stay, and indented lines are not joined to the previous one.
std::string Wrap(const std::string& text, size_t indent) {
  const std::string margin(indent, ' ');
  std::string wrapped, line;
  const auto end_line = [&] {
    if (!line.empty()) wrapped += margin + line + "\n";
    line.clear();
  };
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) {
    if (each.find_first_not_of(' ') == std::string::npos) {
      end_line();
      wrapped += "\n";
      continue;
    }
    if (each.rfind("  ", 0) == 0) end_line();
    std::istringstream words(each);
    for (std::string word; words >> word;) {
      if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) end_line();
      line += (line.empty() ? "" : " ") + word;
    }
  }
  end_line();
  return wrapped;
}

std::string CommentAt(const SourceLocation& location) {
  const std::string comment = location.leading_comments + location.trailing_comments;
  const size_t begin = comment.rfind(' ', 0) == 0 ? 1 : 0;
  const size_t end = comment.find_last_not_of(" \n");
  return end == std::string::npos ? "" : comment.substr(begin, end + 1 - begin);
}

template <class Type>
std::string FormatComment(const Type& type) {
  SourceLocation location;
  if (!type.GetSourceLocation(&location)) Fail(type.full_name() + ": no source information");
  return CommentAt(location);
}

// Returns the comment at the start of the file if `message` is its first message, else "".
std::string CommentOfFile(const Descriptor& message) {
  SourceLocation location;
  const std::vector<int> syntax = {google::protobuf::FileDescriptorProto::kSyntaxFieldNumber};
  const bool about = message.file()->message_type(0) == &message;
  return about && message.file()->GetSourceLocation(syntax, &location) ? CommentAt(location) : "";
}

// Returns the names of all values but the first, which means "unspecified"; its comment states the
// default.
std::string FormatChoices(const EnumDescriptor& type) {
  std::string text;
  for (int i = 1; i < type.value_count(); ++i) {
    text += (i == 1 ? "" : i + 1 < type.value_count() ? ", " : " or ") + type.value(i)->name();
  }
  return text;
}

std::string GetType(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT32:
      return ": whole number";
    case FieldDescriptor::TYPE_UINT64:
      return ": whole number, not negative";
    case FieldDescriptor::TYPE_DOUBLE:
      return ": number";
    case FieldDescriptor::TYPE_BOOL:
      return ": true or false";
    case FieldDescriptor::TYPE_STRING:
      return ": text in quotes";
    case FieldDescriptor::TYPE_ENUM:
      return ": " + FormatChoices(*field.enum_type());
    case FieldDescriptor::TYPE_MESSAGE:
      return " { " + field.message_type()->name() + " }";
    default:
      Fail(field.full_name() + ": a type without a name here");
  }
}

std::string DescribeChoices(const EnumDescriptor& type) {
  std::string text;
  for (int i = 0; i < type.value_count(); ++i) {
    const std::string comment = FormatComment(*type.value(i));
    if (i == 0) {
      if (!comment.empty()) text += Wrap("Default: " + comment + ".", 6);
    } else if (!comment.empty()) {
      text += Wrap(type.value(i)->name() + ": " + comment, 6);
    }
  }
  return text;
}

std::string DescribeField(const FieldDescriptor& field) {
  std::string text = "  " + field.name() + GetType(field);
  if (field.is_repeated()) text += ", any number of times";
  text += "\n" + Wrap(FormatComment(field), 6);
  if (field.enum_type() != nullptr) text += DescribeChoices(*field.enum_type());
  if (const OneofDescriptor* oneof = field.real_containing_oneof()) {
    std::string others;
    for (int i = 0; i < oneof->field_count(); ++i) {
      if (oneof->field(i) == &field) continue;
      others += (others.empty() ? "" : ", ") + oneof->field(i)->name();
    }
    text += Wrap("Excludes " + others + ".", 6);
  }
  return text;
}

// Describes `message`, then the messages of the same file that its fields contain, each once. Those
// of other files have a topic of their own.
void Describe(const Descriptor& message, bool first, std::set<const Descriptor*>* done,
              std::string* text) {
  if (!done->insert(&message).second) return;
  const std::string comment = FormatComment(message);
  if (!first) *text += "\n" + message.name() + "\n" + Wrap(comment, 2);
  for (int i = 0; i < message.field_count(); ++i) {
    const bool is_next_to_name = i == 0 && !first && comment.empty();
    *text += (is_next_to_name ? "" : "\n") + DescribeField(*message.field(i));
  }
  for (int i = 0; i < message.field_count(); ++i) {
    const Descriptor* nested = message.field(i)->message_type();
    const bool is_here = nested != nullptr && nested->file() == message.file();
    if (is_here) Describe(*nested, false, done, text);
  }
}

std::string Help(const Topic& topic, const Descriptor& message) {
  std::string text = Wrap(topic.title, 0);
  for (const std::string& comment : {CommentOfFile(message), FormatComment(message)}) {
    if (!comment.empty()) text += "\n" + Wrap(comment, 0);
  }
  std::set<const Descriptor*> done;
  Describe(message, true, &done, &text);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) Fail("usage: schema_help DESCRIPTORS OUT");
  std::ifstream input(argv[1], std::ios::binary);
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromIstream(&input)) Fail(std::string("cannot read ") + argv[1]);
  google::protobuf::DescriptorPool pool;
  for (const auto& proto : files.file()) pool.BuildFile(proto);
  std::filesystem::create_directories(argv[2]);
  for (const Topic& topic : kTopics) {
    const Descriptor* message = pool.FindMessageTypeByName(topic.message);
    if (message == nullptr) Fail(std::string("no message ") + topic.message);
    std::ofstream file(std::filesystem::path(argv[2]) / topic.name, std::ios::binary);
    file << Help(topic, *message);
    if (!file.flush()) Fail(std::string("cannot write ") + argv[2] + "/" + topic.name);
  }
  return 0;
}
