// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/reader.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumb::textproto {
namespace {

// Formats like printf's "%.*g", independently of the locale.
std::string Digits(double value, int precision) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::general, precision);
  return std::string(text, end.ptr);
}

// Prints 15 digits, or 17 if 15 would be read as another number.
std::string PrintDouble(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const std::string text = Digits(value, 15);
  double read;
  return absl::SimpleAtod(text, &read) && read == value ? text : Digits(value, 17);
}

std::string PrintString(const std::string& content) {
  std::string text = "\"";
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\t':
        text += "\\t";
        break;
      case '"':
      case '\'':
      case '\\':
        text += {'\\', c};
        break;
      default:
        if (absl::ascii_isprint(byte) || !absl::ascii_isascii(byte)) {
          text += c;
        } else {
          text += {'\\', static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                   static_cast<char>('0' + byte % 8)};
        }
    }
  }
  return text + '"';
}

std::string PrintScalar(const Message& message, const Field& field, int index) {
  switch (field.type) {
    case FieldType::kInt32:
      return absl::StrCat(message.Get<int32_t>(field, index));
    case FieldType::kUint64:
      return absl::StrCat(message.Get<uint64_t>(field, index));
    case FieldType::kDouble:
      return PrintDouble(message.Get<double>(field, index));
    case FieldType::kBool:
      return message.Get<bool>(field, index) ? "true" : "false";
    case FieldType::kEnum: {
      const int32_t number = message.Get<int32_t>(field, index);
      const EnumValue* value = field.enum_type->Find(number);
      return value == nullptr ? absl::StrCat(number) : value->name;
    }
    case FieldType::kString:
      return PrintString(message.Get<std::string>(field, index));
    case FieldType::kMessage:
      break;  // handled by Print
  }
  return "";
}

void Print(const Message& message, const Field& field, const std::string& indent,
           std::string* text) {
  for (int i = 0; i < message.Size(field); ++i) {
    if (field.type == FieldType::kMessage) {
      const Message& nested = message.GetMessage(field, i);
      absl::StrAppend(text, indent, field.name, " {\n");
      for (const Field& inner : nested.Type().fields) Print(nested, inner, indent + "  ", text);
      absl::StrAppend(text, indent, "}\n");
    } else {
      absl::StrAppend(text, indent, field.name, ": ", PrintScalar(message, field, i), "\n");
    }
  }
}

}  // namespace

std::string PrintText(const Message& message) {
  std::string text;
  for (const Field& field : message.Type().fields) Print(message, field, "", &text);
  return text;
}

std::string PrintField(const Message& message, const Field& field) {
  std::string text;
  Print(message, field, "", &text);
  return text;
}

}  // namespace plumb::textproto
