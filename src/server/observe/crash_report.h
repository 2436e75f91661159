// What a black box (base/black_box.h) left behind, for people: why the process ended, which
// requests were under way, and what the last steps were like.
#pragma once

#include <istream>
#include <string>

#include "base/result.h"

namespace hocket {

struct CrashReportOptions {
  int num_steps = 10;   // the last of each rank, one by one
  double seconds = 60;  // the time before the end that is told in tenths
};

// Lines that were cut off in the middle are passed over, and counted. Errors: bad_value where it is
// no file of a black box.
Result<std::string> crash_report(std::istream& file, const CrashReportOptions& options);

}  // namespace hocket
