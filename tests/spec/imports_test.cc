// SPDX-License-Identifier: Apache-2.0
// Tests of names from other files: imports, shipped placements, extends, and models that need no
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

class ImportsTest : public ::testing::Test {
 protected:
  // Resolves the model in the directory's "m.pbtxt".
  absl::StatusOr<ResolvedModel> Resolve(absl::string_view model_text) {
    const std::string path = directory_.Write("m.pbtxt", absl::StrCat(kDims, model_text));
    return ResolveText(ReadFile(path).value(), &plugins_, path);
  }
  std::string Error(absl::string_view model_text) {
    const absl::StatusOr<ResolvedModel> model = Resolve(model_text);
    return model.ok() ? "no error" : directory_.Hide(std::string(model.status().message()));
  }
  // Returns the body of the first layer's placement.
  std::string Body(absl::string_view model_text) {
    const absl::StatusOr<ResolvedModel> model = Resolve(model_text);
    if (!model.ok()) return std::string(model.status().message());
    const PlacementSpec& placement = *model->layers[0]->placement;
    std::string body;
    for (const Statement& s : placement.lets) absl::StrAppend(&body, "let ", s.ToString(), "; ");
    for (const auto* section :
         {&placement.begin, &placement.each, &placement.block, &placement.end}) {
      for (const Statement& s : *section)
        absl::StrAppend(&body, s.section, " ", s.ToString(), "; ");
    }
    return body;
  }

  PluginRegistry plugins_;
  ScratchDirectory directory_;
};

// Returns the text of a placement that its factor identifies.
std::string Factor(absl::string_view name, int factor) {
  return absl::StrCat("placement { name: \"", name, "\" each: \"x = x + ", factor, " * f(x)\" }\n");
}

TEST_F(ImportsTest, AreRelativeToTheFileThatImports) {
  directory_.Write("rules/all.pbtxt", "import: \"more/one.pbtxt\"\nimport: \"../top.pbtxt\"\n");
  directory_.Write("rules/more/one.pbtxt", Factor("one", 1));
  directory_.Write("top.pbtxt", Factor("two", 2));
  const std::string import = "import: \"rules/all.pbtxt\"\n";
  EXPECT_EQ(Body(absl::StrCat(import, "block { placement: \"one\" }")), "each x = x + 1 * f(x); ");
  EXPECT_EQ(Body(absl::StrCat(import, "block { placement: \"two\" }")), "each x = x + 2 * f(x); ");
}

TEST_F(ImportsTest, AreSuggestedForAPlacementInAFileOfItsName) {
  directory_.Write("mine.pbtxt", Factor("mine", 1));
  EXPECT_THAT(Error("block { placement: \"mine\" }"),
              ::testing::HasSubstr(
                  "unknown placement \"mine\"; if it is that of the file next to the model, add "
                  "import: \"mine.pbtxt\"\n"));
}

TEST_F(ImportsTest, AFileOfPlacementsIsNoModel) {
  const std::string path = directory_.Write("mine.pbtxt", Factor("mine", 1));
  const absl::StatusOr<ResolvedModel> model = ResolveText(ReadFile(path).value(), &plugins_, path);
  EXPECT_EQ(directory_.Hide(std::string(model.status().message())),
            "mine.pbtxt: describes the placement \"mine\" and no model; a model uses it with "
            "import: \"FILE\" and block { placement: \"mine\" }");
}

TEST_F(ImportsTest, MayBeAbsolute) {
  const std::string path = directory_.Write("one.pbtxt", Factor("one", 1));
  EXPECT_EQ(Body(absl::StrCat("import: \"", path, "\" block { placement: \"one\" }")),
            "each x = x + 1 * f(x); ");
}

TEST_F(ImportsTest, OwnNamesPrecedeImportsAndShippedOnes) {
  directory_.Write("a.pbtxt", Factor("pre", 2));
  directory_.Write("b.pbtxt", Factor("pre", 3));
  const std::string block = "block { placement: \"pre\" norm: \"none\" }";
  EXPECT_EQ(Body(block), "each x = x + f(norm(x)); end x = norm(x); ");
  EXPECT_EQ(Body("import: \"b.pbtxt\" import: \"a.pbtxt\"" + block), "each x = x + 3 * f(x); ");
  EXPECT_EQ(Body("import: \"a.pbtxt\" import: \"b.pbtxt\"" + block), "each x = x + 2 * f(x); ");
  EXPECT_EQ(Body("import: \"a.pbtxt\"" + Factor("pre", 1) + block), "each x = x + 1 * f(x); ");
}

