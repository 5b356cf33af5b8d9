// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/resolve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/library.h"
#include "runtime/spec/scalar.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxDim = int64_t{1} << 24;

// Returns the reason why a norm with statistics over tokens is rejected. The caller appends how to
// allow it.
std::string CrossTokenRefusal(const NormPlugin& plugin) {
  return absl::StrCat(
      "\"", plugin.id(), "\" takes statistics over tokens: in training a token's output depends ",
      "on later tokens of its sequence and on the other sequences of the batch, so a causal ",
      "model sees the future that it is to predict; if that is wanted, ");
}

// Returns the warning for allow_cross_token.
std::string CrossTokenWarning(const NormPlugin& plugin) {
  if (!plugin.cross_row()) {
    // Not an error: a norm may use another plugin from run to run, and an unused permission changes
    // nothing.
    return absl::StrCat("allow_cross_token has no effect; \"", plugin.id(),
                        "\" takes no statistics over tokens");
  }
  return absl::StrCat("\"", plugin.id(), "\" takes statistics over tokens; in training a ",
                      "token's output depends on later tokens, so training losses are those of a ",
                      "model that sees the future",
                      plugin.cross_row_eval()
                          ? "; so are its losses in evaluation, and nothing can be sampled from it"
                          : "");
}

class Resolver {
 public:
  Resolver(const ModelSpec& spec, PluginRegistry* plugins, const ResolveOptions& options)
      : message_(spec.proto().message),
        at_(spec.proto().located()),
        plugins_(plugins),
        names_(options.placement_directories) {
    proto_ = &spec.proto();
  }

  absl::StatusOr<ResolvedModel> Run() {
    model_.name = Name();
    PLUMB_RETURN_IF_ERROR(CheckIsModel());
    PLUMB_RETURN_IF_ERROR(names_.AddModel(*proto_));
    PLUMB_RETURN_IF_ERROR(ResolveDims());
    PLUMB_RETURN_IF_ERROR(ResolveEmbedding());
    PLUMB_RETURN_IF_ERROR(ResolveLayers());
    PLUMB_RETURN_IF_ERROR(ResolveAdapter());
    PLUMB_RETURN_IF_ERROR(ResolveHiddenWidth());
    PLUMB_RETURN_IF_ERROR(EvaluateHeads(&model_));
    for (int i = 0; i < message_.init_size(); ++i) {
      PLUMB_ASSIGN_OR_RETURN(InitRule rule, ToInitRule(message_.init(i), at_.Nested("init", i)));
      model_.init.push_back(std::move(rule));
    }
    PLUMB_RETURN_IF_ERROR(ResolveTokenTables());
    std::vector<NormSite> defaults;
    PLUMB_RETURN_IF_ERROR(CheckFormulas(model_, &defaults));
    WarnAboutSlotNames(defaults);
    PLUMB_RETURN_IF_ERROR(CheckSublayerNumbers(model_));
    PLUMB_RETURN_IF_ERROR(CheckTokenTables(model_));
    PLUMB_RETURN_IF_ERROR(CheckNamesAreUsed(model_));
    model_.self_contained_text = SelfContainedText();
    return std::move(model_);
  }

 private:
  std::string Name() const {
    if (!message_.name().empty()) return message_.name();
    absl::string_view name = at_.file();
    if (const size_t slash = name.rfind('/'); slash != absl::string_view::npos) {
      name.remove_prefix(slash + 1);
    }
    // The file name need not be valid UTF-8, but the model's name is written to JSON and
    // checkpoints.
    return PrintableText(absl::StripSuffix(name, ".pbtxt"));
  }

  void Complain(const char* field, absl::string_view message) {
    errors_.push_back(std::string(ErrorAt(at_.At(field), message).message()));
  }

  // Returns the value of a dimension. `fallback` replaces an absent field; 0 means that the field
  // is required.
  int64_t Dim(const char* field, bool given, int64_t value, int64_t fallback) {
    if (!given && fallback != 0) return fallback;
    if (!given) {
      Complain(field, absl::StrCat(field, " is missing"));
    } else if (value < 1 || value > kMaxDim) {
      Complain(field, absl::StrCat(field, ": ", value, " is not in 1..", kMaxDim));
    }
    return std::max<int64_t>(value, 1);  // keeps later checks meaningful
  }

