// SPDX-License-Identifier: Apache-2.0
#include "runtime/pytorch/writer.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "runtime/base/status.h"
#include "runtime/pytorch/norms.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Candidates for the variables of loops, over terms and over targets.
constexpr absl::string_view kTermVariables = "kjimn", kTargetVariables = "ijkmn";

constexpr absl::string_view kKeywords =
    " and as assert async await break class continue def del elif else except False finally for "
    "from global if import in is lambda None nonlocal not or pass raise return True try while with "
    "yield ";
// Names that model.py has for something else.
constexpr absl::string_view kModuleNames =
    " torch nn F math self ids layer targets loss rows sum range dict enumerate heads rope "
    "drop_path concat softmax route share alibi visible Config positions ";
// Names that the code of a sublayer has for something else.
constexpr absl::string_view kSublayerNames =
    " x x_k x_v q k v q_rot k_rot context o gate up hidden down mask scores decay decays beta sink "
    "e token place tokens routed chosen logits weights ";
// Attributes of torch.nn.Module that a formula might have as a name.
constexpr absl::string_view kAttributes =
    " apply bfloat16 buffers children compile cpu cuda double eval float forward half modules "
    "parameters to train training type ";

bool Contains(absl::string_view words, absl::string_view name) {
  return absl::StrContains(words, absl::StrCat(" ", name, " "));
}

bool IsPythonName(absl::string_view name) {
  return Contains(kKeywords, name) || Contains(kModuleNames, name);
}

// Code of a function, with the marks of CodeWriter::Node, and #0 for its first number.
struct FunctionCode {
  absl::string_view name, code;
  int level = 3;
  absl::string_view hint = "";                     // default: the name
  absl::string_view number_0 = "", number_1 = "";  // names of its numbers
};

constexpr FunctionCode kFunctions[] = {
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
    {"stop", "@0.detach()"},
    {"reciprocal", "1 / @0", 1},
    {"pow", "@0 ** #0", 2, "", "power"},
    // The larger of x and a number is x with that number as its lower bound.
    {"max", "@0.clamp(min=#0)", 3, "", "bound"},
    {"min", "@0.clamp(max=#0)", 3, "", "bound"},
    {"maximum", "torch.maximum(~0, ~1)"},
    {"minimum", "torch.minimum(~0, ~1)"},
    {"<", "($0 < #0).float()", 3, "condition", "bound"},
    {"<=", "($0 <= #0).float()", 3, "condition", "bound"},
    {">", "($0 > #0).float()", 3, "condition", "bound"},
    {">=", "($0 >= #0).float()", 3, "condition", "bound"},
    {"==", "($0 == #0).float()", 3, "condition", "bound"},
    {"!=", "($0 != #0).float()", 3, "condition", "bound"},
    {"constant", "torch.full((1,), #0, device=x.device)", 3, "", "constant"},
    {"position", "torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None]"},
    {"dot", "@0.sum(-1, keepdim=True)"},
    {"dot of groups", "@0.unflatten(-1, (#0, -1)).sum(-1)", 3, "dot", "groups"},
    {"part", "@0.chunk(#1, -1)[#0]", 3, "", "index", "parts"},
    {"slice", "@0[..., #0:#1]", 3, "", "first", "last"},
    {"shift", "F.pad($0, (0, 0, #0, 0))[:, :x.shape[1]]", 3, "", "tokens"},
    {"concat", "concat(*)", 3, "joined"},
    {"softmax", "softmax(*)", 3, "weights"}};

const FunctionCode* FindFunction(absl::string_view name) {
  const auto* const at = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                      [&](const FunctionCode& each) { return each.name == name; });
  return at == std::end(kFunctions) ? nullptr : at;
}

// Returns true for the key of a name that belongs to one section.
bool IsLocal(absl::string_view key) { return absl::StrContains(key, ':'); }

std::optional<int64_t> ToNumber(absl::string_view text) {
  int64_t value;
  return absl::SimpleAtoi(text, &value) ? std::optional(value) : std::nullopt;
}

