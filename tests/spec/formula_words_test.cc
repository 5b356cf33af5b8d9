// Words that are not in the language, names of norms, and values that nothing reads: each message
// as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(FormulaWordErrorTest, FunctionsOfTheLiteratureSayWhatToWrite) {
  struct Word {
    const char *call, *instead;
  };
  constexpr Word kWords[] = {
      {"relu(x)", "write max(x, 0)"},
      {"ReLU(x)", "write max(x, 0)"},
      {"leaky_relu(x)", "write max(x, 0.01 * x)"},
      {"elu(x)", "write max(x, 0) + exp(min(x, 0)) - 1"},
      {"silu(x)", "write x * sigmoid(x)"},
      {"swish(x)", "write x * sigmoid(x)"},
      {"gelu(x)",
       "write 0.5 * x * (1 + erf(x / sqrt(2))), or let the MLP do it: mlp { activation: GELU }"},
      {"softplus(x)", "write log(1 + exp(x))"},
      {"mish(x)", "write x * tanh(log(1 + exp(x)))"},
      {"logistic(x)", "write sigmoid(x)"},
      {"hardtanh(x)", "write min(max(x, -1), 1)"},
      {"square(x)", "write x ^ 2"},
      {"pow(x, 2)", "write x ^ 2"},
      {"rsqrt(x)", "write 1 / sqrt(x)"},
      {"reciprocal(x)", "write 1 / x"},
      {"clamp(x, 0, 1)", "write min(max(x, low), high)"},
      {"clip(x, 0, 1)", "write min(max(x, low), high)"},
      {"where(x > 0, x, 1)", "write c * a + (1 - c) * b, with a comparison for c: (x > 0)"},
      {"sign(x)", "write (x > 0) - (x < 0)"},
      {"floor(x)", "of numbers, write a - a % 1"},
      {"ln(x)", "write log(x); a norm slot has \"norm\" in its name"},
      {"log2(x)", "write log(x) / log(2)"},
      {"sin(x)", "it has exp, log, sqrt, abs, tanh, sigmoid and erf"},
      {"cos(x)", "it has exp, log, sqrt, abs, tanh, sigmoid and erf"},
      {"erfc(x)", "write 1 - erf(x)"},
      {"mean(x)", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
      {"var(x)", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
      {"std(x)", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
      {"inner(x, x)", "write dot(a, b)"},
      {"prod(x)", "only sum, softmax and concat run over a range"},
      {"cat(x, x)", "write concat(a, b)"},
      {"stack(x, x)", "write concat(a, b)"},
      {"concatenate(x, x)", "write concat(a, b)"},
      {"chunk(x, 2)", "write part(x, i, n)"},
      {"split(x, 2)", "write part(x, i, n)"},
      {"log_softmax(x)", "write softmax(k = 1..n, score, value)"},
      {"logsumexp(x)", "write log(sum(k = 1..n, exp(s[k])))"},
      {"dropout(x, 0.1)", "write drop(x, 0.1)"},
      {"Dropout(x, 0.1)", "write drop(x, 0.1)"},
      {"DropPath(x, 0.1)", "write drop_path(x, 0.1)"},
      {"stochastic_depth(x, 0.1)", "write drop_path(x, 0.1)"},
      {"detach(x)", "write stop(x)"},
      {"stop_grad(x)", "write stop(x)"},
      {"stop_gradient(x)", "write stop(x)"},
      {"no_grad(x)", "write stop(x)"},
      {"sg(x)", "write stop(x)"},
      {"linear(x)", "declare a projection: linear { name: \"proj\" }, and call it: proj(x)"},
      {"Linear(x)", "declare a projection: linear { name: \"proj\" }, and call it: proj(x)"},
      {"dense(x)", "declare a projection: linear { name: \"proj\" }, and call it: proj(x)"},
      {"matmul(x, x)", "declare a projection: linear { name: \"proj\" }, and call it: proj(x)"},
      {"einsum(x, x)", "declare a projection: linear { name: \"proj\" }, and call it: proj(x)"},
      {"rms(x)", "a norm slot has \"norm\" in its name: norm(x), rms_norm(x)"},
      {"attn(x)",
       "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
      {"self_attention(x)",
       "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
      {"ffn(x)", "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
      {"feed_forward(x)",
       "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
      {"conv(x)",
       "a formula sees one token; neighbouring tokens are mixed by sublayers: attention, conv"},
      {"shift(x)",
       "a formula sees one token; neighbouring tokens are mixed by sublayers: attention, conv"},
      {"roll(x, 1)",
       "a formula sees one token; neighbouring tokens are mixed by sublayers: attention, conv"},
      {"cumsum(x)",
       "a formula sees one token; neighbouring tokens are mixed by sublayers: attention, conv"},
  };
  for (const Word& word : kWords) {
    const std::string call = word.call;
    EXPECT_EQ(PlacementError("each: \"x = x + f(" + call + ")\""),
              "m.pbtxt:4:1: placement \"p\", each, attention: the language has no function " +
                  call.substr(0, call.find('(')) + "; " + word.instead + "\n  x = x + f(" + call +
                  ")\n            ^");
  }
}

TEST(FormulaWordErrorTest, AnUnknownWordIsNoNorm) {
  EXPECT_EQ(PlacementError("each: \"x = x + dropuot(f(norm(x)), 0.1)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"dropuot\"; did you "
            "mean \"drop\"?\n"
            "  x = x + dropuot(f(norm(x)), 0.1)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(LayerNorm(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"LayerNorm\"; a norm "
            "slot has \"norm\" in its name, or is declared: slot { name: \"LayerNorm\" }; a "
            "projection: linear { name: \"LayerNorm\" }\n"
            "  x = x + f(LayerNorm(x))\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(Norm(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"Norm\"; did you "
            "mean \"norm\"?\n"
            "  x = x + f(Norm(x))\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(nomr(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"nomr\"; did you "
            "mean \"norm\"?\n"
            "  x = x + f(nomr(x))\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + proj(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"proj\"; a norm slot "
            "has \"norm\" in its name, or is declared: slot { name: \"proj\" }; a projection: "
            "linear { name: \"proj\" }\n"
            "  x = x + proj(f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + sigma(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"sigma\"; a norm "
            "slot has \"norm\" in its name, or is declared: slot { name: \"sigma\" }; a "
            "projection: linear { name: \"sigma\" }\n"
            "  x = x + sigma(f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + einsum(f(x), x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the language has no function einsum; "
            "declare a projection: linear { name: \"proj\" }, and call it: proj(x)\n"
            "  x = x + einsum(f(x), x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + outer(f(x), x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"outer\"; a norm "
            "slot has \"norm\" in its name, or is declared: slot { name: \"outer\" }; a "
            "projection: linear { name: \"outer\" }\n"
            "  x = x + outer(f(x), x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + concatenate(f(x), x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the language has no function "
            "concatenate; write concat(a, b)\n"
            "  x = x + concatenate(f(x), x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + mlp(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: in \"each\" the sublayer is called f; "
            "to call mlp by its name use \"block\"\n"
            "  x = x + mlp(f(x))\n"
            "          ^");
}

TEST(FormulaWordErrorTest, ASlotIsDeclaredOrSaysNorm) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(normalize(x))\""), "no error");
  EXPECT_EQ(PlacementError("slot { name: \"ln\" } each: \"x = x + f(ln(x))\""), "no error");
  EXPECT_EQ(PlacementError("slot { name: \"ln\" } each: \"x = x + f(lm(x))\""),
            "m.pbtxt:4:21: placement \"p\", each, attention: unknown function \"lm\"; a norm slot "
            "has \"norm\" in its name, or is declared: slot { name: \"lm\" }; a projection: linear "
            "{ name: \"lm\" }\n"
            "  x = x + f(lm(x))\n"
            "            ^");
  EXPECT_EQ(PlacementError("slot { name: \"ln\" } each: \"x = x + f(norm(x))\""),
            "m.pbtxt:3:3: placement \"p\": slot \"ln\" is declared, but nothing applies it");
  EXPECT_EQ(PlacementError("slot { name: \"ln\" per_head: true } each: \"x = x + f(ln(x))\""),
            "m.pbtxt:4:36: placement \"p\", each, attention: the slot \"ln\" normalizes per head; "
            "there are heads only inside attention\n"
            "  x = x + f(ln(x))\n"
            "            ^");
}

TEST(FormulaWordErrorTest, ANormIsCalled) {
  EXPECT_EQ(PlacementError("each: \"norm = f(x)\" each: \"x = x + norm\""), "no error");
  EXPECT_EQ(PlacementError("each: \"x = x + norm * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"norm\"; a norm is "
            "called: norm(x)\n"
            "  x = x + norm * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("learned { name: \"norm\" } each: \"x = x + norm(f(x))\""),
            "m.pbtxt:4:26: placement \"p\", each, attention: \"norm\" is a learned value; multiply "
            "with it: norm * (...)\n"
            "  x = x + norm(f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("learned { name: \"norm\" } each: \"x = x + norm * f(x)\""), "no error");
}

TEST(FormulaWordErrorTest, OtherLanguagesAreNotThisOne) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(x).detach()\""),
            "m.pbtxt:4:1: a formula cannot hold \".\"\n"
            "  x = x + f(x).detach()\n"
            "              ^");
  EXPECT_EQ(PlacementError("each: \"x += f(x)\""),
            "m.pbtxt:4:1: expected \"=\" after \"x\"; write x = x + ...\n"
            "  x += f(x)\n"
            "    ^");
  EXPECT_EQ(PlacementError("each: \"x = f(x) if layer > 1 else x\""),
            "m.pbtxt:4:1: there is no \"else\"; write a second statement, with \"if not\"\n"
            "  x = f(x) if layer > 1 else x\n"
            "                        ^");
  EXPECT_EQ(PlacementError("each: \"x = lambda f(x)\""),
            "m.pbtxt:4:1: expected an operator or the end, not \"f\"\n"
            "  x = lambda f(x)\n"
            "             ^");
  EXPECT_EQ(PlacementError("each: \"x = x + [f(x), x]\""),
            "m.pbtxt:4:1: expected a value, not \"[\"\n"
            "  x = x + [f(x), x]\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"return x + f(x)\""),
            "m.pbtxt:4:1: expected \"=\" after \"return\"\n"
            "  return x + f(x)\n"
            "         ^");
  EXPECT_EQ(PlacementError("each: \"x := f(x)\""),
            "m.pbtxt:4:1: a formula cannot hold \":\"\n"
            "  x := f(x)\n"
            "    ^");
  EXPECT_EQ(PlacementError("each: \"x <- f(x)\""),
            "m.pbtxt:4:1: expected \"=\" after \"x\"\n"
            "  x <- f(x)\n"
            "    ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x);\""),
            "m.pbtxt:4:1: a formula cannot hold \";\"\n"
            "  x = x + f(x);\n"
            "              ^");
  EXPECT_EQ(PlacementError("each: \"x, y = f(x)\""),
            "m.pbtxt:4:1: expected \"=\" after \"x\"\n"
            "  x, y = f(x)\n"
            "   ^");
}

