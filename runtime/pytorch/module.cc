// SPDX-License-Identifier: Apache-2.0
// Fills in templates/model.py with the functions of CodeWriter.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "runtime/base/status.h"
#include "runtime/pytorch/norms.h"
#include "runtime/pytorch/pytorch.h"
#include "runtime/pytorch/writer.h"
#include "runtime/spec/interpret.h"

namespace plumb {
namespace {

// Returns "attention.q.weight" for "layers.3.attention.q.weight".
std::string SuffixInLayer(const std::string& name) { return name.substr(name.find('.', 7) + 1); }

// Returns the statements of a block's placement, a line each: "    each: x = x + f(norm(x))".
std::string Equations(const BlockSpec& block) {
  const PlacementSpec& placement = *block.placement;
  std::string text = absl::StrCat("Placement ", placement.name, ".\n\n");
  const auto add = [&text](const std::string& section, const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      absl::StrAppend(&text, "    ", section, ": ", statement.ToString(), "\n");
    }
  };
  add("let", placement.lets);
  add("begin", placement.begin);
  add("each", placement.each);
  add("block", placement.block);
  add("end", placement.end);
  for (const InsideSpec& inside : block.inside) add(inside.point, inside.statements);
  return text;
}

std::string InitRule(const InitSpec& init) {
  const std::string a = NumberCode(init.a), b = NumberCode(init.b);
  if (init.kind == InitSpec::Kind::kTable) {
    std::vector<std::string> values;
    for (const double value : init.table) values.push_back(NumberCode(value));
    return absl::Substitute("lambda p: p.view($0, -1).copy_(torch.tensor([$1])[:, None])",
                            values.size(), absl::StrJoin(values, ", "));
  }
  std::string draw = absl::Substitute("constant_(p, $0)", a);
  if (init.kind == InitSpec::Kind::kNormal) draw = absl::Substitute("normal_(p, $0, $1)", a, b);
  if (init.kind == InitSpec::Kind::kUniform) draw = absl::Substitute("uniform_(p, $0, $1)", a, b);
  if (init.kind == InitSpec::Kind::kTruncatedNormal) {
    draw = absl::Substitute("trunc_normal_(p, $0, $1, $2, $3)", a, b,
                            NumberCode(init.a - init.cut * init.b),
                            NumberCode(init.a + init.cut * init.b));
  }
  return absl::StrCat("lambda p: nn.init.", draw);
}

std::string UpdateRule(const ParameterUpdate& update) {
  std::string options = absl::Substitute("{\"weight_decay\": $0, \"betas\": ($1, $2), \"eps\": $3}",
                                         NumberCode(update.weight_decay), NumberCode(update.beta1),
                                         NumberCode(update.beta2), NumberCode(update.eps));
  if (update.optimizer == OptimizerKind::kMuon) options = "\"Muon\"";
  if (update.unit_length != UnitLength::kNothing) options = "\"weights of length 1\"";
  if (update.is_frozen) return "1, 0, None";
  return absl::StrCat(NumberCode(update.lr_scale), ", ", NumberCode(update.lr_offset), ", ",
                      options);
}

class ModuleWriter {
 public:
  ModuleWriter(const ResolvedModel& model, const ModelTensors& tensors, const TrainSpec& recipe,
               const UpdatePlan& updates)
      : model_(model), tensors_(tensors), recipe_(recipe), updates_(updates), code_(model) {}

  absl::StatusOr<std::string> Write() {
    PLUMB_RETURN_IF_ERROR(CheckCovered());
    PLUMB_RETURN_IF_ERROR(RunStack(model_, &code_));
    FindCarried();
    WriteLayers();
    const auto init = [this](size_t i) { return InitRule(tensors_.parameters[i].init); };
    const auto update = [this](size_t i) { return UpdateRule(updates_.parameters[i]); };
    std::map<std::string, std::string> blocks = {
        {"sizes", Sizes()},
        {"classes", Classes()},
        {"initial_values", Rules(init)},
        {"learning_rate",
         absl::StrCat("LEARNING_RATE = ", NumberCode(recipe_.learning_rate), "\n")},
        {"updates", Rules(update)},
        {"modules", Modules()},
        {"forward", Forward()}};
    blocks["loss"] = Loss(blocks["classes"]);
    blocks["helpers"] = Helpers(blocks);
    return FillIn(ShippedCode("templates/model"), blocks);
  }

 private:
  absl::Status CheckCovered() const {
    if (model_.bidirectional) return Unsupported("a bidirectional model is not covered");
    if (model_.token_types > 0) return Unsupported("token_types are not covered");
    for (const ParameterSpec& parameter : tensors_.parameters) {
      if (parameter.init.kind != InitSpec::Kind::kFill) continue;
      return Unsupported(absl::StrCat("a norm that writes the initial values of ", parameter.name,
                                      " is not covered"));
    }
    return absl::OkStatus();
  }

