// SPDX-License-Identifier: Apache-2.0
#include "runtime/pytorch/writer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Min number of terms that become a loop: a sum has as many in some layers and more in others.
constexpr size_t kMinLoop = 2;

// Candidates for the variables of loops, over terms and over targets.
std::vector<std::string> TermVariables() { return {"k", "j", "i", "m", "n"}; }
std::vector<std::string> TargetVariables() { return {"i", "j", "k", "m", "n"}; }

bool IsKeyword(absl::string_view name) {
  static constexpr absl::string_view kKeywords[] = {
      "and",  "as",     "assert", "async",  "await",  "break",   "class",    "continue", "def",
      "del",  "elif",   "else",   "except", "False",  "finally", "for",      "from",     "global",
      "if",   "import", "in",     "is",     "lambda", "None",    "nonlocal", "not",      "or",
      "pass", "raise",  "return", "True",   "try",    "while",   "with",     "yield"};
  return std::find(std::begin(kKeywords), std::end(kKeywords), name) != std::end(kKeywords);
}

// Returns true for names that Python or model.py has for something else.
bool IsPythonName(absl::string_view name) {
  static constexpr absl::string_view kTaken[] = {
      "torch",     "nn",     "F",     "math",  "self",    "ids",    "layer",
      "targets",   "loss",   "rows",  "sum",   "range",   "dict",   "rope",
      "drop_path", "concat", "route", "alibi", "visible", "Config", "positions"};
  return IsKeyword(name) ||
         std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken);
}

// Returns true for names that the code of a sublayer has for something else.
bool IsSublayerName(absl::string_view name) {
  static constexpr absl::string_view kTaken[] = {
      "x",     "x_k",     "x_v",    "q",      "k",      "v",      "q_rot",
      "k_rot", "context", "o",      "gate",   "up",     "hidden", "down",
      "mask",  "scores",  "decay",  "decays", "beta",   "sink",   "e",
      "token", "place",   "tokens", "routed", "chosen", "logits", "weights"};
  return std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken);
}

bool IsNumber(const std::string& text) {
  int64_t value;
  return absl::SimpleAtoi(text, &value);
}

std::string Index(int64_t index) { return MarkNumber("index", static_cast<double>(index)); }

// Returns "1, 2" as marked numbers; a tuple if `as_key` and there are several.
std::string IndexCode(const std::string& indices, bool as_key) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(indices, ", ")) {
    int64_t value = 0;
    static_cast<void>(absl::SimpleAtoi(part, &value));
    parts.push_back(Index(value));
  }
  const std::string text = absl::StrJoin(parts, ", ");
  return as_key && parts.size() > 1 ? absl::StrCat("(", text, ")") : text;
}

}  // namespace

std::pair<std::string, std::string> SplitIndex(const std::string& name) {
  const size_t open = name.find('[');
  if (open == std::string::npos) return {name, ""};
  return {name.substr(0, open), name.substr(open + 1, name.size() - open - 2)};
}

std::string PathCode(const std::string& path) {
  std::string code;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    int64_t index;
    if (absl::SimpleAtoi(part, &index)) {
      absl::StrAppend(&code, "[", Index(index), "]");
    } else {
      absl::StrAppend(&code, code.empty() ? "" : ".", part);
    }
  }
  return code;
}

std::vector<std::string> InitLines(const std::vector<Member>& members, std::set<std::string> made) {
  std::map<std::string, std::vector<std::string>> lists;  // items of lists of modules
  std::vector<std::string> lines;
  const auto add = [&](const Member& member) {
    const std::vector<std::string> parts = absl::StrSplit(member.path, '.');
    std::string path;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      absl::StrAppend(&path, path.empty() ? "" : ".", parts[i]);
      if (!made.insert(path).second) continue;
      const bool is_list = IsNumber(parts[i + 1]);
      lines.push_back(absl::StrCat("self.", PathCode(path), " = ",
                                   is_list ? "nn.ModuleList()" : "nn.Module()"));
    }
    made.insert(member.path);
    int64_t index = 0;
    if (!absl::SimpleAtoi(parts.back(), &index)) {
      lines.push_back(absl::StrCat("self.", PathCode(member.path), " = ", member.make));
      return;
    }
    // Modules of a list are numbered from 0; an identity fills a gap.
    std::vector<std::string>& items = lists[path];
    while (static_cast<int64_t>(items.size()) < index) {
      items.push_back("nn.Identity()");
      lines.push_back(absl::StrCat("self.", PathCode(path), ".append(nn.Identity())"));
    }
    items.push_back(member.make);
    lines.push_back(absl::StrCat("self.", PathCode(path), ".append(", member.make, ")"));
  };
  // A module is made before what belongs to it.
  std::vector<Member> sorted = members;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Member& a, const Member& b) {
    return std::count(a.path.begin(), a.path.end(), '.') <
           std::count(b.path.begin(), b.path.end(), '.');
  });
  for (const Member& member : sorted) add(member);
  return lines;
}

