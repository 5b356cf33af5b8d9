// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/reader.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/field_names.h"

namespace plumb::textproto {

namespace {

constexpr int kMaxDepth = 50;  // nesting of messages

// Parses an integer token with the prefix of its base. Returns false if it exceeds 64 bits.
bool ParseInteger(absl::string_view token, uint64_t* number) {
  if (absl::StartsWithIgnoreCase(token, "0x")) return absl::SimpleHexAtoi(token, number);
  const uint64_t base = token.front() == '0' ? 8 : 10;
  *number = 0;
  for (const char c : token) {
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (*number > (std::numeric_limits<uint64_t>::max() - digit) / base) return false;
    *number = *number * base + digit;
  }
  return true;
}

// Recursive-descent parser. A function that returns bool reads one construct; it returns false
// after it noted an error that ends the parse.
class Reader {
 public:
  Reader(absl::string_view text, const std::string& file) : lexer_(text), file_(file) {}

  absl::Status Read(Message* message, Locations* locations) {
    while (!At(TokenKind::kEnd) && ReadField(message, locations)) {
    }
    return errors_.empty() ? absl::OkStatus()
                           : absl::InvalidArgumentError(ListDiagnostics(errors_));
  }

 private:
  const Token& current() const { return lexer_.current(); }
  bool At(TokenKind kind) const { return current().kind == kind; }
  bool At(char symbol) const { return At(TokenKind::kSymbol) && current().text.front() == symbol; }
  bool AtMessage() const { return At('{') || At('<'); }

  bool Take(char symbol) {
    if (!At(symbol)) return false;
    lexer_.Next();
    return true;
  }

  void Note(Location location, absl::string_view what) {
    errors_.push_back(
        absl::StrCat(file_, ":", location.line, ":", location.column, ": ", ShortMessage(what)));
  }
  bool Fail(Location location, absl::string_view what) {
    Note(location, what);
    return false;
  }
  // Reports that the current token is unexpected, or the lexer's error if there is no token.
  bool FailHere(absl::string_view what) {
    return Fail(current().location, At(TokenKind::kError) ? lexer_.error() : what);
  }
  bool Expected(absl::string_view what) {
    if (At(TokenKind::kEnd) && depth_ > 0) {
      return FailHere("the text ends too early; is a \"}\" missing?");
    }
    return FailHere(absl::StrCat("expected ", what, ", found ", Found()));
  }
  std::string Found() const {
    if (At(TokenKind::kEnd)) return "the end of the text";
    const std::string shown = Excerpt(current().text);
    return At(TokenKind::kString) ? absl::StrCat("the text ", shown)
                                  : absl::StrCat("\"", shown, "\"");
  }

  bool ReadName(absl::string_view* name) {
    if (At('}') && depth_ == 0) return FailHere("a \"}\" without a \"{\"");
    if (At('[')) return FailHere("a \"[\" instead of a field; extensions and Any are not read");
    // A number is no field name, but is skipped like an unknown field.
    if (!At(TokenKind::kIdentifier) && !At(TokenKind::kInteger)) {
      return Expected("the name of a field");
    }
    *name = current().text;
    lexer_.Next();
    return true;
  }

  bool ReadField(Message* message, Locations* locations) {
    const Location start = current().location;
    absl::string_view name;
    if (!ReadName(&name)) return false;
    const Field* field = message->Type().Find(name);
    if (field == nullptr) {
      const bool colon = Take(':');
      const RemovedName* const removed = FindRemoved(message->Type().name, name);
      if (removed == nullptr || removed->no_effect != current().text) {
        NoteUnknown(start, name, message->Type());
      }
      return SkipFieldBody(colon);
    }
    if (!CheckIsFirst(start, *field, *message, *locations)) return false;
    const bool colon = Take(':');
    if (!colon && field->type != FieldType::kMessage) {
      return Expected(absl::StrCat("\":\" after ", field->name));
    }
    if (field->repeated() && At('[')) {
      if (!ReadList(*field, message, locations)) return false;
    } else if (!ReadElement(*field, start, message, locations)) {
      return false;
    }
    if (!Take(';')) Take(',');
    return true;
  }

  void NoteUnknown(Location start, absl::string_view name, const MessageType& type) {
    const std::string hint = SuggestField(type, name);
    Note(start, absl::StrCat("unknown field \"", Excerpt(name), "\" in ", type.name,
                             hint.empty()
                                 ? absl::StrCat("; it has ", absl::StrJoin(type.FieldNames(), ", "))
                                 : hint));
  }

