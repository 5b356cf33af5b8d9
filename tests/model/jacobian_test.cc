// SPDX-License-Identifier: Apache-2.0
// Compares the Jacobians that describe prints for every shipped placement with numeric ones. The
// formulas are evaluated for one token: sublayers, norms and projections are random matrices, one
// for each name, and a learned value is one number for each name, so a printed product is a matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/rng.h"
#include "runtime/model/routes.h"
#include "runtime/spec/interpret.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;  // of rows

constexpr size_t kWidth = 8;
constexpr char kNoFormula[] = "several streams carry the signal; no formula for x alone";
// Placements with functions or products of tensors, whose Jacobians are no matrices of the test.
const std::set<std::string> kNoProducts = {"deep_delta",
                                           "depth_scaled_sandwich",
                                           "dyt",
                                           "elc_bert",
                                           "frac_connections",
                                           "gtrxl",
                                           "highway",
                                           "kimi_k3",
                                           "orthogonal_residual",
                                           "prores",
                                           "seednorm"};
constexpr char kOthers[] = "; other streams carry the signal too";

Vector Random(const std::string& name, size_t size) {
  const RngStream stream(3, name);
  Vector values(size);
  for (size_t i = 0; i < size; ++i) values[i] = 0.4 * stream.Normal(i);
  return values;
}

Matrix Named(const std::string& name, size_t rows, size_t columns) {
  const Vector values = Random(name, rows * columns);
  Matrix matrix(rows, Vector(columns));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) matrix[i][j] = values[i * columns + j];
  }
  return matrix;
}

double LearnedValue(const std::string& name) { return 0.5 + std::abs(Random(name, 1)[0]); }

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix product(a.size(), Vector(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) product[i][j] += a[i][k] * b[k][j];
    }
  }
  return product;
}

Matrix Scaled(double scale) {
  Matrix matrix(kWidth, Vector(kWidth));
  for (size_t i = 0; i < kWidth; ++i) matrix[i][i] = scale;
  return matrix;
}

