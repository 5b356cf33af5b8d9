// SPDX-License-Identifier: Apache-2.0
// ResolvedModel: model with every name resolved: placements parsed, norms found and their
// attributes checked, defaults filled in. A value; its plugins belong to the PluginRegistry.
#ifndef PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_
#define PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/diagnostics.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/spec/formula.h"

namespace plumb {

struct ModelDims {
  int64_t n_layer = 0;
  int64_t n_sublayer = 0;  // in the whole stack
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
};

enum class PositionKind { kLearned, kRope, kNone, kAlibi };

// Scaling of the frequencies of a rotary embedding.
struct RopeScaling {
  enum class Kind { kLinear, kLlama3, kYarn, kLongRope } kind = Kind::kLinear;
  std::optional<Expression> when;    // condition on the layer; absent: always
  std::optional<Expression> linear;  // the factor of kLinear
  double factor = 1;                 // kLlama3, kYarn
  int64_t original_context_length = 0;
  double low_freq_factor = 0, high_freq_factor = 0;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  bool fractional = false;                           // kYarn: do not round pair indices to integers
  double attention_factor = 1;                       // kYarn, kLongRope
  std::vector<double> factors;                       // kLongRope: one per pair
  SourceLocation place;
};

// Position encoding of the model.
struct PositionSpec {
  PositionKind kind = PositionKind::kLearned;
  int64_t offset = 0;  // kLearned: added to the row index
  double rope_theta = 10000;
  SourceLocation rope_theta_place;
  std::optional<Expression> rope_base;  // absent: rope_theta
  std::optional<Expression> rope_dims;  // absent: head_dim
  bool rope_interleaved = false;
  std::vector<RopeScaling> rope_scalings;  // the first whose `when` holds applies to a layer
  std::optional<Expression> alibi_scale;   // absent: 1
};

struct AttentionSpec {
  bool qkv_bias = false;
  bool out_bias = false;
  std::optional<Expression> scale;  // factor of the scores; absent: 1 / sqrt(head_dim)
  std::optional<Expression> score_cap;
  std::optional<Expression> window;
  bool sinks = false;
  bool keys_as_values = false;  // values are the rotated keys; there is one cache for both
  bool decay = false;
  std::optional<Expression> n_head, n_kv_head, head_dim;  // absent: those of the model
};

struct MlpSpec {
  std::string activation;  // name in op `act`; "": the identity
  bool gated = false;
  bool bias = false;
  std::optional<Expression> d_ff;  // absent: that of the model
};

// Mixture of experts.
struct ExpertsSpec {
  MlpSpec mlp;         // shape of one expert
  std::string router;  // name in op `route`
  Expression n_expert, top_k;
  std::optional<Expression> shared_d_ff;  // absent: no shared expert
  std::optional<Expression> latent;       // absent: experts are d_model wide
  bool shared_gate = false;
  std::optional<Expression> balance_loss;
  std::optional<Expression> scale;
  bool router_bias = false;
  bool renormalize = false;  // the weights of a sigmoid router are divided by their sum
  bool correction = false;   // experts are chosen by score + correction
  std::optional<Expression> n_group, top_group;
};

// Causal depthwise convolution.
struct ConvSpec {
  int64_t width = 4;
  bool bias = false;
};

// Linear attention with a state per head.
struct LinearAttentionSpec {
  enum class Decay { kNone, kPerHead, kPerKey, kFixed } decay = Decay::kNone;
  // Absent: n_head of the model, n_head, head_dim of the model twice.
  std::optional<Expression> n_head, n_key_head, key_dim, value_dim;
  bool delta = false;
  std::optional<ConvSpec> conv;
};

struct SublayerSpec {
  enum class Kind { kAttention, kMlp, kConv, kExperts, kLinearAttention } kind = Kind::kAttention;
  std::string name;  // "attention"
  AttentionSpec attention;
  MlpSpec mlp;
  ConvSpec conv = {};
  ExpertsSpec experts = {};
  LinearAttentionSpec linear_attention = {};
};

// Norm bound to a slot.
struct NormBinding {
  std::string name;  // name used by the user
  const NormPlugin* plugin = nullptr;
  NormAttrs attrs;
  SourceLocation place;  // location where the slot was bound
};

struct LearnedSpec {
  std::string name;
  Expression init;
  bool per_channel = false;
  bool per_head = false;
  std::optional<bool> weight_decay;
  std::vector<RangeText> index;  // empty: one value
  SourceLocation place;
};

// Statements at a point inside a sublayer ("attention.q") or the head ("head.logits").
struct InsideSpec {
  std::string point;
  std::vector<Statement> statements;
  SourceLocation place;
};

struct InitRule {
  enum class Distribution {
    kNone,  // only `scale`
    kNormal,
    kTruncatedNormal,
    kUniform,
    kXavierNormal,
    kXavierUniform,
    kKaimingUniform,
    kConstant
  };
  SourceText match;
  Distribution distribution = Distribution::kNone;
  // Normal: mean, std. Truncated normal: mean, std, cut. Uniform: low, high. Xavier: gain. Kaiming:
  // a. Constant: value.
  std::vector<Expression> arguments;
  std::optional<Expression> scale;
};

// Projection that formulas call.
struct LinearSpec {
  std::string name;
  Expression out;
  bool bias = false;
  std::optional<InitRule> init;  // for the weight; its match is empty
  std::optional<Expression> bias_init;
  SourceLocation place;
};

struct PlacementSpec {
  std::string name;
  std::string doc;
  SourceLocation place;
  std::vector<Statement> lets;
  std::vector<LearnedSpec> learned;
  std::vector<LinearSpec> linear;
  // lets, learned values and projections that are not inherited
  std::set<std::string> own_names;
  std::map<std::string, bool> slot_per_head;  // declared slots
  std::vector<Statement> begin, each, block, end;
  std::vector<InsideSpec> inside;
  std::vector<InitRule> init;
};

struct BlockSpec {
  std::shared_ptr<const PlacementSpec> placement;
  std::vector<SublayerSpec> sublayers;
  std::optional<NormBinding> norm;           // for every slot that is not in `slots`
  std::map<std::string, NormBinding> slots;  // keyed by slot
  std::vector<InsideSpec> inside;            // the placement's, followed by the block's
  std::string share;                         // blocks with the same name share parameters; "": none
  bool own_norms = false;                    // norms and learned values are not shared
  SourceLocation place;
};

// Extra table over tokens, in addition to the embedding.
struct TokenTable {
  std::string name;
  int64_t width = 0;
  bool per_layer = false;  // one table per layer
  SourceLocation place;
};

struct ResolvedModel {
  std::string name;
  ModelDims dims;
  // Dimensions in attentions with heads of their own, by sublayer, from 1.
  std::map<int64_t, ModelDims> own_heads;
  PositionSpec positions;
  std::optional<Expression> embedding_scale;
  int64_t embedding_width = 0;  // differs from d_model if the embedding is projected
  bool tie_embeddings = false;
  bool head_bias = false;
  int64_t token_types = 0;     // rows of the token type table; 0: no table
  bool bidirectional = false;  // attention sees all tokens of the sequence
  std::vector<TokenTable> token_tables;
  std::vector<std::shared_ptr<const BlockSpec>> layers;  // n_layer of them; a block may repeat
  // Statements before those of every block, with lets and projections of their own; null: none.
  std::shared_ptr<const BlockSpec> adapter;
  // For each layer, from 0: the first layer with which it shares parameters, or itself.
  std::vector<int64_t> first_layers;
  std::vector<InitRule> init;

  // Likely errors that are allowed, with locations.
  std::vector<std::string> warnings;

  // Model as one text without imports, for run directories.
  std::string self_contained_text;

  // Returns the dimensions in a sublayer, counted from 1.
  const ModelDims& DimsAt(int64_t sublayer) const {
    const auto own = own_heads.find(sublayer);
    return own == own_heads.end() ? dims : own->second;
  }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_