TEST_F(ImportsTest, ImportsPrecedeTheirImports) {
  directory_.Write("a.pbtxt", "import: \"b.pbtxt\"\n" + Factor("p", 2));
  directory_.Write("b.pbtxt", Factor("p", 3));
  EXPECT_EQ(Body("import: \"a.pbtxt\" block { placement: \"p\" }"), "each x = x + 2 * f(x); ");
}

TEST_F(ImportsTest, NormsAreImportedToo) {
  directory_.Write("a.pbtxt", "norm { name: \"mine\" plugin: \"layer_norm\" }");
  const absl::StatusOr<ResolvedModel> model =
      Resolve("import: \"a.pbtxt\" block { placement: \"pre\" norm: \"mine\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers[0]->norm->plugin->id(), "layer_norm");
}

TEST_F(ImportsTest, AFileReachedTwiceIsReadOnce) {
  directory_.Write("a.pbtxt", "import: \"base.pbtxt\"\n" + Factor("a", 1));
  directory_.Write("sub/b.pbtxt", "import: \"../base.pbtxt\"\n" + Factor("b", 2));
  directory_.Write("base.pbtxt", Factor("base", 3));
  EXPECT_EQ(Body("import: \"a.pbtxt\" import: \"sub/b.pbtxt\" block { placement: \"base\" }"),
            "each x = x + 3 * f(x); ");
}

TEST_F(ImportsTest, CyclesAreErrors) {
  directory_.Write("a.pbtxt", "import: \"b.pbtxt\"\n");
  directory_.Write("b.pbtxt", "import: \"a.pbtxt\"\n");
  EXPECT_EQ(Error("import: \"a.pbtxt\""),
            "b.pbtxt:1:1: a cycle of imports: m.pbtxt -> a.pbtxt -> b.pbtxt -> a.pbtxt");
  directory_.Write("sub/c.pbtxt", "import: \"../sub/./c.pbtxt\"\n");
  EXPECT_EQ(Error("import: \"sub/c.pbtxt\""),
            "sub/c.pbtxt:1:1: a cycle of imports: m.pbtxt -> sub/c.pbtxt -> sub/../sub/./c.pbtxt");
  EXPECT_EQ(Error("import: \"m.pbtxt\""), "m.pbtxt:2:1: a cycle of imports: m.pbtxt -> m.pbtxt");
}

TEST_F(ImportsTest, UnreadableImportHasItsPlace) {
  EXPECT_EQ(Error("import: \"missing.pbtxt\""),
            "m.pbtxt:2:1: import: missing.pbtxt: cannot open: No such file or directory");
  EXPECT_EQ(Error("import: \".\""), "m.pbtxt:2:1: import: .: is a directory, not a file");
  EXPECT_EQ(Error("import: \"\""),
            "m.pbtxt:2:1: import: names no file; write import: \"FILE.pbtxt\"");
  directory_.Write("a.pbtxt", "\nimport: \"missing.pbtxt\"");
  EXPECT_EQ(Error("import: \"a.pbtxt\""),
            "a.pbtxt:2:1: import: missing.pbtxt: cannot open: No such file or directory");
  directory_.Write("b.pbtxt", "placement {\n  name \"p\"\n}");
  EXPECT_EQ(Error("import: \"b.pbtxt\""),
            "b.pbtxt:2:8: expected \":\" after name, found the text \"p\"");
  EXPECT_EQ(Error("import: \"/dev/zero\""),
            "m.pbtxt:2:1: import: /dev/zero: is longer than the 1048576 bytes that are read of it");
}

TEST_F(ImportsTest, LimitsTheDepth) {
  for (int i = 0; i < 100; ++i) {
    directory_.Write(absl::StrCat(i, ".pbtxt"), absl::StrCat("import: \"", i + 1, ".pbtxt\""));
  }
  EXPECT_EQ(Error("import: \"0.pbtxt\""), "63.pbtxt:1:1: imports nest too deeply");
}

TEST_F(ImportsTest, ErrorsInAnImportedFormulaNameItsFile) {
  directory_.Write("a.pbtxt", "placement {\n  name: \"p\"\n  each: \"x = x + f(y)\"\n}");
  EXPECT_EQ(Error("import: \"a.pbtxt\" block { placement: \"p\" }"),
            "a.pbtxt:3:3: placement \"p\", each, attention: unknown name \"y\"; here there are x, "
            "layer, sublayer, "
            "and the "
            "model's dimensions\n"
            "  x = x + f(y)\n"
            "            ^");
}

TEST_F(ImportsTest, BareNamesImportFromTheWorkingDirectory) {
  // The path has no slash. The directory is ".", and errors name the file as the user did.
  const absl::StatusOr<ResolvedModel> model =
      ResolveText("import: \"no_such_file.pbtxt\"", &plugins_, "m.pbtxt");
  EXPECT_EQ(std::string(model.status().message()),
            "m.pbtxt:1:1: import: no_such_file.pbtxt: cannot open: No such file or directory");
}

using ExtendsTest = ImportsTest;

TEST_F(ExtendsTest, InheritsSections) {
  const std::string base =
      "placement { name: \"base\" begin: \"x = a_norm(x)\" each: \"x = x + f(x)\" end: \"x = "
      "c_norm(x)\" }\n";
  const auto body = [&](absl::string_view own) {
    return Body(absl::StrCat(base, "placement { name: \"p\" extends: \"base\" ", own,
                             " }\nblock { placement: \"p\" norm: \"none\" }"));
  };
  EXPECT_EQ(body(""), "begin x = a_norm(x); each x = x + f(x); end x = c_norm(x); ");
  EXPECT_EQ(body("begin: \"x = b_norm(x)\""),
            "begin x = b_norm(x); each x = x + f(x); end x = c_norm(x); ");
  EXPECT_EQ(body("each: \"y = f(x)\" each: \"x = x + y\""),
            "begin x = a_norm(x); each y = f(x); each x = x + y; end x = c_norm(x); ");
  EXPECT_EQ(body("end: \"x = 2 * x\""), "begin x = a_norm(x); each x = x + f(x); end x = 2 * x; ");
  EXPECT_EQ(body("block: \"x = x + attention(x) + mlp(x)\""),
            "begin x = a_norm(x); block x = x + attention(x) + mlp(x); end x = c_norm(x); ");
}

TEST_F(ExtendsTest, LetsReplaceTheBasesLets) {
  EXPECT_EQ(Body("placement { name: \"base\" let: \"a = 1\" let: \"b = 2 * a\""
                 " each: \"x = x + b * f(x)\" }\n"
                 "placement { name: \"p\" extends: \"base\" let: \"c = 7\" let: \"a = 5\""
                 " end: \"x = c * x\" }\n"
                 "block { placement: \"p\" }"),
            "let a = 5; let b = 2 * a; let c = 7; each x = x + b * f(x); end x = c * x; ");
}

TEST_F(ExtendsTest, ListsAreAppendedToTheBases) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "placement { name: \"base\" learned { name: \"g\" init: 0 } slot { name: \"q_norm\" "
      "per_head: true }"
      " inside { point: \"attention.q\" rule: \"q = q_norm(q)\" } init { match: \"a\" scale: \"1\" "
      "}"
      " each: \"x = x + g * f(x)\" }\n"
      "placement { name: \"p\" extends: \"base\" learned { name: \"h\" init: 0 }"
      " slot { name: \"q_norm\" per_head: false } slot { name: \"k_norm\" per_head: true }"
      " inside { point: \"attention.k\" rule: \"k = h * k_norm(k)\" } init { match: \"b\" scale: "
      "\"2\" "
      "} }\n"
      "block { placement: \"p\" norm: \"none\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  const PlacementSpec& placement = *model->layers[0]->placement;
  EXPECT_EQ(placement.name, "p");
  ASSERT_EQ(placement.learned.size(), 2u);
  EXPECT_EQ(placement.learned[0].name, "g");
  ASSERT_EQ(placement.inside.size(), 2u);
  EXPECT_EQ(placement.inside[1].point, "attention.k");
  ASSERT_EQ(placement.init.size(), 2u);
  EXPECT_EQ(placement.init[1].match.value, "b");
  EXPECT_FALSE(placement.slot_per_head.at("q_norm"));
  EXPECT_TRUE(placement.slot_per_head.at("k_norm"));
}