double Largest(const Matrix& matrix) {
  double largest = 0;
  for (const Vector& row : matrix) {
    for (const double value : row) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// Value of one token and its derivative with respect to a seed of kWidth channels.
struct Dual {
  Vector value;
  Matrix derivative;  // [width, kWidth]
};

double Element(const Function& f, size_t i, const std::vector<Vector>& v) {
  const double a = v[0][i];
  const double b = v.size() > 1        ? v[1][i * v[1].size() / v[0].size()]
                   : f.numbers.empty() ? 0
                                       : f.numbers[0];
  if (f.name == "exp") return std::exp(a);
  if (f.name == "log") return std::log(a);
  if (f.name == "sqrt") return std::sqrt(a);
  if (f.name == "tanh") return std::tanh(a);
  if (f.name == "sigmoid") return 1 / (1 + std::exp(-a));
  if (f.name == "gelu_tanh") {
    return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
  }
  if (f.name == "reciprocal") return 1 / a;
  if (f.name == "max") return std::max(a, b);
  if (f.name == "min") return std::min(a, b);
  ADD_FAILURE() << "the test lacks the function " << f.name;
  return 0;
}

Vector Evaluate(const Function& f, const std::vector<Vector>& v) {
  if (f.name == "constant") return f.numbers;
  if (f.name == "stop") return v[0];
  if (f.name == "shift") return Vector(v[0].size());  // there is no token before
  Vector out;
  if (f.name == "dot") {
    const size_t groups = f.numbers.empty() ? 1 : static_cast<size_t>(f.numbers[0]);
    out.resize(groups);
    const size_t size = v[0].size() / groups;
    for (size_t i = 0; i < v[0].size(); ++i) out[i / size] += v[0][i] * v[1][i];
  } else if (f.name == "part" || f.name == "slice") {
    const auto i = static_cast<size_t>(f.numbers[0]), n = static_cast<size_t>(f.numbers[1]);
    const size_t size = f.name == "slice" ? n : v[0].size() / n;
    const size_t first = f.name == "slice" ? i : i * size;
    out.assign(&v[0][first], &v[0][first] + size);
  } else if (f.name == "concat") {
    for (const Vector& one : v) out.insert(out.end(), one.begin(), one.end());
  } else if (f.name == "softmax") {
    const size_t width = v[0].size();
    for (const Vector& one : v) {
      for (size_t i = 0; i < width; ++i) {
        double sum = 0;
        for (const Vector& other : v) sum += std::exp(other[i]);
        out.push_back(std::exp(one[i]) / sum);
      }
    }
  } else {
    for (size_t i = 0; i < v[0].size(); ++i) out.push_back(Element(f, i, v));
  }
  return out;
}

class NumericBackend : public NullBackend {
 public:
  // A derivative by the tensor x at boundary `seed` (-1: by the embedding), in which the derivative
  // of x at boundary `cut` is set to 0. Boundary 0 is before the first layer, l after layer l - 1.
  NumericBackend(int64_t seed, int64_t cut) : seed_(seed), cut_(cut) {}

  TensorHandle Embed() override {
    return Add({Random("embedding", kWidth), Scaled(seed_ < 0 ? 1 : 0)});
  }
  TensorHandle Combine(absl::Span<const Term> terms, double constant) override {
    std::vector<TensorHandle> operands;
    for (const Term& term : terms) operands.push_back(term.tensor);
    return Differentiate(operands, [&](const std::vector<Vector>& v) {
      size_t width = 1;
      for (const Vector& one : v) width = std::max(width, one.size());
      Vector out(width, constant);
      for (size_t k = 0; k < v.size(); ++k) {
        for (size_t i = 0; i < width; ++i) {
          out[i] += terms[k].coefficient * v[k][i * v[k].size() / width];
        }
      }
      return out;
    });
  }
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    return Differentiate({a, b}, [](const std::vector<Vector>& v) {
      const size_t width = std::max(v[0].size(), v[1].size());
      Vector out(width);
      for (size_t i = 0; i < width; ++i) {
        out[i] = v[0][i * v[0].size() / width] * v[1][i * v[1].size() / width];
      }
      return out;
    });
  }
  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override {
    if (inside_) return 0;
    const TensorHandle out =
        Differentiate({operands.begin(), operands.end()},
                      [&](const std::vector<Vector>& v) { return Evaluate(function, v); });
    if (function.name == "stop") at(out).derivative = Zeros(kWidth);
    return out;
  }
  TensorHandle Step() override { return Constant({1200}); }
  TensorHandle Drop(const DropSite&, TensorHandle a) override { return a; }
  TensorHandle Learned(const LearnedSite& site) override {
    const std::string& name = site.place->name;
    return Constant(Vector(static_cast<size_t>(site.place->width),
                           LearnedValue(name.substr(name.rfind('.') + 1))));
  }
  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) override {
    return Map(site.spec->name, static_cast<size_t>(site.out), {a});
  }
  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    return Map(site.slot, static_cast<size_t>(site.width), inputs);
  }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    const TensorHandle out = Map(site.spec->name, kWidth, inputs);
    inside_ = true;
    for (const char* point : ListPoints(*site.spec)) {
      PLUMB_RETURN_IF_ERROR(at_point(point, 0).status());
    }
    inside_ = false;
    return out;
  }
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    return Constant(Random(site.table, static_cast<size_t>(site.width)));
  }
  absl::Status Head(TensorHandle x, AtPoint) override {
    head_ = at(x).derivative;
    return absl::OkStatus();
  }
  void BeginLayer(int64_t layer, TensorHandle x) override {
    if (layer == 0) Boundary(0, x);
  }
  void EndLayer(int64_t layer, TensorHandle x) override { Boundary(layer + 1, x); }

  // Derivatives of x at the boundaries, before a seed or cut there, and of the head's input.
  const std::vector<Matrix>& boundaries() const { return boundaries_; }
  const Matrix& head() const { return head_; }

 private:
  static Matrix Zeros(size_t width) { return Matrix(width, Vector(kWidth)); }
  Dual& at(TensorHandle handle) { return tensors_[static_cast<size_t>(handle)]; }
  TensorHandle Add(Dual dual) {
    tensors_.push_back(std::move(dual));
    return static_cast<TensorHandle>(tensors_.size() - 1);
  }
  TensorHandle Constant(Vector value) {
    if (inside_) return 0;
    Matrix zeros = Zeros(value.size());
    return Add({std::move(value), std::move(zeros)});
  }
  void Boundary(int64_t boundary, TensorHandle x) {
    boundaries_.push_back(at(x).derivative);
    if (boundary == seed_) {
      for (Dual& tensor : tensors_) tensor.derivative = Zeros(tensor.value.size());
      at(x).derivative = Scaled(1);
    }
    if (boundary == cut_) at(x).derivative = Zeros(kWidth);
  }
  // Returns function(operands), with a derivative by central differences.
  TensorHandle Differentiate(const std::vector<TensorHandle>& operands,
                             const std::function<Vector(const std::vector<Vector>&)>& function) {
    if (inside_) return 0;
    const auto moved = [&](size_t column, double step) {
      std::vector<Vector> values;
      for (const TensorHandle operand : operands) {
        values.push_back(at(operand).value);
        for (size_t i = 0; i < values.back().size(); ++i) {
          values.back()[i] += step * at(operand).derivative[i][column];
        }
      }
      return function(values);
    };
    Dual out{moved(0, 0), {}};
    out.derivative = Zeros(out.value.size());
    constexpr double kStep = 1e-6;
    for (size_t column = 0; column < kWidth; ++column) {
      const Vector more = moved(column, kStep), less = moved(column, -kStep);
      for (size_t i = 0; i < more.size(); ++i) {
        out.derivative[i][column] = (more[i] - less[i]) / (2 * kStep);
      }
    }
    return Add(std::move(out));
  }
  TensorHandle Map(const std::string& name, size_t width, absl::Span<const TensorHandle> inputs) {
    if (inside_) return 0;
    Dual out{Vector(width), Zeros(width)};
    for (const TensorHandle input : inputs) {
      const Dual& in = at(input);
      const Matrix map = Named(name, width, in.value.size());
      const Matrix derivative = Times(map, in.derivative);
      for (size_t i = 0; i < width; ++i) {
        for (size_t k = 0; k < in.value.size(); ++k) out.value[i] += map[i][k] * in.value[k];
        for (size_t j = 0; j < kWidth; ++j) out.derivative[i][j] += derivative[i][j];
      }
    }
    return Add(std::move(out));
  }

  const int64_t seed_, cut_;
  bool inside_ = false;  // in a sublayer, whose statements are not evaluated
  std::vector<Dual> tensors_;
  std::vector<Matrix> boundaries_;
  Matrix head_;
};

