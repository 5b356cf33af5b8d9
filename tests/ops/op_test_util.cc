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

namespace plumb {

CaseInput Random(Shape shape, double low, double high) {
  CaseInput input;
  input.type = F32(std::move(shape));
  input.low = low;
  input.high = high;
  return input;
}

CaseInput RandomBf16(Shape shape, double low, double high) {
  CaseInput input = Random(std::move(shape), low, high);
  input.type.dtype = DType::kBF16;
  return input;
}

OpCase InBf16(OpCase c, const std::vector<size_t>& inputs) {
  for (const size_t i : inputs) {
    if (i < c.inputs.size() && !c.inputs[i].absent) c.inputs[i].type.dtype = DType::kBF16;
  }
  c.name = absl::StrCat(c.name, " bf16");
  return c;
}

CaseInput Values(Shape shape, std::vector<double> values) {
  CaseInput input;
  input.type = F32(std::move(shape));
  input.values = std::move(values);
  return input;
}

CaseInput Ints(Shape shape, std::vector<int32_t> ints) {
  CaseInput input;
  input.type = I32(std::move(shape));
  input.ints = std::move(ints);
  return input;
}

CaseInput Absent() {
  CaseInput input;
  input.absent = true;
  return input;
}

namespace {

std::string LeafName(size_t i) { return absl::StrCat("in", i); }

// Memory for one operand, 64-byte aligned. What a kernel writes has a guard behind it that must
// keep its content; what it reads ends with the tensor, so that the address sanitizer sees a read
// beyond.
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

ReferenceTensor Zeros(const TensorType& type) {
  ReferenceTensor tensor;
  tensor.type = type;
  const size_t n = static_cast<size_t>(type.num_elements());
  (IsFloating(type.dtype) ? tensor.f.resize(n) : tensor.i.resize(n));
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

// The same bits: NaN equals NaN, 0 differs from -0.
bool Identical(const ReferenceTensor& a, const ReferenceTensor& b) {
  return a.type == b.type && a.i == b.i && a.f.size() == b.f.size() &&
         (a.f.empty() || std::memcmp(a.f.data(), b.f.data(), a.f.size() * sizeof(double)) == 0);
}

std::map<std::string, ReferenceTensor> NamedLeaves(const std::vector<ReferenceTensor>& inputs) {
  std::map<std::string, ReferenceTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) leaves[LeafName(i)] = inputs[i];
  return leaves;
}

std::vector<size_t> TokenWiseInputs(const OpRegistry& registry, const OpCase& c) {
  const OpDef& op = *registry.Find(c.op);
  if (op.token_wise == nullptr) return {};
  std::vector<const TensorType*> types;
  for (const CaseInput& input : c.inputs) types.push_back(input.absent ? nullptr : &input.type);
  return op.token_wise({types, {}, c.attrs});
}

// The last `count` tokens of x[batch, tokens, ..].
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

// Whether the op overwrites input i: it is a state then, and has no gradient.
bool IsUpdated(const OpDef& op, size_t i) {
  return std::any_of(op.updates.begin(), op.updates.end(),
                     [i](const auto& update) { return update.second == static_cast<int>(i); });
}

// Whether output o is such a state.
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
      // A state is seen under its own name, and the VJP may update it once more.
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

namespace {

// The VJP of a case: the graph of op and VJP, and the gradient of each input (kNoValue if there is
// none).
struct VjpGraph {
  Graph graph;
  std::vector<ValueId> outputs;   // of the op
  std::vector<ValueId> d_inputs;  // one an input
};

std::string SeedName(size_t output) { return absl::StrCat("d_out", output); }

absl::StatusOr<VjpGraph> BuildVjp(const OpRegistry& registry, const OpCase& c,
                                  const std::vector<bool>& wanted) {
  PLUMB_ASSIGN_OR_RETURN(Graph forward, BuildCase(registry, c));
  const Node node = forward.nodes[0];
  GraphBuilder b(&registry, std::move(forward));
  std::vector<ValueId> d_outputs(node.outputs.size(), kNoValue);
  for (const int o : c.differentiated_outputs) {
    const size_t output = static_cast<size_t>(o);
    d_outputs[output] = b.Input(SeedName(output), b.type(node.outputs[output]));
  }
  VjpGraph vjp;
  vjp.outputs = node.outputs;
  vjp.d_inputs = node.op->vjp(b, node, d_outputs, wanted);
  PLUMB_ASSIGN_OR_RETURN(vjp.graph, std::move(b).Finish());
  return vjp;
}

}  // namespace

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

void ExpectVjpMatchesDifferences(const OpRegistry& registry, const OpCase& c) {
  const OpDef* op = registry.Find(c.op);
  ASSERT_NE(op, nullptr);
  if (op->vjp == nullptr || c.differentiated_outputs.empty()) return;
  // The same derivation as in f32, on numbers too coarse for differences.
  for (const CaseInput& input : c.inputs) {
    if (!input.absent && input.type.dtype == DType::kBF16) return;
  }

  std::vector<bool> wanted;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    wanted.push_back(!c.inputs[i].absent && !c.inputs[i].constant &&
                     c.inputs[i].type.dtype == DType::kF32 && !IsUpdated(*op, i));
  }
  const absl::StatusOr<VjpGraph> vjp = BuildVjp(registry, c, wanted);
  ASSERT_TRUE(vjp.ok()) << vjp.status();
  ASSERT_EQ(vjp->d_inputs.size(), c.inputs.size());