absl::Status CheckName(absl::string_view name) {
  // Attributes of torch.nn.Module that a formula might have as a name.
  constexpr absl::string_view kAttributes =
      " apply bfloat16 buffers children compile cpu cuda double eval float forward half modules "
      "parameters to train training type ";
  if (!IsKeyword(name) && !absl::StrContains(kAttributes, absl::StrCat(" ", name, " "))) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("PyTorch code: \"", name,
                   "\" is a word of Python or an attribute of torch.nn.Module; ", "rename it"));
}

CodeWriter::CodeWriter(const ResolvedModel& model) : model_(model) {
  layers_.reserve(static_cast<size_t>(model.dims.n_layer));
}
CodeWriter::~CodeWriter() = default;

void CodeWriter::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

// -- Nodes

TensorHandle CodeWriter::Add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<TensorHandle>(nodes_.size()) - 1;
}

int64_t CodeWriter::MaxWidth(absl::Span<const TensorHandle> operands) const {
  int64_t width = 1;
  for (const TensorHandle id : operands) width = std::max(width, node(id).width);
  return width;
}

TensorHandle CodeWriter::AddCode(std::string code, int level, std::vector<TensorHandle> operands,
                                 std::string hint) {
  Node made;
  made.code = std::move(code);
  made.level = level;
  made.hint = std::move(hint);
  made.width = MaxWidth(operands);
  made.is_scalar = !operands.empty();
  for (const TensorHandle id : operands) {
    made.per_token = made.per_token || node(id).per_token;
    made.is_scalar = made.is_scalar && node(id).is_scalar;
  }
  made.operands = std::move(operands);
  return Add(std::move(made));
}

TensorHandle CodeWriter::AddName(const std::string& name, const std::string& key,
                                 TensorHandle like) {
  Node made;
  made.kind = Node::Kind::kName;
  made.code = name;
  made.key = key;
  made.version = current_[key] + 1;
  made.width = node(like).width;
  made.per_token = node(like).per_token;
  made.is_scalar = node(like).is_scalar;
  made.is_leaf = true;
  return Add(std::move(made));
}

TensorHandle CodeWriter::Combine(absl::Span<const Term> terms, double constant) {
  std::vector<TensorHandle> operands;
  std::vector<double> coefficients;
  for (const Term& term : terms) {
    operands.push_back(term.tensor);
    coefficients.push_back(term.coefficient);
  }
  const TensorHandle made = AddCode("", 0, std::move(operands), "total");
  nodes_.back().kind = Node::Kind::kCombine;
  nodes_.back().coefficients = std::move(coefficients);
  nodes_.back().constant = constant;
  return made;
}

TensorHandle CodeWriter::Multiply(TensorHandle a, TensorHandle b) {
  const TensorHandle made = AddCode("", 1, {a, b}, "product");
  nodes_.back().kind = Node::Kind::kMultiply;
  return made;
}