// Evaluates "(I + J_mlp 0.5 J_norm) J_norm". Returns nullopt if it has a factor that is no matrix
// of the test: the Jacobian of a function, such as J_tanh, or D.
class PrintedJacobian {
 public:
  PrintedJacobian(absl::string_view text, const std::map<std::string, Matrix>& matrices)
      : text_(text), matrices_(matrices) {}

  std::optional<Matrix> Product() {
    std::optional<Matrix> product = Scaled(1);
    while (!text_.empty() && text_[0] != ')' && !absl::StartsWith(text_, "+ ")) {
      const std::optional<Matrix> factor = Factor();
      product = product.has_value() && factor.has_value()
                    ? std::optional<Matrix>(Times(*product, *factor))
                    : std::nullopt;
      absl::ConsumePrefix(&text_, " ");
    }
    return product;
  }

 private:
  std::optional<Matrix> Factor() {
    if (absl::ConsumePrefix(&text_, "(")) {
      std::optional<Matrix> sum = Scaled(0);
      do {
        const std::optional<Matrix> product = Product();
        if (!product.has_value()) sum = std::nullopt;
        for (size_t i = 0; sum.has_value() && i < kWidth; ++i) {
          for (size_t j = 0; j < kWidth; ++j) (*sum)[i][j] += (*product)[i][j];
        }
      } while (absl::ConsumePrefix(&text_, "+ "));
      EXPECT_TRUE(absl::ConsumePrefix(&text_, ")")) << text_;
      return sum;
    }
    const absl::string_view word = Word();
    double number = 0;
    absl::string_view name = word;
    if (word == "I") return Scaled(1);
    if (absl::SimpleAtod(word, &number)) return Scaled(number);
    if (absl::ConsumePrefix(&name, "J_")) {
      const auto matrix = matrices_.find(std::string(name));
      return matrix == matrices_.end() ? std::nullopt : std::optional<Matrix>(matrix->second);
    }
    if (word == "D" || absl::StrContains(word, "(") || word == "step") return std::nullopt;
    return Scaled(LearnedValue(std::string(word)));
  }