std::string Index(int64_t index) { return MarkNumber("index", index); }

// Splits "h[1, 2]" into "h" and "1, 2", a marked number each; the second is empty without an index.
std::pair<std::string, std::string> SplitIndex(const std::string& name) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('[', 1));
  std::vector<std::string> indices;
  for (const absl::string_view part : absl::StrSplit(parts.second, absl::ByAnyChar(", ]"))) {
    if (const auto index = ToNumber(part)) indices.push_back(Index(*index));
  }
  return {parts.first, absl::StrJoin(indices, ", ")};
}

// Splits "mlp.norm.2" into "mlp.norm" and "2".
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Returns true for a name that Python cannot have: "1_2", the second call of an index.
bool IsNumberedCall(absl::string_view part) {
  return absl::ascii_isdigit(static_cast<unsigned char>(part[0])) && !ToNumber(part);
}

// Returns a path as code: "self.attention.norm", "self.norm[2]" for "norm.2".
std::string PathCode(const std::string& path) {
  std::string code = "self";
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (const auto index = ToNumber(part)) {
      absl::StrAppend(&code, "[", Index(*index), "]");
    } else {
      code = absl::Substitute(IsNumberedCall(part) ? "getattr($0, \"$1\")" : "$0.$1", code, part);
    }
  }
  return code;
}

}  // namespace

absl::StatusOr<std::string> CallCode(const std::string& function, const std::string& x) {
  if (function.empty()) return x;
  const FunctionCode* const found = FindFunction(function);
  if (found == nullptr) return Unsupported(absl::StrCat(function, " is not covered"));
  return absl::StrReplaceAll(found->code, {{"$0", x}});
}

std::string LinearCode(int64_t in, int64_t out, bool bias) {
  return absl::StrCat("nn.Linear(", MarkNumber("d_in", in), ", ", MarkNumber("d_out", out),
                      bias ? ")" : ", bias=False)");
}

std::string ModuleList(const std::vector<std::string>& items, const std::string& count) {
  const bool equal = std::all_of(items.begin(), items.end(),
                                 [&](const std::string& item) { return item == items[0]; });
  if (equal) return absl::Substitute("nn.ModuleList($0 for _ in range($1))", items[0], count);
  return absl::StrCat("nn.ModuleList([\n    ", absl::StrJoin(items, ",\n    "), ",\n])");
}

std::vector<std::string> InitLines(const std::vector<Member>& members) {
  std::map<std::string, std::string> makes;               // by path
  std::map<std::string, std::vector<std::string>> lists;  // items of lists of modules
  for (const Member& member : members) {
    const auto [parent, leaf] = SplitPath(member.path);
    if (const auto index = ToNumber(leaf)) {
      // Modules of a list are numbered from 0; an identity fills a gap.
      std::vector<std::string>& items = lists[parent];
      items.resize(std::max(items.size(), static_cast<size_t>(*index) + 1), "nn.Identity()");
      items[static_cast<size_t>(*index)] = member.make;
    } else {
      makes[member.path] = member.make;
    }
  }
  for (const auto& [path, items] : lists) {
    makes[path] = ModuleList(items, MarkNumber("count", static_cast<int64_t>(items.size())));
  }
  std::set<std::string> made;
  std::vector<std::string> lines;
  // A module is made before what belongs to it.
  const std::function<void(const std::string&)> add = [&](const std::string& path) {
    if (path.empty() || !made.insert(path).second) return;
    const auto [parent, leaf] = SplitPath(path);
    add(parent);
    const auto found = makes.find(path);
    const std::string make = found == makes.end() ? "nn.Module()" : found->second;
    lines.push_back(IsNumberedCall(leaf) ? absl::Substitute("$0.add_module(\"$1\", $2)",
                                                            PathCode(parent), leaf, make)
                                         : absl::StrCat(PathCode(path), " = ", make));
  };
  for (const Member& member : members) {
    const auto [parent, leaf] = SplitPath(member.path);
    add(ToNumber(leaf) ? parent : member.path);
  }
  return lines;
}

