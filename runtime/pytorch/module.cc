// SPDX-License-Identifier: Apache-2.0
// Assembles model.py from the functions of CodeWriter.
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
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/pytorch/norms.h"
#include "runtime/pytorch/pytorch.h"
#include "runtime/pytorch/writer.h"
#include "runtime/spec/interpret.h"

namespace plumb {
namespace {

constexpr char kHeader[] =
    R"("""A model of plumb for PyTorch, written by plumb export --format pytorch."""

import json
import math
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """Sizes of this model. Numbers in the code below follow from them."""

)";

constexpr char kReader[] = R"(

def read_safetensors(path):
    """Reads the tensors of a safetensors file."""
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            whole = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
            tensors[name] = whole.view(entry["shape"])
    return tensors
)";

constexpr char kLookup[] = R"(

def find_rule(rules, name):
    """Returns the rule of a parameter; "layers.*" stands for every layer that is not named."""
    general = re.sub(r"^layers\.\d+\.", "layers.*.", name)
    by_name = {each: rule for *rule, names in rules for each in names}
    return by_name.get(name) or by_name[general]
)";

constexpr char kMethods[] = R"(
    @classmethod
    def from_safetensors(cls, path):
        """Returns a model with the weights of a file that plumb wrote."""
        model = cls()
        tensors = read_safetensors(path)
        parameters = dict(model.named_parameters()) | dict(model.named_buffers())
        if tensors.keys() != parameters.keys():
            raise ValueError(f"{path} has other tensors: {sorted(tensors.keys() ^ parameters.keys())}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                if parameter.shape != tensors[name].shape:
                    raise ValueError(f"{path}: {name} is {tuple(tensors[name].shape)}")
                parameter.copy_(tensors[name])
        return model

    @torch.no_grad()
    def init_weights(self):
        """Draws initial values from the distributions that plumb uses."""
        for name, parameter in self.named_parameters():
            (draw,) = find_rule(INITIAL_VALUES, name)
            draw(parameter)
)";

constexpr char kGroups[] = R"(
        """Returns groups for torch.optim.AdamW. Multiply the rates of all by the schedule."""
        groups = {}
        for name, parameter in self.named_parameters():
            scale, offset, options = find_rule(UPDATES, name)
            if options is None:
                parameter.requires_grad_(False)  # frozen
                continue
            rate = scale * lr + offset
            group = groups.setdefault((rate, *options.items()), dict(options, lr=rate, params=[]))
            group["params"].append(parameter)
        return list(groups.values())
)";

constexpr char kShare[] = R"(
    def share(self, first, layer, own):
        """Lets a layer use the parameters of an earlier one, except its own."""
        for name, parameter in self.layers[first].named_parameters():
            if name not in own:
                module, _, leaf = name.rpartition(".")
                setattr(self.layers[layer].get_submodule(module), leaf, parameter)
)";

// Returns "attention.q.weight" for "layers.3.attention.q.weight".
std::string SuffixInLayer(const std::string& name) { return name.substr(name.find('.', 7) + 1); }

class ModuleWriter {
 public:
  ModuleWriter(const ResolvedModel& model, const ModelTensors& tensors, const TrainSpec& recipe,
               const UpdatePlan& updates)
      : model_(model), tensors_(tensors), recipe_(recipe), updates_(updates), code_(model) {}

  absl::StatusOr<std::string> Write() {
    PLUMB_RETURN_IF_ERROR(CheckCovered());
    PLUMB_RETURN_IF_ERROR(RunStack(model_, &code_));
    PLUMB_RETURN_IF_ERROR(code_.status());
    FindCarried();
    WriteLayers();
    const std::string model = ModelClass();
    std::string text = Header();
    text += kReader;
    text += kLookup;
    for (const std::string& helper : code_.helpers()) {
      absl::StrAppend(&text, "\n\n", ShippedCode(helper));
    }
    for (const auto& [id, norm] : code_.norms()) text += NormClassText(*norm);
    for (const char* base : {"Attention", "LinearAttention", "MLP", "Experts", "Layer"}) {
      text += code_.classes().Print(base);
    }
    absl::StrAppend(&text, InitialValues(), Updates(), model);
    return text;
  }

 private:
  absl::Status CheckCovered() const {
    const auto refuse = [](absl::string_view what) {
      return absl::UnimplementedError(absl::StrCat("PyTorch code: ", what, " is not covered"));
    };
    if (model_.bidirectional) return refuse("a bidirectional model");
    if (model_.token_types > 0) return refuse("token_types");
    for (const TokenTable& table : model_.token_tables) {
      PLUMB_RETURN_IF_ERROR(CheckName(table.name));
    }
    for (const ParameterSpec& parameter : tensors_.parameters) {
      if (parameter.init.kind == InitSpec::Kind::kFill) {
        return refuse(absl::StrCat("a norm that writes the initial values of ", parameter.name));
      }
    }
    return absl::OkStatus();
  }

  // Decides which names the layers pass on: streams, and indexed names that one function sets and
  // another reads.
  void FindCarried() {
    std::set<std::string> dicts = code_.begin().dicts_read;
    dicts.insert(code_.end().dicts_read.begin(), code_.end().dicts_read.end());
    for (const PythonFunction& layer : code_.layers()) {
      dicts.insert(layer.dicts_read.begin(), layer.dicts_read.end());
      given_.insert(layer.reads.begin(), layer.reads.end());
      given_.insert(layer.sets.begin(), layer.sets.end());
      returned_.insert(layer.sets.begin(), layer.sets.end());
    }
    carried_ = dicts;
    for (const PythonFunction& layer : code_.layers()) {
      for (const std::string& base : layer.dicts_read) given_.insert(base);
      for (const std::string& base : layer.dicts_set) {
        if (carried_.count(base) == 0) continue;
        given_.insert(base);
        returned_.insert(base);
      }
    }
    given_.erase("x");
    returned_.erase("x");
  }

  // Returns the lines of a function that makes the dictionaries of its own indexed names; the begin
  // of the model makes those of all.
  std::vector<std::string> WithDicts(const PythonFunction& function, bool is_begin = false) const {
    std::vector<std::string> lines = function.lines;
    std::set<std::string> dicts = function.dicts_set;
    if (is_begin) dicts.insert(carried_.begin(), carried_.end());
    for (const TokenTable& table : model_.token_tables) dicts.erase(table.name);
    for (const std::string& base : dicts) {
      if (carried_.count(base) > 0 && !is_begin) continue;
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

  void WriteLayers() {
    for (PythonFunction& layer : code_.layers()) {
      ClassCode code;
      for (const std::string& line : InitLines(layer.members)) {
        code.init.push_back(code_.WithInstances(line));
      }
      const BlockSpec& block = *model_.layers[layers_.size()];
      code.doc = absl::StrCat(Equations(block), "    ");
      code.forward = "def forward(self, x";
      for (const std::string& name : given_) {
        absl::StrAppend(&code.forward, ", ", CodeWriter::PythonName(layer, name));
      }
      absl::StrAppend(&code.forward, "):");
      for (const std::string& base : layer.dicts_set) {
        const std::string python = CodeWriter::PythonName(layer, base);
        if (carried_.count(base) > 0) {
          code.body.push_back(absl::StrCat(python, " = dict(", python, ")"));
        }
      }
      for (std::string& line : WithDicts(layer)) code.body.push_back(std::move(line));
      std::string result = "return x";
      for (const std::string& name : returned_) {
        absl::StrAppend(&result, ", ", CodeWriter::PythonName(layer, name));
      }
      code.body.push_back(result);
      layers_.push_back(code_.classes().Add("Layer", std::move(code)));
    }
  }

  // Returns the statements of a block's placement, a line each: "    each: x = x + f(norm(x))".
  static std::string Equations(const BlockSpec& block) {
    const PlacementSpec& placement = *block.placement;
    std::string text = absl::StrCat("Placement ", placement.name, ".\n\n");
    const auto add = [&text](const std::string& section, const std::vector<Statement>& statements) {
      for (const Statement& statement : statements) {
        absl::StrAppend(&text, "        ", section, ": ", statement.ToString(), "\n");
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

  std::string Header() const {
    const ModelDims& d = model_.dims;
    const std::pair<const char*, int64_t> sizes[] = {{"n_layer", d.n_layer},
                                                     {"n_head", d.n_head},
                                                     {"n_kv_head", d.n_kv_head},
                                                     {"d_model", d.d_model},
                                                     {"d_ff", d.d_ff},
                                                     {"head_dim", d.head_dim},
                                                     {"vocab_size", d.vocab_size},
                                                     {"context_length", d.context_length}};
    std::string text = kHeader;
    for (const auto& [name, size] : sizes) {
      absl::StrAppend(&text, "    ", name, ": int = ", size, "\n");
    }
    return text;
  }

  // Returns the lines that make the list of layers.
  std::string LayerList() const {
    std::vector<std::string> calls;
    for (const ClassTable::Instance& layer : layers_) {
      calls.push_back(Unmark(code_.classes().Construct(layer)));
    }
    const bool equal = std::all_of(calls.begin(), calls.end(),
                                   [&](const std::string& call) { return call == calls[0]; });
    if (equal) {
      return absl::StrCat("        self.layers = nn.ModuleList(", calls[0],
                          " for _ in range(config.n_layer))\n");
    }
    std::string text = "        self.layers = nn.ModuleList([\n";
    for (const std::string& call : calls) absl::StrAppend(&text, "            ", call, ",\n");
    return absl::StrCat(text, "        ])\n");
  }

  // Returns the lines that let layers use the parameters of others.
  std::string Sharing() const {
    std::map<int64_t, std::string> own;  // names of a layer's own parameters
    for (const ParameterSpec& parameter : tensors_.parameters) {
      const int64_t layer = GetLayer(parameter.name);
      if (layer > 0) {
        absl::StrAppend(&own[layer - 1], "\"", SuffixInLayer(parameter.name), "\", ");
      }
    }
    std::string text;
    for (size_t i = 0; i < model_.first_layers.size(); ++i) {
      const int64_t first = model_.first_layers[i], layer = static_cast<int64_t>(i);
      if (first == layer) continue;
      absl::StrAppend(&text, "        self.share(", first, ", ", layer, ", own=(", own[layer],
                      "))\n");
    }
    return text;
  }

  std::string EmbeddingLines() const {
    const ModelDims& d = model_.dims;
    std::string text = absl::StrCat(
        "        self.embedding = nn.Module()\n"
        "        self.embedding.token = nn.Embedding(config.vocab_size, ",
        model_.embedding_width, ")\n");
    if (model_.embedding_width != d.d_model) {
      absl::StrAppend(&text, "        self.embedding.project = nn.Linear(", model_.embedding_width,
                      ", config.d_model, bias=False)\n");
    }
    if (model_.positions.kind == PositionKind::kLearned) {
      const int64_t offset = model_.positions.offset;
      absl::StrAppend(&text, "        self.embedding.position = nn.Embedding(config.context_length",
                      offset == 0 ? "" : absl::StrCat(" + ", offset), ", config.d_model)\n");
    }
    for (const TokenTable& table : model_.token_tables) {
      const std::string make = absl::StrCat("nn.Embedding(config.vocab_size, ", table.width, ")");
      if (!table.per_layer) {
        absl::StrAppend(&text, "        self.embedding.", table.name, " = ", make, "\n");
        continue;
      }
      // A table that no formula reads has no parameters.
      absl::StrAppend(&text, "        self.embedding.", table.name, " = nn.ModuleList([\n");
      for (int64_t layer = 0; layer < d.n_layer; ++layer) {
        const bool read =
            code_.tables().count(absl::StrCat("embedding.", table.name, ".", layer)) > 0;
        absl::StrAppend(&text, "            ", read ? make : "nn.Identity()", ",\n");
      }
      absl::StrAppend(&text, "        ])\n");
    }
    return text;
  }

  std::string HeadLines() const {
    const ModelDims& d = model_.dims;
    std::string text;
    if (!model_.tie_embeddings) {
      text = absl::StrCat("        self.head = nn.Linear(", model_.embedding_width,
                          ", config.vocab_size", model_.head_bias ? ")\n" : ", bias=False)\n");
    } else if (model_.head_bias || model_.embedding_width != d.d_model) {
      text = "        self.head = nn.Module()\n";
      if (model_.head_bias) {
        text += "        self.head.bias = nn.Parameter(torch.empty(config.vocab_size))\n";
      }
    }
    if (model_.embedding_width != d.d_model) {
      absl::StrAppend(&text, "        self.head.project = nn.Linear(config.d_model, ",
                      model_.embedding_width, ", bias=False)\n");
    }
    return text;
  }

  // Returns the lines of forward that embed the tokens.
  absl::StatusOr<std::string> Embed() const {
    std::string x = "self.embedding.token(ids)";
    if (model_.embedding_width != model_.dims.d_model) {
      x = absl::StrCat("self.embedding.project(", x, ")");
    }
    if (model_.embedding_scale.has_value()) {
      ScalarScope scope;
      scope.dims = &model_.dims;
      scope.placement = model_.layers.front()->placement.get();
      PLUMB_ASSIGN_OR_RETURN(const double scale, EvaluateScalar(*model_.embedding_scale, scope));
      if (scale != 1) x = absl::StrCat(NumberCode(scale), " * ", x);
    }
    std::string text;
    if (model_.positions.kind == PositionKind::kLearned) {
      const int64_t offset = model_.positions.offset;
      text = "        positions = torch.arange(ids.shape[1], device=ids.device)\n";
      absl::StrAppend(&x, " + self.embedding.position(positions",
                      offset == 0 ? "" : absl::StrCat(" + ", offset), ")");
    }
    absl::StrAppend(&text, "        x = ", x, "\n");
    for (const TokenTable& table : model_.token_tables) {
      const std::string python = CodeWriter::PythonName(PythonFunction(), table.name);
      absl::StrAppend(&text, "        ", python, " = ");
      if (!table.per_layer) {
        absl::StrAppend(&text, "self.embedding.", table.name, "(ids)\n");
        continue;
      }
      absl::StrAppend(&text, "{\n");
      for (int64_t layer = 0; layer < model_.dims.n_layer; ++layer) {
        if (code_.tables().count(absl::StrCat("embedding.", table.name, ".", layer)) == 0) continue;
        absl::StrAppend(&text, "            ", layer + 1, ": self.embedding.", table.name, "[",
                        layer, "](ids),\n");
      }
      absl::StrAppend(&text, "        }\n");
    }
    return text;
  }

  bool ReadsStep() const {
    return std::any_of(
        tensors_.states.begin(), tensors_.states.end(),
        [](const NormStateSpec& state) { return state.name == StateName(kStepBuffer); });
  }

  std::string ModelClass() {
    PythonFunction& begin = code_.begin();
    PythonFunction& end = code_.end();
    std::string text =
        "\n\nclass Model(nn.Module):\n"
        "    \"\"\"The whole model. Names of parameters are those of plumb.\"\"\"\n\n"
        "    def __init__(self, config=Config()):\n"
        "        super().__init__()\n"
        "        if config != Config():\n"
        "            raise ValueError(\"this code is for one size; export the model at the "
        "other\")\n";
    absl::StrAppend(&text, EmbeddingLines());
    std::vector<Member> members = begin.members;
    members.insert(members.end(), end.members.begin(), end.members.end());
    const std::string head = HeadLines();
    absl::StrAppend(&text, LayerList(), head);
    std::set<std::string> made = {"embedding"};
    if (!head.empty()) made.insert("head");
    for (const std::string& line : InitLines(members, made)) {
      absl::StrAppend(&text, "        ", Unmark(line), "\n");
    }
    if (ReadsStep()) {
      absl::StrAppend(&text,
                      "        # Number of the training step, from 1: set it before each step.\n"
                      "        self.register_buffer(\"step\", torch.zeros(1))\n");
    }
    const std::string sharing = Sharing();
    absl::StrAppend(&text, sharing, "        self.init_weights()\n");
    absl::StrAppend(&text, sharing.empty() ? "" : kShare, kMethods, GroupsMethod(),
                    "\n    def forward(self, ids, targets=None):\n"
                    "        \"\"\"Returns logits and, with targets (negative: none), the mean "
                    "loss.\"\"\"\n");
    const absl::StatusOr<std::string> embed = Embed();
    absl::StrAppend(&text, embed.value_or(""));
    const auto add = [&text](const std::vector<std::string>& lines) {
      for (const std::string& line : lines) {
        absl::StrAppend(&text, "        ", Unmark(line), "\n");
      }
    };
    add(WithDicts(begin, /*is_begin=*/true));
    std::string arguments, results;
    for (const std::string& name : given_) {
      absl::StrAppend(&arguments, ", ",
                      name == "step" ? "self.step" : CodeWriter::PythonName(begin, name));
    }
    for (const std::string& name : returned_) {
      absl::StrAppend(&results, ", ", CodeWriter::PythonName(begin, name));
    }
    absl::StrAppend(&text, "        for layer in self.layers:\n            x", results,
                    " = layer(x", arguments, ")\n");
    add(WithDicts(end));
    absl::StrAppend(&text,
                    "        if targets is None:\n            return logits, None\n"
                    "        rows, targets = logits.float().flatten(0, -2), "
                    "targets.flatten().clamp(min=-1)\n"
                    "        loss = F.cross_entropy(rows, targets, ignore_index=-1",
                    recipe_.label_smoothing > 0
                        ? absl::StrCat(", label_smoothing=", NumberCode(recipe_.label_smoothing))
                        : "",
                    ")\n");
    if (recipe_.z_loss > 0) {
      absl::StrAppend(&text, "        loss = loss + ", NumberCode(recipe_.z_loss),
                      " * rows.logsumexp(-1)[targets >= 0].square().mean()\n");
    }
    if (code_.helpers().count("balance_loss") > 0) {
      absl::StrAppend(
          &text,
          "        if self.training:\n            loss = loss + sum(module.balance_loss "
          "for module in self.modules() if hasattr(module, \"balance_loss\"))\n");
    }
    absl::StrAppend(&text, "        return logits, loss\n");
    return text;
  }

  // Returns parameters with equal rules as lines of a list of (rule, names). A tensor with the same
  // rule in every layer is one name.
  std::string Rules(const std::function<std::string(size_t)>& rule_of) const {
    std::map<std::string, std::set<std::string>> rules_of_suffix;
    const auto general = [](const std::string& name) {
      return absl::StrCat("layers.*.", SuffixInLayer(name));
    };
    const auto& parameters = tensors_.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (GetLayer(parameters[i].name) > 0) {
        rules_of_suffix[general(parameters[i].name)].insert(rule_of(i));
      }
    }
    std::vector<std::pair<std::string, std::vector<std::string>>> rules;
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::string name = parameters[i].name;
      if (GetLayer(name) > 0 && rules_of_suffix[general(name)].size() == 1) name = general(name);
      const std::string rule = rule_of(i);
      auto at = std::find_if(rules.begin(), rules.end(),
                             [&](const auto& each) { return each.first == rule; });
      if (at == rules.end()) at = rules.insert(rules.end(), {rule, {}});
      if (std::find(at->second.begin(), at->second.end(), name) == at->second.end()) {
        at->second.push_back(name);
      }
    }
    std::string text;
    for (const auto& [rule, names] : rules) {
      absl::StrAppend(&text, "    (", rule, ", [\n");
      for (const std::string& name : names) absl::StrAppend(&text, "        \"", name, "\",\n");
      absl::StrAppend(&text, "    ]),\n");
    }
    return text;
  }

  std::string InitialValues() const {
    const auto rule = [this](size_t i) {
      const InitSpec& init = tensors_.parameters[i].init;
      const std::string a = NumberCode(init.a), b = NumberCode(init.b);
      switch (init.kind) {
        case InitSpec::Kind::kNormal:
          return absl::StrCat("lambda p: nn.init.normal_(p, ", a, ", ", b, ")");
        case InitSpec::Kind::kUniform:
          return absl::StrCat("lambda p: nn.init.uniform_(p, ", a, ", ", b, ")");
        case InitSpec::Kind::kTruncatedNormal:
          return absl::StrCat("lambda p: nn.init.trunc_normal_(p, ", a, ", ", b, ", ",
                              NumberCode(init.a - init.cut * init.b), ", ",
                              NumberCode(init.a + init.cut * init.b), ")");
        case InitSpec::Kind::kTable: {
          std::vector<std::string> values;
          for (const double value : init.table) values.push_back(NumberCode(value));
          return absl::StrCat("lambda p: p.view(", values.size(), ", -1).copy_(torch.tensor([",
                              absl::StrJoin(values, ", "), "])[:, None])");
        }
        case InitSpec::Kind::kConstant:
        case InitSpec::Kind::kFill:
          break;
      }
      return absl::StrCat("lambda p: nn.init.constant_(p, ", a, ")");
    };
    return absl::StrCat("\n\nINITIAL_VALUES = [\n", Rules(rule), "]\n");
  }

  std::string Updates() const {
    const auto rule = [this](size_t i) {
      const ParameterUpdate& update = updates_.parameters[i];
      if (update.is_frozen) return std::string("1, 0, None");
      return absl::StrCat(NumberCode(update.lr_scale), ", ", NumberCode(update.lr_offset),
                          ", {\"weight_decay\": ", NumberCode(update.weight_decay),
                          ", \"betas\": (", NumberCode(update.beta1), ", ",
                          NumberCode(update.beta2), "), \"eps\": ", NumberCode(update.eps), "}");
    };
    return absl::StrCat(
        "\n\n# Factor of the learning rate, what is added to it, options of AdamW.\n",
        "UPDATES = [\n", Rules(rule), "]\n");
  }

  std::string GroupsMethod() const {
    const std::string head = absl::StrCat(
        "\n    def parameter_groups(self, lr=", NumberCode(recipe_.learning_rate), "):");
    for (const ParameterUpdate& update : updates_.parameters) {
      if (update.is_frozen) continue;
      const char* what = update.optimizer == OptimizerKind::kMuon     ? "Muon"
                         : update.unit_length != UnitLength::kNothing ? "weights of length 1"
                                                                      : nullptr;
      if (what == nullptr) continue;
      return absl::StrCat(head, "\n        raise NotImplementedError(\"the recipe has ", what,
                          ", which AdamW does not do\")\n");
    }
    return absl::StrCat(head, kGroups);
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
