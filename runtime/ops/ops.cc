// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/ops.h"

namespace plumb {

void RegisterOps(OpRegistry* registry, const GemmPolicy& policy) {
  RegisterEmbedding(registry);
  RegisterEmbeddingInt8(registry);
  RegisterMatmul(registry, policy);
  RegisterFusedMatmul(registry, policy);
  RegisterMatmulInt8(registry);
  RegisterSumSquares(registry);
  RegisterConcat(registry);
  RegisterDrop(registry);
  RegisterPointwise(registry);
  RegisterProgram(registry);
  RegisterReduce(registry);
  RegisterWeightedSum(registry);
  RegisterNorm(registry);
  RegisterNormGrad(registry);
  RegisterCrossNorm(registry);
  RegisterRope(registry);
  RegisterAttention(registry);
  RegisterAttentionCached(registry);
  RegisterCausalConv(registry);
  RegisterLinearAttention(registry);
  RegisterCrossEntropy(registry);
  RegisterHostLoss(registry);
  RegisterConvert(registry);
  RegisterFill(registry);
  RegisterLastToken(registry);
  RegisterRoute(registry);
  RegisterExpertRows(registry);
  RegisterExpertMatmul(registry, policy);
  RegisterExpertMatmulInt8(registry);
  RegisterBalanceLoss(registry);
}

}  // namespace plumb