std::set<std::string> IndexedNames(const std::set<std::string>& names) {
  std::set<std::string> indexed;
  for (const std::string& name : names) {
    const auto [base, index] = SplitIndex(name);
    if (!index.empty()) indexed.insert(base);
  }
  return indexed;
}

std::string AfterCommas(const std::set<std::string>& names, const PythonFunction& function) {
  std::string text;
  for (const std::string& name : names) {
    absl::StrAppend(&text, ", ", CodeWriter::PythonName(function, name));
  }
  return text;
}

CodeWriter::CodeWriter(const ResolvedModel& model) : model_(model) {
  layers_.reserve(static_cast<size_t>(model.dims.n_layer));
}

// -- Nodes

int64_t CodeWriter::MaxWidth(absl::Span<const TensorHandle> operands) const {
  int64_t width = 1;
  for (const TensorHandle id : operands) width = std::max(width, node(id).width);
  return width;
}

TensorHandle CodeWriter::AddNode(std::string code, std::vector<TensorHandle> operands,
                                 std::string hint, int64_t width, int level, Node::Kind kind) {
  Node& node = nodes_.emplace_back();
  node.kind = kind;
  node.code = std::move(code);
  node.level = level;
  node.operands = std::move(operands);
  node.hint = std::move(hint);
  node.width = width;
  return static_cast<TensorHandle>(nodes_.size()) - 1;
}

TensorHandle CodeWriter::AddName(const std::string& name, const std::string& key, int64_t width) {
  const TensorHandle made = AddNode(name, {}, "", width, 3, Node::Kind::kName);
  nodes_.back().key = key;
  nodes_.back().version = current_[key];
  return made;
}

TensorHandle CodeWriter::Combine(absl::Span<const Term> terms, double constant) {
  std::vector<TensorHandle> operands;
  std::vector<double> coefficients;
  for (const Term& term : terms) {
    operands.push_back(term.tensor);
    coefficients.push_back(term.coefficient);
  }
  const int64_t width = MaxWidth(operands);
  const TensorHandle made =
      AddNode("", std::move(operands), "total", width, 0, Node::Kind::kCombine);
  nodes_.back().coefficients = std::move(coefficients);
  nodes_.back().constant = constant;
  return made;
}

TensorHandle CodeWriter::Multiply(TensorHandle a, TensorHandle b) {
  return AddNode("", {a, b}, "product", MaxWidth({a, b}), 1, Node::Kind::kMultiply);
}

TensorHandle CodeWriter::Apply(const Function& function, absl::Span<const TensorHandle> given) {
  std::string f = function.name;
  std::vector<TensorHandle> operands(given.begin(), given.end());
  std::vector<double> numbers = function.numbers;
  int64_t width = MaxWidth(operands);
  if (f == "part") width /= static_cast<int64_t>(numbers[1]);
  if (f == "slice") {
    width = static_cast<int64_t>(numbers[1]);
    numbers[1] += numbers[0];
  }
  if (f == "dot") {
    width = numbers.empty() ? 1 : static_cast<int64_t>(numbers[0]);
    operands = {Multiply(operands[0], operands[1])};
    if (width > 1) f = "dot of groups";
  }
  if ((f == "max" || f == "min") && operands.size() == 2) f += "imum";
  if (f == "softmax") width *= static_cast<int64_t>(operands.size());
  if (f == "concat") {
    width = 0;
    for (const TensorHandle id : operands) width += node(id).width;
  }
  const FunctionCode* const found = FindFunction(f);
  if (found == nullptr) {
    status_.Update(Unsupported(absl::StrCat(f, " is not covered")));
    return AddNode("None", {}, f, width);
  }
  std::string code(found->code);
  const absl::string_view names[] = {found->number_0, found->number_1};
  for (size_t i = 0; i < numbers.size() && i < 2; ++i) {
    code = absl::StrReplaceAll(code, {{absl::StrCat("#", i), MarkNumber(names[i], numbers[i])}});
  }
  return AddNode(std::move(code), std::move(operands),
                 std::string(found->hint.empty() ? found->name : found->hint), width, found->level);
}

