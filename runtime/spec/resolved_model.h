// SPDX-License-Identifier: Apache-2.0
// ResolvedModel: a model with every name resolved: placements parsed, norms found and their
// attributes checked, defaults filled in. A value; the plugins that it points to belong to the
// PluginRegistry.
#ifndef PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_
#define PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/mistakes.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/spec/formula.h"

namespace plumb {

struct ModelDims {
  int64_t n_layer = 0;
  int64_t n_sublayer = 0;  // of the whole stack
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
};

enum class PositionKind { kLearned, kRope, kNone, kAlibi };

// What becomes of the frequencies of a rotary embedding.
struct RopeScaling {
  enum class Kind { kLinear, kLlama3, kYarn, kLongRope } kind = Kind::kLinear;
  std::optional<Expression> when;    // condition on the layer; absent: always
  std::optional<Expression> linear;  // the factor of kLinear
  double factor = 1;                 // of kLlama3 and kYarn
  int64_t original_context_length = 0;
  double low_freq_factor = 0, high_freq_factor = 0;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  bool fractional = false;                           // kYarn: no rounding to whole i
  double attention_factor = 1;                       // kYarn, kLongRope
  std::vector<double> factors;                       // kLongRope: one for each pair
  Place place;
};

// What tells tokens where they stand.
struct PositionSpec {
  PositionKind kind = PositionKind::kLearned;
  int64_t offset = 0;  // of the rows of kLearned
  double rope_theta = 10000;
  Place rope_theta_place;
  std::optional<Expression> rope_base;  // absent: rope_theta
  std::optional<Expression> rope_dims;  // absent: head_dim
  bool rope_interleaved = false;
  std::vector<RopeScaling> rope_scalings;  // a layer has the first that holds there
  std::optional<Expression> alibi_scale;   // absent: 1
};

struct AttentionSpec {
  bool qkv_bias = false;
  bool out_bias = false;
  std::optional<Expression> scale;  // of the scores; absent: 1 / sqrt(head_dim)
  std::optional<Expression> score_cap;
  std::optional<Expression> window;
  bool sinks = false;
};

struct MlpSpec {
  std::string activation;  // as op `act` calls it
  bool gated = false;
  bool bias = false;
  std::optional<Expression> d_ff;  // absent: the model's
};

// A mixture of experts.
struct ExpertsSpec {
  MlpSpec mlp;         // what one expert is
  std::string router;  // as op `route` calls it
  Expression n_expert, top_k;
  std::optional<Expression> shared_d_ff;  // absent: no shared expert
  bool shared_gate = false;
  std::optional<Expression> balance_loss;
  std::optional<Expression> scale;
};

// A causal depthwise convolution.
struct ConvSpec {
  int64_t width = 4;
  bool bias = false;
};

struct SublayerSpec {
  enum class Kind { kAttention, kMlp, kConv, kExperts } kind = Kind::kAttention;
  std::string name;  // "attention"
  AttentionSpec attention;
  MlpSpec mlp;
  ConvSpec conv = {};
  ExpertsSpec experts = {};
};

// A norm as a slot holds it.
struct NormBinding {
  std::string name;  // as the user called it
  const NormPlugin* plugin = nullptr;
  NormAttrs attrs;
  Place place;  // where the slot was given it
};

struct LearnedSpec {
  std::string name;
  Expression init;
  bool per_channel = false;
  bool per_head = false;
  bool weight_decay = false;
  std::vector<RangeText> index;  // empty: one value
  Place place;
};

// Statements at a point inside a sublayer ("attention.q") or the head ("head.logits").
struct InsideSpec {
  std::string point;
  std::vector<Statement> statements;
  Place place;
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
  Text match;
  Distribution distribution = Distribution::kNone;
  // Normal: mean, std. Truncated: and cut. Uniform: low, high. Xavier: gain. Kaiming: a. Constant:
  // value.
  std::vector<Expression> arguments;
  std::optional<Expression> scale;
};

// A projection that formulas call.
struct LinearSpec {
  std::string name;
  Expression out;
  bool bias = false;
  std::optional<InitRule> init;  // of the weight; its match is empty
  std::optional<Expression> bias_init;
  Place place;
};

struct PlacementSpec {
  std::string name;
  std::string doc;
  Place place;
  std::vector<Statement> lets;
  std::vector<LearnedSpec> learned;
  std::vector<LinearSpec> linear;
  std::set<std::string>
      own_names;  // of lets, learned values and projections that it does not inherit
  std::map<std::string, bool> slot_per_head;  // of the slots that are declared
  std::vector<Statement> begin, each, block, end;
  std::vector<InsideSpec> inside;
  std::vector<InitRule> init;
};

struct BlockSpec {
  std::shared_ptr<const PlacementSpec> placement;
  std::vector<SublayerSpec> sublayers;
  std::optional<NormBinding> norm;           // for every slot that `slots` does not name
  std::map<std::string, NormBinding> slots;  // by slot
  std::vector<InsideSpec> inside;            // the placement's, then the block's own
  std::string share;                         // blocks that share parameters; "": with none
  bool own_norms = false;                    // they share none of norms, nor learned values
  Place place;
};

// A table over tokens beside the embedding.
struct TokenTable {
  std::string name;
  int64_t width = 0;
  bool per_layer = false;  // one a layer
  Place place;
};

struct ResolvedModel {
  std::string name;
  ModelDims dims;
  PositionSpec positions;
  std::optional<Expression> embedding_scale;
  int64_t embedding_width = 0;  // d_model unless there are projections
  bool tie_embeddings = false;
  bool head_bias = false;
  int64_t token_types = 0;     // rows of their table; 0: there is none
  bool bidirectional = false;  // attention sees all tokens of a sequence
  std::vector<TokenTable> token_tables;
  std::vector<std::shared_ptr<const BlockSpec>> layers;  // n_layer of them; groups share a block
  // By layer, from 0: the first of those with which it shares parameters, or itself.
  std::vector<int64_t> first_layers;
  std::vector<InitRule> init;

  // What its author may not have meant, with places.
  std::vector<std::string> warnings;

  // The model as one text without imports: what a run directory keeps.
  std::string self_contained_text;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_RESOLVED_MODEL_H_
