// SPDX-License-Identifier: Apache-2.0
// NormPlugin and NormInstance: the host's side of the norm ABI (plugins/abi/plumb/norm_plugin.h).
//
// NormPlugin is a norm with its description: id, attributes, traits. NormInstance is one
// configuration of it (attributes and dimension), ready to run. Both are immutable and thread-safe;
// a library, once loaded, is never unloaded.
#ifndef PLUMB_RUNTIME_PLUGIN_NORM_PLUGIN_H_
#define PLUMB_RUNTIME_PLUGIN_NORM_PLUGIN_H_

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/ext/combine.h"
#include "plumb/ext/instance.h"
#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb {

class NormPlugin;

// Functions that are called on an instance.
enum class NormFunction {
  kCreate,
  kLayout,
  kDestroy,
  kForward,
  kBackward,
  kResidualForward,
  kResidualBackward,
  kStatsPartial,
  kStatsCombine,
  kStatsFinalize,
  kFill
};
inline constexpr const char* kNormFunctionNames[] = {"create",
                                                     "layout",
                                                     "destroy",
                                                     "forward",
                                                     "backward",
                                                     "residual forward",
                                                     "residual backward",
                                                     "stats_partial",
                                                     "stats_combine",
                                                     "stats_finalize",
                                                     "fill"};

class NormInstance {
 public:
  ~NormInstance();
  NormInstance(const NormInstance&) = delete;
  NormInstance& operator=(const NormInstance&) = delete;

  const NormPlugin& plugin() const { return *plugin_; }
  int64_t dim() const { return dim_; }
  // Number of heads of dim() elements per token if the instance distinguishes heads: row r belongs
  // to head r % heads(). 0: all rows are alike.
  int64_t heads() const { return heads_; }
  const std::vector<NormParam>& params() const { return params_; }
  int64_t saved_per_row() const { return saved_per_row_; }
  // Max number of chunks of rows in a backward call; 0: no limit.
  int64_t max_chunks() const { return max_chunks_; }
  bool backward_needs_x() const { return backward_needs_x_; }
  bool backward_needs_y() const { return backward_needs_y_; }
  // True for norm(x, x2).
  bool two_inputs() const;
  bool backward_needs_x2() const { return backward_needs_x2_; }
  // True if the norm uses this field of plumb_norm_context; false for cross-row norms.
  bool wants_positions() const { return (context_wants_ & PLUMB_CONTEXT_POSITIONS) != 0; }
  bool wants_step() const { return (context_wants_ & PLUMB_CONTEXT_STEP) != 0; }
  int64_t scratch_bytes(int64_t rows) const {
    return scratch_bytes_ + scratch_bytes_per_row_ * rows;
  }

  // Cross-row norms use statistics over the rows of a call, in training and, with cross_row_eval,
  // in evaluation too. The buffers of one use are one flat tensor of state_elements() floats;
  // buffer i begins at element buffer_offset(i), a multiple of 16. Cross-row norms without buffers
  // have some state, too, so that all are alike. 0 for other norms.
  bool cross_row() const;
  bool cross_row_eval() const;
  const std::vector<NormParam>& buffers() const { return buffers_; }
  int64_t state_elements() const { return state_elements_; }
  int64_t buffer_offset(size_t i) const { return buffer_offsets_[i]; }
  int64_t saved_per_call() const { return saved_per_call_; }
  int64_t partial_elems() const { return partial_elems_; }

  // Writes the initial values of tensor params()[tensor] or, beyond them, of buffers(), whose init
  // is kFill: `elements` floats, the product of its dims. Errors: the plugin's; a value that is not
  // finite.
  absl::Status Fill(size_t tensor, uint64_t seed, int64_t elements, float* values) const;

  // Returns "rms_norm(eps=1e-05)[16]", with heads() "[4 x 16]": all attributes, including defaults.
  // Equal strings mean equal behaviour.
  const std::string& ToString() const { return text_; }

