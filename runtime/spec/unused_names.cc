// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/interpret.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

using Names = std::set<std::string>;

void Add(const Expr& expr, Names* names) { CollectNames(expr, Expr::Kind::kName, names); }

void Add(const std::optional<Expression>& expression, Names* names) {
  if (expression.has_value()) Add(expression->root, names);
}

void Add(const std::vector<Statement>& statements, Names* names) {
  for (const Statement& statement : statements) {
    CollectNames(statement, Expr::Kind::kName, names);
    CollectNames(statement, Expr::Kind::kCall, names);  // for projections
  }
}

void Add(const std::vector<InitRule>& rules, Names* names) {
  for (const InitRule& rule : rules) {
    for (const Expression& argument : rule.arguments) Add(argument.root, names);
    Add(rule.scale, names);
  }
}

// Adds the names that the placement and the block read.
void Add(const BlockSpec& block, Names* names) {
  const PlacementSpec& placement = *block.placement;
  for (const auto* section :
       {&placement.lets, &placement.begin, &placement.each, &placement.block, &placement.end}) {
    Add(*section, names);
  }
  for (const LearnedSpec& learned : placement.learned) {
    Add(learned.init.root, names);
    for (const RangeText& index : learned.index) {
      Add(index.range.first, names);
      Add(index.range.last, names);
    }
  }
  for (const LinearSpec& linear : placement.linear) {
    Add(linear.out.root, names);
    Add(linear.bias_init, names);
    if (linear.init.has_value()) Add({*linear.init}, names);
  }
  Add(placement.init, names);
  for (const InsideSpec& inside : block.inside) Add(inside.statements, names);
  for (const SublayerSpec& sublayer : block.sublayers) {
    const AttentionSpec& attention = sublayer.attention;
    for (const auto* field : {&attention.scale, &attention.score_cap, &attention.window,
                              &attention.n_head, &attention.n_kv_head, &attention.head_dim}) {
      Add(*field, names);
    }
  }
}

}  // namespace

absl::Status CheckNamesAreUsed(const ResolvedModel& model) {
  Names of_model;  // may refer to a let of any placement
  Add(model.embedding_scale, &of_model);
  Add(model.init, &of_model);
  const PositionSpec& positions = model.positions;
  for (const auto* field : {&positions.rope_base, &positions.rope_dims, &positions.alibi_scale}) {
    Add(*field, &of_model);
  }
  for (const RopeScaling& scaling : positions.rope_scalings) {
    Add(scaling.linear, &of_model);
    Add(scaling.when, &of_model);
  }
  std::map<const PlacementSpec*, Names> used;
  std::set<const BlockSpec*> seen;
  auto blocks = model.layers;
  if (model.adapter != nullptr) blocks.push_back(model.adapter);
  for (const auto& block : blocks) {
    if (!seen.insert(block.get()).second) continue;
    Names& names = used.insert({block->placement.get(), of_model}).first->second;
    Add(*block, &names);
  }
  for (const auto& block : blocks) {
    const PlacementSpec& placement = *block->placement;
    const Names& names = used.at(&placement);
    const auto unused = [&](const std::string& name) {
      return placement.own_names.count(name) > 0 && names.count(name) == 0;
    };
    const std::string where = absl::StrCat("placement \"", placement.name, "\": ");
    for (const Statement& let : placement.lets) {
      if (!unused(let.target)) continue;
      return ErrorInText(let.text, 0,
                         absl::StrCat(where, "let \"", let.target, "\" is set and never used"));
    }
    for (const LearnedSpec& learned : placement.learned) {
      if (!unused(learned.name)) continue;
      return ErrorAt(learned.place, absl::StrCat(where, "learned \"", learned.name,
                                                 "\" is declared and never used"));
    }
    for (const LinearSpec& linear : placement.linear) {
      if (!unused(linear.name)) continue;
      return ErrorAt(linear.place, absl::StrCat(where, "linear \"", linear.name,
                                                "\" is declared and never called"));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