TEST_F(ExtendsTest, ShippedPlacementsCanBeExtended) {
  EXPECT_EQ(Body("placement { name: \"p\" extends: \"pre\" end: \"x = 2 * x\" }\n"
                 "block { placement: \"p\" norm: \"none\" }"),
            "each x = x + f(norm(x)); end x = 2 * x; ");
}

TEST_F(ExtendsTest, AFormulaOfTheBaseIsCheckedInTheExtension) {
  EXPECT_EQ(
      Error(
          "placement { name: \"p\" extends: \"deepnorm\"\n  let: \"alpha = 1 / (n_layer - 2)\" }\n"
          "block { placement: \"p\" norm: \"none\" }"),
      "m.pbtxt:3:3: division by zero at layer 1, sublayer 1\n"
      "  alpha = 1 / (n_layer - 2)\n"
      "            ^");
}

TEST_F(ExtendsTest, ACycleIsAnError) {
  EXPECT_EQ(Error("placement {\n  name: \"a\"\n  extends: \"b\"\n}\n"
                  "placement {\n  name: \"b\"\n  extends: \"a\"\n}\nblock { placement: \"a\" }"),
            "m.pbtxt:8:3: a cycle of extends: a -> b -> a");
  EXPECT_EQ(
      Error("placement {\n  name: \"pre\"\n  extends: \"pre\"\n}\nblock { placement: \"pre\" }"),
      "m.pbtxt:4:3: a cycle of extends: pre -> pre");
}

