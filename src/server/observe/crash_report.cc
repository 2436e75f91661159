#include "server/observe/crash_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <vector>

#include "base/text_file.h"
#include "server/http/json_body.h"

namespace hocket {
namespace {

constexpr int kParts = 10;
constexpr size_t kEndedShown = 10;
constexpr std::string_view kSection = "--- ";
// A black box writes a head and about 40,000 lines of at most 256 bytes.
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr int kMaxLines = 1'000'000;

struct Step {
  double at_s = 0, took_ms = 0;
  int64_t number = 0, rows = 0, decode_rows = 0, running = 0, waiting = 0, used_tokens = 0;
};

struct Crash {
  Json head;
  double end_s = 0;
  std::map<int64_t, std::vector<Step>> steps;  // by rank
  std::vector<Json> began, ended;
  std::string backtrace;
  std::vector<std::string> memory;  // lines
  int num_broken = 0;               // lines
};

double seconds_of(const Json& event) {
  return static_cast<double>(event.value("at_us", int64_t{0})) / 1e6;
}

Step step_of(const Json& e) {
  return {.at_s = seconds_of(e),
          .took_ms = e.value("took_us", 0.0) / 1e3,
          .number = e.value("step", int64_t{0}),
          .rows = e.value("rows", int64_t{0}),
          .decode_rows = e.value("decode_rows", int64_t{0}),
          .running = e.value("running", int64_t{0}),
          .waiting = e.value("waiting", int64_t{0}),
          .used_tokens = e.value("used_tokens", int64_t{0})};
}

void read_event(const std::string& line, Crash& crash) {
  const Json event = parse_bounded_json(line);
  if (!event.is_object()) {
    ++crash.num_broken;
  } else if (event.contains("step")) {
    crash.steps[event.value("rank", int64_t{0})].push_back(step_of(event));
  } else if (event.contains("request")) {
    (event["request"] == "began" ? crash.began : crash.ended).push_back(event);
  }
}

void read_rest(const std::string& section, const std::string& line, Crash& crash) {
  if (section == "backtrace") {
    crash.backtrace += "  " + line + "\n";
    return;
  }
  for (const char* name : {"VmPeak:", "VmRSS:", "VmSwap:", "Threads:"})
    if (line.starts_with(name)) crash.memory.push_back(line);
}

Result<Crash> read(std::istream& file) {
  Crash crash;
  std::string line, section;
  const auto next = [&] { return next_line(file, line, kMaxLineBytes); };
  HOCKET_TRY(bool more, next());
  if (more) crash.head = parse_bounded_json(line);
  if (!crash.head.is_object() || !crash.head.contains("hocket_crash"))
    return fail(error(ErrorCode::bad_value, "this is not a crash file")
                    .with_fix("a hocket-crash-*.jsonl of --crash-dump-folder"));
  crash.end_s = seconds_of(crash.head);
  for (int row = 1;; ++row) {
    HOCKET_TRY(more, next());
    if (!more) break;
    if (row > kMaxLines) return fail(ErrorCode::bad_value, "it has more than {} lines", kMaxLines);
    if (line.starts_with(kSection))
      section = line.substr(kSection.size());
    else if (section.empty())
      read_event(line, crash);
    else
      read_rest(section, line, crash);
  }
  return crash;
}

using Out = std::back_insert_iterator<std::string>;

void print_head(const Crash& crash, Out out) {
  const Json& h = crash.head;
  const Json about = h.value("about", Json::object());
  fmt::format_to(out, "why      {}\n", h.value("why", ""));
  if (h.contains("last_words")) fmt::format_to(out, "words    {}\n", h.value("last_words", ""));
  fmt::format_to(out, "when     {:%F %T} UTC, after {:.1f} s\n",
                 fmt::gmtime(static_cast<std::time_t>(h.value("unix", int64_t{0}))), crash.end_s);
  fmt::format_to(out, "where    thread {} of process {}, rank {} of {}\n", h.value("thread", "?"),
                 h.value("pid", int64_t{0}), about.value("rank", 0), about.value("ranks", 1));
  fmt::format_to(out, "what     hocket {}, model {}\n", about.value("version", "?"),
                 about.value("model", "?"));
  for (const std::string& line : crash.memory) fmt::format_to(out, "memory   {}\n", line);
  if (crash.num_broken > 0)
    fmt::format_to(out, "note     {} events were too long, or being written\n", crash.num_broken);
}

void print_requests(const Crash& crash, Out out) {
  std::vector<std::string> ended;
  for (const Json& e : crash.ended) ended.push_back(e.value("id", ""));
  std::ranges::sort(ended);
  std::vector<const Json*> open;
  for (const Json& e : crash.began)
    if (!std::ranges::binary_search(ended, e.value("id", ""))) open.push_back(&e);
  fmt::format_to(out, "\nrequests under way: {}\n", open.size());
  for (const Json* e : open)
    fmt::format_to(out, "  {} {}, {} prompt tokens, for {:.1f} s\n", e->value("id", ""),
                   e->value("path", ""), e->value("prompt_tokens", int64_t{0}),
                   crash.end_s - seconds_of(*e));
  const size_t from = crash.ended.size() - std::min(crash.ended.size(), kEndedShown);
  fmt::format_to(out, "requests that ended: {}, the last of them\n", crash.ended.size());
  for (size_t i = from; i < crash.ended.size(); ++i) {
    const Json& e = crash.ended[i];
    const std::string code = e.value("code", "");
    fmt::format_to(out, "  {} {}{}{}, {} tokens in {:.1f} ms, {:.1f} s before the end\n",
                   e.value("id", ""), e.value("status", 0), code.empty() ? "" : " ", code,
                   e.value("generated", int64_t{0}), e.value("total_ms", 0.0),
                   crash.end_s - seconds_of(e));
  }
}

// Prints the steps of the time before the end, in kParts parts.
void print_pace(const std::vector<Step>& steps, const Crash& crash, double seconds, Out out) {
  const double begin = std::max(0.0, crash.end_s - seconds), part = (crash.end_s - begin) / kParts;
  fmt::format_to(out, "  {:>14} {:>7} {:>8} {:>10} {:>10}\n", "s before end", "steps", "rows",
                 "mean ms", "longest ms");
  for (int i = 0; i < kParts; ++i) {
    const double from = begin + i * part, to = from + part;
    int64_t count = 0, rows = 0;
    double sum = 0, most = 0;
    for (const Step& step : steps) {
      if (step.at_s < from || step.at_s >= to) continue;
      ++count;
      rows += step.rows;
      sum += step.took_ms;
      most = std::max(most, step.took_ms);
    }
    fmt::format_to(out, "  {:>14} {:>7} {:>8} {:>10.2f} {:>10.2f}\n",
                   fmt::format("{:.1f} - {:.1f}", crash.end_s - from, crash.end_s - to), count,
                   rows, count == 0 ? 0 : sum / static_cast<double>(count), most);
  }
}

void print_steps(const Crash& crash, const CrashReportOptions& options, Out out) {
  for (const auto& [rank, steps] : crash.steps) {
    fmt::format_to(out, "\nrank {}: the last {} of {} steps that are known\n", rank,
                   std::min<size_t>(steps.size(), static_cast<size_t>(options.num_steps)),
                   steps.size());
    const auto from = std::ssize(steps) - std::min<ptrdiff_t>(std::ssize(steps), options.num_steps);
    for (auto i = from; i < std::ssize(steps); ++i) {
      const Step& s = steps[static_cast<size_t>(i)];
      fmt::format_to(out,
                     "  step {}: {} rows, {} of answers, {:.2f} ms; {} run, {} wait, {} KV tokens; "
                     "{:.3f} s before the end\n",
                     s.number, s.rows, s.decode_rows, s.took_ms, s.running, s.waiting,
                     s.used_tokens, crash.end_s - s.at_s);
    }
    print_pace(steps, crash, options.seconds, out);
  }
  if (crash.steps.empty()) fmt::format_to(out, "\nno step was made\n");
}

}  // namespace

Result<std::string> crash_report(std::istream& file, const CrashReportOptions& options) {
  std::string text;
  const Out out(text);
  Crash crash;
  try {
    HOCKET_TRY(crash, read(file));
    print_head(crash, out);
    print_requests(crash, out);
    print_steps(crash, options, out);
  } catch (const Json::exception& e) {
    return fail(ErrorCode::bad_value, "the crash file is damaged: {}", e.what());
  }
  text += "\nbacktrace of that thread (addr2line -Cfe hocket ADDRESS shows the line)\n";
  return text + crash.backtrace;
}

}  // namespace hocket