  // Takes a name or number, or a function of learned values: "sigmoid(gate)".
  absl::string_view Word() {
    size_t end = 0;
    for (int depth = 0; end < text_.size(); ++end) {
      depth += text_[end] == '(' ? 1 : 0;
      if (depth == 0 && (text_[end] == ' ' || text_[end] == ')')) break;
      depth -= text_[end] == ')' ? 1 : 0;
    }
    const absl::string_view word = text_.substr(0, end);
    text_.remove_prefix(end);
    return word;
  }

  absl::string_view text_;
  const std::map<std::string, Matrix>& matrices_;
};

// Collects the matrices that names stand for.
class Matrices : public NullBackend {
 public:
  absl::StatusOr<TensorHandle> Norm(const NormSite& site, absl::Span<const TensorHandle>) override {
    return Add(site.slot, site.width, site.width);
  }
  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle) override {
    return Add(site.spec->name, site.out, site.in);
  }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    Add(site.spec->name, kWidth, kWidth);
    return NullBackend::Sublayer(site, inputs, at_point);
  }
  std::map<std::string, Matrix> of;

 private:
  TensorHandle Add(const std::string& name, int64_t rows, int64_t columns) {
    of[name] = Named(name, static_cast<size_t>(rows), static_cast<size_t>(columns));
    return 0;
  }
};

class JacobianTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kLayers = 4;

  JacobianTest() {
    TinyModel model;
    model.placement = GetParam();
    model.n_layer = kLayers;
    context_ = MakeContext(runtime_.get(), model.Text());
  }
  NumericBackend Run(int64_t seed, int64_t cut) const {
    NumericBackend backend(seed, cut);
    EXPECT_TRUE(RunStack(context_->model, &backend).ok());
    return backend;
  }
  std::string Text(int64_t layer) const {
    return AnalyzeRoutes(context_->model)->jacobians[static_cast<size_t>(layer)];
  }
  Matrix Numeric(int64_t layer) const {
    return Run(layer, -1).boundaries()[static_cast<size_t>(layer) + 1];
  }
  // True for placements that carry a stream inside attention, which the test does not evaluate.
  static bool CarriesInside() { return GetParam() == "value_residual" || GetParam() == "svformer"; }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::unique_ptr<ModelContext> context_;
};

TEST_P(JacobianTest, PrintedProductEqualsDifferences) {
  Matrices matrices;
  ASSERT_TRUE(RunStack(context_->model, &matrices).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string text = Text(layer);
    if (text == kNoFormula) continue;
    const absl::string_view formula = absl::StripSuffix(text, kOthers);
    const Matrix numeric = Numeric(layer);
    EXPECT_EQ(formula == "0", Largest(numeric) < 1e-7) << text;
    if (formula == "0") continue;
    const std::optional<Matrix> printed = PrintedJacobian(formula, matrices.of).Product();
    EXPECT_EQ(printed.has_value(), kNoProducts.count(GetParam()) == 0) << text;
    if (!printed.has_value()) continue;
    double error = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      for (size_t j = 0; j < kWidth; ++j) {
        error = std::max(error, std::abs(numeric[i][j] - (*printed)[i][j]));
      }
    }
    EXPECT_LT(error, 1e-4 * Largest(numeric)) << text;
  }
}

// If x alone carries the signal over a boundary, the head depends on the embedding through it only.
TEST_P(JacobianTest, NamesOtherStreamsThatCarryTheSignal) {
  std::vector<bool> others, by_x;
  for (int64_t boundary = 0; boundary <= kLayers; ++boundary) {
    others.push_back(CarriesInside() || Largest(Run(-1, boundary).head()) > 1e-9);
    by_x.push_back(Largest(Run(boundary, -1).head()) > 1e-9);
  }
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string text = Text(static_cast<int64_t>(layer));
    const bool several = others[layer] || others[layer + 1];
    const Matrix numeric = Numeric(static_cast<int64_t>(layer));
    // The layer does not update x if the derivative is exactly the identity.
    const bool updates = Largest(numeric) > 1e-7 && numeric != Scaled(1);
    const bool has_formula = !several || (by_x[layer + 1] && updates);
    EXPECT_EQ(text != kNoFormula, has_formula) << "layer " << layer << ": " << text;
    EXPECT_EQ(absl::EndsWith(text, kOthers), several && has_formula) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, JacobianTest, ::testing::ValuesIn(ShippedPlacements()), TestName);

}  // namespace
}  // namespace plumb