TensorHandle CodeWriter::Apply(const Function& function, absl::Span<const TensorHandle> given) {
  const std::string& f = function.name;
  const std::vector<TensorHandle> operands(given.begin(), given.end());
  const std::vector<double>& numbers = function.numbers;
  const auto simple = [&](const std::string& code) { return AddCode(code, 3, operands, f); };
  static constexpr std::pair<absl::string_view, absl::string_view> kSimple[] = {
      {"exp", "torch.exp($0)"},
      {"log", "torch.log($0)"},
      {"sqrt", "torch.sqrt($0)"},
      {"abs", "torch.abs($0)"},
      {"floor", "torch.floor($0)"},
      {"cos", "torch.cos($0)"},
      {"sin", "torch.sin($0)"},
      {"tanh", "torch.tanh($0)"},
      {"sigmoid", "torch.sigmoid($0)"},
      {"erf", "torch.erf($0)"},
      {"relu", "F.relu($0)"},
      {"gelu", "F.gelu($0)"},
      {"gelu_tanh", "F.gelu($0, approximate=\"tanh\")"},
      {"silu", "F.silu($0)"},
      {"softplus", "F.softplus($0)"},
      {"stop", "@0.detach()"}};
  for (const auto& [name, code] : kSimple) {
    if (f == name) return simple(std::string(code));
  }
  if (f == "reciprocal") return AddCode("1 / @0", 1, operands, f);
  if (f == "pow") {
    return AddCode(absl::StrCat("@0 ** ", MarkNumber("power", numbers[0])), 2, operands, f);
  }
  if (f == "max" || f == "min") {
    if (operands.size() == 1) {
      // The larger of x and a number is x with that number as its lower bound.
      return simple(absl::StrCat("@0.clamp(", f == "max" ? "min" : "max", "=",
                                 MarkNumber("bound", numbers[0]), ")"));
    }
    const TensorHandle made = simple(absl::StrCat("torch.", f, "imum($0, $1)"));
    nodes_.back().hint = f + "imum";
    return made;
  }
  if (f == "constant" || f == "position") {
    const TensorHandle made = AddCode(
        f == "constant" ? absl::StrCat("torch.full((1,), ", MarkNumber("constant", numbers[0]),
                                       ", device=x.device)")
                        : "torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None]",
        3, {}, f);
    nodes_.back().per_token = f == "position";
    nodes_.back().is_leaf = true;
    return made;
  }
  if (f == "dot") {
    const int64_t n = numbers.empty() ? 1 : static_cast<int64_t>(numbers[0]);
    const TensorHandle product = Multiply(operands[0], operands[1]);
    const TensorHandle made =
        n == 1 ? AddCode("@0.sum(-1, keepdim=True)", 3, {product}, f)
               : AddCode(absl::StrCat("@0.unflatten(-1, (", MarkNumber("groups", numbers[0]),
                                      ", -1)).sum(-1)"),
                         3, {product}, f);
    nodes_.back().width = n;
    return made;
  }
  if (f == "part") {
    const TensorHandle made =
        simple(absl::StrCat("@0.chunk(", MarkNumber("parts", numbers[1]), ", -1)[",
                            Index(static_cast<int64_t>(numbers[0])), "]"));
    nodes_.back().width /= static_cast<int64_t>(numbers[1]);
    return made;
  }
  if (f == "slice") {
    const TensorHandle made =
        simple(absl::StrCat("@0[..., ", MarkNumber("first", numbers[0]), ":",
                            MarkNumber("last", numbers[0] + numbers[1]), "]"));
    nodes_.back().width = static_cast<int64_t>(numbers[1]);
    return made;
  }
  if (f == "shift") {
    return simple(absl::StrCat("F.pad($0, (0, 0, ", MarkNumber("tokens", numbers[0]),
                               ", 0))[:, :x.shape[1]]"));
  }
  if (f == "concat" || f == "softmax") {
    const TensorHandle made = AddCode(f, 3, operands, f == "softmax" ? "weights" : "joined");
    Node& join = nodes_.back();
    join.is_scalar = false;
    int64_t total = 0;
    for (const TensorHandle id : operands) total += node(id).width;
    join.width = f == "concat" ? total : join.width * static_cast<int64_t>(operands.size());
    return made;
  }
  static constexpr absl::string_view kComparisons[] = {"<", "<=", ">", ">=", "==", "!="};
  if (std::find(std::begin(kComparisons), std::end(kComparisons), f) != std::end(kComparisons)) {
    const TensorHandle made =
        simple(absl::StrCat("($0 ", f, " ", MarkNumber("bound", numbers[0]), ").float()"));
    nodes_.back().hint = "condition";
    return made;
  }
  Fail(absl::UnimplementedError(absl::StrCat("PyTorch code has no function ", f)));
  return simple("None");
}

