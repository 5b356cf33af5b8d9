// SPDX-License-Identifier: Apache-2.0
// Conversion of the model's positions from the schema's message.
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/spec/convert.h"

namespace plumb {
namespace {

// Checks a required field, which must be finite and above 0.
absl::Status CheckPositive(const char* field, double value, const Located& at,
                           const SourceLocation& place) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  const SourceLocation own = at.At(field);
  return ErrorAt(own.line > 0 ? own : place,
                 value == 0 ? absl::StrCat("rope_scaling: ", field, " is missing")
                            : absl::StrCat(field, ": ", value, " is not a positive number"));
}

absl::Status ToLlama3(const v1::RopeScaling::Llama3& message, const Located& at,
                      const SourceLocation& place, RopeScaling* scaling) {
  scaling->kind = RopeScaling::Kind::kLlama3;
  scaling->factor = message.factor();
  scaling->low_freq_factor = message.low_freq_factor();
  scaling->high_freq_factor = message.high_freq_factor();
  scaling->original_context_length = message.original_context_length();
  PLUMB_RETURN_IF_ERROR(CheckPositive("factor", scaling->factor, at, place));
  PLUMB_RETURN_IF_ERROR(CheckPositive("low_freq_factor", scaling->low_freq_factor, at, place));
  PLUMB_RETURN_IF_ERROR(CheckPositive("high_freq_factor", scaling->high_freq_factor, at, place));
  PLUMB_RETURN_IF_ERROR(
      CheckPositive("original_context_length", message.original_context_length(), at, place));
  if (scaling->low_freq_factor < scaling->high_freq_factor) return absl::OkStatus();
  return ErrorAt(at.At("low_freq_factor"),
                 absl::StrCat("low_freq_factor: ", scaling->low_freq_factor,
                              " must be less than high_freq_factor ", scaling->high_freq_factor));
}

absl::Status ToYarn(const v1::RopeScaling::Yarn& message, const Located& at,
                    const SourceLocation& place, RopeScaling* scaling) {
  scaling->kind = RopeScaling::Kind::kYarn;
  scaling->factor = message.factor();
  scaling->original_context_length = message.original_context_length();
  scaling->fractional = message.fractional();
  PLUMB_RETURN_IF_ERROR(CheckPositive("factor", scaling->factor, at, place));
  PLUMB_RETURN_IF_ERROR(
      CheckPositive("original_context_length", message.original_context_length(), at, place));
  if (message.beta_fast() != 0) scaling->beta_fast = message.beta_fast();
  if (message.beta_slow() != 0) scaling->beta_slow = message.beta_slow();
  // Without extension of the context the attention is not scaled.
  scaling->attention_factor = scaling->factor <= 1 ? 1 : 0.1 * std::log(scaling->factor) + 1;
  if (message.attention_factor() != 0) scaling->attention_factor = message.attention_factor();
  PLUMB_RETURN_IF_ERROR(CheckPositive("beta_fast", scaling->beta_fast, at, place));
  PLUMB_RETURN_IF_ERROR(CheckPositive("beta_slow", scaling->beta_slow, at, place));
  PLUMB_RETURN_IF_ERROR(CheckPositive("attention_factor", scaling->attention_factor, at, place));
  if (scaling->beta_slow < scaling->beta_fast) return absl::OkStatus();
  return ErrorAt(at.At(message.beta_slow() != 0 ? "beta_slow" : "beta_fast"),
                 absl::StrCat("beta_slow: ", scaling->beta_slow, " must be less than beta_fast ",
                              scaling->beta_fast));
}

absl::Status ToLongRope(const v1::RopeScaling::LongRope& message, const Located& at,
                        const SourceLocation& place, RopeScaling* scaling) {
  scaling->kind = RopeScaling::Kind::kLongRope;
  for (int i = 0; i < message.factor_size(); ++i) {
    const double factor = message.factor(i);
    if (!(factor > 0) || !std::isfinite(factor)) {
      return ErrorAt(at.At("factor", i),
                     absl::StrCat("factor: ", factor, " is not a positive number"));
    }
    scaling->factors.push_back(factor);
  }
  if (message.attention_factor() != 0) scaling->attention_factor = message.attention_factor();
  return CheckPositive("attention_factor", scaling->attention_factor, at, place);
}

absl::StatusOr<RopeScaling> ToScaling(const v1::RopeScaling& message, const Located& at,
                                      const SourceLocation& place) {
  RopeScaling scaling;
  scaling.place = place;
  if (!message.when().empty()) {
    PLUMB_ASSIGN_OR_RETURN(scaling.when, ParseExpression(at.GetText("when")));
  }
  switch (message.kind_case()) {
    case v1::RopeScaling::kLinear: {
      scaling.kind = RopeScaling::Kind::kLinear;
      PLUMB_ASSIGN_OR_RETURN(scaling.linear, ParseExpression(at.GetText("linear")));
      return scaling;
    }
    case v1::RopeScaling::kLlama3:
      PLUMB_RETURN_IF_ERROR(
          ToLlama3(message.llama3(), at.Nested("llama3"), at.At("llama3"), &scaling));
      return scaling;
    case v1::RopeScaling::kYarn:
      PLUMB_RETURN_IF_ERROR(ToYarn(message.yarn(), at.Nested("yarn"), at.At("yarn"), &scaling));
      return scaling;
    case v1::RopeScaling::kLongrope:
      PLUMB_RETURN_IF_ERROR(
          ToLongRope(message.longrope(), at.Nested("longrope"), at.At("longrope"), &scaling));
      return scaling;
    case v1::RopeScaling::KIND_NOT_SET:
      break;
  }
  return ErrorAt(
      place, "rope_scaling: give linear: \"..\", llama3 { .. }, yarn { .. } or longrope { .. }");
}

constexpr int64_t kMaxOffset = 1 << 24;
constexpr char kRotary[] = "the rotary embedding: it needs kind: ROPE";

// Field that belongs to one kind of positions.
struct KindField {
  const char* name;
  bool given;
  v1::Positions::Kind kind;
  const char* about;
};

// Fails on a field that belongs to another kind of positions. (rope_theta is allowed with any
// kind.)
absl::Status CheckFieldsFitKind(const v1::Positions& message, const Located& at) {
  const KindField fields[] = {
      {"offset", message.offset() != 0, v1::Positions::LEARNED,
       "a table of positions: it needs kind: LEARNED"},
      {"rope_dims", !message.rope_dims().empty(), v1::Positions::ROPE, kRotary},
      {"rope_interleaved", message.rope_interleaved(), v1::Positions::ROPE, kRotary},
      {"rope_base", !message.rope_base().empty(), v1::Positions::ROPE, kRotary},
      {"rope_scaling", message.rope_scaling_size() > 0, v1::Positions::ROPE, kRotary},
      {"alibi_scale", !message.alibi_scale().empty(), v1::Positions::ALIBI,
       "ALiBi: it needs kind: ALIBI"},
  };
  const v1::Positions::Kind kind =
      message.kind() == v1::Positions::KIND_UNSPECIFIED ? v1::Positions::LEARNED : message.kind();
  for (const KindField& field : fields) {
    if (!field.given || field.kind == kind) continue;
    return ErrorAt(at.At(field.name), absl::StrCat(field.name, " is for ", field.about));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PositionSpec> ToPositions(const v1::Positions& message, const Located& at) {
  PositionSpec spec;
  switch (message.kind()) {
    case v1::Positions::ROPE:
      spec.kind = PositionKind::kRope;
      break;
    case v1::Positions::NONE:
      spec.kind = PositionKind::kNone;
      break;
    case v1::Positions::ALIBI:
      spec.kind = PositionKind::kAlibi;
      break;
    default:
      spec.kind = PositionKind::kLearned;
  }
  if (message.rope_theta() != 0) spec.rope_theta = message.rope_theta();
  spec.rope_theta_place = at.At("rope_theta");
  if (!(spec.rope_theta > 0) || !std::isfinite(spec.rope_theta)) {
    return ErrorAt(spec.rope_theta_place, "rope_theta must be positive and finite");
  }
  PLUMB_RETURN_IF_ERROR(CheckFieldsFitKind(message, at));
  if (message.offset() < 0 || message.offset() > kMaxOffset) {
    return ErrorAt(at.At("offset"),
                   absl::StrCat("offset: ", message.offset(), " is not in 0..", kMaxOffset));
  }
  spec.offset = message.offset();
  if (!message.alibi_scale().empty()) {
    PLUMB_ASSIGN_OR_RETURN(spec.alibi_scale, ParseExpression(at.GetText("alibi_scale")));
  }
  if (!message.rope_base().empty() && message.rope_theta() != 0) {
    return ErrorAt(at.At("rope_base"), "rope_base: rope_theta is there too; give one of the two");
  }
  if (!message.rope_base().empty()) {
    PLUMB_ASSIGN_OR_RETURN(spec.rope_base, ParseExpression(at.GetText("rope_base")));
  }
  if (!message.rope_dims().empty()) {
    PLUMB_ASSIGN_OR_RETURN(spec.rope_dims, ParseExpression(at.GetText("rope_dims")));
  }
  spec.rope_interleaved = message.rope_interleaved();
  for (int i = 0; i < message.rope_scaling_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        RopeScaling scaling,
        ToScaling(message.rope_scaling(i), at.Nested("rope_scaling", i), at.At("rope_scaling", i)));
    spec.rope_scalings.push_back(std::move(scaling));
  }
  return spec;
}

}  // namespace plumb
