// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/op_test_util.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "tests/ops/op_operands.h"

namespace plumb {

namespace {

// Memory for one operand, 64-byte aligned. Behind the memory that a kernel writes is a guard that
// must not change; memory that it reads ends with the tensor, so that the address sanitizer detects
// a read beyond its end.
class Buffer {
 public:
  enum Use { kRead, kWritten };
  Buffer(int64_t bytes, Use use)
      : bytes_(static_cast<size_t>(bytes)), guard_(use == kWritten ? 64 : 0) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes_ + guard_) != 0) std::abort();
    memory_.reset(static_cast<unsigned char*>(memory));
    std::memset(memory, 0xff, bytes_ + guard_);  // NaN as f32, -1 as i32
  }

  void* data() const { return memory_.get(); }
  bool GuardIsIntact() const {
    return std::all_of(memory_.get() + bytes_, memory_.get() + bytes_ + guard_,
                       [](unsigned char c) { return c == 0xff; });
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  size_t bytes_, guard_;
  std::unique_ptr<unsigned char[], Free> memory_;
};

void CopyIn(const ReferenceTensor& tensor, void* to) {
  if (tensor.type.dtype == DType::kI32) {
    std::copy(tensor.i.begin(), tensor.i.end(), static_cast<int32_t*>(to));
  } else if (tensor.type.dtype == DType::kI8) {
    std::copy(tensor.i.begin(), tensor.i.end(), static_cast<int8_t*>(to));
  } else if (tensor.type.dtype == DType::kBF16) {
    std::transform(tensor.f.begin(), tensor.f.end(), static_cast<uint16_t*>(to),
                   [](double x) { return Bf16FromFloat(static_cast<float>(x)); });
  } else {
    std::transform(tensor.f.begin(), tensor.f.end(), static_cast<float*>(to),
                   [](double x) { return static_cast<float>(x); });
  }
}

ReferenceTensor CopyOut(const TensorType& type, const void* from) {
  ReferenceTensor tensor;
  tensor.type = type;
  const int64_t n = type.num_elements();
  if (type.dtype == DType::kI32) {
    const int32_t* p = static_cast<const int32_t*>(from);
    tensor.i.assign(p, p + n);
  } else if (type.dtype == DType::kI8) {
    const int8_t* p = static_cast<const int8_t*>(from);
    tensor.i.assign(p, p + n);
  } else if (type.dtype == DType::kBF16) {
    const uint16_t* p = static_cast<const uint16_t*>(from);
    for (int64_t e = 0; e < n; ++e) tensor.f.push_back(static_cast<double>(FloatFromBf16(p[e])));
  } else {
    const float* p = static_cast<const float*>(from);
    tensor.f.assign(p, p + n);
  }
  return tensor;
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

void ExpectNear(const ReferenceTensor& actual, const ReferenceTensor& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.type, expected.type) << what;
  EXPECT_EQ(actual.i, expected.i) << what;
  const double allowed = tolerance * std::max(Largest(expected.f), 1e-30);
  for (size_t e = 0; e < expected.f.size(); ++e) {
    // Storing it as bf16 rounds by at most half of the last of its eight bits.
    const double rounding =
        actual.type.dtype == DType::kBF16 ? std::ldexp(std::abs(expected.f[e]), -8) : 0;
    // Written so that a NaN fails.
    ASSERT_TRUE(std::abs(actual.f[e] - expected.f[e]) <= allowed + rounding)
        << what << ", element " << e << ": " << actual.f[e] << ", should be " << expected.f[e]
        << " within " << allowed + rounding;
  }
}

std::vector<size_t> TokenWiseInputs(const OpRegistry& registry, const OpCase& c) {
  const OpDef& op = *registry.Find(c.op);
  if (op.token_wise == nullptr) return {};
  std::vector<const TensorType*> types;
  for (const CaseInput& input : c.inputs) types.push_back(input.absent ? nullptr : &input.type);
  return op.token_wise({types, {}, c.attrs});
}

// Returns the last `count` tokens of x[batch, tokens, ..].
ReferenceTensor LastTokens(const ReferenceTensor& x, int64_t count) {
  std::vector<int64_t> dims(x.type.shape.dims().begin(), x.type.shape.dims().end());
  const int64_t batch = dims[0], tokens = dims[1],
                width = Shape(dims).num_elements() / batch / tokens;
  dims[1] = count;
  ReferenceTensor last = Zeros({x.type.dtype, Shape(dims)});
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t from = ((b + 1) * tokens - count) * width, to = b * count * width;
    if (IsFloating(x.type.dtype)) {
      std::copy_n(x.f.begin() + from, count * width, last.f.begin() + to);
    } else {
      std::copy_n(x.i.begin() + from, count * width, last.i.begin() + to);
    }
  }
  return last;
}

// Returns true if output o is an updated state.
bool IsUpdate(const OpDef& op, size_t o) {
  return std::any_of(op.updates.begin(), op.updates.end(),
                     [o](const auto& update) { return update.first == static_cast<int>(o); });
}

}  // namespace