TensorHandle CodeWriter::Step() {
  const TensorHandle made = AddCode("step", 3, {}, "step");
  nodes_.back().is_leaf = true;
  return made;
}

TensorHandle CodeWriter::Drop(const DropSite& site, TensorHandle a) {
  if (site.path) helpers_.insert("drop_path");
  return AddCode(absl::StrCat(site.path ? "drop_path($0, " : "F.dropout($0, ",
                              MarkNumber("p", site.p), ", self.training)"),
                 3, {a}, "dropped");
}

TensorHandle CodeWriter::TokenEmbedding(const TokenEmbeddingSite& site) {
  tables_.emplace(site.name, site);
  // A table per layer is "embedding.ve.0" and is read as ve[1].
  const std::string index = site.name.substr(site.name.rfind('.') + 1);
  int64_t layer = 0;
  std::string name = site.table;
  if (index != site.table && absl::SimpleAtoi(index, &layer)) {
    name = absl::StrCat(name, "[", layer + 1, "]");
  }
  const TensorHandle made = AddCode(name, 3, {}, site.table);
  Node& rows = nodes_.back();
  rows.kind = Node::Kind::kName;
  rows.key = name;
  rows.width = site.width;
  rows.per_token = rows.is_leaf = true;
  return made;
}

// -- Modules and parameters

void CodeWriter::UseMember(const std::string& name, const std::string& make) {
  const std::string path =
      function_->owner.empty() ? name : name.substr(function_->owner.size() + 1);
  if (!function_->owner.empty() && !absl::StartsWith(name, function_->owner + ".")) {
    return Fail(absl::UnimplementedError(
        absl::StrCat("PyTorch code: ", name, " is used in ", function_->owner)));
  }
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    const bool is_name = !absl::ascii_isdigit(static_cast<unsigned char>(part[0]));
    if (!is_name && !IsNumber(std::string(part))) {
      return Fail(absl::UnimplementedError(
          absl::StrCat("PyTorch code: ", name, ": a name with an index that is called twice is ",
                       "not covered; give each call an index of its own")));
    }
    if (CheckName(part).ok()) continue;
    return Fail(CheckName(part));
  }
  const auto is_item_of = [](const std::string& item, const std::string& list) {
    return absl::StartsWith(item, list + ".") && IsNumber(item.substr(list.size() + 1));
  };
  for (const Member& member : function_->members) {
    if (member.path == path) return;
    if (!is_item_of(path, member.path) && !is_item_of(member.path, path)) continue;
    return Fail(absl::UnimplementedError(absl::StrCat(
        "PyTorch code: ", name, ": a name that is called both with and without an index is not ",
        "covered; give one of them another name")));
  }
  function_->members.push_back({path, make});
}

std::string CodeWriter::MemberCode(const std::string& name) const {
  return absl::StrCat(
      "self.", PathCode(function_->owner.empty()
                            ? name
                            : name.substr(std::min(name.size(), function_->owner.size() + 1))));
}

TensorHandle CodeWriter::Learned(const LearnedSite& site) {
  const LearnedPlace& place = *site.place;
  std::vector<std::string> dims;
  for (const int64_t extent : place.extents) {
    dims.push_back(MarkNumber("extent", static_cast<double>(extent)));
  }
  if (dims.empty() || place.width > 1) {
    dims.push_back(MarkNumber("width", static_cast<double>(place.width)));
  }
  UseMember(place.name, absl::StrCat("nn.Parameter(torch.empty(", absl::StrJoin(dims, ", "), "))"));
  std::string code = MemberCode(place.name);
  int64_t rest = site.index, inner = place.count();
  std::vector<std::string> indices;
  for (const int64_t extent : place.extents) {
    inner /= extent;
    indices.push_back(Index(rest / inner));
    rest %= inner;
  }
  if (!indices.empty()) absl::StrAppend(&code, "[", absl::StrJoin(indices, ", "), "]");
  const TensorHandle made = AddCode(code, 3, {}, "learned");
  nodes_.back().width = place.width;
  nodes_.back().is_leaf = true;
  nodes_.back().is_scalar = !place.extents.empty() && place.width == 1;
  return made;
}

