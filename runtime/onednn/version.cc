#include "runtime/onednn/version.h"

#include <dnnl.h>

#include "absl/strings/str_cat.h"

namespace plumb {

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

}  // namespace plumb
