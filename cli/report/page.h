// The report's page without its data, as it was put together from cli/report when plumb was built.
#ifndef PLUMB_CLI_REPORT_PAGE_H_
#define PLUMB_CLI_REPORT_PAGE_H_

#include "absl/strings/string_view.h"

namespace plumb::cli {

// Up to and including <script type="application/json" ...>.
absl::string_view PageBeforeData();

// From its </script> on.
absl::string_view PageAfterData();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_REPORT_PAGE_H_