TensorHandle CodeWriter::Drop(const DropSite& site, TensorHandle a) {
  return AddNode(absl::StrCat(site.path ? "drop_path" : "F.dropout", "($0, ",
                              MarkNumber("p", site.p), ", self.training)"),
                 {a}, "dropped", node(a).width);
}

TensorHandle CodeWriter::TokenEmbedding(const TokenEmbeddingSite& site) {
  // A table per layer is "embedding.ve.0" and is read as ve[1].
  const auto layer = ToNumber(SplitPath(site.name).second);
  PythonFunction* const reader = std::exchange(function_, &begin_);
  UseMember(site.name, absl::StrCat("nn.Embedding(config.vocab_size, ", site.width, ")"));
  function_ = reader;
  const std::string name = layer ? absl::StrCat(site.table, "[", *layer + 1, "]") : site.table;
  return AddName(name, name, site.width);
}

// -- Modules and parameters

absl::Status CodeWriter::CheckMember(const std::string& name, const std::string& path) const {
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (Contains(kKeywords, part) || Contains(kAttributes, part)) {
      return Unsupported(absl::StrCat(
          "\"", part, "\" is a word of Python or an attribute of torch.nn.Module; rename it"));
    }
  }
  const auto [parent, leaf] = SplitPath(path);
  for (const Member& member : function_->members) {
    const auto [list, item] = SplitPath(member.path);
    const bool has_both =
        (parent == member.path && ToNumber(leaf)) || (list == path && ToNumber(item));
    if (has_both) {
      return Unsupported(absl::StrCat(name, ": a name that is called both with and without an ",
                                      "index is not covered; give one of them another name"));
    }
  }
  return absl::OkStatus();
}

std::string CodeWriter::UseMember(const std::string& name, const std::string& make,
                                  std::optional<ClassTable::Instance> instance) {
  const std::string& owner = function_->owner;
  absl::string_view path = name;
  if (!owner.empty() && !absl::ConsumePrefix(&path, owner + ".")) {
    status_.Update(Unsupported(absl::StrCat(name, " is used in ", owner)));
  }
  const Member member{std::string(path), make, instance};
  const bool is_known = std::any_of(function_->members.begin(), function_->members.end(),
                                    [&](const Member& each) { return each.path == member.path; });
  if (!is_known) {
    status_.Update(CheckMember(name, member.path));
    function_->members.push_back(member);
  }
  return PathCode(member.path);
}

std::string CodeWriter::Call(const std::string& name, const std::string& make,
                             const std::string& arguments) {
  return absl::StrCat(UseMember(name, make), "(", arguments, ")");
}

TensorHandle CodeWriter::Learned(const LearnedSite& site) {
  const LearnedPlace& place = *site.place;
  std::vector<std::string> dims, indices;
  int64_t rest = site.index, inner = place.count();
  for (const int64_t extent : place.extents) {
    dims.push_back(MarkNumber("extent", extent));
    inner /= extent;
    indices.push_back(Index(rest / inner));
    rest %= inner;
  }
  if (dims.empty() || place.width > 1) dims.push_back(MarkNumber("width", place.width));
  std::string code = UseMember(place.name, ParameterCode(dims));
  if (!indices.empty()) absl::StrAppend(&code, "[", absl::StrJoin(indices, ", "), "]");
  return AddNode(code, {}, "learned", place.width);
}

absl::StatusOr<TensorHandle> CodeWriter::Linear(const LinearSite& site, TensorHandle a) {
  std::string make = LinearCode(site.in, site.out, site.spec->bias);
  if (site.out == 1) {
    make =
        absl::StrCat("Dot(", MarkNumber("d_in", site.in), site.spec->bias ? ", bias=True)" : ")");
  }
  return AddNode(Call(site.name, make, "$0"), {a}, site.spec->name, site.out);
}

