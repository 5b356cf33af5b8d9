// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/known_functions.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace plumb {
namespace {

constexpr char kProjection[] =
    "declare a projection: linear { name: \"proj\" }, and call it: proj(x)";
constexpr char kOverTokens[] =
    "tokens are mixed by shift(x, n), which is x n tokens before, and by sublayers: attention, "
    "conv";

struct Known {
  const char* name;  // lower case, without underscores
  const char* instead;
};
constexpr Known kKnown[] = {
    // activations
    {"relu", "write relu(x)"},
    {"leakyrelu", "write max(x, 0.01 * x)"},
    {"elu", "write max(x, 0) + exp(min(x, 0)) - 1"},
    {"silu", "write silu(x)"},
    {"swish", "write silu(x)"},
    {"gelu", "write gelu(x), or gelu_tanh(x) for its approximation"},
    {"gelunew", "write gelu_tanh(x)"},
    {"quickgelu", "write x * sigmoid(1.702 * x)"},
    {"softplus", "write softplus(x)"},
    {"logsigmoid", "write -softplus(-x)"},
    {"mish", "write x * tanh(softplus(x))"},
    {"logistic", "write sigmoid(x)"},
    {"hardtanh", "write min(max(x, -1), 1)"},
    // arithmetic
    {"square", "write x ^ 2"},
    {"pow", "write x ^ 2"},
    {"rsqrt", "write 1 / sqrt(x)"},
    {"reciprocal", "write 1 / x"},
    {"clamp", "write min(max(x, low), high)"},
    {"clip", "write min(max(x, low), high)"},
    {"where", "write c * a + (1 - c) * b, with a comparison for c: (x > 0)"},
    {"sign", "write (x > 0) - (x < 0)"},
    {"ceil", "write -floor(-x)"},
    {"round", "write floor(x + 0.5)"},
    {"ln", "write log(x); a norm slot has \"norm\" in its name"},
    {"log2", "write log(x) / log(2)"},
    {"log10", "write log(x) / log(10)"},
    {"sin", "it has exp, log, sqrt, abs, tanh, sigmoid and erf"},
    {"cos", "it has exp, log, sqrt, abs, tanh, sigmoid and erf"},
    {"erfc", "write 1 - erf(x)"},
    // over channels
    {"mean", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"var", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"std", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"inner", "write dot(a, b)"},
    {"prod", "only sum, softmax and concat run over a range"},
    {"cat", "write concat(a, b)"},
    {"stack", "write concat(a, b)"},
    {"concatenate", "write concat(a, b)"},
    {"chunk", "write part(x, i, n)"},
    {"split", "write part(x, i, n)"},
    {"logsoftmax", "write softmax(k = 1..n, score, value)"},
    {"logsumexp", "write log(sum(k = 1..n, exp(s[k])))"},
    // training
    {"dropout", "write drop(x, 0.1)"},
    {"droppath", "write drop_path(x, 0.1)"},
    {"stochasticdepth", "write drop_path(x, 0.1)"},
    {"detach", "write stop(x)"},
    {"stopgrad", "write stop(x)"},
    {"stopgradient", "write stop(x)"},
    {"nograd", "write stop(x)"},
    {"sg", "write stop(x)"},
    // functions with weights
    {"linear", kProjection},
    {"dense", kProjection},
    {"matmul", kProjection},
    {"einsum", kProjection},
    {"rms", "a norm slot has \"norm\" in its name: norm(x), rms_norm(x)"},
    {"attn", "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
    {"selfattention",
     "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
    {"ffn", "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
    {"feedforward",
     "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
    // over tokens
    {"conv", kOverTokens},
    {"conv1d", kOverTokens},
    {"roll", "write shift(x, 1) for the value of the token before"},
    {"tokenshift", "write shift(x, 1) for the value of the token before"},
    {"cumsum", kOverTokens},
};

}  // namespace

std::string SuggestReplacement(absl::string_view name) {
  const std::string plain = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", ""}});
  for (const Known& known : kKnown) {
    if (plain == known.name) return known.instead;
  }
  return "";
}

}  // namespace plumb
