// hocket trace: prints a profile of /start_profile as text, and merges several into one file.
#include <fmt/core.h>

#include <charconv>
#include <fstream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "core/setting_ranges.h"
#include "engine/stats/trace_view.h"

namespace hocket {
namespace {

struct TraceFlags {
  std::vector<std::string> files;
  std::string layers, output;
  int64_t step = -1;
  int width = 100;
};

Result<bool> parse(TraceFlags& f, const Arguments& arguments) {
  Arguments flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with('-')) {
      f.files.push_back(word);
      continue;
    }
    flags.push_back(word);
    const bool is_help = word == "--help" || word == "-h";
    if (!is_help && !word.contains('=') && i + 1 < arguments.size())
      flags.push_back(arguments[++i]);
  }
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "trace",
           .about = "FILE...: print profiles of /start_profile as text, or merge them",
           .groups =
               {{"Selection",
                 {{"step", &f.step, "number of the step; -1: one in the middle", ""},
                  {"layers", &f.layers, "as 3-5; default: all, and the other work of the step", ""},
                  {"width", &f.width, "columns of the output", ""},
                  {"output", &f.output, "merges the files into this one, for Perfetto", "o"}}}},
           .takes_config = false},
          flags));
  if (go && f.files.empty())
    return fail(error(ErrorCode::usage, "which trace?").with_fix("hocket trace FILE..."));
  HOCKET_TRY_VOID(check_number("width", f.width, {10, 10'000}));
  return go;
}

// Returns the first and last layer of "3-5" or "4". Errors: bad_value.
Result<std::pair<int, int>> parse_layers(const std::string& text) {
  int first = 0, last = 0;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, first);
  last = first;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
    parsed = std::from_chars(parsed.ptr + 1, end, last);
  if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first)
    return fail(error(ErrorCode::bad_value, "--layers is '{}', must be a layer or a range", text)
                    .with_fix("--layers 4, or --layers 3-5")
                    .with_param("layers"));
  return std::pair(first, last);
}

Result<void> run_trace(const TraceFlags& f) {
  TraceWindow window{.width = f.width};
  if (!f.layers.empty()) {
    HOCKET_TRY(window.layers, parse_layers(f.layers));
  }
  if (f.step >= 0) window.step = static_cast<uint64_t>(f.step);
  HOCKET_TRY(const StepTrace trace, read_traces(f.files));
  if (!f.output.empty()) {
    std::ofstream file(f.output);
    file << trace.file.dump() << '\n';
    file.close();
    if (!file) return fail(ErrorCode::io, "cannot write {}", f.output);
  }
  HOCKET_TRY(const std::string drawn, draw_step(trace, window));
  fmt::print("{}\n{}", drawn, draw_totals(trace));
  fmt::print(
      "\n  q attn_in  a attn_core  n delta_core  m mlp  g gate  s shared  x experts  d k send  "
      "w c take in, capitals: second half\n  . waits for slower ranks  ! waits for a transfer  - "
      "beside the "
      "layers  digits: lane of a message on its way\n");
  return {};
}

}  // namespace

int trace(const Arguments& arguments) {
  TraceFlags flags;
  const Result<bool> go = parse(flags, arguments);
  if (!go) return report(go.error());
  if (!*go) return 0;
  const Result<void> done = run_trace(flags);
  return done ? 0 : report(done.error());
}

}  // namespace hocket