  // Fails for a file of placements, of which a list of the fields that a model lacks would say
  // little.
  absl::Status CheckIsModel() const {
    if (message_.placement_size() == 0 || message_.n_layer() != 0 || message_.layers_size() != 0 ||
        message_.has_block()) {
      return absl::OkStatus();
    }
    const std::string& name = message_.placement(0).name();
    return ErrorAt({at_.file(), 0, 0},
                   absl::StrCat("describes the placement \"", name, "\" and no model; ",
                                "a model uses it with import: \"FILE\" and block { placement: \"",
                                name, "\" }"));
  }

  absl::Status ResolveDims() {
    ModelDims& d = model_.dims;
    d.n_layer = CountLayers();
    if (d.n_layer < 1 || d.n_layer > kMaxLayers) {
      Complain("n_layer", absl::StrCat("n_layer: ", d.n_layer, " is not in 1..", kMaxLayers));
    }
    d.n_head = Dim("n_head", message_.n_head() != 0, message_.n_head(), 0);
    d.n_kv_head = Dim("n_kv_head", message_.has_n_kv_head(), message_.n_kv_head(), d.n_head);
    d.d_model = Dim("d_model", message_.d_model() != 0, message_.d_model(), 0);
    d.context_length =
        Dim("context_length", message_.context_length() != 0, message_.context_length(), 0);
    if (message_.vocab_size() == 0) {
      Complain("vocab_size", "vocab_size is missing; only training can take it from the data");
    }
    d.vocab_size = Dim("vocab_size", message_.vocab_size() != 0, message_.vocab_size(), 1);
    if (d.n_head % d.n_kv_head != 0) {
      Complain("n_kv_head",
               absl::StrCat("n_kv_head: ", d.n_kv_head, " does not divide n_head ", d.n_head));
    }
    if (!message_.has_head_dim() && message_.n_head() > 0 && d.d_model % d.n_head != 0) {
      Complain("n_head", absl::StrCat("n_head: ", d.n_head, " does not divide d_model ", d.d_model,
                                      "; set head_dim if that is intended"));
    }
    d.head_dim = Dim("head_dim", message_.has_head_dim(), message_.head_dim(),
                     std::max<int64_t>(1, d.d_model / d.n_head));
    const v1::Positions& positions = message_.positions();
    if (positions.kind() == v1::Positions::ROPE && positions.rope_dims().empty() &&
        d.head_dim % 2 != 0) {
      Complain("positions",
               absl::StrCat("positions: ROPE turns pairs; head_dim ", d.head_dim, " is odd"));
    }
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(ListDiagnostics(errors_));
  }

  // Evaluates d_ff, which may use all other dimensions. Requires: these are known.
  absl::Status ResolveHiddenWidth() {
    ModelDims& dims = model_.dims;
    if (message_.d_ff().empty()) {
      dims.d_ff = 4 * dims.d_model;
      return absl::OkStatus();
    }
    ScalarScope scope;
    scope.dims = &dims;
    PLUMB_ASSIGN_OR_RETURN(const Expression d_ff, ParseExpression(at_.GetText("d_ff")));
    PLUMB_ASSIGN_OR_RETURN(dims.d_ff, EvaluateHiddenWidth(d_ff, scope));
    return absl::OkStatus();
  }

  int64_t CountLayers() {
    int64_t grouped = 0;
    for (const v1::Layers& group : message_.layers()) {
      grouped += group.repeat() > 0 ? group.repeat() : group.block_size();
    }
    if (message_.layers_size() == 0) {
      if (message_.n_layer() != 0) return message_.n_layer();
      Complain("n_layer", "n_layer is missing");
      return 1;
    }
    if (message_.n_layer() != 0 && message_.n_layer() != grouped) {
      Complain("n_layer", absl::StrCat("n_layer: ", message_.n_layer(),
                                       ", but the groups in layers "
                                       "have ",
                                       grouped, " together"));
    }
    if (message_.has_block()) {
      Complain("block", "block: the model has layers; give one of the two");
    }
    return grouped;
  }