std::vector<ReferenceTensor> MakeInputs(const OpCase& c) {
  std::vector<ReferenceTensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput& input = c.inputs[i];
    if (input.absent) {
      inputs.emplace_back();
      continue;
    }
    ReferenceTensor tensor = Zeros(input.type);
    tensor.i = input.ints;
    const RngStream draws(1, absl::StrCat(c.op, c.name, i));
    for (size_t e = 0; e < tensor.f.size(); ++e) {
      const double x = input.values.empty()
                           ? input.low + (input.high - input.low) * draws.Uniform(e)
                           : input.values[e];
      tensor.f[e] = static_cast<float>(x);
      if (input.type.dtype == DType::kBF16) {
        tensor.f[e] = FloatFromBf16(Bf16FromFloat(static_cast<float>(x)));
      }
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

absl::StatusOr<Graph> BuildCase(const OpRegistry& registry, const OpCase& c) {
  const OpDef* op = registry.Find(c.op);
  if (op == nullptr) return absl::NotFoundError(absl::StrCat("no op ", c.op));
  GraphBuilder b(&registry);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput& input = c.inputs[i];
    if (input.absent) {
      inputs.push_back(kNoValue);
    } else if (IsUpdated(*op, i)) {
      inputs.push_back(b.State(LeafName(i), input.type));
    } else if (input.type.dtype != DType::kF32) {
      inputs.push_back(b.Input(LeafName(i), input.type));
    } else {
      inputs.push_back(b.Parameter(LeafName(i), input.type));
    }
  }
  const std::vector<ValueId> outputs = b.ApplyAll(c.op, inputs, c.attrs);
  if (b.ok()) {
    for (size_t o = 0; o < outputs.size(); ++o) {
      // A state is read under its own name, and the VJP may update it again.
      if (!IsUpdate(*op, o)) b.Output(absl::StrCat("out", o), outputs[o]);
    }
  }
  return std::move(b).Finish();
}

absl::StatusOr<std::vector<ReferenceTensor>> RunKernel(const Graph& graph,
                                                       const std::vector<ReferenceTensor>& inputs,
                                                       int threads, int alias) {
  const Node& node = graph.nodes[0];
  std::vector<const TensorType*> in_types, out_types;
  for (const ValueId id : node.inputs) {
    in_types.push_back(id == kNoValue ? nullptr : &graph.value(id).type);
  }
  for (const ValueId id : node.outputs) out_types.push_back(&graph.value(id).type);
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                         node.op->make_kernel({in_types, out_types, node.attrs}));

  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto allocate = [&buffers](int64_t bytes, Buffer::Use use) {
    buffers.push_back(std::make_unique<Buffer>(bytes, use));
    return buffers.back()->data();
  };
  std::vector<const void*> in;
  std::vector<void*> writable_in;
  std::vector<ReferenceTensor> before;
  for (size_t i = 0; i < inputs.size(); ++i) {
    void* memory = nullptr;
    if (in_types[i] != nullptr) {
      memory = allocate(in_types[i]->bytes(), Buffer::kRead);
      CopyIn(inputs[i], memory);
    }
    before.push_back(memory == nullptr ? ReferenceTensor() : CopyOut(*in_types[i], memory));
    in.push_back(memory);
    writable_in.push_back(memory);
  }
  std::vector<void*> out(out_types.size(), nullptr);
  const auto share = [&](const std::pair<int, int>& pair) {
    out[static_cast<size_t>(pair.first)] = writable_in[static_cast<size_t>(pair.second)];
  };
  for (const auto& update : node.op->updates) share(update);
  if (alias >= 0) share(node.op->may_alias[static_cast<size_t>(alias)]);
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o] == nullptr) out[o] = allocate(out_types[o]->bytes(), Buffer::kWritten);
  }

  const int64_t scratch_bytes = kernel->scratch_bytes();
  void* scratch = scratch_bytes > 0 ? allocate(scratch_bytes, Buffer::kWritten) : nullptr;
  PLUMB_RETURN_IF_ERROR(kernel->Run({in.data(), out.data(), scratch, threads}));

  for (const auto& buffer : buffers) {
    EXPECT_TRUE(buffer->GuardIsIntact()) << "the kernel wrote beyond the end of an operand";
  }
  std::vector<ReferenceTensor> results;
  for (size_t o = 0; o < out.size(); ++o) results.push_back(CopyOut(*out_types[o], out[o]));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool overwritten = std::find(out.begin(), out.end(), in[i]) != out.end();
    if (in_types[i] == nullptr || overwritten) continue;
    EXPECT_TRUE(Identical(CopyOut(*in_types[i], in[i]), before[i])) << "input " << i << " changed";
  }
  return results;
}

