// SPDX-License-Identifier: Apache-2.0
// Rules that ship with plumb for recipes to import (plugins/recipes). They are embedded at build
// time, so that a recipe needs no directory. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_SHIPPED_RECIPES_H_
#define PLUMB_RUNTIME_SPEC_SHIPPED_RECIPES_H_

#include <string>
#include <vector>

namespace plumb {

struct ShippedRecipe {
  std::string name;  // "mup"
  std::string text;  // text of a plumb.v1.RecipeRules
};

std::vector<ShippedRecipe> ShippedRecipes();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SHIPPED_RECIPES_H_
