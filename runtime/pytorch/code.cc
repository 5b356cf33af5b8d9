// SPDX-License-Identifier: Apache-2.0
#include "runtime/pytorch/code.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/text_format.h"

namespace plumb {
namespace {

// A marked number is kOpen, its name, "=", its text, kClose.
constexpr char kOpen = '\x01', kClose = '\x02';

struct Number {
  std::string name, text;
};

// Code as texts[0], numbers[0], texts[1], ...
struct SplitCode {
  std::vector<std::string> texts = {""};
  std::vector<Number> numbers;
};

SplitCode Split(absl::string_view code) {
  SplitCode split;
  while (!code.empty()) {
    const size_t open = std::min(code.find(kOpen), code.size());
    split.texts.back().append(code.data(), open);
    if (open == code.size()) break;
    const size_t equal = code.find('=', open), close = code.find(kClose, open);
    split.numbers.push_back({std::string(code.substr(open + 1, equal - open - 1)),
                             std::string(code.substr(equal + 1, close - equal - 1))});
    split.texts.emplace_back();
    code.remove_prefix(close + 1);
  }
  return split;
}

std::string Marked(absl::string_view name, absl::string_view text) {
  return absl::StrCat(std::string(1, kOpen), name, "=", text, std::string(1, kClose));
}

// Whole numbers of the items of a loop, in equal steps.
struct Progression {
  int64_t first, step;
};

// Returns the values of number `at` of all items if they are such numbers.
std::optional<Progression> FindProgression(const std::vector<SplitCode>& items, size_t at) {
  Progression found{0, 0};
  for (size_t i = 0; i < items.size(); ++i) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(items[i].numbers[at].text, &value)) return std::nullopt;
    if (i == 0) found.first = value;
    if (i == 1) found.step = value - found.first;
    if (value != found.first + found.step * static_cast<int64_t>(i)) return std::nullopt;
  }
  return found;
}

// Returns "k", "k + 1", "4 * k + 2": step * variable + offset.
std::string Linear(const std::string& variable, int64_t step, int64_t offset) {
  std::string text = step == 1 ? variable : absl::StrCat(step, " * ", variable);
  if (offset == 0) return text;
  return absl::StrCat(text, offset < 0 ? " - " : " + ", MarkNumber("offset", std::abs(offset)));
}

// Returns all lines that have numbers as one text.
std::string Joined(const ClassCode& code) {
  return absl::StrCat(absl::StrJoin(code.init, "\n"), "\n\n", code.forward, "\n",
                      absl::StrJoin(code.body, "\n"));
}

}  // namespace

std::string ShippedCode(const std::string& name) { return PythonFiles()[name]; }

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("PyTorch code: ", what));
}

std::string NumberCode(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? absl::StrCat(static_cast<int64_t>(value)) : ShortestNumber(value);
}

std::string MarkNumber(absl::string_view name, double value) {
  return Marked(name, NumberCode(value));
}

std::string MarkNumber(absl::string_view name, int64_t value) {
  return Marked(name, absl::StrCat(value));
}

std::string Unmark(absl::string_view code) {
  const SplitCode split = Split(code);
  std::string text = split.texts[0];
  for (size_t i = 0; i < split.numbers.size(); ++i) {
    absl::StrAppend(&text, split.numbers[i].text, split.texts[i + 1]);
  }
  return text;
}

std::string ParameterCode(const std::vector<std::string>& dims) {
  return absl::StrCat("nn.Parameter(torch.empty(", absl::StrJoin(dims, ", "), "))");
}

std::string FillIn(absl::string_view text, const std::map<std::string, std::string>& blocks) {
  std::string filled;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::string_view name = absl::StripLeadingAsciiWhitespace(line);
    const absl::string_view indent = line.substr(0, line.size() - name.size());
    if (!absl::ConsumePrefix(&name, "# <") || !absl::ConsumeSuffix(&name, ">")) {
      absl::StrAppend(&filled, line, "\n");
      continue;
    }
    const std::string& block = blocks.at(std::string(name));
    if (block.empty()) continue;
    for (const absl::string_view each : absl::StrSplit(absl::StripSuffix(block, "\n"), '\n')) {
      absl::StrAppend(&filled, each.empty() ? "" : indent, each, "\n");
    }
  }
  return filled;
}

bool HasIdentifier(absl::string_view code, absl::string_view name) {
  const auto is_part = [&](size_t i) {
    return i < code.size() &&
           (code[i] == '_' || absl::ascii_isalnum(static_cast<unsigned char>(code[i])));
  };
  for (size_t at = code.find(name); at != absl::string_view::npos; at = code.find(name, at + 1)) {
    const bool is_attribute = at > 0 && code[at - 1] == '.';
    if (!is_attribute && !is_part(at - 1) && !is_part(at + name.size())) return true;
  }
  return false;
}

