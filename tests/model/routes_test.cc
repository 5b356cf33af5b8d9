// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/routes.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

class RoutesTest : public ::testing::Test {
 protected:
  Routes Of(const std::string& text) {
    const auto context = MakeContext(runtime_.get(), text);
    return *AnalyzeRoutes(context->model);
  }
  Routes PlacementRoutes(const std::string& placement, int n_layer = 2) {
    TinyModel model;
    model.placement = placement;
    model.n_layer = n_layer;
    return Of(model.Text());
  }
  // Returns the routes of a placement with this body.
  Routes BodyRoutes(const std::string& body) {
    TinyModel model;
    model.placement = "mine";
    model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
    return Of(model.Text());
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

TEST_F(RoutesTest, PreNormHasACleanRoute) {
  const Routes routes = PlacementRoutes("pre", 8);
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.identity.ToString(), "clean (I)");
  EXPECT_EQ(routes.identity.end_norms, 1);
  EXPECT_EQ(routes.norm_sites, 17);
}

TEST_F(RoutesTest, PostNormRouteHasTwoNormsPerLayer) {
  const Routes routes = PlacementRoutes("post", 8);
  EXPECT_FALSE(routes.identity.clean());
  EXPECT_EQ(routes.identity.norms, 16);
  EXPECT_EQ(routes.identity.ToString(), "through 16 norms");
  EXPECT_EQ(routes.identity.end_norms, 0);
  EXPECT_EQ(routes.norm_sites, 16);
}

TEST_F(RoutesTest, NoneHasNoNorms) {
  const Routes routes = PlacementRoutes("none", 8);
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.identity.end_norms, 0);
  EXPECT_EQ(routes.norm_sites, 0);
}

TEST_F(RoutesTest, JacobiansMatchThePapers) {
  const std::pair<const char*, const char*> expected[] = {
      {"none", "(I + J_mlp) (I + J_attention)"},
      {"pre", "(I + J_mlp J_norm) (I + J_attention J_norm)"},
      {"post", "J_norm (I + J_mlp) J_norm (I + J_attention)"},
      {"double", "(I + J_norm_out J_mlp J_norm_in) (I + J_norm_out J_attention J_norm_in)"},
      {"olmo2", "(I + J_norm J_mlp) (I + J_norm J_attention)"},
      // deepnorm's scale is (2 * 8) ^ 0.25 = 2.
      {"deepnorm", "J_norm (2 I + J_mlp) J_norm (2 I + J_attention)"},
      {"resi_dual",
       "J_norm (I + J_mlp) J_norm (I + J_attention); other streams carry the signal too"},
      {"parallel", "(I + J_attention J_norm + J_mlp J_norm)"},
      {"rezero", "(I + gate J_mlp) (I + gate J_attention)"},
      {"b2t", "J_norm_2 (J_norm_1 (I + J_attention) + J_mlp J_norm_1 (I + J_attention) + I)"},
      {"hybrid_norm", "(I + J_mlp) J_norm (I + J_attention)"},
      {"highway",
       "((D J_sigmoid J_transform + D J_mlp J_norm) + (D -1 J_sigmoid J_transform + D)) "
       "((D J_sigmoid J_transform + D J_attention J_norm) + (D -1 J_sigmoid J_transform + D))"},
      {"hc_static", "several streams carry the signal; no formula for x alone"},
  };
  for (const auto& [placement, jacobian] : expected) {
    const Routes routes = PlacementRoutes(placement, 8);
    ASSERT_EQ(routes.jacobians.size(), 8u);
    for (const std::string& each : routes.jacobians) EXPECT_EQ(each, jacobian) << placement;
  }
  EXPECT_EQ(PlacementRoutes("ln_scaling", 4).jacobians[3],
            "(I + J_mlp 0.5 J_norm) (I + J_attention 0.5 J_norm)");
}

TEST_F(RoutesTest, ConstantCoefficientsScaleTheRoute) {
  const Routes routes = PlacementRoutes("deepnorm", 2);  // sqrt(2) for each of four sublayers
  EXPECT_EQ(routes.identity.norms, 4);
  EXPECT_NEAR(routes.identity.scale, 4, 1e-12);
  EXPECT_EQ(BodyRoutes("each: \"x = x / 2 + f(x)\"").identity.ToString(), "scaled by 0.0625");
}

TEST_F(RoutesTest, TheSecondStreamOfResiDualIsAnIdentityRouteUpToTheHead) {
  const Routes routes = PlacementRoutes("resi_dual", 4);
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.identity.end_norms, 1);
  EXPECT_EQ(routes.norm_sites, 9);
}

TEST_F(RoutesTest, ANormOnTheEmbeddingIsOnTheRoute) {
  EXPECT_EQ(PlacementRoutes("bloom").identity.ToString(), "through 1 norm");
}