absl::StatusOr<std::vector<ReferenceTensor>> RunReference(
    const Graph& graph, const std::map<std::string, ReferenceTensor>& leaves) {
  std::vector<ReferenceTensor> values(graph.values.size());
  for (size_t id = 0; id < values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.kind == ValueKind::kComputed) {
      values[id] = Zeros(value.type);
      continue;
    }
    const auto at = leaves.find(value.name);
    if (at == leaves.end()) return absl::NotFoundError(absl::StrCat("no leaf ", value.name));
    values[id] = at->second;
  }
  for (const Node& node : graph.nodes) {
    for (const auto& [out, in] : node.op->updates) {
      values[static_cast<size_t>(node.outputs[static_cast<size_t>(out)])] =
          values[static_cast<size_t>(node.inputs[static_cast<size_t>(in)])];
    }
    std::vector<const ReferenceTensor*> inputs;
    std::vector<ReferenceTensor*> outputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? nullptr : &values[static_cast<size_t>(id)]);
    }
    for (const ValueId id : node.outputs) outputs.push_back(&values[static_cast<size_t>(id)]);
    PLUMB_RETURN_IF_ERROR(node.op->reference({inputs, outputs, node.attrs}));
  }
  return values;
}

void ExpectKernelMatchesReference(const OpRegistry& registry, const OpCase& c) {
  const absl::StatusOr<Graph> graph = BuildCase(registry, c);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node& node = graph->nodes[0];
  const std::vector<ReferenceTensor> inputs = MakeInputs(c);
  const auto expected = RunReference(*graph, NamedLeaves(inputs));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto actual = RunKernel(*graph, inputs, 1);
  ASSERT_TRUE(actual.ok()) << actual.status();
  for (size_t o = 0; o < actual->size(); ++o) {
    ExpectNear((*actual)[o], (*expected)[static_cast<size_t>(node.outputs[o])], c.tolerance,
               absl::StrCat("output ", o));
  }

  for (const int threads : {2, 4}) {
    const auto again = RunKernel(*graph, inputs, threads);
    ASSERT_TRUE(again.ok()) << again.status();
    for (size_t o = 0; o < actual->size(); ++o) {
      EXPECT_TRUE(Identical((*again)[o], (*actual)[o]))
          << "output " << o << " differs with " << threads << " threads";
    }
  }

  for (size_t alias = 0; alias < node.op->may_alias.size(); ++alias) {
    const auto [out, in] = node.op->may_alias[alias];
    const size_t o = static_cast<size_t>(out), i = static_cast<size_t>(in);
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue || o >= node.outputs.size()) continue;
    if (graph->value(node.inputs[i]).type.bytes() != graph->value(node.outputs[o]).type.bytes()) {
      continue;
    }
    const auto shared = RunKernel(*graph, inputs, 2, static_cast<int>(alias));
    ASSERT_TRUE(shared.ok()) << shared.status();
    for (size_t other = 0; other < actual->size(); ++other) {
      EXPECT_TRUE(Identical((*shared)[other], (*actual)[other]))
          << "output " << other << " differs when output " << o << " takes the memory of input "
          << i;
    }
  }
}

bool HasTokens(const OpRegistry& registry, const OpCase& c) {
  const std::vector<size_t> inputs = TokenWiseInputs(registry, c);
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&c](size_t i) {
    const TensorType& type = c.inputs[i].type;
    return type.shape.rank() == (IsFloating(type.dtype) ? 3 : 2) && type.shape[1] > 1;
  });
}

void ExpectTokenWiseAsDeclared(const OpRegistry& registry, const OpCase& c) {
  if (!HasTokens(registry, c)) return;
  const std::vector<ReferenceTensor> inputs = MakeInputs(c);
  const absl::StatusOr<Graph> graph = BuildCase(registry, c);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto all = RunReference(*graph, NamedLeaves(inputs));
  ASSERT_TRUE(all.ok()) << all.status();
  const std::vector<size_t> token_wise = TokenWiseInputs(registry, c);
  const int64_t tokens = c.inputs[token_wise[0]].type.shape[1];
  for (const int64_t count : std::set<int64_t>{1, (tokens + 1) / 2, tokens - 1}) {
    SCOPED_TRACE(absl::StrCat("the last ", count, " of ", tokens, " tokens"));
    OpCase narrow = c;
    std::vector<ReferenceTensor> last = inputs;
    for (const size_t i : token_wise) {
      last[i] = LastTokens(inputs[i], count);
      narrow.inputs[i].type = last[i].type;
    }
    const absl::StatusOr<Graph> narrow_graph = BuildCase(registry, narrow);
    ASSERT_TRUE(narrow_graph.ok()) << narrow_graph.status();
    const auto got = RunReference(*narrow_graph, NamedLeaves(last));
    ASSERT_TRUE(got.ok()) << got.status();
    bool is_narrower = false;
    for (const ValueId id : graph->nodes[0].outputs) {
      const ReferenceTensor& want = (*all)[static_cast<size_t>(id)];
      const ReferenceTensor& result = (*got)[static_cast<size_t>(id)];
      const bool stays = result.type == want.type;
      is_narrower = is_narrower || !stays;
      EXPECT_TRUE(Identical(result, stays ? want : LastTokens(want, count)))
          << graph->value(id).name;
    }
    EXPECT_TRUE(is_narrower);
  }
}

}  // namespace plumb
