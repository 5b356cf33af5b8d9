#include "runtime/plugin/norm_plugin.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/elf_note.h"

namespace plumb {
namespace {

// Text that a plugin may write into, read back whatever it did to it.
struct ErrorText {
  char text[512] = "";
  absl::string_view view() const { return {text, strnlen(text, sizeof(text))}; }
};

// The fewest digits that read back as the same number: equal text, equal value.
std::string NumberToText(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string ValueToText(const NormAttrValue& value) {
  if (const double* number = std::get_if<double>(&value)) return NumberToText(*number);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return absl::StrCat("\"", absl::CHexEscape(std::get<std::string>(value)), "\"");
}

std::string InstanceText(const std::string& id, const std::vector<NormAttrSpec>& specs,
                         const std::vector<NormAttrValue>& values, int64_t dim) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    parts.push_back(absl::StrCat(specs[i].name, "=", ValueToText(values[i])));
  }
  std::sort(parts.begin(), parts.end());
  return absl::StrCat(id, "(", absl::StrJoin(parts, ", "), ")[", dim, "]");
}

// The values as the ABI wants them. Their strings belong to `values`.
std::vector<plumb_attr_value> ToAbi(const std::vector<NormAttrSpec>& specs,
                                    const std::vector<NormAttrValue>& values) {
  std::vector<plumb_attr_value> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = {};
    if (const double* number = std::get_if<double>(&values[i])) {
      if (specs[i].type == NormAttrType::kInt) {
        out[i].i = static_cast<int64_t>(*number);
      } else {
        out[i].f = *number;
      }
    } else if (const bool* flag = std::get_if<bool>(&values[i])) {
      out[i].i = *flag ? 1 : 0;
    } else {
      out[i].s = std::get<std::string>(values[i]).c_str();
    }
  }
  return out;
}

void LogFromPlugin(void* context, int32_t, const char* message) {
  if (message == nullptr) return;
  std::fprintf(stderr, "%s: %s\n", static_cast<const NormPlugin*>(context)->id().c_str(), message);
}

// What the plugin left in the call's own buffer, if there is one.
std::string MessageOf(const plumb_norm_call& call) {
  if (call.err == nullptr || call.err_cap == 0) return "";
  return std::string(call.err, strnlen(call.err, call.err_cap));
}

const void* NoExtension(void*, const char*) { return nullptr; }

}  // namespace

std::string NormParam::InitToString() const {
  switch (init) {
    case Init::kZeros:
      return "zeros";
    case Init::kOnes:
      return "ones";
    case Init::kConstant:
      return absl::StrCat("constant(", NumberToText(init_a), ")");
    case Init::kNormal:
      return absl::StrCat("normal(", NumberToText(init_a), ", ", NumberToText(init_b), ")");
    case Init::kUniform:
      return absl::StrCat("uniform(", NumberToText(init_a), ", ", NumberToText(init_b), ")");
  }
  return "";
}

absl::StatusOr<std::unique_ptr<NormPlugin>> NormPlugin::Create(const plumb_norm_plugin* table,
                                                               std::string path) {
  const std::string file = path.empty() ? "norm linked into the host" : path;
  absl::StatusOr<plumb_norm_plugin> known = ReadTable(table);
  // The norm's own name makes a better message, as far as there is one to be read.
  std::string id;
  if (table != nullptr && PLUMB_HAS(plumb_norm_plugin, table, id)) {
    id = ReadText(table->id, "its id", kMaxNormIdLength).value_or("");
  }
  const std::string where =
      IsNormId(id) ? absl::StrCat(file, ": norm \"", id, "\" ") : absl::StrCat(file, ": a norm ");
  if (!known.ok()) return Annotate(known.status(), where);
  if (!IsNormId(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, "has no proper id: [a-z][a-z0-9_]*(.[a-z0-9_]+)*, at most ",
                     kMaxNormIdLength, " characters"));
  }

  std::unique_ptr<NormPlugin> plugin(new NormPlugin());
  plugin->table_ = *known;
  plugin->id_ = std::move(id);
  plugin->path_ = std::move(path);
  const struct {
    const char* text;
    const char* what;
    std::string* to;
  } texts[] = {{known->version, "has a version that", &plugin->version_},
               {known->vendor, "has a vendor that", &plugin->vendor_},
               {known->license, "has a license that", &plugin->license_},
               {known->doc, "has a doc that", &plugin->doc_}};
  for (const auto& text : texts) {
    absl::StatusOr<std::string> read = ReadText(text.text, text.what, kMaxNormTextLength);
    if (!read.ok()) return Annotate(read.status(), where);
    *text.to = *std::move(read);
  }
  absl::StatusOr<std::vector<NormAttrSpec>> attrs = ReadAttrSchema(*known);
  if (!attrs.ok()) return Annotate(attrs.status(), where);
  plugin->attrs_ = *std::move(attrs);
  plugin->identity_ = (known->flags & PLUMB_NORM_IDENTITY) != 0;
  plugin->in_place_ = (known->flags & PLUMB_NORM_INPLACE) != 0;
  plugin->has_f64_ = (known->dtypes & PLUMB_F64) != 0;
  plugin->host_ = {sizeof(plumb_host), PLUMB_NORM_ABI_MINOR, plugin.get(), LogFromPlugin,
                   NoExtension};

  if (known->available != nullptr) {
    ErrorText error;
    const plumb_status status = known->available(error.text, sizeof(error.text));
    if (status != PLUMB_OK) {
      return absl::FailedPreconditionError(absl::StrCat(
          where, "is not available here: ", FromPlugin(status, error.view()).message()));
    }
  }
  return plugin;
}