absl::StatusOr<TensorHandle> CodeWriter::Norm(const NormSite& site,
                                              absl::Span<const TensorHandle> inputs) {
  const NormPlugin& plugin = *site.norm->plugin;
  if (plugin.identity()) return inputs[0];
  PLUMB_ASSIGN_OR_RETURN(const std::string make, MakeNorm(plugin, site.norm->attrs, site.dim));
  PLUMB_ASSIGN_OR_RETURN(const auto instance,
                         plugin.Instantiate(site.dim, site.norm->attrs, site.heads));
  norms_.emplace(plugin.id(), instance);
  std::string code = Call(site.name, make, inputs.size() == 2 ? "$0, $1" : "$0");
  if (site.dim != site.width) {
    const std::string heads =
        absl::StrCat(".unflatten(-1, (", MarkNumber("heads", site.width / site.dim), ", -1))");
    code = absl::StrCat(absl::StrReplaceAll(code, {{"$0", "@0" + heads}, {"$1", "@1" + heads}}),
                        ".flatten(-2)");
  }
  return AddNode(code, {inputs.begin(), inputs.end()}, site.slot.substr(0, site.slot.find('.')),
                 site.width);
}

// -- Rendering

std::string CodeWriter::PythonName(const PythonFunction& function, const std::string& name) {
  if (function.is_sublayer && name == "x") return "residual";
  if (IsPythonName(name)) return name + "_";
  return function.is_sublayer && Contains(kSublayerNames, name) ? "outer_" + name : name;
}

CodeWriter::Code CodeWriter::RenderName(const Node& name) {
  if (name.version != current_[name.key]) {
    status_.Update(
        Unsupported(absl::StrCat("a formula reads the value that \"", name.code,
                                 "\" had before a later statement set it, which is not covered")));
  }
  if (IsLocal(name.key)) return {name.code, 3};
  function_->Read(name.code);
  return {NameCode(name.code), 3};
}

std::string CodeWriter::NameCode(const std::string& name) const {
  const auto [base, index] = SplitIndex(name);
  const std::string python = PythonName(*function_, base);
  return index.empty() ? python : absl::StrCat(python, "[", index, "]");
}

std::string CodeWriter::At(TensorHandle id, int level) {
  const Code code = Render(id);
  return code.level >= level ? code.text : absl::StrCat("(", code.text, ")");
}

std::string CodeWriter::Widened(TensorHandle id, int64_t width, int level) {
  const int64_t own = node(id).width;
  if (own == width || own == 1) return At(id, level);
  return absl::StrCat(At(id, 3), ".repeat_interleave(", MarkNumber("times", width / own), ", -1)");
}