TEST(FormulaWordErrorTest, WhatIsSetIsRead) {
  EXPECT_EQ(PlacementError("each: \"y = norm(x)\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"y\" is set and never read\n"
            "  y = norm(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"y = f(x)\" each: \"x = 2 * x\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"y\" is set and never read\n"
            "  y = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"y = f(x)\" each: \"z = y\" each: \"x = 2 * x\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"y\" is set and never read\n"
            "  y = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("begin: \"d = x\" each: \"x = x + f(x)\" each: \"d = d + x\""),
            "m.pbtxt:4:1: placement \"p\", begin: the stream \"d\" is set and never read; \"end\" "
            "must use it\n"
            "  d = x\n"
            "  ^");
  EXPECT_EQ(
      PlacementError(
          "each: \"x = x + f(x)\" each: \"x = norm(x)\" end: \"x = h[0]\" begin: \"h[0] = x\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: the stream \"x\" is set and never read; "
      "\"end\" must use it\n"
      "  x = x + f(x)\n"
      "  ^");
}

TEST(FormulaWordErrorTest, SublayersAreAlive) {
  EXPECT_EQ(PlacementError("block: \"x = x + attention(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: the sublayer mlp is never called; its weights "
            "would be dead\n"
            "  x = x + attention(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("block: \"y = mlp(x)\" block: \"x = x + attention(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: \"y\" is set and never read\n"
            "  y = mlp(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" block: \"h[i] = attention(x) + mlp(x) for i = "
                           "0..0\" end: \"x = h[0]\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"h[0]\" is set and never read\n"
            "  h[0] = x\n"
            "  ^");
}

}  // namespace
}  // namespace plumb