  // Decides which names the layers pass on: streams, and indexed names that one function sets and
  // another reads.
  void FindCarried() {
    carried_ = IndexedNames(code_.begin().reads);
    carried_.merge(IndexedNames(code_.end().reads));
    for (const PythonFunction& layer : code_.layers()) carried_.merge(IndexedNames(layer.reads));
    for (const PythonFunction& layer : code_.layers()) {
      for (const std::string& name : layer.reads) given_.insert(name.substr(0, name.find('[')));
      for (const std::string& name : layer.sets) {
        const std::string base = name.substr(0, name.find('['));
        if (base == name || carried_.count(base) > 0) returned_.insert(base);
      }
    }
    given_.insert(returned_.begin(), returned_.end());
    given_.erase("x");
    returned_.erase("x");
  }

  // Returns the lines of a function that makes the dictionaries `made` of indexed names.
  static std::vector<std::string> WithDicts(const PythonFunction& function,
                                            const std::set<std::string>& made) {
    std::vector<std::string> lines = function.lines;
    for (const std::string& base : made) {
      const std::string python = CodeWriter::PythonName(function, base);
      const std::string update = absl::StrCat(python, ".update(");
      const auto first = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
        return HasIdentifier(Unmark(line), python);
      });
      const bool makes = first != lines.end() && absl::StartsWith(*first, update) &&
                         !HasIdentifier(Unmark(first->substr(update.size())), python);
      if (makes) {
        *first = absl::StrCat(python, " = ",
                              first->substr(update.size(), first->size() - update.size() - 1));
      } else {
        lines.insert(lines.begin(), absl::StrCat(python, " = {}"));
      }
    }
    return lines;
  }

  // Returns the indexed names that only this function has.
  std::set<std::string> OwnDicts(const PythonFunction& function) const {
    std::set<std::string> own = IndexedNames(function.sets);
    for (const std::string& carried : carried_) own.erase(carried);
    return own;
  }

  void WriteLayers() {
    for (PythonFunction& layer : code_.layers()) {
      ClassCode code;
      code.doc = absl::StrCat("\"\"\"", Equations(*model_.layers[layers_.size()]), "\"\"\"\n\n");
      for (Member& member : layer.members) {
        if (member.instance) member.make = code_.classes().Construct(*member.instance);
      }
      code.init = InitLines(layer.members);
      code.forward = absl::StrCat("def forward(self, x", AfterCommas(given_, layer), "):");
      for (const std::string& base : IndexedNames(layer.sets)) {
        const std::string python = CodeWriter::PythonName(layer, base);
        if (carried_.count(base) > 0) {
          code.body.push_back(absl::StrCat(python, " = dict(", python, ")"));
        }
      }
      const std::vector<std::string> lines = WithDicts(layer, OwnDicts(layer));
      code.body.insert(code.body.end(), lines.begin(), lines.end());
      code.body.push_back(absl::StrCat("return x", AfterCommas(returned_, layer)));
      layers_.push_back(code_.classes().Add("Layer", std::move(code)));
    }
  }

  std::string Sizes() const {
    const ModelDims& d = model_.dims;
    return absl::Substitute(
        "n_layer: int = $0\nn_head: int = $1\nn_kv_head: int = $2\nd_model: int = $3\n"
        "d_ff: int = $4\nhead_dim: int = $5\nvocab_size: int = $6\ncontext_length: int = $7\n",
        d.n_layer, d.n_head, d.n_kv_head, d.d_model, d.d_ff, d.head_dim, d.vocab_size,
        d.context_length);
  }

  std::string Classes() {
    std::vector<std::string> classes;
    for (const auto& [id, norm] : code_.norms()) classes.push_back(NormClassText(*norm));
    for (const char* base : {"Attention", "LinearAttention", "MLP", "Experts", "Layer"}) {
      code_.classes().Print(base, &classes);
    }
    return absl::StrJoin(classes, "\n\n");
  }

  // Returns the helpers that the code uses.
  static std::string Helpers(const std::map<std::string, std::string>& blocks) {
    std::string code, helpers;
    for (const auto& [name, block] : blocks) absl::StrAppend(&code, block, "\n");
    for (const auto& [file, text] : PythonFiles()) {
      const size_t name = text.find(' ') + 1;  // after "def" or "class"
      const bool is_used = absl::StartsWith(file, "helpers/") &&
                           HasIdentifier(code, text.substr(name, text.find('(') - name));
      if (is_used) absl::StrAppend(&helpers, text, "\n\n");
    }
    return helpers;
  }

  // Returns the lines that make the model's modules.
  std::string Modules() {
    std::vector<std::string> layers;
    for (const ClassTable::Instance& layer : layers_) {
      layers.push_back(code_.classes().Construct(layer));
    }
    std::vector<Member> members = code_.begin().members;
    members.push_back({"layers", ModuleList(layers, "config.n_layer"), {}});
    members.insert(members.end(), code_.end().members.begin(), code_.end().members.end());
    std::string text;
    for (const std::string& line : InitLines(members)) absl::StrAppend(&text, Unmark(line), "\n");
    const bool reads_step = std::any_of(
        tensors_.states.begin(), tensors_.states.end(),
        [](const NormStateSpec& state) { return state.name == StateName(kStepBuffer); });
    if (reads_step) {
      absl::StrAppend(&text, "# Number of the training step, from 1: set it before each step.\n",
                      "self.register_buffer(\"step\", torch.zeros(1))\n");
    }
    return absl::StrCat(text, Sharing());
  }

  // Returns the lines that let layers use the parameters of others.
  std::string Sharing() const {
    std::string text;
    for (size_t i = 0; i < model_.first_layers.size(); ++i) {
      const int64_t first = model_.first_layers[i], layer = static_cast<int64_t>(i);
      if (first == layer) continue;
      absl::StrAppend(&text, "share(self.layers[", first, "], self.layers[", layer, "], own=(");
      for (const ParameterSpec& parameter : tensors_.parameters) {
        if (GetLayer(parameter.name) != layer + 1) continue;
        absl::StrAppend(&text, "\"", SuffixInLayer(parameter.name), "\", ");
      }
      absl::StrAppend(&text, "))\n");
    }
    return text;
  }

  std::string Forward() const {
    const PythonFunction &begin = code_.begin(), &end = code_.end();
    std::string text;
    const auto add = [&text](const std::vector<std::string>& lines) {
      for (const std::string& line : lines) absl::StrAppend(&text, Unmark(line), "\n");
    };
    std::set<std::string> made = IndexedNames(begin.sets);
    made.insert(carried_.begin(), carried_.end());
    for (const TokenTable& table : model_.token_tables) made.erase(table.name);
    if (given_.count("step") + begin.reads.count("step") + end.reads.count("step") > 0) {
      add({"step = self.step"});
    }
    add(WithDicts(begin, made));
    add({"for layer in self.layers:", absl::StrCat("    x", AfterCommas(returned_, begin),
                                                   " = layer(x", AfterCommas(given_, begin), ")")});
    add(WithDicts(end, OwnDicts(end)));
    return text;
  }

  std::string Loss(const std::string& classes) const {
    const double smoothing = recipe_.label_smoothing;
    std::string text = absl::StrCat(
        "loss = F.cross_entropy(rows, targets, ignore_index=-1",
        smoothing > 0 ? absl::StrCat(", label_smoothing=", NumberCode(smoothing)) : "", ")\n");
    if (recipe_.z_loss > 0) {
      absl::StrAppend(&text, "loss = loss + ", NumberCode(recipe_.z_loss),
                      " * rows.logsumexp(-1)[targets >= 0].square().mean()\n");
    }
    if (HasIdentifier(classes, "balance_loss")) {
      text += "if self.training:\n    loss = loss + balance_losses(self)\n";
    }
    return text;
  }

  // Returns parameters with equal rules as lines of a list of (rule, names). A tensor with the same
  // rule in every layer is one name.
  std::string Rules(const std::function<std::string(size_t)>& rule_of) const {
    const auto general = [](const std::string& name) {
      return GetLayer(name) > 0 ? absl::StrCat("layers.*.", SuffixInLayer(name)) : name;
    };
    const auto& parameters = tensors_.parameters;
    std::map<std::string, std::set<std::string>> rules_of_name;
    for (size_t i = 0; i < parameters.size(); ++i) {
      rules_of_name[general(parameters[i].name)].insert(rule_of(i));
    }
    std::map<std::string, std::vector<std::string>> rules;
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::string name = general(parameters[i].name);
      if (rules_of_name[name].size() > 1) name = parameters[i].name;
      std::vector<std::string>& names = rules[rule_of(i)];
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::string text;
    for (const auto& [rule, names] : rules) {
      absl::StrAppend(&text, "(", rule, ", [\n    \"", absl::StrJoin(names, "\",\n    \""),
                      "\",\n]),\n");
    }
    return text;
  }

  const ResolvedModel& model_;
  const ModelTensors& tensors_;
  const TrainSpec& recipe_;
  const UpdatePlan& updates_;
  CodeWriter code_;
  std::set<std::string> given_, returned_;  // names that layers are given, and return, besides x
  std::set<std::string> carried_;           // indexed names that functions share
  std::vector<ClassTable::Instance> layers_;
};

}  // namespace

absl::StatusOr<std::string> WritePyTorch(const ResolvedModel& model, const ModelTensors& tensors,
                                         const TrainSpec& recipe, const UpdatePlan& updates) {
  return ModuleWriter(model, tensors, recipe, updates).Write();
}

}  // namespace plumb