  bool CheckIsFirst(Location start, const Field& field, const Message& message,
                    const Locations& locations) {
    if (field.repeated()) return true;
    if (message.Has(field)) {
      return Fail(start, absl::StrCat(field.name, " is given twice, first in line ",
                                      locations.At(field, 0).line));
    }
    const Field* other = field.oneof < 0 ? nullptr : message.SetInOneof(field.oneof);
    if (other == nullptr) return true;
    return Fail(start, absl::StrCat(field.name, " and ", other->name, " (line ",
                                    locations.At(*other, 0).line, ") exclude each other"));
  }

  bool ReadList(const Field& field, Message* message, Locations* locations) {
    Take('[');
    if (Take(']')) return true;
    while (true) {
      if (!ReadElement(field, current().location, message, locations)) return false;
      if (Take(']')) return true;
      if (!Take(',')) return Expected(absl::StrCat("\",\" or \"]\" in the list of ", field.name));
    }
  }

  bool ReadElement(const Field& field, Location start, Message* message, Locations* locations) {
    locations->Add(field, start);
    if (field.type != FieldType::kMessage) return ReadScalar(field, start, message);
    char close;
    if (!Open(absl::StrCat("\"{\" after ", field.name), &close)) return false;
    Message* nested = message->PutMessage(field);
    Locations* nested_locations = locations->AddNested(field);
    while (!At('}') && !At('>')) {
      if (!ReadField(nested, nested_locations)) return false;
    }
    return Close(close);
  }

  bool Open(absl::string_view expected, char* close) {
    if (++depth_ > kMaxDepth) {
      return FailHere(absl::StrCat("messages nest more than ", kMaxDepth, " deep"));
    }
    *close = At('<') ? '>' : '}';
    if (!AtMessage()) return Expected(expected);
    lexer_.Next();
    return true;
  }
  bool Close(char close) {
    if (!Take(close)) return Expected(absl::StrCat("\"", std::string(1, close), "\""));
    --depth_;
    return true;
  }

  bool ReadScalar(const Field& field, Location start, Message* message) {
    switch (field.type) {
      case FieldType::kInt32: {
        int32_t number;
        if (!ReadInt32(field, absl::StrCat("a whole number for ", field.name), &number))
          return false;
        message->Put(field, number);
        return true;
      }
      case FieldType::kUint64:
        return ReadUint64(field, message);
      case FieldType::kDouble:
        return ReadDouble(field, message);
      case FieldType::kBool:
        return ReadBool(field, message);
      case FieldType::kEnum:
        return ReadEnum(field, message);
      default:
        return ReadString(field, start, message);
    }
  }

  bool ReadInt32(const Field& field, absl::string_view wanted, int32_t* number) {
    const Location start = current().location;
    const bool negative = Take('-');
    if (!At(TokenKind::kInteger)) return Expected(wanted);
    const uint64_t max = (uint64_t{1} << 31) - (negative ? 0 : 1);
    uint64_t magnitude;
    if (!ParseInteger(current().text, &magnitude) || magnitude > max) {
      return Fail(start, absl::StrCat(field.name, ": ", negative ? "-" : "",
                                      Excerpt(current().text), " is not a number of 32 bits"));
    }
    const auto value = static_cast<int64_t>(magnitude);
    *number = static_cast<int32_t>(negative ? -value : value);
    lexer_.Next();
    return true;
  }

  bool ReadUint64(const Field& field, Message* message) {
    if (!At(TokenKind::kInteger)) {
      return Expected(absl::StrCat("a whole number >= 0 for ", field.name));
    }
    uint64_t number;
    if (!ParseInteger(current().text, &number)) {
      return FailHere(
          absl::StrCat(field.name, ": ", Excerpt(current().text), " is not a number of 64 bits"));
    }
    message->Put(field, number);
    lexer_.Next();
    return true;
  }

  bool ReadDouble(const Field& field, Message* message) {
    const bool negative = Take('-');
    const std::string wanted = absl::StrCat("a number for ", field.name);
    absl::string_view text = current().text;
    double number;
    if (At(TokenKind::kIdentifier)) {
      const std::string word = absl::AsciiStrToLower(text);
      if (word != "inf" && word != "infinity" && word != "nan") return Expected(wanted);
      number = word == "nan" ? std::numeric_limits<double>::quiet_NaN()
                             : std::numeric_limits<double>::infinity();
    } else if (At(TokenKind::kInteger) || At(TokenKind::kFloat)) {
      // "0x10" and "010" are valid only for integers.
      if (At(TokenKind::kInteger) && text.size() > 1 && text.front() == '0') {
        return Expected(absl::StrCat("a decimal number for ", field.name));
      }
      if (!absl::ConsumeSuffix(&text, "f")) absl::ConsumeSuffix(&text, "F");
      if (!absl::SimpleAtod(text, &number)) return Expected(wanted);
    } else {
      return Expected(wanted);
    }
    message->Put(field, negative ? -number : number);
    lexer_.Next();
    return true;
  }

