// hocket crash: prints the file that a server wrote when it crashed or hung.
#include <fmt/core.h>

#include <fstream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "core/setting_ranges.h"
#include "server/observe/crash_report.h"

namespace hocket {
namespace {

Result<int> print_crash(Arguments arguments) {
  std::string path;
  if (!arguments.empty() && !arguments.front().starts_with('-')) {
    path = arguments.front();
    arguments.erase(arguments.begin());
  }
  CrashReportOptions options;
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "crash",
           .about =
               "FILE: print a file of --crash-dump-folder, the last steps and requests before a "
               "crash, as text",
           .groups = {{"Selection",
                       {{"steps", &options.num_steps,
                         "number of last steps that are printed one by one", ""},
                        {"seconds", &options.seconds,
                         "length of the summary before the crash, which has ten equal parts",
                         ""}}}},
           .takes_config = false},
          arguments));
  if (!go) return 0;
  if (path.empty())
    return fail(error(ErrorCode::usage, "which file?").with_fix("hocket crash FILE"));
  HOCKET_TRY_VOID(
      check_number("seconds", options.seconds, {.low = 0, .high = 1e9, .low_excluded = true}));
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::io, "{} cannot be read", path);
  HOCKET_TRY(const std::string text, crash_report(file, options));
  fmt::print("{}", text);
  return 0;
}

}  // namespace

int crash(const Arguments& arguments) {
  const Result<int> done = print_crash(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
