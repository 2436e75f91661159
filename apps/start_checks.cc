#include "apps/start_checks.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "base/host_findings.h"
#include "base/log.h"
#include "server/access/host_names.h"
#include "server/access/key_ring.h"

namespace hocket {
namespace {

// Files that a server has open besides its clients' connections: its own (threads, logs, dumps,
// helpers), and some for each other rank.
constexpr rlim_t kOwnFiles = 96, kFilesOfRank = 16;
// Connections for probes, beyond http.max_connections (docs/contracts/requests.md, "Connections").
constexpr rlim_t kSpareConnections = 64;

}  // namespace

Result<std::vector<SettingChange>> fit_connections(HttpSettings& http, int num_ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const auto num_others = static_cast<rlim_t>(std::max(num_ranks, 1) - 1);
  const rlim_t others = kOwnFiles + num_others * kFilesOfRank + kSpareConnections;
  const rlim_t wanted = static_cast<rlim_t>(std::max(http.max_connections, 1)) + others;
  if (limit.rlim_cur < wanted) {
    rlimit raised = limit;
    raised.rlim_cur = std::min(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= wanted) return {};
  if (limit.rlim_cur <= others)
    return fail(error(ErrorCode::bad_value,
                      "this process may open {} files at once, and a server needs {}: {} for "
                      "connections of probes, one for a client, and its own",
                      limit.rlim_cur, others + 1, kSpareConnections)
                    .with_fix(fmt::format("ulimit -n {}", wanted)));
  const auto room = static_cast<int>(limit.rlim_cur - others);
  const std::string from = std::to_string(http.max_connections);
  http.max_connections = room;
  return std::vector<SettingChange>{
      {.flag = "--max-connections",
       .from = from,
       .to = std::to_string(room),
       .why = fmt::format("this process may open {} files at once (ulimit -n)", limit.rlim_cur)}};
}

std::optional<SlowPath> open_to_all(const HttpSettings& http) {
  const bool asks_for_key =
      !http.api_key.empty() || !http.admin_api_key.empty() || !http.api_key_file.empty();
  if (asks_for_key || is_loopback_host(http.host)) return std::nullopt;
  return SlowPath{fmt::format("--host {}", http.host),
                  "no key is asked for: every client that reaches this address is an admin",
                  "set HOCKET_API_KEY or --api-key-file, or listen on --host 127.0.0.1"};
}

std::vector<SlowPath> find_slow_paths(const EngineInfo& info, const ServerSettings& settings) {
  std::vector<SlowPath> paths;
  std::vector<Finding> findings = judge(inspect_machine(), read_host_facts());
  findings.push_back(judge_level(info.isa, detect_isa()));
  for (const Finding& finding : findings)
    if (finding.severity == Severity::slow)
      paths.push_back({finding.name, finding.value, finding.remedy});
#ifndef __OPTIMIZE__
  paths.push_back(
      {"build", "this program was built without optimisation", "./hocket build release"});
#endif
  if (auto open = open_to_all(settings.http)) paths.push_back(*std::move(open));
  const std::string& keys = settings.http.api_key_file;
  if (!keys.empty() && is_readable_by_others(keys))
    paths.push_back({"--api-key-file", fmt::format("every user of this host may read {}", keys),
                     fmt::format("chmod o-r {}", keys)});
  return paths;
}

Result<void> report_or_refuse(const EngineInfo& info, const StartReport& report,
                              const ServerSettings& settings) {
  std::string all;
  const auto line_of = [](const SettingChange& change) {
    return fmt::format("changed: {} {} -> {} because {}", change.flag, change.from, change.to,
                       change.why);
  };
  const auto warn = [&](const std::string& line) {
    log::warning("{}", line);
    all += "\n  " + line;
  };
  for (const SettingChange& change : info.changes) all += "\n  " + line_of(change);
  for (const SettingChange& change : report.changes) warn(line_of(change));
  for (const SlowPath& path : report.slow_paths)
    warn(fmt::format("slow: {}: {}; {}", path.what, path.why, path.fix));
  if (!settings.strict || all.empty()) return {};
  return fail(error(ErrorCode::bad_value, "--strict allows none of these:{}", all)
                  .with_fix("ask for what is there, change the machine, or leave out --strict"));
}

}  // namespace hocket