  absl::Status ResolveEmbedding() {
    PLUMB_ASSIGN_OR_RETURN(model_.positions,
                           ToPositions(message_.positions(), at_.Nested("positions")));
    model_.tie_embeddings = message_.tie_embeddings();
    model_.head_bias = message_.head_bias();
    model_.bidirectional = message_.bidirectional();
    if (model_.bidirectional && model_.positions.kind == PositionKind::kAlibi) {
      return ErrorAt(at_.Nested("positions").At("kind"),
                     "ALIBI needs the distance to earlier tokens, and the model is bidirectional; "
                     "use other positions");
    }
    model_.token_types = message_.token_types();
    if (model_.token_types < 0 || model_.token_types > kMaxDim) {
      return ErrorAt(at_.At("token_types"),
                     absl::StrCat("token_types: ", model_.token_types, " is not in 0..", kMaxDim));
    }
    if (!message_.embedding_scale().empty()) {
      PLUMB_ASSIGN_OR_RETURN(model_.embedding_scale,
                             ParseExpression(at_.GetText("embedding_scale")));
    }
    return absl::OkStatus();
  }

  // Requires: ResolveLayers returned OK.
  absl::Status ResolveTokenTables() {
    ScalarScope scope;
    scope.dims = &model_.dims;
    scope.placement = model_.layers.front()->placement.get();
    PLUMB_ASSIGN_OR_RETURN(model_.embedding_width, ToEmbeddingWidth(at_, scope));
    std::set<std::string> names = {"token", "position", "type"};
    if (model_.embedding_width != model_.dims.d_model) names.insert("project");
    for (int i = 0; i < message_.embedding_size(); ++i) {
      const Located at = at_.Nested("embedding", i);
      PLUMB_ASSIGN_OR_RETURN(
          TokenTable table, ToTokenTable(message_.embedding(i), at, at_.At("embedding", i), scope));
      if (!names.insert(table.name).second) {
        return ErrorAt(table.place, absl::StrCat("embedding \"", table.name,
                                                 "\": there is one already; give it another name"));
      }
      model_.token_tables.push_back(std::move(table));
    }
    return absl::OkStatus();
  }