  bool ReadBool(const Field& field, Message* message) {
    const absl::string_view text = current().text;
    uint64_t number = 2;
    if (At(TokenKind::kInteger)) {
      if (!ParseInteger(text, &number)) number = 2;
    } else if (text == "true" || text == "True" || text == "t") {
      number = 1;
    } else if (text == "false" || text == "False" || text == "f") {
      number = 0;
    }
    if (number > 1) return Expected(absl::StrCat("true or false for ", field.name));
    message->Put(field, number == 1);
    lexer_.Next();
    return true;
  }

  bool ReadEnum(const Field& field, Message* message) {
    const std::string names = absl::StrJoin(field.enum_type->Names(), ", ");
    int32_t number = 0;
    if (At(TokenKind::kIdentifier)) {
      const EnumValue* value = field.enum_type->Find(current().text);
      if (value == nullptr) {
        const std::string advice = RemovedAdvice(field.name, current().text);
        return FailHere(
            absl::StrCat("unknown value \"", Excerpt(current().text), "\" for ", field.name,
                         advice.empty() ? absl::StrCat("; it is one of ", names) : advice));
      }
      number = value->number;
      lexer_.Next();
    } else if (!ReadInt32(field, absl::StrCat("one of ", names, " for ", field.name), &number)) {
      return false;
    }
    message->Put(field, number);
    return true;
  }

  bool ReadString(const Field& field, Location start, Message* message) {
    if (At(TokenKind::kInteger) || At(TokenKind::kFloat)) {
      const std::string number = Excerpt(current().text);
      return FailHere(absl::StrCat("expected text in quotes for ", field.name, "; write ",
                                   field.name, ": \"", number, "\""));
    }
    if (!At(TokenKind::kString)) return Expected(absl::StrCat("text in quotes for ", field.name));
    std::string content;
    for (; At(TokenKind::kString); lexer_.Next()) AppendUnescaped(current().text, &content);
    // Strings end up in messages, JSON and other files, but the text format can hold any bytes
    // ("\377").
    if (FindInvalidUtf8(content)) {
      return Fail(start, absl::StrCat(field.name, " is not UTF-8 text"));
    }
    message->Put(field, std::move(content));
    return true;
  }

  // Skips the value of an unknown field, which is a message if it follows no colon.
  bool SkipFieldBody(bool colon) {
    if (!(colon && !AtMessage() ? SkipValue() : SkipMessage())) return false;
    if (!Take(';')) Take(',');
    return true;
  }

  bool SkipMessage() {
    char close;
    if (!Open("\":\" or \"{\" after an unknown field", &close)) return false;
    while (!At('}') && !At('>')) {
      absl::string_view name;
      if (!ReadName(&name) || !SkipFieldBody(Take(':'))) return false;
    }
    return Close(close);
  }

  bool SkipValue() {
    if (At(TokenKind::kString)) {
      while (At(TokenKind::kString)) lexer_.Next();
      return true;
    }
    if (At('[')) return SkipList();
    Take('-');
    if (!At(TokenKind::kInteger) && !At(TokenKind::kFloat) && !At(TokenKind::kIdentifier)) {
      return Expected("a value");
    }
    lexer_.Next();
    return true;
  }

  bool SkipList() {
    if (++depth_ > kMaxDepth) {
      return FailHere(absl::StrCat("lists nest more than ", kMaxDepth, " deep"));
    }
    Take('[');
    while (!Take(']')) {
      if (!(AtMessage() ? SkipMessage() : SkipValue())) return false;
      if (!Take(',') && !At(']')) return Expected("\",\" or \"]\" in the list");
    }
    --depth_;
    return true;
  }

  Lexer lexer_;
  const std::string& file_;
  int depth_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace

absl::Status ReadText(absl::string_view text, const std::string& file, Message* message,
                      Locations* locations) {
  return Reader(text, file).Read(message, locations);
}

Location Locations::At(const Field& field, int index) const {
  const auto found = own_.find(field.index);
  const size_t at = static_cast<size_t>(index);
  return found == own_.end() || at >= found->second.size() ? Location() : found->second[at];
}

const Locations* Locations::Nested(const Field& field, int index) const {
  const auto found = nested_.find(field.index);
  const size_t at = static_cast<size_t>(index);
  return found == nested_.end() || at >= found->second.size() ? nullptr : &found->second[at];
}

void Locations::Add(const Field& field, Location location) {
  own_[field.index].push_back(location);
}

Locations* Locations::AddNested(const Field& field) { return &nested_[field.index].emplace_back(); }

}  // namespace plumb::textproto