TEST_F(ExtendsTest, UnknownBaseHasItsPlace) {
  const std::string error =
      Error("placement {\n  name: \"a\"\n  extends: \"prae\"\n}\nblock { placement: \"a\" }");
  EXPECT_EQ(error.substr(0, error.find('\n')),
            "m.pbtxt:4:3: unknown placement \"prae\"; did you mean \"pre\"?");
}

TEST_F(ExtendsTest, LimitsTheDepth) {
  std::string text = "block { placement: \"p0\" }\n";
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&text, "placement { name: \"p", i, "\" extends: \"p", i + 1, "\" }\n");
  }
  EXPECT_EQ(Error(text), "m.pbtxt:67:25: extends nests too deeply");
}

using SelfContainedTest = ImportsTest;

TEST_F(SelfContainedTest, TextIsComplete) {
  directory_.Write(
      "lib/rules.pbtxt",
      "norm { name: \"small_eps\" plugin: \"rms_norm\" attr { name: \"eps\" number: 1e-7 } }\n"
      "norm { name: \"unused\" plugin: \"none\" }\n" +
          Factor("unused", 3) +
          "placement { name: \"mine\" extends: \"double_qk\" let: \"a = 0.1\" "
          "learned { name: \"g\" init: 0.123456789 } each: \"x = x + a * g * f(norm_in(x))\" "
          "slot { name: \"v_norm\" per_head: true } }\n");
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "import: \"lib/rules.pbtxt\"\n"
      "layers { block { placement: \"mine\" norm: \"small_eps\" slot { name: \"norm_in\" norm: "
      "\"none\" }"
      " inside { point: \"attention.v\" rule: \"v = v_norm(v)\" } } }\n"
      "layers { block { placement: \"post\" norm: \"rms_norm\" sublayer { attention {} } } }\n"
      "init { match: \"*\" normal { std: \"0.02\" } }");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string& text = model->self_contained_text;
  EXPECT_EQ(text.find("import"), std::string::npos);
  EXPECT_EQ(text.find("unused"), std::string::npos);

  PluginRegistry plugins;
  plugins.AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  const absl::StatusOr<ModelSpec> spec = ModelSpec::FromText(text, "moved.pbtxt");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<ResolvedModel> again = plumb::Resolve(*spec, &plugins, ResolveOptions());
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
  EXPECT_EQ(Print(*again), Print(*model));
  EXPECT_EQ(again->name, "m");
  EXPECT_EQ(again->self_contained_text, text);
}

}  // namespace
}  // namespace plumb
