#include "runtime/onednn/sgemm.h"

#include <dnnl.h>

#include "absl/strings/str_cat.h"
#include "runtime/onednn/one_thread.h"

namespace plumb {
namespace {

absl::Status Failure(dnnl_status_t status, const SgemmArgs& args) {
  const std::string what = absl::StrCat("oneDNN sgemm of [", args.m, ", ", args.k, "] by [", args.k,
                                        ", ", args.n, "]: ");
  switch (status) {
    case dnnl_out_of_memory:
      return absl::ResourceExhaustedError(absl::StrCat(what, "out of memory"));
    case dnnl_invalid_arguments:
      return absl::InvalidArgumentError(absl::StrCat(what, "invalid arguments"));
    case dnnl_unimplemented:
      return absl::UnimplementedError(absl::StrCat(what, "not available on this processor"));
    default:
      return absl::InternalError(absl::StrCat(what, "failed with status ", status));
  }
}

}  // namespace

absl::Status SgemmOnThisThread(const SgemmArgs& args) {
  const OneThread one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.m, args.n, args.k,
                 1.0f, args.a, args.lda, args.b, args.ldb, args.beta, args.c, args.ldc);
  return status == dnnl_success ? absl::OkStatus() : Failure(status, args);
}

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

}  // namespace plumb
