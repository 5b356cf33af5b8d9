// SPDX-License-Identifier: Apache-2.0
#include "tests/spec/spec_test_util.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

std::string Print(const std::vector<Statement>& statements) {
  std::string out;
  for (const Statement& s : statements)
    absl::StrAppend(&out, "    ", s.section, ": ", s.ToString(), "\n");
  return out;
}

std::string Print(const std::optional<Expression>& expression) {
  return expression.has_value() ? expression->root.ToString() : "-";
}

std::string Print(const NormBinding& norm) {
  std::string out = absl::StrCat(norm.name, " (", norm.plugin->id());
  for (const auto& [name, value] : norm.attrs) {
    absl::StrAppend(&out, " ", name, "=");
    if (const double* number = std::get_if<double>(&value)) absl::StrAppend(&out, *number);
    if (const bool* flag = std::get_if<bool>(&value)) absl::StrAppend(&out, *flag ? "yes" : "no");
    if (const std::string* text = std::get_if<std::string>(&value)) absl::StrAppend(&out, *text);
  }
  return absl::StrCat(out, ")");
}

std::string Print(const std::vector<InitRule>& rules) {
  std::string out;
  for (const InitRule& rule : rules) {
    absl::StrAppend(&out, "    init ", rule.match.value, " ", static_cast<int>(rule.distribution));
    for (const Expression& argument : rule.arguments) {
      absl::StrAppend(&out, " ", argument.root.ToString());
    }
    absl::StrAppend(&out, " scale ", Print(rule.scale), "\n");
  }
  return out;
}

std::string Print(const std::vector<InsideSpec>& insides) {
  std::string out;
  for (const InsideSpec& inside : insides) absl::StrAppend(&out, Print(inside.statements));
  return out;
}

std::string Print(const PlacementSpec& p) {
  std::string out = absl::StrCat("  placement ", p.name, ": ", p.doc, "\n", Print(p.lets));
  for (const LearnedSpec& l : p.learned) {
    absl::StrAppend(&out, "    learned ", l.name, " ", l.init.root.ToString(), " ", l.per_channel,
                    l.per_head, l.weight_decay.value_or(false), "\n");
  }
  for (const auto& [slot, per_head] : p.slot_per_head) {
    absl::StrAppend(&out, "    slot ", slot, " ", per_head, "\n");
  }
  absl::StrAppend(&out, Print(p.begin), Print(p.each), Print(p.block), Print(p.end),
                  Print(p.inside), Print(p.init));
  return out;
}

std::string Print(const BlockSpec& block) {
  std::string out = "block\n";
  for (const SublayerSpec& s : block.sublayers) {
    absl::StrAppend(&out, "  sublayer ", s.name, " ", static_cast<int>(s.kind), " ",
                    s.attention.qkv_bias, s.attention.out_bias, " ", Print(s.attention.scale), " ",
                    s.mlp.activation, " ", s.mlp.gated, s.mlp.bias, "\n");
  }
  if (block.norm.has_value()) absl::StrAppend(&out, "  norm ", Print(*block.norm), "\n");
  for (const auto& [slot, norm] : block.slots) {
    absl::StrAppend(&out, "  slot ", slot, " ", Print(norm), "\n");
  }
  absl::StrAppend(&out, Print(block.inside), Print(*block.placement));
  return out;
}

absl::StatusOr<ResolvedModel> ResolveWith(absl::string_view text, PluginRegistry* plugins,
                                          const std::string& file) {
  PLUMB_ASSIGN_OR_RETURN(const ModelSpec spec, ModelSpec::FromText(text, file));
  ResolveOptions options;
  options.placement_directories = {ShippedPlacements()};
  return Resolve(spec, plugins, options);
}

}  // namespace

std::string ModelWith(absl::string_view placement_fields) {
  return absl::StrCat(kDims, "placement {\n  name: \"p\"\n", placement_fields,
                      "\n}\nblock { placement: \"p\" norm: \"rms_norm\" }\n");
}

std::string ShippedPlacements() { return JoinPath(PLUMB_SOURCE_DIR, "plugins/placements"); }

absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text, PluginRegistry* plugins,
                                          const std::string& file) {
  plugins->AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  return ResolveWith(text, plugins, file);
}

absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text) {
  // Models refer to their plugins, so the registry lives as long as the process.
  static auto* const plugins = new PluginRegistry;
  static const bool once = (plugins->AddDirectory(PLUMB_TEST_PLUGIN_DIR), true);
  static_cast<void>(once);
  return ResolveWith(text, plugins, "m.pbtxt");
}

std::string GetError(absl::string_view model_text) {
  const absl::StatusOr<ResolvedModel> model = ResolveText(model_text);
  if (model.ok()) return "no error";
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

std::string ResolveError(absl::string_view rest) { return GetError(absl::StrCat(kDims, rest)); }

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string PlacementError(absl::string_view placement_fields) {
  return GetError(ModelWith(placement_fields));
}

ScratchDirectory::ScratchDirectory() : path_(JoinPath(::testing::TempDir(), "plumb-spec-XXXXXX")) {
  if (mkdtemp(&path_[0]) == nullptr) ADD_FAILURE() << "cannot create " << path_;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchDirectory::Write(absl::string_view name, absl::string_view content) const {
  const std::string path = JoinPath(path_, name);
  EXPECT_TRUE(MakeDirectories(ParentDirectory(path)).ok());
  EXPECT_TRUE(WriteFileAtomically(path, content).ok()) << path;
  return path;
}

std::string ScratchDirectory::Hide(const std::string& text) const {
  return absl::StrReplaceAll(text, {{absl::StrCat(path_, "/"), ""}});
}

std::string Print(const ResolvedModel& model) {
  const ModelDims& d = model.dims;
  std::string out = absl::StrCat(
      model.name, ": n_layer ", d.n_layer, " n_sublayer ", d.n_sublayer, " n_head ", d.n_head,
      " n_kv_head ", d.n_kv_head, " d_model ", d.d_model, " d_ff ", d.d_ff, " head_dim ",
      d.head_dim, " vocab_size ", d.vocab_size, " context_length ", d.context_length, "\n");
  absl::StrAppend(&out, "positions ", static_cast<int>(model.positions.kind), " ",
                  model.positions.rope_theta, " scale ", Print(model.embedding_scale), " tie ",
                  model.tie_embeddings, " bias ", model.head_bias, "\n", Print(model.init));
  for (const auto& block : model.layers) absl::StrAppend(&out, Print(*block));
  return out;
}

}  // namespace plumb