  std::map<std::string, ReferenceTensor> leaves = NamedLeaves(MakeInputs(c));
  for (const int o : c.differentiated_outputs) {
    const size_t output = static_cast<size_t>(o);
    ReferenceTensor seed = Zeros(vjp->graph.value(vjp->outputs[output]).type);
    const RngStream draws(2, absl::StrCat(c.op, c.name, o));
    for (size_t e = 0; e < seed.f.size(); ++e) seed.f[e] = draws.Normal(e);
    leaves[SeedName(output)] = std::move(seed);
  }
  const auto gradients = RunReference(vjp->graph, leaves);
  ASSERT_TRUE(gradients.ok()) << gradients.status();

  // The loss whose gradients these are: the outputs times their seeds.
  const absl::StatusOr<Graph> forward = BuildCase(registry, c);
  ASSERT_TRUE(forward.ok()) << forward.status();
  const auto loss = [&](const std::map<std::string, ReferenceTensor>& at) {
    const auto values = RunReference(*forward, at);
    EXPECT_TRUE(values.ok()) << values.status();
    double sum = 0;
    for (const int o : c.differentiated_outputs) {
      const size_t output = static_cast<size_t>(o);
      const std::vector<double>& seed = leaves.at(SeedName(output)).f;
      const std::vector<double>& y = (*values)[static_cast<size_t>(vjp->outputs[output])].f;
      for (size_t e = 0; e < seed.size(); ++e) sum += seed[e] * y[e];
    }
    return sum;
  };

  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) {
      EXPECT_EQ(vjp->d_inputs[i], kNoValue) << "input " << i << " has no gradient";
      continue;
    }
    ASSERT_NE(vjp->d_inputs[i], kNoValue) << "input " << i;
    const ReferenceTensor& gradient = (*gradients)[static_cast<size_t>(vjp->d_inputs[i])];
    ReferenceTensor& x = leaves.at(LeafName(i));
    ASSERT_EQ(gradient.type, x.type) << "input " << i;

    const std::vector<int64_t> order =
        Permutation(RngStream(3, absl::StrCat(c.op, c.name, i)), x.type.num_elements());
    const size_t checked =
        std::min(order.size(), static_cast<size_t>(std::max(1, c.checked_elements)));
    for (size_t k = 0; k < checked; ++k) {
      const size_t e = static_cast<size_t>(order[k]);
      const double step = 1e-4;
      const double at = x.f[e];
      // Differences of fourth order: the error of the plain central one would need looser limits.
      const auto loss_at = [&](double offset) {
        x.f[e] = at + offset * step;
        const double value = loss(leaves);
        x.f[e] = at;
        return value;
      };
      const double difference =
          (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * step);
      EXPECT_NEAR(gradient.f[e], difference, 1e-6 * std::max(1.0, std::abs(difference)))
          << "input " << i << ", element " << e;
    }

    // Each gradient comes out the same when it alone is wanted.
    std::vector<bool> only(wanted.size(), false);
    only[i] = true;
    const absl::StatusOr<VjpGraph> single = BuildVjp(registry, c, only);
    ASSERT_TRUE(single.ok()) << single.status();
    ASSERT_NE(single->d_inputs[i], kNoValue) << "input " << i << " alone";
    const auto values = RunReference(single->graph, leaves);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(Identical((*values)[static_cast<size_t>(single->d_inputs[i])], gradient))
        << "input " << i << " alone";
  }
}

}  // namespace plumb