  absl::Status ResolveLayers() {
    if (message_.layers_size() == 0) {
      if (!message_.has_block()) {
        return ErrorAt(
            at_.At("name"),
            absl::StrCat(
                "block is missing; it has the form block { placement: \"...\" norm: \"...\" }",
                "\n  placements: ", absl::StrJoin(names_.PlacementNames(), ", ")));
      }
      PLUMB_ASSIGN_OR_RETURN(auto block, ResolveBlock(message_.block(), at_.Nested("block"),
                                                      at_.At("block"), "block", false));
      model_.layers.assign(static_cast<size_t>(model_.dims.n_layer), block);
    }
    for (int g = 0; g < message_.layers_size(); ++g) {
      const v1::Layers& group = message_.layers(g);
      const Located at = at_.Nested("layers", g);
      if (group.block_size() == 0) {
        return ErrorAt(at_.At("layers", g), absl::StrCat("layers[", g, "] has no block"));
      }
      if (group.has_repeat() && group.repeat() < 1) {
        return ErrorAt(at.At("repeat"),
                       absl::StrCat("repeat: ", group.repeat(), " is not in 1..", kMaxLayers));
      }
      std::vector<std::shared_ptr<const BlockSpec>> blocks;
      for (int b = 0; b < group.block_size(); ++b) {
        const std::string path = absl::StrCat("layers[", g, "].block[", b, "]");
        PLUMB_ASSIGN_OR_RETURN(auto block, ResolveBlock(group.block(b), at.Nested("block", b),
                                                        at.At("block", b), path, group.share()));
        blocks.push_back(std::move(block));
      }
      const int repeat = group.has_repeat() ? group.repeat() : group.block_size();
      if (repeat < group.block_size()) {
        return ErrorAt(at.At("repeat"),
                       absl::StrCat("layers[", g, "]: repeat: ", repeat,
                                    " is less than the number of blocks, so block[", repeat,
                                    "] has no layer"));
      }
      for (int i = 0; i < repeat; ++i) {
        model_.layers.push_back(blocks[static_cast<size_t>(i) % blocks.size()]);
      }
    }
    FindSharedLayers();
    for (const auto& block : model_.layers) {
      model_.dims.n_sublayer += static_cast<int64_t>(block->sublayers.size());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const BlockSpec>> ResolveBlock(const v1::Block& message,
                                                                const Located& at,
                                                                const SourceLocation& place,
                                                                const std::string& path,
                                                                bool group_shares) {
    auto block = std::make_shared<BlockSpec>();
    block->place = place;
    PLUMB_RETURN_IF_ERROR(ResolveSharing(message, at, path, group_shares, block.get()));
    if (message.placement().empty()) {
      return ErrorAt(place, absl::StrCat(path, ".placement is missing", "\n  known: ",
                                         absl::StrJoin(names_.PlacementNames(), ", ")));
    }
    PLUMB_ASSIGN_OR_RETURN(block->placement,
                           names_.Placement(message.placement(), at.At("placement")));
    PLUMB_RETURN_IF_ERROR(ResolveSublayers(message, at, path, block.get()));
    if (!message.norm().empty()) {
      PLUMB_ASSIGN_OR_RETURN(
          block->norm, ResolveNorm(message.norm(), at.At("norm"), absl::StrCat(path, ".norm")));
    }
    for (int i = 0; i < message.slot_size(); ++i) {
      const std::string& slot = message.slot(i).name();
      const std::string slot_path = absl::StrCat(path, ".slot \"", slot, "\"");
      PLUMB_ASSIGN_OR_RETURN(NormBinding norm,
                             ResolveNorm(message.slot(i).norm(), at.At("slot", i), slot_path));
      if (!block->slots.insert({slot, std::move(norm)}).second) {
        return ErrorAt(at.At("slot", i), absl::StrCat(slot_path, " is given twice"));
      }
    }
    block->inside = block->placement->inside;
    for (int i = 0; i < message.inside_size(); ++i) {
      PLUMB_ASSIGN_OR_RETURN(InsideSpec inside,
                             ToInside(message.inside(i), at.Nested("inside", i)));
      block->inside.push_back(std::move(inside));
    }
    PLUMB_RETURN_IF_ERROR(AddDefaultStatements(block.get()));
    return std::shared_ptr<const BlockSpec>(std::move(block));
  }

  absl::Status ResolveAdapter() {
    const v1::Placement& message = message_.adapter();
    if (message.IsEmpty()) return absl::OkStatus();
    const Located at = at_.Nested("adapter");
    std::shared_ptr<const PlacementSpec> base;
    if (!message.extends().empty()) {
      PLUMB_ASSIGN_OR_RETURN(base, names_.Placement(message.extends(), at.At("extends")));
    }
    PLUMB_ASSIGN_OR_RETURN(PlacementSpec spec, ToPlacement(message, at, base.get()));
    if (spec.name.empty()) spec.name = base == nullptr ? "adapter" : base->name;
    if (spec.inside.empty() || !spec.begin.empty() || !spec.each.empty() || !spec.block.empty() ||
        !spec.end.empty() || !spec.slot_per_head.empty()) {
      return ErrorAt(at_.At("adapter"),
                     "adapter: it has statements inside sublayers, and neither begin, each, block, "
                     "end nor slot; write extends: \"lora\" for LoRA");
    }
    BlockSpec block = {nullptr, {}, {}, {}, spec.inside, "", false, at_.At("adapter")};
    block.placement = std::make_shared<const PlacementSpec>(std::move(spec));
    model_.adapter = std::make_shared<const BlockSpec>(std::move(block));
    return absl::OkStatus();
  }

  // Adds the statements that make decays and strengths of the projections of attention and linear
  // attention, for the sublayers whose points have none.
  absl::Status AddDefaultStatements(BlockSpec* block) const {
    using Decay = LinearAttentionSpec::Decay;
    const auto add = [block](const SublayerSpec& sublayer, const char* name,
                             const char* rule) -> absl::Status {
      for (const InsideSpec& inside : block->inside) {
        if (IsPointOf(sublayer, name, inside.point)) return absl::OkStatus();
      }
      const std::string own = absl::StrCat(sublayer.name, ".", name);
      PLUMB_ASSIGN_OR_RETURN(Statement statement, ParseStatement({rule, block->place}, own));
      block->inside.push_back({own, {std::move(statement)}, block->place});
      return absl::OkStatus();
    };
    // log(sigmoid(decay)), which does not overflow
    constexpr char kDecay[] = "decay = min(decay, 0) - log(1 + exp(-abs(decay)))";
    for (const SublayerSpec& sublayer : block->sublayers) {
      if (sublayer.kind == SublayerSpec::Kind::kAttention && sublayer.attention.decay) {
        if (model_.bidirectional || model_.positions.kind == PositionKind::kAlibi) {
          return ErrorAt(block->place, "decay: attention with a decay is causal and has no ALIBI");
        }
        PLUMB_RETURN_IF_ERROR(add(sublayer, "decay", kDecay));
      }
      if (sublayer.kind != SublayerSpec::Kind::kLinearAttention) continue;
      const LinearAttentionSpec& spec = sublayer.linear_attention;
      if (spec.delta) {
        PLUMB_RETURN_IF_ERROR(add(sublayer, "beta", "beta = sigmoid(beta)"));
      }
      if (spec.decay == Decay::kPerHead || spec.decay == Decay::kPerKey) {
        PLUMB_RETURN_IF_ERROR(add(sublayer, "decay", kDecay));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status ResolveSharing(const v1::Block& message, const Located& at,
                                     const std::string& path, bool group_shares, BlockSpec* block) {
    block->share = group_shares ? path : message.share();
    block->own_norms = message.own_norms();
    if (group_shares && !message.share().empty()) {
      return ErrorAt(at.At("share"),
                     absl::StrCat(path, ".share: the layers around it share already; give one of ",
                                  "the two"));
    }
    if (!message.share().empty() && !IsIdentifier(message.share())) {
      return ErrorAt(at.At("share"),
                     absl::StrCat(path, ".share: \"", message.share(), "\" is not a name"));
    }
    if (block->own_norms && block->share.empty()) {
      return ErrorAt(at.At("own_norms"),
                     absl::StrCat(path, ".own_norms: the block shares no parameters; it needs ",
                                  "share: \"NAME\" or layers { share: true .. }"));
    }
    return absl::OkStatus();
  }

  // Finds the layers that share parameters. Warns about a shared block that is used only once.
  void FindSharedLayers() {
    std::map<std::string, std::vector<int64_t>> sharing;  // layers, keyed by the name of `share`
    for (int64_t i = 0; i < model_.dims.n_layer; ++i) {
      const std::string& share = model_.layers[static_cast<size_t>(i)]->share;
      std::vector<int64_t>& layers = sharing[share];
      layers.push_back(i);
      model_.first_layers.push_back(share.empty() ? i : layers.front());
    }
    for (const auto& [share, layers] : sharing) {
      if (share.empty() || layers.size() > 1) continue;
      const BlockSpec& block = *model_.layers[static_cast<size_t>(layers[0])];
      model_.warnings.push_back(absl::StrCat(block.place.ToString(),
                                             ": share has no effect; layer ", layers[0] + 1,
                                             " is the only one of its kind (repeat makes more)"));
    }
  }

  // Warns once about each slot that is named like a plugin and has the block's default norm, which
  // is another one: an author who writes layer_norm(x) expects layer_norm. Loads no plugin.
  void WarnAboutSlotNames(const std::vector<NormSite>& defaults) {
    std::set<std::string> ids, warned;
    for (const PluginFile& file : plugins_->Scan()) ids.insert(file.id);
    for (const NormSite& site : defaults) {
      const std::string& slot = site.call->name;
      const NormBinding& norm = *site.norm;
      if (norm.name == slot || norm.plugin->id() == slot || ids.count(slot) == 0) continue;
      if (!warned.insert(slot).second) continue;
      const absl::Status warning = ErrorInText(
          *site.text, site.call->offset,
          absl::StrCat("the slot \"", slot,
                       "\" has the name of a norm plugin, but the block's norm, \"", norm.name,
                       "\", fills it; write slot { name: \"", slot, "\" norm: \"", slot,
                       "\" } in the block, or give the slot another name"));
      model_.warnings.emplace_back(warning.message());
    }
  }

  absl::Status ResolveSublayers(const v1::Block& message, const Located& at,
                                const std::string& path, BlockSpec* block) {
    PLUMB_ASSIGN_OR_RETURN(const AttentionSpec attention,
                           ToAttention(message_.attention(), at_.Nested("attention")));
    PLUMB_ASSIGN_OR_RETURN(const MlpSpec mlp, ToMlp(message_.mlp(), at_.Nested("mlp")));
    std::set<std::string> names;
    for (int i = 0; i < message.sublayer_size(); ++i) {
      const v1::Sublayer& sublayer = message.sublayer(i);
      const Located here = at.Nested("sublayer", i);
      SublayerSpec spec = {SublayerSpec::Kind::kAttention, "attention", attention, mlp};
      PLUMB_RETURN_IF_ERROR(ReadKind(sublayer, here, at.At("sublayer", i),
                                     absl::StrCat(path, ".sublayer[", i, "]"), &spec));
      if (!sublayer.name().empty()) spec.name = sublayer.name();
      if (!IsIdentifier(spec.name) || IsBuiltInScalar(spec.name) || IsFunction(spec.name)) {
        return ErrorAt(at.At("sublayer", i),
                       absl::StrCat(path, ".sublayer[", i, "]: \"", spec.name,
                                    "\" cannot be its name; a formula must be able to call it"));
      }
      if (spec.name == "f" || spec.name == "x" || spec.name == "step" || spec.name == "position" ||
          spec.name == "input" || !names.insert(spec.name).second) {
        return ErrorAt(at.At("sublayer", i),
                       absl::StrCat(path, ".sublayer[", i, "]: the name \"", spec.name,
                                    "\" is taken; give it another"));
      }
      block->sublayers.push_back(std::move(spec));
    }
    if (message.sublayer_size() == 0) {
      block->sublayers.push_back({SublayerSpec::Kind::kAttention, "attention", attention, mlp});
      block->sublayers.push_back({SublayerSpec::Kind::kMlp, "mlp", attention, mlp});
    }
    return absl::OkStatus();
  }

  // Reads the kind, default name and fields of a sublayer into `spec`, which holds the model's
  // fields. An empty attention or mlp keeps those.
  static absl::Status ReadKind(const v1::Sublayer& sublayer, const Located& at,
                               const SourceLocation& place, const std::string& path,
                               SublayerSpec* spec) {
    switch (sublayer.kind_case()) {
      case v1::Sublayer::kAttention: {
        spec->kind = SublayerSpec::Kind::kAttention;
        spec->name = "attention";
        if (sublayer.attention().IsEmpty()) return absl::OkStatus();
        PLUMB_ASSIGN_OR_RETURN(spec->attention,
                               ToAttention(sublayer.attention(), at.Nested("attention")));
        return absl::OkStatus();
      }
      case v1::Sublayer::kMlp: {
        spec->kind = SublayerSpec::Kind::kMlp;
        spec->name = "mlp";
        if (sublayer.mlp().IsEmpty()) return absl::OkStatus();
        PLUMB_ASSIGN_OR_RETURN(spec->mlp, ToMlp(sublayer.mlp(), at.Nested("mlp")));
        return absl::OkStatus();
      }
      case v1::Sublayer::kConv: {
        spec->kind = SublayerSpec::Kind::kConv;
        spec->name = "conv";
        PLUMB_ASSIGN_OR_RETURN(spec->conv, ToConv(sublayer.conv(), at.Nested("conv")));
        return absl::OkStatus();
      }
      case v1::Sublayer::kExperts: {
        spec->kind = SublayerSpec::Kind::kExperts;
        spec->name = "mlp";
        PLUMB_ASSIGN_OR_RETURN(spec->experts,
                               ToExperts(sublayer.experts(), at.Nested("experts"), place));
        return absl::OkStatus();
      }
      case v1::Sublayer::kLinearAttention: {
        spec->kind = SublayerSpec::Kind::kLinearAttention;
        spec->name = "attention";
        PLUMB_ASSIGN_OR_RETURN(
            spec->linear_attention,
            ToLinearAttention(sublayer.linear_attention(), at.Nested("linear_attention")));
        return absl::OkStatus();
      }
      case v1::Sublayer::KIND_NOT_SET:
        break;
    }
    return ErrorAt(place, absl::StrCat(path, ": give attention {}, linear_attention {..}, mlp {}, ",
                                       "experts {..} or conv {}"));
  }

  absl::StatusOr<NormBinding> ResolveNorm(const std::string& name, const SourceLocation& at,
                                          const std::string& path) {
    if (name.empty())
      return ErrorAt(
          at,
          absl::StrCat(
              path, ": names no norm; write norm: \"rms_norm\", or another of plumb help norms"));
    NormBinding binding;
    binding.name = name;
    binding.place = at;
    std::string id = name;
    SourceLocation plugin_place = at;
    SourceLocation attr_place = at;
    if (const NameTable::NormEntry* entry = names_.FindNorm(name)) {
      id = entry->message->plugin();
      plugin_place = entry->at.At("plugin");
      attr_place = entry->message->attr_size() > 0 ? entry->at.At("attr", 0) : plugin_place;
      if (id.empty()) {
        return ErrorAt(
            entry->at.At("name"),
            absl::StrCat(
                "norm \"", name,
                "\" names no plugin; write plugin: \"rms_norm\", or another of plumb help norms"));
      }
      PLUMB_ASSIGN_OR_RETURN(binding.attrs, ToNormAttrs(*entry->message, entry->at));
      used_norms_.insert(name);
    }
    absl::StatusOr<const NormPlugin*> plugin = plugins_->Find(id);
    if (absl::IsNotFound(plugin.status())) {
      if (id == name) {
        // Keeps the registry's list of locations. The model's own names are suggested, too.
        absl::string_view rest = plugin.status().message();
        absl::ConsumePrefix(&rest, absl::StrCat("unknown norm plugin \"", id, "\""));
        std::vector<std::string> known = names_.NormNames();
        for (const PluginFile& file : plugins_->Scan()) known.push_back(file.id);
        const std::string hint = DidYouMean(name, known);
        if (!hint.empty()) rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
        return ErrorAt(at, absl::StrCat(path, ": unknown norm \"", name, "\"", hint, rest));
      }
      return ErrorAt(plugin_place, plugin.status().message());
    }
    if (!plugin.ok()) {
      const std::string where = plugin_place.ToString();
      return Annotate(plugin.status(), where.empty() ? "" : absl::StrCat(where, ": "));
    }
    binding.plugin = *plugin;
    PLUMB_RETURN_IF_ERROR(CheckCrossToken(binding, path));
    if (const auto checked = binding.plugin->CheckAttrs(binding.attrs); !checked.ok()) {
      return ErrorAt(attr_place, absl::StrCat("norm \"", name, "\": ", checked.status().message()));
    }
    return binding;
  }

  // Rejects a norm with statistics over tokens unless the user has allowed it.
  absl::Status CheckCrossToken(const NormBinding& binding, const std::string& path) {
    const NormPlugin& plugin = *binding.plugin;
    const NameTable::NormEntry* entry = names_.FindNorm(binding.name);
    const bool allowed = entry != nullptr && entry->message->allow_cross_token();
    if (!allowed && !plugin.cross_row()) return absl::OkStatus();
    if (!allowed) {
      const std::string why = CrossTokenRefusal(plugin);
      if (entry == nullptr) {
        return ErrorAt(
            binding.place,
            absl::StrCat(path, ": ", why, "declare it, norm { name: \"my_norm\" plugin: \"",
                         plugin.id(), "\" allow_cross_token: true }, and write \"my_norm\""));
      }
      return ErrorAt(entry->at.At("plugin"),
                     absl::StrCat("norm \"", binding.name, "\": ", why,
                                  "add allow_cross_token: true to the norm"));
    }
    if (!warned_norms_.insert(binding.name).second) return absl::OkStatus();
    model_.warnings.push_back(absl::StrCat(entry->at.At("allow_cross_token").ToString(),
                                           ": norm \"", binding.name,
                                           "\": ", CrossTokenWarning(plugin)));
    return absl::OkStatus();
  }

  // Returns the model's text with every name that it uses, and without names that it does not use.
  std::string SelfContainedText() const {
    v1::Model whole = message_;
    whole.set_name(model_.name);
    whole.clear_import();
    whole.clear_norm();
    whole.clear_placement();
    for (const std::string& name : used_norms_) *whole.add_norm() = *names_.FindNorm(name)->message;
    for (const v1::Placement* placement : names_.used_placements()) {
      v1::Placement* copy = whole.add_placement();
      *copy = *placement;
      copy->clear_source();
    }
    return textproto::PrintText(whole);
  }

  const ModelProto* proto_;
  const v1::Model& message_;
  const Located at_;
  PluginRegistry* plugins_;
  NameTable names_;
  ResolvedModel model_;
  std::vector<std::string> errors_;
  std::set<std::string> used_norms_;
  std::set<std::string> warned_norms_;
};

}  // namespace

absl::StatusOr<ResolvedModel> Resolve(const ModelSpec& spec, PluginRegistry* plugins,
                                      const ResolveOptions& options) {
  return Resolver(spec, plugins, options).Run();
}

}  // namespace plumb
