#include "runtime/tools/text.h"

#include "runtime/base/utf8.h"

namespace plumb {

std::string ToPrintable(absl::string_view text) { return PrintableText(text); }

std::string ToPrintableJson(absl::string_view json) { return PrintableJson(json); }

}  // namespace plumb
