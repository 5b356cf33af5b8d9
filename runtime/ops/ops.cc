#include "runtime/ops/ops.h"

namespace plumb {

void RegisterOps(OpRegistry* registry) {
  RegisterEmbedding(registry);
  RegisterMatmul(registry);
  RegisterSumRows(registry);
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
