// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/cross_token.h"

#include "absl/strings/str_cat.h"

namespace plumb {

std::string CrossTokenRefusal(const NormPlugin& plugin) {
  return absl::StrCat(
      "\"", plugin.id(), "\" takes statistics over tokens: in training a token's output depends ",
      "on later tokens of its sequence and on the other sequences of the batch, so a causal ",
      "model sees the future that it is to predict. If that is wanted, ");
}

std::string CrossTokenWarning(const NormPlugin& plugin) {
  if (!plugin.cross_row()) {
    // Not an error: a norm may change its plugin from run to run, and a permission that is not
    // made use of changes nothing.
    return absl::StrCat("allow_cross_token has no effect; \"", plugin.id(),
                        "\" takes no statistics over tokens");
  }
  return absl::StrCat("\"", plugin.id(), "\" takes statistics over tokens; in training a ",
                      "token's output depends on later tokens, so training losses are those of a ",
                      "model that sees the future",
                      plugin.cross_row_eval()
                          ? "; so are its losses in evaluation, and nothing can be sampled from it"
                          : "");
}

}  // namespace plumb
