// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/program_lowering.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/divide.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr int32_t kNone = -1;

using Place = ProgramRegister::Place;

class Lowering {
 public:
  Lowering(const ProgramAttr& program, std::vector<TensorType> types)
      : program_(program),
        graph_(program.graph()),
        types_(std::move(types)),
        fns_(ProgramInstructions()),
        register_of_(graph_.values.size(), kNone),
        output_of_(graph_.values.size(), kNone),
        readers_(graph_.values.size(), 0),
        last_reader_(graph_.values.size(), kNone),
        deferred_(graph_.values.size(), false) {}

  absl::StatusOr<LoweredProgram> Run() {
    CountReaders();
    SetLeaves();
    for (const Node& node : graph_.nodes) {
      PLUMB_RETURN_IF_ERROR(Annotate(Lower(node), absl::StrCat(node.op->name, ": ")));
      for (const ValueId id : node.outputs) {
        if (register_of_[Index(id)] != kNone) Store(id);
      }
    }
    for (const ValueId id : program_.leaves()) Store(id);
    if (!error_.ok()) return error_;
    AllocateSlots();
    ChooseVersions();
    NumberRegisters();
    return std::move(lowered_);
  }

 private:
  // An instruction whose registers have no memory yet.
  struct Planned : Instruction {
    explicit Planned(const InstructionFn& which) : fn(which) {}
    InstructionFn fn;
  };
  using Plan = std::vector<Planned>;

  // A term of a sum: scale a b; b may be kNone.
  struct Term {
    double scale;
    int32_t a, b;
  };

