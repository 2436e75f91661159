#include "engine/runner/worker_choice.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace hocket {
namespace {

// Parses "0-3,8" into 0 1 2 3 8.
Result<std::vector<int>> parse_cpus(std::string_view list) {
  std::vector<int> cpus;
  const auto bad = [&] {
    return fail(
        error(ErrorCode::bad_value, "--cpu-bind {} is not auto, none or a list as 0-3,8", list)
            .with_param("cpu-bind"));
  };
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    int first = 0, last = 0;
    const char* end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, first);
    last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first || last > 4095)
      return bad();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  if (cpus.empty()) return bad();
  return cpus;
}

}  // namespace

Result<WorkerPool::Options> choose_workers(const ComputeSettings& settings,
                                           const Machine& machine) {
  WorkerPool::Options options;
  options.num_workers = machine.num_cores;
  if (settings.cpu_bind == "auto") {
    options.cpus = machine.cpus;
  } else if (settings.cpu_bind != "none") {
    HOCKET_TRY(options.cpus, parse_cpus(settings.cpu_bind));
    options.num_workers = static_cast<int>(options.cpus.size());
  }
  if (settings.num_threads < 0 || settings.num_threads > 1024)
    return fail(ErrorCode::bad_value, "--num-threads {} is not in 1 to 1024", settings.num_threads);
  if (settings.num_threads > 0) options.num_workers = settings.num_threads;
  // Pinning more workers than processors would make some share one; leave that to the kernel.
  if (options.num_workers > std::ssize(options.cpus)) options.cpus.clear();
  return options;
}

}  // namespace hocket
