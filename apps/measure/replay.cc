// hocket replay: sends the requests of a dump to a server again, or simulates them in virtual time
// by their lengths.
#include <fmt/core.h>

#include <algorithm>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/server_address.h"
#include "base/quantile.h"
#include "bench/replay.h"
#include "core/setting_ranges.h"

namespace hocket {
namespace {

struct ReplayFlags {
  std::vector<std::string> files;
  ReplayOptions options;
};

// Removes the words before the first flag from `arguments` and returns them: they name files.
std::vector<std::string> take_files(Arguments& arguments) {
  const auto end = std::ranges::find_if(
      arguments, [](const std::string& word) { return word.starts_with('-'); });
  std::vector<std::string> files(arguments.begin(), end);
  arguments.erase(arguments.begin(), end);
  return files;
}

Result<bool> parse(ReplayFlags& f, Arguments arguments) {
  f.files = take_files(arguments);
  auto& server = f.options.server;
  std::string url;
  bool in_virtual_time = false;
  FlagGroup where = server_flags(server, url);
  where.flags.push_back(
      {"timeout", &server.timeout_s, "seconds of silence that fail a request", ""});
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "replay",
           .about =
               "FILE...: send the requests of --dump-requests-folder again, at the recorded times",
           .groups = {std::move(where),
                      {"Traffic",
                       {{"speed", &f.options.speed,
                         "factor of the recorded speed; 2: twice as fast", ""},
                        {"max-concurrency", &f.options.max_concurrency,
                         "clients; when all are busy, requests are sent late", ""},
                        {"virtual", &in_virtual_time,
                         "uses the scheduler in virtual time and no server; must come first, "
                         "and takes the flags of hocket simulate",
                         ""}}}},
           .takes_config = false},
          arguments));
  if (!go) return false;
  if (in_virtual_time)
    return fail(error(ErrorCode::usage, "--virtual comes first")
                    .with_fix("hocket replay --virtual FILE [flags of hocket simulate]"));
  if (f.files.empty())
    return fail(error(ErrorCode::usage, "which dump?").with_fix("hocket replay FILE... --port N"));
  HOCKET_TRY_VOID(
      check_number("max-concurrency", f.options.max_concurrency, {.low = 1, .high = 4096}));
  HOCKET_TRY_VOID(take_url(url, server));
  return true;
}

void print_result(const ReplayFlags& f, const Dump& dump, const ReplayResult& r) {
  fmt::print("replay   {} | {} requests | {:.1f} s, {:g} times as fast as it was\n",
             text_of(f.options.server), dump.requests.size(), r.seconds, f.options.speed);
  if (dump.num_left_out > 0)
    fmt::print("left out {} | their bodies were too large for the dump\n", dump.num_left_out);
  fmt::print("requests {} ok, {} failed | sent at most {:.1f} ms late\n", r.num_ok, r.num_failed,
             r.max_late_ms);
  for (const auto& [kind, count] : r.errors) fmt::print("  failed {} | {}\n", count, kind);
  fmt::print("answers  {} the same, {} different, {} not compared\n", r.num_same, r.num_different,
             r.num_not_compared);
  if (r.num_different > 0)
    fmt::print("  first different: {}; another model, --dtype or --combine-groups?\n",
               r.first_different);
  fmt::print("{:<9}{:>12}{:>12}{:>12}{:>12}\n", "ms", "p50 then", "p50 now", "p99 then", "p99 now");
  const auto row = [](const char* name, const std::vector<double>& was,
                      const std::vector<double>& is) {
    fmt::print("{:<9}{:>12.1f}{:>12.1f}{:>12.1f}{:>12.1f}\n", name, quantile(was, 0.5),
               quantile(is, 0.5), quantile(was, 0.99), quantile(is, 0.99));
  };
  row("ttft", r.was_ttft_ms, r.ttft_ms);
  row("e2e", r.was_e2e_ms, r.e2e_ms);
}

Result<int> run_replay(const Arguments& arguments) {
  ReplayFlags f;
  HOCKET_TRY(const bool go, parse(f, arguments));
  if (!go) return 0;
  HOCKET_TRY(const Dump dump, read_dump(f.files));
  const ReplayResult result = replay_dump(dump, f.options);
  print_result(f, dump, result);
  return result.num_failed == 0 && result.num_different == 0 ? 0 : 1;
}

}  // namespace

// --virtual is passed on to simulate, which reads dumps too.
int replay(const Arguments& arguments) {
  if (!arguments.empty() && arguments.front() == "--virtual") {
    Arguments words(arguments.begin() + 1, arguments.end());
    const auto files = take_files(words);
    if (files.size() != 1)
      return report(error(ErrorCode::usage, "--virtual takes one file")
                        .with_fix("hocket replay --virtual FILE [flags of hocket simulate]"));
    words.insert(words.begin(), {"--trace", files.front(), "--compare"});
    return simulate(words);
  }
  const Result<int> done = run_replay(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