TEST_F(RoutesTest, CountsTheShortestRoute) {
  EXPECT_EQ(PlacementRoutes("b2t", 3).identity.norms,
            3);  // the route bypasses norm_1 of every block
  // The first layer is pre-norm, so each layer from the second on has one norm.
  EXPECT_EQ(PlacementRoutes("hybrid_norm_star", 5).identity.norms, 4);
}

TEST_F(RoutesTest, NormsInsideSublayersAreCountedAndNotOnTheRoute) {
  const Routes routes = PlacementRoutes("qk_norm", 3);
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.norm_sites, 3 * 4 + 1);
}

TEST_F(RoutesTest, IdentityNormsAreNotCounted) {
  TinyModel model;
  model.placement = "post";
  model.norm = "none";
  const Routes routes = Of(model.Text());
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.norm_sites, 0);
  EXPECT_EQ(routes.jacobians[0], "(I + J_mlp) (I + J_attention)");
}

TEST_F(RoutesTest, LearnedScalesMakeTheRouteUnclean) {
  const Routes routes = BodyRoutes("learned { name: \"a\" init: 1 } each: \"x = a * x + f(x)\"");
  EXPECT_FALSE(routes.identity.clean());
  EXPECT_EQ(routes.identity.ToString(), "scaled by learned values");
  EXPECT_EQ(routes.jacobians[0], "(a + J_mlp) (a + J_attention)");
  // Scales on a branch do not change the identity route.
  EXPECT_TRUE(PlacementRoutes("layer_scale").identity.clean());
}

TEST_F(RoutesTest, PrintsFunctionsOfLearnedValues) {
  const Routes routes =
      BodyRoutes("learned { name: \"a\" init: 1 } each: \"x = x + sigmoid(a) * f(x)\"");
  EXPECT_TRUE(routes.identity.clean());
  EXPECT_EQ(routes.jacobians[0], "(I + sigmoid(a) J_mlp) (I + sigmoid(a) J_attention)");
}

// Elements of a learned value differ, and so do the parts of a tensor.
TEST_F(RoutesTest, FactorsOfTheSameNameAreNotMerged) {
  const char* const w = "learned { name: \"w\" index: \"k = 0..1\" init: 1 } ";
  EXPECT_EQ(BodyRoutes(absl::StrCat(w, "each: \"y = f(x)\" each: \"x = w[0] * y + w[1] * y\""))
                .jacobians[0],
            "(w + w) J_mlp (w + w) J_attention");
  EXPECT_EQ(BodyRoutes("each: \"y = f(x)\" each: \"x = concat(part(y, 1, 2), part(y, 0, 2))\"")
                .jacobians[0],
            "(J_concat J_part + J_concat J_part) J_mlp "
            "(J_concat J_part + J_concat J_part) J_attention");
}

TEST_F(RoutesTest, ACleanRouteIsPreferredToAScaledOne) {
  const Routes routes =
      BodyRoutes("learned { name: \"a\" init: 1 } each: \"y = a * x\" each: \"x = y + x + f(x)\"");
  EXPECT_TRUE(routes.identity.clean()) << routes.identity.ToString();
}

TEST_F(RoutesTest, ReplacedStreamHasNoRoute) {
  const Routes routes = BodyRoutes("each: \"x = f(norm(x))\"");
  EXPECT_FALSE(routes.identity.exists);
  EXPECT_EQ(routes.identity.ToString(), "none");
  EXPECT_EQ(routes.jacobians[0], "J_mlp J_norm J_attention J_norm");
  EXPECT_FALSE(BodyRoutes("each: \"x = tanh(x + f(x))\"").identity.exists);
}

// A product of two tensors has no constant Jacobian, so it is no identity route.
TEST_F(RoutesTest, TokenGatesMakeTheRouteUnclean) {
  const Routes routes = BodyRoutes("each: \"y = f(x)\" each: \"x = sigmoid(y) * x\"");
  EXPECT_FALSE(routes.identity.clean());
  EXPECT_FALSE(BodyRoutes("each: \"y = f(x)\" each: \"x = x * sigmoid(y)\"").identity.clean());
}

TEST_F(RoutesTest, LayersOfDifferentPlacementsHaveTheirOwnJacobians) {
  const Routes routes = Of(R"pbtxt(
    n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    layers { repeat: 1 block { placement: "post" norm: "rms_norm" } }
    layers { repeat: 2 block { placement: "pre" norm: "rms_norm" } })pbtxt");
  EXPECT_EQ(routes.identity.norms, 2);
  EXPECT_EQ(routes.identity.end_norms, 1);
  EXPECT_EQ(routes.jacobians[0], "J_norm (I + J_mlp) J_norm (I + J_attention)");
  EXPECT_EQ(routes.jacobians[2], "(I + J_mlp J_norm) (I + J_attention J_norm)");
}

}  // namespace
}  // namespace plumb