  void CountReaders() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id == kNoValue) continue;
        ++readers_[Index(id)];
        last_reader_[Index(id)] = static_cast<int32_t>(i);
      }
    }
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      output_of_[Index(graph_.outputs[k].value)] = static_cast<int32_t>(k);
      ++readers_[Index(graph_.outputs[k].value)];
    }
  }

  void SetLeaves() {
    for (size_t i = 0; i < program_.leaves().size(); ++i) {
      const ValueId id = program_.leaves()[i];
      const TensorType& type = types_[Index(id)];
      const bool has_rows = program_.LeafHasRows(i);
      if (has_rows) lowered_.rows = type.shape.rows();
      ProgramRegister leaf = {Place::kInput, has_rows ? type.shape.last() : type.num_elements(),
                              has_rows};
      leaf.index = static_cast<int64_t>(i);
      leaf.is_bf16 = type.dtype == DType::kBF16;
      register_of_[Index(id)] = AddRegister(leaf);
    }
  }

  int32_t AddRegister(ProgramRegister added) {
    lowered_.registers.push_back(added);
    computed_.push_back(false);
    return static_cast<int32_t>(lowered_.registers.size() - 1);
  }

  const ProgramRegister& At(int32_t reg) const { return lowered_.registers[Index(reg)]; }

  // Adds a register for a result with rows, or for a vector, which is late if an operand is.
  int32_t NewRegister(bool has_rows, bool is_late, int64_t width) {
    ProgramRegister added = {has_rows ? Place::kTile : Place::kVector, width, has_rows};
    added.is_late = is_late;
    if (!has_rows) {
      added.offset = lowered_.vector_floats;
      lowered_.vector_floats += CeilDiv(width, kPaddedFloats) * kPaddedFloats;
    }
    return AddRegister(added);
  }

  // Returns the register of a value, converted to floats if it is bf16.
  int32_t Get(ValueId id) {
    const int32_t reg = register_of_[Index(id)];
    if (!At(reg).is_bf16) return reg;
    Planned load(fns_.load_bf16);
    load.a = reg;
    load.out = NewRegister(true, false, At(reg).width);
    load.width = static_cast<int32_t>(At(reg).width);
    Emit(load);
    return register_of_[Index(id)] = load.out;
  }

  // Adds an instruction to the part of the program that computes its result.
  void Emit(const Planned& instruction) {
    const ProgramRegister& out = At(instruction.out);
    const bool in_tile = out.has_rows || out.place == Place::kSums;
    if (in_tile) {
      for (const int32_t operand : {instruction.a, instruction.b, instruction.c}) {
        if (At(operand).is_late) {
          error_ = absl::InternalError("a row reads a sum over all rows");
        }
      }
      tile_.push_back(instruction);
      computed_[Index(instruction.out)] = true;
      lowered_.work_per_row += std::max(instruction.width, instruction.other);
    } else {
      (out.is_late ? after_ : before_).push_back(instruction);
    }
  }

  struct Like {
    bool has_rows;
    bool is_late;
    int64_t width;
  };
  bool HasSameShape(int32_t reg, const Like& like) const {
    return At(reg).has_rows == like.has_rows && At(reg).width == like.width;
  }

  int32_t Expanded(int32_t reg, const Like& like) {
    if (HasSameShape(reg, like)) return reg;
    Planned expand(fns_.expand[At(reg).has_rows ? 0 : 1]);
    expand.a = expand.b = expand.c = reg;
    expand.width = static_cast<int32_t>(like.width);
    expand.other = static_cast<int32_t>(At(reg).width);
    expand.out = NewRegister(like.has_rows, like.is_late, like.width);
    Emit(expand);
    return expand.out;
  }

  // Returns the shape of *b relative to `like`. Expands *b if no instruction takes it.
  size_t GetOperand(int32_t* b, const Like& like) {
    const ProgramRegister& reg = At(*b);
    if (HasSameShape(*b, like)) return static_cast<size_t>(Operand::kSameShape);
    if (reg.width == 1) {
      return static_cast<size_t>(reg.has_rows ? Operand::kPerRow : Operand::kScalar);
    }
    if (!reg.has_rows && reg.width == like.width) return static_cast<size_t>(Operand::kVector);
    *b = Expanded(*b, like);
    return static_cast<size_t>(Operand::kSameShape);
  }

  Like MakeLike(std::initializer_list<int32_t> operands) const {
    Like like = {false, false, 1};
    for (const int32_t reg : operands) {
      if (reg == kNone) continue;
      like.has_rows = like.has_rows || At(reg).has_rows;
      like.is_late = like.is_late || At(reg).is_late;
      like.width = std::max(like.width, At(reg).width);
    }
    return like;
  }

  Planned Elementwise(const InstructionFn& run, const Like& like) {
    Planned instruction(run);
    instruction.width = static_cast<int32_t>(like.width);
    instruction.out = NewRegister(like.has_rows, like.is_late, like.width);
    return instruction;
  }

  int32_t Affine(int32_t a, double scale, double constant, const Like& like) {
    Planned affine = Elementwise(fns_.affine, like);
    affine.a = affine.b = affine.c = a;
    affine.scale = static_cast<float>(scale);
    affine.constant = static_cast<float>(constant);
    Emit(affine);
    return affine.out;
  }

  // Returns scale a b, plus c unless it is kNone.
  int32_t Product(int32_t a, int32_t b, int32_t c, double scale, const Like& like) {
    if (!HasSameShape(a, like)) std::swap(a, b);
    a = Expanded(a, like);
    const size_t operand = GetOperand(&b, like);
    Planned product =
        Elementwise(c == kNone ? fns_.multiply[operand] : fns_.multiply_add[operand], like);
    product.a = a;
    product.b = b;
    product.c = c == kNone ? a : c;
    product.scale = static_cast<float>(scale);
    Emit(product);
    return product.out;
  }

  int32_t Sum(const std::vector<Term>& terms, double constant) {
    Like like = {false, false, 1};
    for (const Term& term : terms) {
      const Like other = MakeLike({term.a, term.b});
      like = {like.has_rows || other.has_rows, like.is_late || other.is_late,
              std::max(like.width, other.width)};
    }
    int32_t sum = kNone;
    for (const Term& term : terms) {
      if (term.b != kNone) {
        sum = Product(term.a, term.b, sum, term.scale, like);
      } else if (sum == kNone) {
        sum = Expanded(term.a, like);
        if (term.scale != 1 || constant != 0) {
          sum = Affine(sum, term.scale, constant, like);
          constant = 0;
        }
      } else {
        int32_t b = term.a;
        const size_t operand = GetOperand(&b, like);
        Planned add = Elementwise(fns_.add[operand], like);
        add.a = add.b = b;
        add.c = sum;
        add.scale = static_cast<float>(term.scale);
        Emit(add);
        sum = add.out;
      }
    }
    return constant == 0 ? sum : Affine(sum, 1, constant, like);
  }

  // Returns true for a product that becomes a term of the one sum of its type that reads it.
  bool IsDeferred(const Node& node) const {
    const ValueId id = node.outputs[0];
    if (readers_[Index(id)] != 1 || output_of_[Index(id)] != kNone) return false;
    const Node& reader = graph_.nodes[Index(last_reader_[Index(id)])];
    const bool weighted = reader.op->name == "weighted_sum";
    if (!weighted && reader.op->name != "combine") return false;
    const size_t at = static_cast<size_t>(
        std::find(reader.inputs.begin(), reader.inputs.end(), id) - reader.inputs.begin());
    const bool alone =
        !weighted ||
        (at % 2 == 0 && (at + 1 == reader.inputs.size() || reader.inputs[at + 1] == kNoValue));
    return alone && types_[Index(reader.outputs[0])] == types_[Index(id)];
  }

  void AddTerm(std::vector<Term>* terms, double scale, ValueId a, ValueId b) {
    if (b == kNoValue && deferred_[Index(a)]) {
      const Node& product = graph_.nodes[Index(graph_.value(a).producer)];
      terms->push_back({scale, Get(product.inputs[0]), Get(product.inputs[1])});
      return;
    }
    terms->push_back({scale, Get(a), b == kNoValue ? kNone : Get(b)});
  }

  int32_t LowerSum(const Node& node) {
    const bool weighted = node.op->name == "weighted_sum";
    const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
    std::vector<Term> terms;
    for (size_t i = 0; i < coefs.size(); ++i) {
      const size_t at = weighted ? 2 * i : i;
      const bool pair = weighted && at + 1 < node.inputs.size();
      AddTerm(&terms, coefs[i], node.inputs[at], pair ? node.inputs[at + 1] : kNoValue);
    }
    return Sum(terms, node.attrs.GetDouble("constant", 0));
  }

  int32_t LowerFunction(const InstructionFn& run, int32_t a, int32_t b, int32_t c,
                        double constant) {
    const Like like = MakeLike({a, b, c});
    Planned function = Elementwise(run, like);
    function.a = Expanded(a, like);
    function.b = Expanded(b, like);
    function.c = Expanded(c, like);
    function.constant = static_cast<float>(constant);
    Emit(function);
    return function.out;
  }

  // Returns a reduction of `a` to `size` channels.
  Planned Reduction(const InstructionFn& run, int32_t a, int32_t b, int64_t size) {
    Planned reduction(run);
    reduction.a = reduction.c = a;
    reduction.b = b == kNone ? a : b;
    reduction.width = static_cast<int32_t>(At(a).width);
    reduction.other = static_cast<int32_t>(size);
    return reduction;
  }

  // Sums groups of channels of a b.
  int32_t LowerRowDot(const Node& node) {
    const int64_t size = types_[Index(node.outputs[0])].shape.last();
    int32_t a = Get(node.inputs[0]);
    int32_t b = node.inputs.size() > 1 && node.inputs[1] != kNoValue ? Get(node.inputs[1]) : kNone;
    const Like like = MakeLike({a, b});
    if (b != kNone && (size != 1 || size == like.width || At(b).width != like.width)) {
      a = Product(a, b, kNone, 1, like);
      b = kNone;
    }
    if (size == like.width) return a;
    InstructionFn run = fns_.sum_channels;
    if (b != kNone) run = fns_.dot[At(b).has_rows ? 0 : 1];
    Planned dot = Reduction(run, a, b, size);
    dot.out = NewRegister(like.has_rows, like.is_late, size);
    Emit(dot);
    return dot.out;
  }

  // Sums a b over rows and groups of channels.
  int32_t LowerMulReduce(const Node& node) {
    const int64_t size = types_[Index(node.outputs[0])].shape.last();
    int32_t a = Get(node.inputs[0]);
    int32_t b = node.inputs.size() > 1 && node.inputs[1] != kNoValue ? Get(node.inputs[1]) : kNone;
    const Like like = MakeLike({a, b});
    a = Expanded(a, like);
    const bool alike = b != kNone && HasSameShape(b, like);
    const bool per_row = b != kNone && !alike && At(b).has_rows && At(b).width == 1;
    const bool taken = size == like.width ? alike || per_row : alike && size == 1;
    if (b != kNone && !taken) {
      a = Product(a, b, kNone, 1, like);
      b = kNone;
    }
    InstructionFn run = b == kNone ? fns_.add_all : fns_.add_dot;
    if (size == like.width) run = b == kNone ? fns_.add_rows : fns_.add_products[alike ? 0 : 1];
    Planned sum = Reduction(run, a, b, size);
    if (like.has_rows) {
      ProgramRegister sums = {Place::kSums, size, false};
      sums.is_late = true;
      sums.offset = lowered_.sum_floats;
      lowered_.sum_floats += CeilDiv(size, kPaddedFloats) * kPaddedFloats;
      sum.out = AddRegister(sums);
    } else {
      Planned zero(fns_.fill);
      zero.width = static_cast<int32_t>(size);
      zero.out = sum.out = NewRegister(false, like.is_late, size);
      zero.a = zero.b = zero.c = a;
      Emit(zero);
    }
    Emit(sum);
    return sum.out;
  }

  void LowerSplit(const Node& node) {
    const int32_t whole = Get(node.inputs[0]);
    int64_t offset = 0;
    for (const ValueId id : node.outputs) {
      const TensorType& type = types_[Index(id)];
      const int64_t width = At(whole).has_rows ? type.shape.last() : type.num_elements();
      if (width == At(whole).width) {
        register_of_[Index(id)] = whole;
      } else if (!At(whole).has_rows) {
        ProgramRegister part = At(whole);  // the same memory
        part.width = width;
        part.offset += offset;
        register_of_[Index(id)] = AddRegister(part);
      } else if (readers_[Index(id)] > 0) {
        Planned slice(fns_.slice);
        slice.a = slice.b = slice.c = whole;
        slice.width = static_cast<int32_t>(width);
        slice.other = static_cast<int32_t>(At(whole).width);
        slice.offset = static_cast<int32_t>(offset);
        slice.out = NewRegister(true, false, width);
        Emit(slice);
        register_of_[Index(id)] = slice.out;
      }
      offset += width;
    }
  }

  int32_t LowerConcat(const Node& node) {
    std::vector<int32_t> parts;
    Like like = {false, false, 0};
    for (const ValueId id : node.inputs) {
      parts.push_back(Get(id));
      like.has_rows = like.has_rows || At(parts.back()).has_rows;
      like.is_late = like.is_late || At(parts.back()).is_late;
      like.width += At(parts.back()).width;
    }
    const int32_t whole = NewRegister(like.has_rows, like.is_late, like.width);
    int64_t offset = 0;
    for (const int32_t part : parts) {
      Planned place(fns_.place);
      place.a = place.b = place.c = part;
      place.out = whole;
      place.width = static_cast<int32_t>(At(part).width);
      place.other = static_cast<int32_t>(like.width);
      place.offset = static_cast<int32_t>(offset);
      Emit(place);
      offset += At(part).width;
    }
    return whole;
  }

  int32_t LowerFill(const Node& node) {
    const TensorType& type = types_[Index(node.outputs[0])];
    const bool has_rows = type.shape.rank() > 1;
    if (has_rows) lowered_.rows = type.shape.rows();
    Planned fill(fns_.fill);
    fill.width = static_cast<int32_t>(has_rows ? type.shape.last() : type.num_elements());
    fill.constant = static_cast<float>(node.attrs.GetDouble("value"));
    fill.out = NewRegister(has_rows, false, fill.width);
    fill.a = fill.b = fill.c = fill.out;
    Emit(fill);
    return fill.out;
  }

  absl::StatusOr<int32_t> LowerActivation(const Node& node) {
    PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                           ParseActivationKind(node.attrs.GetString("kind")));
    const std::string& op = node.op->name;
    const auto value = [&](int32_t x) {
      return LowerFunction(ActivationInstruction(kind), x, x, x, 0);
    };
    const auto gradient = [&](int32_t x, int32_t dy) {
      return LowerFunction(ActivationGradInstruction(kind), x, dy, x, 0);
    };
    const int32_t x = Get(node.inputs[0]);
    if (op == "act") return value(x);
    const int32_t second = Get(node.inputs[1]);  // up, or dy of act
    if (op == "act_grad") return gradient(x, second);
    if (op == "gated") return Sum({{1, value(x), second}}, 0);
    // A result may share memory with an operand: dup is written after `up` has been read, and dgate
    // after all operands have.
    const int32_t dy = Get(node.inputs[2]), d_act = Sum({{1, dy, second}}, 0);
    register_of_[Index(node.outputs[1])] = Sum({{1, dy, value(x)}}, 0);
    return gradient(x, d_act);
  }

  absl::Status Lower(const Node& node) {
    const std::string& op = node.op->name;
    int32_t result = kNone;
    if (op == "combine" || op == "weighted_sum") {
      result = LowerSum(node);
    } else if (op == "mul") {
      if (IsDeferred(node)) {
        deferred_[Index(node.outputs[0])] = true;
        return absl::OkStatus();
      }
      result = Sum({{1, Get(node.inputs[0]), Get(node.inputs[1])}}, 0);
    } else if (op == "map" || op == "map_grad") {
      PLUMB_ASSIGN_OR_RETURN(const MapKind kind, ParseMapKind(node.attrs.GetString("kind")));
      const int32_t x = Get(node.inputs[0]), dy = op == "map" ? x : Get(node.inputs[1]);
      result = LowerFunction(op == "map" ? MapInstruction(kind) : MapGradInstruction(kind), x, dy,
                             x, node.attrs.GetDouble("number", 0));
    } else if (op == "act" || op == "act_grad" || op == "gated" || op == "gated_grad") {
      PLUMB_ASSIGN_OR_RETURN(result, LowerActivation(node));
    } else if (op == "extremum" || op == "extremum_grad") {
      const size_t max = node.attrs.GetBool("max", true) ? 1 : 0;
      const int32_t a = Get(node.inputs[0]), b = Get(node.inputs[1]);
      if (op == "extremum") {
        result = LowerFunction(fns_.extremum[max], a, b, a, 0);
      } else {
        const int32_t dy = Get(node.inputs[2]);
        result = LowerFunction(fns_.extremum_grad[max], a, b, dy, 0);
        register_of_[Index(node.outputs[1])] = Sum({{1, dy, kNone}, {-1, result, kNone}}, 0);
      }
    } else if (op == "row_dot") {
      result = LowerRowDot(node);
    } else if (op == "mul_reduce") {
      result = LowerMulReduce(node);
    } else if (op == "expand") {
      const int32_t x = Get(node.inputs[0]);
      const TensorType& type = types_[Index(node.outputs[0])];
      result = Expanded(x, {type.shape.rank() > 1, At(x).is_late, type.shape.last()});
    } else if (op == "concat") {
      result = LowerConcat(node);
    } else if (op == "stop") {
      result = Get(node.inputs[0]);
    } else if (op == "fill") {
      result = LowerFill(node);
    } else if (op == "split") {
      LowerSplit(node);
      return absl::OkStatus();
    } else {
      return absl::InternalError(absl::StrCat("the op ", op, " cannot be part of a program"));
    }
    register_of_[Index(node.outputs[0])] = result;
    return absl::OkStatus();
  }

  // Stores a value to the memory of the outputs that it is.
  void Store(ValueId id) {
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      if (output_of_[Index(id)] == kNone || graph_.outputs[k].value != id) continue;
      const int32_t reg = Get(id);
      const bool is_bf16 = types_[Index(id)].dtype == DType::kBF16;
      ProgramRegister& from = lowered_.registers[Index(reg)];
      ProgramRegister memory = {Place::kOutput, from.width, from.has_rows};
      memory.index = static_cast<int64_t>(k);
      memory.is_late = from.is_late;
      memory.is_bf16 = is_bf16;
      const bool is_own = from.place == Place::kTile && computed_[Index(reg)];
      if (is_own && !is_bf16) {
        from = memory;  // computed in the output directly
        continue;
      }
      Planned copy(is_bf16 ? fns_.store_bf16 : fns_.affine);
      copy.a = copy.b = copy.c = reg;
      copy.width = static_cast<int32_t>(memory.width);
      copy.out = AddRegister(memory);
      Emit(copy);
    }
  }

  // Assigns memory to the registers of a tile. Registers share it if their lifetimes do not
  // overlap.
  void AllocateSlots() {
    std::vector<int32_t> last(lowered_.registers.size(), kNone);
    for (size_t i = 0; i < tile_.size(); ++i) {
      const Instruction& each = tile_[i];
      for (const int32_t reg : {each.a, each.b, each.c, each.out}) {
        last[Index(reg)] = static_cast<int32_t>(i);
      }
    }
    std::vector<bool> placed(lowered_.registers.size(), false);
    std::map<int64_t, std::vector<int64_t>> free;  // slots by width
    for (size_t i = 0; i < tile_.size(); ++i) {
      const Instruction& each = tile_[i];
      const auto release = [&](int32_t reg) {
        ProgramRegister& dying = lowered_.registers[Index(reg)];
        if (dying.place != Place::kTile || last[Index(reg)] != static_cast<int32_t>(i)) return;
        free[dying.width].push_back(dying.index);
        last[Index(reg)] = kNone;  // release only once
      };
      // The result may take the memory of an operand of the same type: instructions read an element
      // before they write it.
      for (const int32_t reg : {each.a, each.b, each.c}) {
        if (reg != each.out) release(reg);
      }
      ProgramRegister& out = lowered_.registers[Index(each.out)];
      if (out.place == Place::kTile && !placed[Index(each.out)]) {
        placed[Index(each.out)] = true;
        std::vector<int64_t>& slots = free[out.width];
        if (slots.empty()) {
          out.index = static_cast<int64_t>(lowered_.slot_widths.size());
          lowered_.slot_widths.push_back(out.width);
        } else {
          out.index = slots.back();
          slots.pop_back();
        }
      }
      release(each.out);
    }
  }

  void ChooseVersions() {
    const auto is_padded = [this](int32_t reg) {
      return At(reg).place != Place::kInput && At(reg).place != Place::kOutput;
    };
    for (Plan* plan : {&before_, &tile_, &after_}) {
      for (Planned& each : *plan) {
        // A scalar is read alone, without its neighbours, so it needs no padding.
        const bool scalar = At(each.out).has_rows && !At(each.b).has_rows && At(each.b).width == 1;
        const bool padded = is_padded(each.a) && (scalar || is_padded(each.b)) &&
                            is_padded(each.c) && is_padded(each.out);
        each.run = padded ? each.fn.run_padded : each.fn.run;
      }
    }
  }

  // Drops registers without instructions, and merges those that share a slot: a run sets fewer
  // addresses.
  void NumberRegisters() {
    std::vector<ProgramRegister> kept;
    std::vector<int32_t> number(lowered_.registers.size(), kNone);
    std::vector<int32_t> of_slot(lowered_.slot_widths.size(), kNone);
    const auto renumber = [&](int32_t* reg) {
      const ProgramRegister& old = At(*reg);
      int32_t& known =
          old.place == Place::kTile ? of_slot[static_cast<size_t>(old.index)] : number[Index(*reg)];
      if (known == kNone) {
        known = static_cast<int32_t>(kept.size());
        kept.push_back(old);
      }
      *reg = known;
    };
    const auto finish = [&](const Plan& plan, std::vector<Instruction>* instructions) {
      for (Instruction each : plan) {
        for (int32_t* reg : {&each.out, &each.a, &each.b, &each.c}) renumber(reg);
        instructions->push_back(each);
      }
    };
    finish(before_, &lowered_.before);
    finish(tile_, &lowered_.tile);
    finish(after_, &lowered_.after);
    lowered_.registers = std::move(kept);
  }

  const ProgramAttr& program_;
  const Graph& graph_;
  const std::vector<TensorType> types_;
  const InstructionFns& fns_;
  LoweredProgram lowered_;
  Plan before_, tile_, after_;
  absl::Status error_;
  std::vector<int32_t> register_of_;  // this and the following: by ValueId
  std::vector<int32_t> output_of_;    // last output that is the value
  std::vector<int32_t> readers_;      // number of operands and outputs that are the value
  std::vector<int32_t> last_reader_;  // node
  std::vector<bool> deferred_;
  std::vector<bool> computed_;  // indexed by register: an instruction of a tile writes it
};

}  // namespace

absl::StatusOr<LoweredProgram> LoweredProgram::Of(const ProgramAttr& program,
                                                  absl::Span<const TensorType* const> inputs) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferProgram(program, inputs));
  return Lowering(program, std::move(types)).Run();
}

}  // namespace plumb