  // Runs rows [r0, r1) of `call`. The hot path: one indirect call, no checks but the status. Errors
  // carry ToString() and, if `call` has an `err` buffer, the plugin's message. An exception that
  // leaves the plugin is kInternal, here and below.
  absl::Status Forward(const plumb_norm_call& call, int64_t r0, int64_t r1) const;
  absl::Status Backward(const plumb_norm_call& call, int64_t r0, int64_t r1) const;

  // Runs the norm fused with the sum before it (PLUMB_EXT_RESIDUAL). REQUIRES: has_residual(),
  // which may be false for an instance even if its norm has the extension.
  bool has_residual() const { return residual_.forward != nullptr; }
  absl::Status ForwardResidual(const plumb_norm_call& call, const plumb_residual_call& residual,
                               int64_t r0, int64_t r1) const;
  absl::Status BackwardResidual(const plumb_norm_call& call, const plumb_residual_call& residual,
                                int64_t r0, int64_t r1) const;

  // Computes the statistics of a phase, PLUMB_PHASE_FORWARD or PLUMB_PHASE_BACKWARD; `partial` and
  // `acc` have partial_elems() numbers of the accumulate type. REQUIRES: cross_row().
  absl::Status StatsPartial(uint32_t phase, const plumb_norm_call& call, int64_t r0, int64_t r1,
                            void* partial) const;
  absl::Status StatsCombine(uint32_t phase, const plumb_norm_call& call, void* acc,
                            const void* partial) const;
  absl::Status StatsFinalize(uint32_t phase, const plumb_norm_call& call, void* acc) const;

 private:
  friend class NormPlugin;
  NormInstance() = default;
  template <class Function>
  absl::Status Run(NormFunction which, const plumb_norm_call* call, const Function& function) const;
  absl::Status ReadTensors(const plumb_norm_layout& layout);
  absl::Status ReadExtensions();

  // Arguments of a function on rows or statistics; null if it has no such argument.
  struct CallOperands {
    const plumb_norm_call* call = nullptr;
    const plumb_residual_call* residual = nullptr;
    void* acc = nullptr;  // the written statistic
    const void* partial = nullptr;
  };
  absl::Status Call(NormFunction which, uint32_t phase, const CallOperands& operands, int64_t r0,
                    int64_t r1) const;

  const NormPlugin* plugin_ = nullptr;
  plumb_norm_instance* handle_ = nullptr;
  plumb_host host_{};  // argument of create(); its context is the plugin
  int64_t dim_ = 0;
  int64_t heads_ = 0;
  std::vector<NormParam> params_;
  std::vector<NormParam> buffers_;
  std::vector<int64_t> buffer_offsets_;
  int64_t state_elements_ = 0;
  plumb_norm_residual residual_{};  // null functions if this instance has no such extension
  int64_t saved_per_row_ = 0;
  int64_t max_chunks_ = 0;
  int64_t saved_per_call_ = 0;
  int64_t partial_elems_ = 0;
  bool backward_needs_x_ = false;
  bool backward_needs_y_ = false;
  bool backward_needs_x2_ = false;
  uint32_t context_wants_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t scratch_bytes_per_row_ = 0;
  std::string text_;
};

class NormPlugin {
 public:
  // Checks the descriptor (not null, sizes, mandatory functions and flags, attributes), copies it,
  // and queries availability and extensions. `path` is "" for a norm that is linked into the host.
  // REQUIRES: the table lives as long as the process.
  static absl::StatusOr<std::unique_ptr<NormPlugin>> Create(const plumb_norm_plugin* table,
                                                            std::string path);
  NormPlugin(const NormPlugin&) = delete;
  NormPlugin& operator=(const NormPlugin&) = delete;