std::optional<std::string> RollUp(const std::vector<std::string>& items,
                                  absl::string_view variables) {
  std::vector<SplitCode> split;
  for (const std::string& item : items) split.push_back(Split(item));
  const SplitCode& front = split.front();
  for (const SplitCode& each : split) {
    if (each.texts != front.texts) return std::nullopt;
  }
  std::map<size_t, Progression> progressions;  // of the numbers that differ
  std::optional<int64_t> start;
  for (size_t at = 0; at < front.numbers.size(); ++at) {
    const bool is_constant = std::all_of(split.begin(), split.end(), [&](const SplitCode& each) {
      return each.numbers[at].text == front.numbers[at].text;
    });
    if (is_constant) continue;
    const auto progression = FindProgression(split, at);
    if (!progression.has_value()) return std::nullopt;
    if (progression->step == 1 && !start) start = progression->first;
    progressions[at] = *progression;
  }
  while (!variables.empty() && HasIdentifier(Unmark(items[0]), variables.substr(0, 1))) {
    variables.remove_prefix(1);
  }
  if (progressions.empty() || variables.empty()) return std::nullopt;
  const std::string variable(variables.substr(0, 1));
  const int64_t first = start.value_or(0);
  std::string code = front.texts[0];
  for (size_t at = 0; at < front.numbers.size(); ++at) {
    const Number& number = front.numbers[at];
    std::string text = Marked(number.name, number.text);
    if (const auto found = progressions.find(at); found != progressions.end()) {
      const auto [value, step] = found->second;
      text = Linear(variable, step, value - step * first);
      if (number.name != "index" && text != variable) text = absl::StrCat("(", text, ")");
    }
    absl::StrAppend(&code, text, front.texts[at + 1]);
  }
  const int64_t end = first + static_cast<int64_t>(items.size());
  const std::string begin = first == 0 ? "" : absl::StrCat(MarkNumber("first", first), ", ");
  return absl::StrCat(code, " for ", variable, " in range(", begin, MarkNumber("count", end), ")");
}

ClassTable::Instance ClassTable::Add(const std::string& base, ClassCode code) {
  const std::vector<std::string> texts = Split(Joined(code)).texts;
  size_t same_base = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    Class& known = classes_[i];
    if (known.base != base) continue;
    ++same_base;
    if (Split(Joined(known.instances[0])).texts != texts) continue;
    known.instances.push_back(std::move(code));
    return {i, known.instances.size() - 1};
  }
  classes_.push_back(
      {base, same_base == 0 ? base : absl::StrCat(base, same_base + 1), {std::move(code)}});
  return {classes_.size() - 1, 0};
}

std::vector<ClassTable::Argument> ClassTable::Arguments(const Class& of) {
  std::vector<SplitCode> split;
  for (const ClassCode& instance : of.instances) split.push_back(Split(Joined(instance)));
  std::vector<Argument> arguments;
  for (size_t at = 0; at < split[0].numbers.size(); ++at) {
    Argument argument;
    for (const SplitCode& each : split) argument.values.push_back(each.numbers[at].text);
    const std::vector<std::string>& values = argument.values;
    const bool is_constant = std::all_of(
        values.begin(), values.end(), [&](const std::string& each) { return each == values[0]; });
    // Different numbers of the same name are "window", "window_2".
    const std::string& name = split[0].numbers[at].name;
    for (int number = 1; !is_constant; ++number) {
      argument.name = number == 1 ? name : absl::StrCat(name, "_", number);
      const bool is_free =
          std::none_of(arguments.begin(), arguments.end(), [&](const Argument& each) {
            return each.name == argument.name && each.values != values;
          });
      if (is_free) break;
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

std::string ClassTable::Construct(Instance instance) const {
  const Class& of = classes_[instance.of_class];
  std::set<std::string> named;
  std::vector<std::string> given;
  for (const Argument& argument : Arguments(of)) {
    if (argument.name.empty() || !named.insert(argument.name).second) continue;
    given.push_back(
        absl::StrCat(argument.name, "=", Marked(argument.name, argument.values[instance.number])));
  }
  return absl::StrCat(of.name, "(", absl::StrJoin(given, ", "), ")");
}

void ClassTable::Print(const std::string& base, std::vector<std::string>* classes) const {
  for (const Class& of : classes_) {
    if (of.base != base) continue;
    const ClassCode& code = of.instances[0];
    const std::vector<Argument> arguments = Arguments(of);
    std::string parameters = "self", kept;
    std::set<std::string> named, used;
    size_t at = 0;
    // Returns lines with their numbers replaced by constants and arguments.
    const auto resolve = [&](const std::vector<std::string>& lines, const char* prefix) {
      const SplitCode split = Split(absl::StrJoin(lines, "\n"));
      std::string text = split.texts[0];
      for (size_t i = 0; i < split.numbers.size(); ++i, ++at) {
        const std::string& name = arguments[at].name;
        if (!name.empty() && named.insert(name).second) absl::StrAppend(&parameters, ", ", name);
        const bool keeps = !name.empty() && *prefix != '\0' && used.insert(name).second;
        if (keeps) absl::StrAppend(&kept, prefix, name, " = ", name, "\n");
        absl::StrAppend(&text, name.empty() ? split.numbers[i].text : absl::StrCat(prefix, name),
                        split.texts[i + 1]);
      }
      return text;
    };
    const std::string init = resolve(code.init, ""), body = resolve(code.body, "self.");
    const std::string text = absl::StrReplaceAll(
        ShippedCode("templates/class"),
        {{"NAME", of.name}, {"ARGUMENTS", parameters}, {"SIGNATURE", code.forward}});
    classes->push_back(
        FillIn(text, {{"doc", code.doc}, {"init", absl::StrCat(kept, init)}, {"forward", body}}));
  }
}

}  // namespace plumb