absl::StatusOr<std::shared_ptr<const NormInstance>> NormPlugin::Instantiate(
    int64_t dim, const NormAttrs& attrs) const {
  if (dim < 1 || dim > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(id_, ": cannot normalize rows of ", dim, " elements"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<NormAttrValue> values, CheckAttrs(attrs));

  std::shared_ptr<NormInstance> instance(new NormInstance());
  instance->plugin_ = this;
  instance->dim_ = dim;
  instance->text_ = InstanceText(id_, attrs_, values, dim);
  const std::string where = absl::StrCat(instance->text_, ": ");
  ErrorText error;
  const plumb_status created =
      table_.create(&host_, static_cast<uint32_t>(dim), ToAbi(attrs_, values).data(),
                    &instance->handle_, error.text, sizeof(error.text));
  if (created != PLUMB_OK) {
    instance->handle_ = nullptr;  // whatever was written there is not an instance
    return Annotate(FromPlugin(created, error.view()), where);
  }
  if (instance->handle_ == nullptr) {
    return absl::InternalError(absl::StrCat(where, "create succeeded without an instance"));
  }

  plumb_norm_layout layout{};
  layout.struct_size = sizeof(layout);
  PLUMB_RETURN_IF_ERROR(
      Annotate(FromPlugin(table_.layout(instance->handle_, &layout), "layout failed"), where));
  absl::StatusOr<std::vector<NormParam>> params = ReadLayout(layout, dim);
  if (!params.ok()) return Annotate(params.status(), where);
  if (identity_ && (!params->empty() || layout.saved_per_row != 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, "calls itself the identity but has parameters or state"));
  }
  instance->params_ = *std::move(params);
  instance->saved_per_row_ = layout.saved_per_row;
  instance->backward_needs_x_ = (layout.backward_needs & PLUMB_BWD_X) != 0;
  instance->backward_needs_y_ = (layout.backward_needs & PLUMB_BWD_Y) != 0;
  instance->scratch_bytes_ = static_cast<int64_t>(layout.scratch_bytes);
  instance->scratch_bytes_per_row_ = static_cast<int64_t>(layout.scratch_bytes_per_row);
  return std::shared_ptr<const NormInstance>(std::move(instance));
}

NormInstance::~NormInstance() {
  if (handle_ != nullptr) plugin_->table_.destroy(handle_);
}

absl::Status NormInstance::Failure(const char* function, plumb_status code,
                                   const char* message) const {
  return Annotate(FromPlugin(code, message), absl::StrCat(text_, ": ", function, ": "));
}

absl::Status NormInstance::Forward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  const plumb_status status = plugin_->table_.forward(handle_, &call, r0, r1);
  if (ABSL_PREDICT_TRUE(status == PLUMB_OK)) return absl::OkStatus();
  return Failure("forward", status, MessageOf(call).c_str());
}

absl::Status NormInstance::Backward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  const plumb_status status = plugin_->table_.backward(handle_, &call, r0, r1);
  if (ABSL_PREDICT_TRUE(status == PLUMB_OK)) return absl::OkStatus();
  return Failure("backward", status, MessageOf(call).c_str());
}

}  // namespace plumb