  const std::string& id() const { return id_; }
  const std::string& version() const { return version_; }
  const std::string& vendor() const { return vendor_; }
  const std::string& license() const { return license_; }
  const std::string& doc() const { return doc_; }
  const std::string& path() const { return path_; }
  // SHA-256 of the plugin's file when it was loaded, which may have been replaced since; "" for a
  // norm that is linked into the host.
  const std::string& file_hash() const { return file_hash_; }
  // Returns the file of the program or library that contains the norm's code; "" for code that is
  // in no file, such as a callback of Python.
  std::string code_file() const;
  const std::vector<NormAttrSpec>& attrs() const { return attrs_; }

  uint32_t dtypes() const { return table_.dtypes; }  // PLUMB_DTYPE_F32 and others, or'ed
  bool has_f64() const { return (table_.dtypes & PLUMB_DTYPE_F64) != 0; }
  // Hints (PLUMB_NORM_*) that a host may use or show.
  bool identity() const { return Has(PLUMB_NORM_IDENTITY); }  // a compiler may drop it
  bool in_place() const { return Has(PLUMB_NORM_INPLACE); }
  bool dx_may_be_dy() const { return Has(PLUMB_NORM_DX_ALIAS_DY); }
  bool nan_isolated() const { return Has(PLUMB_NORM_NAN_ISOLATED); }
  bool scale_invariant() const { return Has(PLUMB_NORM_SCALE_INVARIANT); }
  bool shift_invariant() const { return Has(PLUMB_NORM_SHIFT_INVARIANT); }
  bool approximate_gradient() const { return Has(PLUMB_NORM_APPROXIMATE_GRADIENT); }
  // True for statistics over rows, in training; and in evaluation too.
  bool cross_row() const { return Has(PLUMB_NORM_CROSS_ROW); }
  bool cross_row_eval() const { return Has(PLUMB_NORM_CROSS_ROW_EVAL); }
  // True if it is applied to two tensors, norm(x, y).
  bool two_inputs() const { return Has(PLUMB_NORM_TWO_INPUTS); }
  // True with the extension PLUMB_EXT_RESIDUAL.
  bool has_residual() const { return residual_.forward != nullptr; }

  // Checks `attrs` against the definitions: unknown name (with a suggestion), wrong type, out of
  // range, missing; all errors in one message, one per line. Returns all values, in the
  // definitions' order.
  absl::StatusOr<std::vector<NormAttrValue>> CheckAttrs(const NormAttrs& attrs) const;

  // Creates an instance for vectors of `dim` >= 1 elements. `heads`: number of them per token in a
  // slot of heads, 0 in other slots. Errors: kInvalidArgument also if the plugin refuses, with its
  // message. REQUIRES: this plugin outlives the instance.
  absl::StatusOr<std::shared_ptr<const NormInstance>> Instantiate(int64_t dim,
                                                                  const NormAttrs& attrs,
                                                                  int64_t heads = 0) const;

 private:
  friend class NormInstance;
  NormPlugin() = default;
  bool Has(uint32_t flag) const { return (table_.flags & flag) != 0; }
  const PluginCall& Record(NormFunction which) const {
    return records_[static_cast<size_t>(which)];
  }

  plumb_norm_plugin table_{};       // fields that the plugin does not know are null
  plumb_norm_residual residual_{};  // null functions if not offered, here and below
  plumb_norm_combine combine_{};
  plumb_norm_instance_extensions of_instance_{};
  std::string id_, version_, vendor_, license_, doc_, path_;
  std::string file_hash_;
  std::array<PluginCall, std::size(kNormFunctionNames)> records_;
  std::vector<NormAttrSpec> attrs_;
  plumb_host host_{};  // template for those of instances; its context is this plugin
};

inline bool NormInstance::two_inputs() const { return plugin_->two_inputs(); }
inline bool NormInstance::cross_row() const { return plugin_->cross_row(); }
inline bool NormInstance::cross_row_eval() const { return plugin_->cross_row_eval(); }

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_NORM_PLUGIN_H_