absl::StatusOr<TensorHandle> CodeWriter::Linear(const LinearSite& site, TensorHandle a) {
  const auto in = MarkNumber("d_in", static_cast<double>(site.in));
  if (site.out == 1) {
    helpers_.insert("dot");
    UseMember(site.name, absl::StrCat("Dot(", in, site.spec->bias ? ", bias=True)" : ")"));
  } else {
    UseMember(site.name, absl::StrCat("nn.Linear(", in, ", ",
                                      MarkNumber("d_out", static_cast<double>(site.out)),
                                      site.spec->bias ? ")" : ", bias=False)"));
  }
  const TensorHandle made =
      AddCode(absl::StrCat(MemberCode(site.name), "($0)"), 3, {a}, site.spec->name);
  nodes_.back().width = site.out;
  nodes_.back().is_scalar = false;
  return made;
}

absl::StatusOr<TensorHandle> CodeWriter::Norm(const NormSite& site,
                                              absl::Span<const TensorHandle> inputs) {
  if (site.norm->plugin->identity()) return inputs[0];
  PLUMB_ASSIGN_OR_RETURN(const std::string made_by, NormCode(site));
  UseMember(site.name, made_by);
  std::string code = MemberCode(site.name);
  if (site.dim == site.width) {
    absl::StrAppend(&code, inputs.size() == 2 ? "($0, $1)" : "($0)");
  } else {
    const std::string heads =
        absl::StrCat(".unflatten(-1, (",
                     MarkNumber("heads", static_cast<double>(site.width / site.dim)), ", -1))");
    absl::StrAppend(&code, "(@0", heads);
    if (inputs.size() == 2) absl::StrAppend(&code, ", @1", heads);
    absl::StrAppend(&code, ").flatten(-2)");
  }
  const TensorHandle made =
      AddCode(code, 3, {inputs.begin(), inputs.end()}, site.slot.substr(0, site.slot.find('.')));
  nodes_.back().width = site.width;
  return made;
}

// -- Rendering

void CodeWriter::ReadOutside(PythonFunction* function, const std::string& name) {
  const auto [base, index] = SplitIndex(name);
  if (index.empty()) {
    if (function->sets.count(name) == 0) function->reads.insert(name);
  } else if (function->keys_set.count(name) == 0) {
    function->dicts_read.insert(base);
  }
}

std::string CodeWriter::PythonName(const PythonFunction& function, const std::string& name) {
  if (!function.is_sublayer()) return IsPythonName(name) ? name + "_" : name;
  if (name == "x") return "residual";
  return IsPythonName(name) ? name + "_" : IsSublayerName(name) ? "outer_" + name : name;
}

CodeWriter::Code CodeWriter::RenderName(const Node& name) {
  if (name.version != current_[name.key]) {
    Fail(absl::UnimplementedError(
        absl::StrCat("PyTorch code: a formula reads the value that \"", name.code,
                     "\" had before a later statement set it, which is not covered")));
  }
  const bool is_local = name.key.find(':') != std::string::npos;
  if (is_local) return {name.code, 3};
  ReadOutside(function_, name.code);
  const auto [base, index] = SplitIndex(name.code);
  const std::string python = PythonName(*function_, base);
  return {
      index.empty() ? python : absl::StrCat(python, "[", IndexCode(index, /*as_key=*/false), "]"),
      3};
}

std::string CodeWriter::At(TensorHandle id, int level) {
  const Code code = Render(id);
  return code.level >= level ? code.text : absl::StrCat("(", code.text, ")");
}

std::string CodeWriter::Widened(TensorHandle id, int64_t width, int level) {
  const int64_t own = node(id).width;
  if (own == width || own == 1) return At(id, level);
  return absl::StrCat(At(id, 3), ".repeat_interleave(",
                      MarkNumber("times", static_cast<double>(width / own)), ", -1)");
}

