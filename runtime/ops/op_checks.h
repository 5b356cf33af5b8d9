// SPDX-License-Identifier: Apache-2.0
// Checks of shape rules, and of ids in kernels. The builder prefixes each message with the op and
// the types of its operands. Stateless.
#ifndef PLUMB_RUNTIME_OPS_OP_CHECKS_H_
#define PLUMB_RUNTIME_OPS_OP_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/graph/op.h"

namespace plumb {

// Fails unless input i is present, is f32 (i32), and has at least one dimension and one element.
// `name` is the operand's name in ops.h.
absl::Status CheckF32(const OpTypes& types, size_t i, absl::string_view name);
absl::Status CheckI32(const OpTypes& types, size_t i, absl::string_view name);
// Checks the same for f32 or bf16.
absl::Status CheckFloat(const OpTypes& types, size_t i, absl::string_view name);

// Fails unless inputs i and i + 1 are the elements and scales of an int8 matrix [rows, width]
// (quantize.h).
absl::Status CheckInt8Matrix(const OpTypes& types, size_t i, absl::string_view name, int64_t rows,
                             int64_t width);

// Returns the types of the inputs, null for absent ones.
std::vector<const TensorType*> GetTypes(const ReferenceArgs& args);

// Fails unless inputs i and j have the same type.
absl::Status CheckMatching(const OpTypes& types, size_t i, absl::string_view name_i, size_t j,
                           absl::string_view name_j);

// Returns attribute `offset` of the ops on tables, the row of id 0; 0 if it is absent.
int64_t RowOffset(const Attrs& attrs);
// Fails unless a table of `rows` has that row.
absl::Status CheckRowOffset(const Attrs& attrs, int64_t rows);

// Fails unless each of the n ids is a row of a table of `rows`; the message has the first that is
// not.
absl::Status CheckIds(const int32_t* ids, int64_t n, int64_t rows);

// Checks that positions[batch, tokens] are inside a cache of `capacity` tokens, and consecutive
// within a row. Every run of an op with a cache calls it before it writes anything.
absl::Status CheckPositions(const int32_t* positions, int64_t batch, int64_t tokens,
                            int64_t capacity);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_OP_CHECKS_H_
