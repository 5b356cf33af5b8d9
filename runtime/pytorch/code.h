// SPDX-License-Identifier: Apache-2.0
// Python code that ships with plumb, and code whose numbers are marked, so that code that differs
// only in numbers can become one class with arguments, or one loop. Stateless functions, and
// ClassTable, which is thread-compatible.
#ifndef PLUMB_RUNTIME_PYTORCH_CODE_H_
#define PLUMB_RUNTIME_PYTORCH_CODE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Returns the files of Python code that are embedded at build time, by folder and name without
// ".py": "pytorch/rms_norm" for the norm of this id, "helpers/rope" for a helper, "templates/class"
// for text with gaps.
std::map<std::string, std::string> PythonFiles();

// Returns the text of a file; "" if there is none.
std::string ShippedCode(const std::string& name);

// Returns the error for a part of a model that the code does not cover.
absl::Status Unsupported(absl::string_view what);

// Returns a number as Python code; a whole one is an integer.
std::string NumberCode(double value);

// Returns a number as marked code. `name` is that of the argument that the number becomes if it
// differs between instances of a class: "window".
std::string MarkNumber(absl::string_view name, double value);
std::string MarkNumber(absl::string_view name, int64_t value);

// Returns `code` with plain numbers.
std::string Unmark(absl::string_view code);

// Returns code that makes a parameter: "nn.Parameter(torch.empty(16))".
std::string ParameterCode(const std::vector<std::string>& dims);

// Returns true if `code` contains the identifier `name`.
bool HasIdentifier(absl::string_view code, absl::string_view name);

// Returns `text` with each line "# <NAME>" replaced by the lines of that block, indented like it.
std::string FillIn(absl::string_view text, const std::map<std::string, std::string>& blocks);

// Returns the code of a loop over items that differ in marked whole numbers in equal steps,
// "alpha[k] * h[k] for k in range(4)", or nullopt. `variables` are candidates for the loop's
// variable, a letter each.
std::optional<std::string> RollUp(const std::vector<std::string>& items,
                                  absl::string_view variables);

// Code of one instance of a class. Lines are marked and without indentation.
struct ClassCode {
  std::string doc;                // with its quotes
  std::vector<std::string> init;  // lines of __init__ after super().__init__()
  std::string forward;            // "def forward(self, x):"
  std::vector<std::string> body;  // lines of forward
};

// Classes of modules. Instances whose code differs only in numbers have one class, whose arguments
// are the numbers that differ.
class ClassTable {
 public:
  // Instance of a class, by index.
  struct Instance {
    size_t of_class, number;
  };

  // Adds an instance. Classes of the same base name with different code have names of their own:
  // "Attention", "Attention2".
  Instance Add(const std::string& base, ClassCode code);

  // Returns the marked call that makes the instance: "Attention(window=128)". Requires: all
  // instances of its class were added.
  std::string Construct(Instance instance) const;

  // Appends the code of each class with this base name.
  void Print(const std::string& base, std::vector<std::string>* classes) const;

 private:
  struct Class {
    std::string base, name;
    std::vector<ClassCode> instances;
  };
  // Argument of a class, or a number that is the same in all instances (no name).
  struct Argument {
    std::string name;
    std::vector<std::string> values;  // one per instance
  };

  // Returns an argument for each number of the class, in their order.
  static std::vector<Argument> Arguments(const Class& of);

  std::vector<Class> classes_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_CODE_H_