CodeWriter::Code CodeWriter::RenderCombine(const Node& sum) {
  const bool constant_first =
      sum.constant != 0 && (sum.coefficients.empty() || sum.coefficients[0] < 0);
  std::string text = constant_first ? MarkNumber("constant", sum.constant) : "";
  // Terms with factor 1 that differ in indices become sum(.. for k in range(..)).
  for (size_t i = 0; i < sum.operands.size();) {
    std::vector<std::string> alike;
    for (size_t k = i; k < sum.operands.size() && sum.coefficients[k] == 1; ++k) {
      alike.push_back(Widened(sum.operands[k], sum.width, 1));
    }
    std::optional<Loop> loop;
    while (alike.size() >= kMinLoop) {
      loop = RollUp(alike, TermVariables());
      if (loop.has_value()) break;
      alike.pop_back();
    }
    if (loop.has_value()) {
      absl::StrAppend(&text, text.empty() ? "" : " + ", "sum(", loop->body, " ", loop->header, ")");
      i += alike.size();
      continue;
    }
    const double c = sum.coefficients[i];
    absl::StrAppend(&text, c < 0 ? (text.empty() ? "-" : " - ") : (text.empty() ? "" : " + "));
    if (std::abs(c) != 1) absl::StrAppend(&text, MarkNumber("factor", std::abs(c)), " * ");
    absl::StrAppend(&text, Widened(sum.operands[i], sum.width, 1));
    ++i;
  }
  if (sum.constant != 0 && !constant_first) {
    absl::StrAppend(&text, sum.constant < 0 ? " - " : " + ",
                    MarkNumber("constant", std::abs(sum.constant)));
  }
  const bool is_product = sum.operands.size() == 1 && sum.constant == 0 && sum.coefficients[0] > 0;
  return {text, is_product ? 1 : 0};
}

CodeWriter::Code CodeWriter::RenderMultiply(const Node& product) {
  const TensorHandle a = product.operands[0], b = product.operands[1];
  if (a == b) return {absl::StrCat(At(a, 3), " ** 2"), 2};
  const Node& divisor = node(b);
  const bool divides = divisor.kind == Node::Kind::kCode && divisor.code == "1 / @0" &&
                       hoisted_.count(b) == 0 && function_->aliases.count(b) == 0;
  if (divides) {
    return {absl::StrCat(Widened(a, product.width, 1), " / ",
                         Widened(divisor.operands[0], product.width, 2)),
            1};
  }
  return {absl::StrCat(Widened(a, product.width, 1), " * ", Widened(b, product.width, 2)), 1};
}

// Returns "a, b", or "*[.. for k in range(..)]".
std::string CodeWriter::RenderList(absl::Span<const TensorHandle> operands) {
  std::vector<std::string> items;
  for (const TensorHandle id : operands) items.push_back(Render(id).text);
  if (items.size() >= kMinLoop) {
    if (const auto loop = RollUp(items, TermVariables())) {
      return absl::StrCat("*[", loop->body, " ", loop->header, "]");
    }
  }
  return absl::StrJoin(items, ", ");
}

CodeWriter::Code CodeWriter::Render(TensorHandle id) {
  if (const auto at = function_->aliases.find(id); at != function_->aliases.end()) {
    return {at->second, 3};
  }
  if (const auto at = hoisted_.find(id); at != hoisted_.end()) return {at->second, 3};
  const Node made = node(id);
  switch (made.kind) {
    case Node::Kind::kName:
      return RenderName(made);
    case Node::Kind::kCombine:
      return RenderCombine(made);
    case Node::Kind::kMultiply:
      return RenderMultiply(made);
    case Node::Kind::kCode:
      break;
  }
  if (made.code == "step") {
    if (function_ == &begin_ || function_ == &end_) return {"self.step", 3};
    ReadOutside(function_, "step");
    return {"step", 3};
  }
  if (made.code == "concat" || made.code == "softmax") {
    if (made.code == "concat" || made.width == static_cast<int64_t>(made.operands.size())) {
      helpers_.insert("concat");
      const std::string joined = absl::StrCat("concat(", RenderList(made.operands), ")");
      const bool is_concat = made.code == "concat";
      return {is_concat ? joined : absl::StrCat("torch.softmax(", joined, ", -1)"), 3};
    }
    std::vector<std::string> scores;
    for (const TensorHandle score : made.operands) {
      scores.push_back(Widened(score, MaxWidth(made.operands), 0));
    }
    return {absl::StrCat("torch.softmax(torch.stack(torch.broadcast_tensors(",
                         absl::StrJoin(scores, ", "), "), -2), -2).flatten(-2)"),
            3};
  }
  std::string text;
  for (size_t i = 0; i < made.code.size(); ++i) {
    const char c = made.code[i];
    const bool is_operand = (c == '$' || c == '@') && i + 1 < made.code.size();
    if (!is_operand) {
      text += c;
      continue;
    }
    const size_t operand = static_cast<size_t>(made.code[++i] - '0');
    const bool is_binary = absl::StartsWith(made.code, "torch.m");
    const TensorHandle given = made.operands[operand];
    text += is_binary ? Widened(given, made.width, 0) : At(given, c == '@' ? 3 : 0);
  }
  return {text, made.level};
}

