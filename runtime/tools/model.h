// plumb::Spec and plumb::Model: a model as text, and the model that the text describes.
#ifndef PLUMB_RUNTIME_TOOLS_MODEL_H_
#define PLUMB_RUNTIME_TOOLS_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tools/host_runtime.h"
#include "runtime/tools/probe.h"

struct plumb_model;
struct plumb_spec;

namespace plumb {

// A model description in protobuf text format (schema plumb.v1.Model). A value: copies share what
// none of them changes.
class Spec {
 public:
  // Errors carry "file:line:column"; all syntax errors at once.
  static absl::StatusOr<Spec> FromFile(const std::string& path);
  static absl::StatusOr<Spec> FromText(const std::string& text, const std::string& name);

  // Set("n_layer", "8"), Set("norm[0].attr[0].number", "1e-6").
  absl::Status Set(const std::string& field, const std::string& value);
  std::string ToText() const;
  int64_t vocab_size() const;                        // 0: not said
  const std::string& name() const { return name_; }  // of the file, for messages

  plumb_spec* handle() const { return handle_.get(); }

 private:
  Spec(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}
  absl::Status Make();

  std::string text_, name_;
  std::vector<std::pair<std::string, std::string>> settings_;
  std::shared_ptr<plumb_spec> handle_;  // of the text and the settings
};

struct TensorInfo {
  std::string name;   // "layers.0.attention.q.weight"
  std::string dtype;  // "f32"
  std::vector<int64_t> shape;
  std::string init;  // "uniform(-0.25, 0.25)"
  std::string role;  // "weight", "norm", "learned"; "buffer"
  int64_t elements = 0;
};

// A run of layers that share a block.
struct LayerGroupInfo {
  int64_t first = 0, last = 0;  // layers, from 0, inclusive
  std::string placement, doc;
  std::vector<std::string> equations, scalars, norms;
  std::string jacobian;  // of the first layer: "(I + J_mlp J_norm) (I + J_attention J_norm)"
};

struct ModelDescription {
  std::string name;
  std::vector<std::pair<std::string, int64_t>> dims;  // "n_layer" ...
  std::string positions;
  bool tied = false, bidirectional = false;
  int64_t token_types = 0;
  int64_t init_rules = 0;               // in the model's text
  std::vector<std::string> begin, end;  // statements before the first and after the last layer
  std::vector<LayerGroupInfo> layers;
  int64_t norm_sites = 0;           // norms that are applied in one forward pass
  std::string identity_route;       // from the embedding to the head, up to the last layer's output
  int64_t norms_before_head = 0;    // on that route, after the last layer
  std::vector<TensorInfo> tensors;  // in the order of the data
  int64_t parameters = 0;
  int64_t active_parameters = 0;  // without experts that a token does not take
  // Statistics that norms keep from training for evaluation: saved like weights, not trained, and
  // not counted among the parameters.
  std::vector<TensorInfo> buffers;
  int64_t buffer_elements = 0;
  int64_t weight_bytes = 0;  // in f32
  int64_t cache_bytes = 0;   // of the KV cache of one sequence, in f32
};

// The memory of training, in bytes; all of it is allocated from the first step to the last, so that
// the total is the peak of a step. Text and its tokens, and the program, are not counted.
struct TrainingMemory {
  int64_t batch = 0, seq = 0;  // of a unit; seq is the model's context_length
  std::string dtype;           // "f32", "bf16"
  bool recompute_blocks = false;
  int64_t weights = 0;      // f32
  int64_t gradients = 0;    // with their sums, when several units make a step
  int64_t exchange = 0;     // of several ranks: gradients that come from others
  int64_t moments = 0;      // AdamW's two, Muon's one; the average of the weights
  int64_t norm_states = 0;  // buffers of norms, with copies from before the step
  int64_t inputs = 0;       // token ids
  int64_t workspace = 0;    // activations, their gradients, kernels' scratch
  int64_t validation = 0;   // of a run: evaluating what is held out
  int64_t total = 0;
};

// Sequences of token ids to compute something of, with the target of each token, -1: none, and its
// type.
struct TokenBatch {
  std::vector<std::vector<int32_t>> sequences = {};
  // Empty: the next tokens; of bidirectional models none.
  std::vector<std::vector<int32_t>> targets = {};
  std::vector<std::vector<int32_t>> types = {};  // empty: 0
};

class Model {
 public:
  // Resolves every name, checks the formulas. Errors are the author's mistakes, with places.
  static absl::StatusOr<std::unique_ptr<Model>> Create(HostRuntime* runtime, const Spec& spec);
  // The model of a run, trained or imported, or of one of its checkpoints, with its weights.
  // `average`: the average of the weights. Errors: as TrainedModel::Open.
  static absl::StatusOr<std::unique_ptr<Model>> OpenRun(HostRuntime* runtime,
                                                        const std::string& run, bool average);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  absl::StatusOr<ModelDescription> Describe() const;