CodeWriter::Code CodeWriter::RenderCombine(const Node& sum) {
  std::string text;
  const auto add = [&text](double sign, const std::string& term) {
    const bool is_first = text.empty();
    absl::StrAppend(&text, sign < 0 ? (is_first ? "-" : " - ") : (is_first ? "" : " + "), term);
  };
  if (sum.constant != 0) add(sum.constant, MarkNumber("constant", std::abs(sum.constant)));
  for (size_t i = 0; i < sum.operands.size();) {
    // Terms with factor 1 that differ in indices become sum(.. for k in range(..)).
    std::vector<std::string> alike;
    for (size_t k = i; k < sum.operands.size() && sum.coefficients[k] == 1; ++k) {
      alike.push_back(Widened(sum.operands[k], sum.width, 1));
    }
    std::optional<std::string> loop;
    while (alike.size() > 1 && !(loop = RollUp(alike, kTermVariables))) alike.pop_back();
    if (loop) {
      add(1, absl::StrCat("sum(", *loop, ")"));
      i += alike.size();
      continue;
    }
    const double c = sum.coefficients[i];
    const std::string factor =
        std::abs(c) == 1 ? "" : absl::StrCat(MarkNumber("factor", std::abs(c)), " * ");
    add(c, absl::StrCat(factor, Widened(sum.operands[i], sum.width, 1)));
    ++i;
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
  return {absl::StrCat(Widened(a, product.width, 1), divides ? " / " : " * ",
                       Widened(divides ? divisor.operands[0] : b, product.width, 2)),
          1};
}

std::string CodeWriter::RenderList(const Node& call) {
  // The operands of concat have widths of their own.
  const int64_t width = call.code == "softmax(*)" ? MaxWidth(call.operands) : 1;
  std::vector<std::string> items;
  for (const TensorHandle id : call.operands) {
    items.push_back(Widened(id, std::max(width, node(id).width), 0));
  }
  const auto loop = RollUp(items, kTermVariables);
  return loop ? absl::StrCat("*[", *loop, "]") : absl::StrJoin(items, ", ");
}

CodeWriter::Code CodeWriter::Render(TensorHandle id) {
  if (const auto at = function_->aliases.find(id); at != function_->aliases.end()) {
    return {at->second, 3};
  }
  if (const auto at = hoisted_.find(id); at != hoisted_.end()) return {at->second, 3};
  const Node made = node(id);
  if (made.kind == Node::Kind::kName) return RenderName(made);
  if (made.kind == Node::Kind::kCombine) return RenderCombine(made);
  if (made.kind == Node::Kind::kMultiply) return RenderMultiply(made);
  if (absl::EndsWith(made.code, "(*)")) {
    return {absl::StrReplaceAll(made.code, {{"*", RenderList(made)}}), 3};
  }
  std::vector<std::pair<std::string, std::string>> operands;
  for (size_t i = 0; i < made.operands.size(); ++i) {
    const auto add = [&](const char* mark, std::string code) {
      if (absl::StrContains(made.code, absl::StrCat(mark, i))) {
        operands.emplace_back(absl::StrCat(mark, i), std::move(code));
      }
    };
    add("$", At(made.operands[i], 0));
    add("@", At(made.operands[i], 3));
    add("~", Widened(made.operands[i], made.width, 0));
  }
  return {absl::StrReplaceAll(made.code, operands), made.level};
}

void CodeWriter::CountUses(TensorHandle id, std::map<TensorHandle, int>* uses) const {
  const std::vector<TensorHandle>& operands = node(id).operands;
  if (operands.empty() || function_->aliases.count(id) > 0) return;
  if (++(*uses)[id] > 1) return;
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
  // One statement sets different names that are not indexed, or elements of one that is.
  const std::string base = SplitIndex(name).first;
  const bool ends = std::any_of(pending_.begin(), pending_.end(), [&](const Assignment& each) {
    const std::string other = SplitIndex(each.name).first;
    const bool is_indexed = base != name || other != each.name;
    return each.made == value || each.key == key || (is_indexed && base != other);
  });
  if (ends || pending_end_ != nodes_.size()) Flush();
  const TensorHandle made = AddName(name, key, node(value).width);
  ++nodes_.back().version;  // which Flush makes
  pending_.push_back({name, key, value, made});
  pending_end_ = nodes_.size();
  return made;
}

TensorHandle CodeWriter::SetLocal(const std::string& name, TensorHandle value) {
  std::string python = IsPythonName(name) ? name + "_" : name;
  if (function_->is_sublayer && python != function_->point && Contains(kSublayerNames, python)) {
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
  std::vector<std::string> values, names, items;
  for (const Assignment& each : group) {
    const std::string index = SplitIndex(each.name).second;
    const bool is_tuple = absl::StrContains(index, ',');
    values.push_back(Render(each.value).text);
    names.push_back(IsLocal(each.key) ? each.name : NameCode(each.name));
    items.push_back(
        absl::StrCat(is_tuple ? absl::StrCat("(", index, ")") : index, ": ", values.back()));
  }
  const std::string base = SplitIndex(group[0].name).first;
  if (group.size() > 1 && base != group[0].name) {
    const auto loop = RollUp(items, kTargetVariables);
    Line(absl::StrCat(PythonName(*function_, base), ".update({",
                      loop ? *loop : absl::StrJoin(items, ", "), "})"));
  } else {
    Line(absl::StrCat(absl::StrJoin(names, ", "), " = ", absl::StrJoin(values, ", ")));
  }
  for (const Assignment& each : group) {
    ++current_[each.key];
    (IsLocal(each.key) ? function_->own : function_->sets).insert(each.name);
  }
}

TensorHandle CodeWriter::Let(const std::string& name, const std::string& code, int64_t width) {
  Flush();
  Line(absl::StrCat(name, " = ", code));
  const std::string key = absl::StrCat(functions_, "::", name);
  ++current_[key];
  return AddName(name, key, width);
}

TensorHandle CodeWriter::RunPoint(absl::string_view point, const std::string& name,
                                  TensorHandle tensor, AtPoint at_point) {
  const std::string outer = std::exchange(function_->point, LastName(point));
  const absl::StatusOr<TensorHandle> ran = at_point(point, tensor);
  status_.Update(ran.status());
  Flush();
  function_->point = outer;
  const TensorHandle after = ran.value_or(tensor);
  const Node result = node(after);
  // A statement may have set the point's tensor under its name.
  const bool is_set = result.kind == Node::Kind::kName && result.code == name;
  return after == tensor || is_set ? after : Let(name, Render(after).text, result.width);
}

// -- Functions

TensorHandle CodeWriter::Embed() {
  const int64_t width = model_.embedding_width, d_model = model_.dims.d_model;
  const int64_t offset = model_.positions.offset;
  std::string x =
      Call("embedding.token", absl::StrCat("nn.Embedding(config.vocab_size, ", width, ")"), "ids");
  if (width != d_model) x = Call("embedding.project", LinearCode(width, d_model, false), x);
  const absl::StatusOr<double> scale = EvaluateEmbeddingScale(model_);
  status_.Update(scale.status());
  if (scale.ok() && *scale != 1) x = absl::StrCat(NumberCode(*scale), " * ", x);
  if (model_.positions.kind == PositionKind::kLearned) {
    const std::string plus = offset == 0 ? "" : absl::StrCat(" + ", offset);
    Line("positions = torch.arange(ids.shape[1], device=ids.device)");
    const std::string make =
        absl::Substitute("nn.Embedding(config.context_length$0, config.d_model)", plus);
    absl::StrAppend(&x, " + ", Call("embedding.position", make, "positions" + plus));
  }
  Line(absl::StrCat("x = ", x));
  for (const TokenTable& table : model_.token_tables) {
    Line(absl::Substitute(
        table.per_layer ? "$0 = {i + 1: rows(ids) for i, rows in enumerate(self.embedding.$1)}"
                        : "$0 = self.embedding.$1(ids)",
        PythonName(begin_, table.name), table.name));
  }
  begin_.sets.insert("x");
  return AddName("x", "x", model_.dims.d_model);
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
  const int64_t width = model_.embedding_width, d_model = model_.dims.d_model;
  std::string code = Render(x).text;
  if (width != d_model) code = Call("head.project", LinearCode(d_model, width, false), code);
  if (!model_.tie_embeddings) {
    const std::string bias = model_.head_bias ? "" : ", bias=False";
    code = Call("head", absl::Substitute("nn.Linear($0, config.vocab_size$1)", width, bias), code);
  } else {
    absl::StrAppend(&code, ", self.embedding.token.weight");
    if (model_.head_bias) {
      absl::StrAppend(&code, ", ", UseMember("head.bias", ParameterCode({"config.vocab_size"})));
    }
    code = absl::StrCat("F.linear(", code, ")");
  }
  const TensorHandle logits = Let("logits", code, model_.dims.vocab_size);
  RunPoint(kHeadPoint, "logits", logits, at_point);
  return status_;
}

}  // namespace plumb