void CodeWriter::CountUses(TensorHandle id, std::map<TensorHandle, int>* uses) const {
  if (node(id).is_leaf || function_->aliases.count(id) > 0) return;
  if (++(*uses)[id] > 1) return;
  const std::vector<TensorHandle>& operands = node(id).operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_square =
        node(id).kind == Node::Kind::kMultiply && i == 1 && operands[0] == operands[1];
    if (!is_square) CountUses(operands[i], uses);
  }
}

// Names the operations below `id` that are used twice, operands first.
void CodeWriter::Hoist(TensorHandle id, const std::map<TensorHandle, int>& uses) {
  const auto used = uses.find(id);
  if (used == uses.end() || hoisted_.count(id) > 0) return;
  for (const TensorHandle operand : std::vector<TensorHandle>(node(id).operands)) {
    Hoist(operand, uses);
  }
  if (used->second < 2) return;
  const std::string code = Render(id).text;
  std::string name = node(id).hint;
  while (IsPythonName(name) || function_->own.count(name) > 0 || name == "x" ||
         current_.count(name) > 0) {
    name += "_";
  }
  function_->own.insert(name);
  Line(absl::StrCat(name, " = ", code));
  hoisted_[id] = name;
}

// -- Statements

void CodeWriter::Line(const std::string& line) {
  function_->lines.push_back(absl::StrCat(function_->indent, line));
}

TensorHandle CodeWriter::Set(const std::string& name, const std::string& key, TensorHandle value) {
  const bool repeated = std::any_of(pending_.begin(), pending_.end(), [&](const Assignment& each) {
    return each.made == value || each.key == key;
  });
  if (repeated || pending_end_ != nodes_.size()) Flush();
  const TensorHandle made = AddName(name, key, value);
  pending_.push_back({name, key, value, made});
  pending_end_ = nodes_.size();
  return made;
}

TensorHandle CodeWriter::SetName(const std::string& name, TensorHandle value) {
  return Set(name, name, value);
}

TensorHandle CodeWriter::SetLocal(const std::string& name, TensorHandle value) {
  std::string python = IsPythonName(name) ? name + "_" : name;
  if (function_->is_sublayer() && python != function_->point && IsSublayerName(python)) {
    python += "_";
  }
  return Set(python, absl::StrCat(functions_, ":", function_->point, ":", python), value);
}

// Writes the assignments of one statement, whose values are all computed before the first is made.
void CodeWriter::Flush() {
  if (pending_.empty()) return;
  const std::vector<Assignment> group = std::move(pending_);
  pending_.clear();
  std::map<TensorHandle, int> uses;
  for (const Assignment& each : group) CountUses(each.value, &uses);
  for (const Assignment& each : group) Hoist(each.value, uses);
  const bool is_indexed = !SplitIndex(group[0].name).second.empty();
  if (is_indexed) {
    WriteIndexed(group);
  } else {
    std::vector<std::string> values, names;
    for (const Assignment& each : group) {
      values.push_back(Render(each.value).text);
      names.push_back(each.key.find(':') == std::string::npos ? PythonName(*function_, each.name)
                                                              : each.name);
    }
    Line(absl::StrCat(absl::StrJoin(names, ", "), " = ", absl::StrJoin(values, ", ")));
  }
  for (const Assignment& each : group) {
    ++current_[each.key];
    const auto [base, index] = SplitIndex(each.name);
    if (!index.empty()) {
      function_->dicts_set.insert(base);
      function_->keys_set.insert(each.name);
    } else if (each.key.find(':') == std::string::npos) {
      function_->sets.insert(each.name);
    } else {
      function_->own.insert(each.name);
    }
  }
}