  // Which norm plugins it has, to the byte: a line for each with its version and its file's hash.
  absl::StatusOr<std::string> NormFiles(HostRuntime* runtime) const;

  // The data flow of the blocks as an SVG file: of each kind of layer, or of the one layer, from 0.
  // Errors: kInvalidArgument for a layer that is not there and a block too large to be drawn.
  absl::StatusOr<std::string> Draw(std::optional<int64_t> layer = std::nullopt) const;

  // The memory that training with a recipe takes: the file `train_path` ("": the schema's
  // defaults), then the overrides; on each of `ranks` ranks, or the one that takes most. Errors: as
  // TrainRun::Open for the recipe, and programs too large to be addressed.
  absl::StatusOr<TrainingMemory> PlanTraining(
      const std::string& train_path,
      const std::vector<std::pair<std::string, std::string>>& train_overrides,
      int32_t ranks = 1) const;

  // How it updates each tensor, by the recipe's rules, as text for people: plumb_model_explain's
  // stage "updates". Errors: as PlanTraining, and rules that match nothing or cannot be evaluated.
  absl::StatusOr<std::string> ExplainUpdates(
      const std::string& train_path,
      const std::vector<std::pair<std::string, std::string>>& train_overrides) const;

  // The output of a compiler stage, as plumb_model_explain has it; batch and seq of 0 are its
  // defaults. Of the overrides, as for PlanTraining, `dtype` and `recompute` matter.
  absl::StatusOr<std::string> Explain(
      const std::string& stage, int64_t batch, int64_t seq,
      const std::vector<std::pair<std::string, std::string>>& train_overrides = {}) const;

  // Weights and buffers: drawn from a seed, or read from a safetensors file with plumb's names
  // (everything missing, surplus or misshapen is listed at once).
  absl::Status Init(uint64_t seed);
  absl::Status LoadWeights(const std::string& path);
  absl::Status SaveWeights(const std::string& path) const;

  // Logits [batch, seq, vocab], the mean cross-entropy of the targets and, if wanted, its gradients
  // and their L2 norms for every parameter. With gradients it is the pass of a training step, in
  // which a norm with statistics over tokens takes those of the batch, but nothing is dropped;
  // without, that of an evaluation, in which it uses its buffers. Neither changes the model.
  //
  // Sequences of a bidirectional model may be of different lengths; logits beyond the end of one
  // mean nothing. Errors name the sequence and the token.
  struct Gradient {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> data;
    double l2 = 0;
  };
  struct Outputs {
    int64_t batch = 0, seq = 0, vocab = 0;
    std::vector<float> logits;
    std::optional<double> loss;  // none without a target
    std::vector<Gradient> gradients;
  };
  absl::StatusOr<Outputs> Run(const TokenBatch& batch, bool with_gradients = true) const;
  // The points that can be probed, in the order of the data, and those of them that are by default.
  absl::StatusOr<std::vector<std::string>> ProbePoints() const;
  absl::StatusOr<std::vector<std::string>> DefaultProbePoints() const;

  // Probes one pass of a training step, as Run takes it; without the step. `points` as
  // ProbeOptions::points.
  absl::StatusOr<ProbeFigures> Probe(const TokenBatch& batch,
                                     const std::vector<std::string>& points = {}) const;

  // Writes outputs.logits as the tensor "logits", a safetensors file; and outputs.gradients, each
  // by the name of its parameter.
  static absl::Status WriteLogits(const Outputs& outputs, const std::string& path);
  static absl::Status WriteGradients(const Outputs& outputs, const std::string& path);

  plumb_model* handle() const;

 private:
  struct Impl;
  Model();
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_MODEL_H_
