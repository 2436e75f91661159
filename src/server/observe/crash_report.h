// Turns a black box file (base/black_box.h) into a readable report: why the process ended, which
// requests were under way, and how long the last steps took.
#pragma once

#include <istream>
#include <string>

#include "base/result.h"

namespace hocket {

struct CrashReportOptions {
  int num_steps = 10;   // last steps of each rank that are listed one by one
  double seconds = 60;  // time before the end that is summarized in ten parts
};

// Returns the report. Lines that were cut off in the middle are skipped and counted.
// Errors: bad_value if `file` is not the file of a black box.
Result<std::string> crash_report(std::istream& file, const CrashReportOptions& options);

}  // namespace hocket
