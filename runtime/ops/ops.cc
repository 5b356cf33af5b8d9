#include "runtime/ops/ops.h"

namespace plumb {

void RegisterOps(OpRegistry* registry) {
  RegisterEmbedding(registry);
  RegisterEmbeddingInt8(registry);
  RegisterMatmul(registry);
  RegisterFusedMatmul(registry);
  RegisterMatmulInt8(registry);
  RegisterSumRows(registry);
  RegisterSumSquares(registry);
  RegisterCombine(registry);
  RegisterMul(registry);
  RegisterActivation(registry);
  RegisterGated(registry);
  RegisterNorm(registry);
  RegisterNormGrad(registry);
  RegisterCrossNorm(registry);
  RegisterRope(registry);
  RegisterAttention(registry);
  RegisterAttentionCached(registry);
  RegisterCrossEntropy(registry);
  RegisterFill(registry);
  RegisterLastToken(registry);
}

}  // namespace plumb