void CodeWriter::WriteIndexed(const std::vector<Assignment>& group) {
  const std::string base = SplitIndex(group[0].name).first;
  std::vector<std::string> items;
  for (const Assignment& each : group) {
    if (SplitIndex(each.name).first != base) {
      // Statements of different names that compute nothing: one after the other.
      for (const Assignment& one : group) WriteIndexed({one});
      return;
    }
    items.push_back(absl::StrCat(IndexCode(SplitIndex(each.name).second, /*as_key=*/true), ": ",
                                 Render(each.value).text));
  }
  const std::string python = PythonName(*function_, base);
  if (group.size() == 1) {
    const std::string index = IndexCode(SplitIndex(group[0].name).second, /*as_key=*/false);
    Line(absl::StrCat(python, "[", index, "] = ", Render(group[0].value).text));
    return;
  }
  const auto loop = RollUp(items, TargetVariables());
  Line(absl::StrCat(
      python, ".update({",
      loop.has_value() ? absl::StrCat(loop->body, " ", loop->header) : absl::StrJoin(items, ", "),
      "})"));
}

TensorHandle CodeWriter::Let(const std::string& name, const std::string& code, int64_t width) {
  Flush();
  Line(absl::StrCat(name, " = ", code));
  const std::string key = absl::StrCat(functions_, "::", name);
  Node made;
  made.kind = Node::Kind::kName;
  made.code = name;
  made.key = key;
  made.version = ++current_[key];
  made.width = width;
  made.per_token = made.is_leaf = true;
  return Add(std::move(made));
}

absl::StatusOr<TensorHandle> CodeWriter::RunPoint(absl::string_view point, const std::string& name,
                                                  TensorHandle tensor, AtPoint at_point) {
  const std::string outer = std::exchange(function_->point, LastName(point));
  PLUMB_ASSIGN_OR_RETURN(const TensorHandle after, at_point(point, tensor));
  Flush();
  function_->point = outer;
  if (after == tensor) return tensor;
  const Node result = node(after);
  if (result.kind == Node::Kind::kName && result.code == name) {
    // A statement set the point's tensor under its name.
    return after;
  }
  return Let(name, Render(after).text, result.width);
}

// -- Functions

TensorHandle CodeWriter::Embed() {
  Node made;
  made.kind = Node::Kind::kName;
  made.code = made.key = "x";
  made.width = model_.dims.d_model;
  made.per_token = made.is_leaf = true;
  begin_.sets.insert("x");
  return Add(std::move(made));
}

void CodeWriter::BeginLayer(int64_t layer_index, TensorHandle) {
  Flush();
  ++functions_;
  layers_.emplace_back();
  function_ = &layers_.back();
  function_->owner = absl::StrCat("layers.", layer_index);
}

void CodeWriter::EndLayer(int64_t, TensorHandle) {
  Flush();
  ++functions_;
  function_ = &end_;
}

absl::Status CodeWriter::Head(TensorHandle x, AtPoint at_point) {
  Flush();
  const std::string weight =
      model_.tie_embeddings ? "self.embedding.token.weight" : "self.head.weight";
  std::string in = Render(x).text;
  if (model_.embedding_width != model_.dims.d_model) {
    in = absl::StrCat("self.head.project(", in, ")");
  }
  const std::string code = !model_.tie_embeddings ? absl::StrCat("self.head(", in, ")")
                           : model_.head_bias
                               ? absl::StrCat("F.linear(", in, ", ", weight, ", self.head.bias)")
                               : absl::StrCat("F.linear(", in, ", ", weight, ")");
  const TensorHandle logits = Let("logits", code, model_.dims.vocab_size);
  PLUMB_ASSIGN_OR_RETURN(const TensorHandle after,
                         RunPoint(kHeadPoint, "logits", logits, at_point));
  static_cast<void>(after);
  Flush();
  return status_;
}

std::string CodeWriter::WithInstances(const std::string& code) const {
  std::string text;
  for (size_t at = 0; at < code.size(); ++at) {
    if (code[at] != '\x03') {
      text += code[at];
      continue;
    }
    const size_t end = code.find('\x04', at);
    int64_t index = 0;
    static_cast<void>(absl::SimpleAtoi(code.substr(at + 1, end - at - 1), &index));
    text += classes_.Construct(instances_[static_cast<size_t>(index)]);
    at = end;
  }
  return text;
}

}  // namespace plumb
