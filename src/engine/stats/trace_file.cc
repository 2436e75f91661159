#include "engine/stats/trace_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "base/json_text.h"

namespace hocket {
namespace {

using SpanKind = LedgerSpan::Kind;

constexpr int kCompute = 1, kWaiting = 2, kWires = 10;
constexpr size_t kBlock = size_t{1} << 20;  // bytes written at once

std::string_view message_name(MessageKind kind) {
  static constexpr std::array<std::string_view, kNumMessageKinds> kNames = {"dispatch", "combine",
                                                                            "agreement"};
  return kNames.at(static_cast<size_t>(kind));
}

int wire_of(const LedgerSpan& span) {
  return kWires + lane_of(span.half, span.part) * 2 + static_cast<int>(span.message);
}

// Returns "dispatch a2" for half a, third part.
std::string message_words(const LedgerSpan& span) {
  return fmt::format("{} {}{}", message_name(span.message), span.half == 0 ? 'a' : 'b', span.part);
}

// Prints microseconds with three decimals.
std::string us(Duration d) {
  const int64_t ns = d.count();
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}
std::string us(TimePoint t) {
  return us(t.time_since_epoch());
}

std::string in_quotes(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// Two files with the same id have times of the same steady clock.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

Duration unix_at_zero() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch() -
                                              std::chrono::steady_clock::now().time_since_epoch());
}

// Returns an id of 62 bits that both ends of a message can compute.
uint64_t flow_id(uint64_t step, const LedgerSpan& span, int from, int to) {
  uint64_t id = step & 0xfffff;
  id = id << 12 | (static_cast<uint64_t>(span.layer) & 0xfff);
  id = id << 4 | static_cast<uint64_t>(lane_of(span.half, span.part));
  id = id << 2 | static_cast<uint64_t>(span.message);
  id = id << 12 | (static_cast<uint64_t>(from) & 0xfff);
  return id << 12 | (static_cast<uint64_t>(to) & 0xfff);
}

class Writer {
 public:
  Writer(std::FILE* file, const TraceInfo& info, std::span<const TraceTape> tapes)
      : file_(file), info_(info), tapes_(tapes) {
    for (const TraceTape& tape : tapes)
      for (const TraceStep& step : tape.steps) known_.emplace(tape.rank, step.account.step);
  }

  bool write() {
    write_head();
    for (const TraceTape& tape : tapes_) {
      write_names(tape);
      size_t begin = 0;
      for (const TraceStep& step : tape.steps) {
        write_step(tape.rank, step.account);
        for (size_t i = begin; i < step.end_span; ++i)
          write_span(tape.rank, step.account.step, tape.spans[i]);
        begin = step.end_span;
      }
    }
    text_ += "\n]}\n";
    return flush();
  }

 private:
  void write_head();
  void write_names(const TraceTape& tape);
  void write_step(int rank, const StepAccount& a);
  void write_span(int rank, uint64_t step, const LedgerSpan& span);
  void write_arrows(int rank, uint64_t step, const LedgerSpan& span);
  bool is_known(int rank, uint64_t step) const;
  void event(std::string_view text) {
    text_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    text_ += text;
    if (text_.size() >= kBlock) flush();
  }
  bool flush() {
    is_well_ = is_well_ && std::fwrite(text_.data(), 1, text_.size(), file_) == text_.size();
    text_.clear();
    return is_well_;
  }

  std::FILE* file_;
  const TraceInfo& info_;
  std::span<const TraceTape> tapes_;
  std::set<std::pair<int, uint64_t>> known_;  // ranks and steps of this file
  std::string text_;
  bool is_first_ = true, is_well_ = true;
};

void Writer::write_head() {
  size_t num_left_out = 0;
  bool exact = false;
  for (const TraceTape& tape : tapes_) {
    num_left_out += tape.num_left_out;
    for (const TraceStep& step : tape.steps) exact = step.account.exact_arrival;
  }
  text_ += fmt::format(
      R"({{"displayTimeUnit":"ns","otherData":{{"producer":"hocket","model":{},"host":{},)"
      R"("num_ranks":{},"boot_id":{},"unix_at_zero_us":{},"exact_arrival":{},)"
      R"("steps_left_out":{}}},"traceEvents":[)",
      in_quotes(info_.model), in_quotes(host_name()), info_.num_ranks, in_quotes(boot_id()),
      us(unix_at_zero()), exact, num_left_out);
}

void Writer::write_names(const TraceTape& tape) {
  const auto name = [&](int thread, std::string_view what, std::string_view text) {
    event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}_name","args":{{"name":{}}}}})",
                      tape.rank, thread, what, in_quotes(text)));
    if (what == "thread")
      event(fmt::format(
          R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
          tape.rank, thread, thread));
  };
  name(0, "process", fmt::format("rank {} ({})", tape.rank, host_name()));
  name(kCompute, "thread", "compute");
  name(kWaiting, "thread", "waiting");
  std::set<int> named;
  for (const LedgerSpan& span : tape.spans)
    if (span.kind == SpanKind::wire && named.insert(wire_of(span)).second)
      name(wire_of(span), "thread", fmt::format("wire: {}", message_words(span)));
}

void Writer::write_step(int rank, const StepAccount& a) {
  const std::string plan = info_.orders != nullptr
                               ? describe(a.plan, *info_.orders)
                               : fmt::format("plan {}", static_cast<uint32_t>(id_of(a.plan)));
  const std::string_view phase = phase_name(a.bucket.phase);
  // `shadow` and `beside_us` are the old names of `is_trial` and `other_us`.
  event(fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"step","name":"step {}","args":{{)"
      R"("step":{},"phase":"{}","rows":{},"kv_tokens":{},"plan":{},"is_trial":{},"took_us":{},)"
      R"("compute_us":{},"other_us":{},"exposed_us":{},"waiting_us":{},"idle_us":{},)"
      R"("hidden_us":{},"hidden_share":{:.4f},"shadow":{},"beside_us":{}}}}})",
      rank, kCompute, us(a.begin), us(a.took), a.step, a.step, phase, a.bucket.rows,
      a.bucket.kv_tokens, in_quotes(plan), a.is_trial, us(a.took), us(a.computed()), us(a.other),
      us(a.exposed), us(a.waiting), us(a.idle), us(a.hidden), a.hidden_share(), a.is_trial,
      us(a.other)));
}

void Writer::write_span(int rank, uint64_t step, const LedgerSpan& span) {
  const auto slice = [&](int thread, std::string_view kind, std::string_view name) {
    event(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":"{}","args":{{)"
        R"("step":{},"layer":{},"half":{},"part":{},"bytes":{}}}}})",
        rank, thread, us(span.begin), us(span.end - span.begin), kind, name, step, span.layer,
        span.half, span.part, span.bytes));
  };
  switch (span.kind) {
    case SpanKind::op:
      return slice(kCompute, "compute", op_name(span.op));
    case SpanKind::other:
      return slice(kCompute, "other,beside", span.what);
    case SpanKind::exposed:
      return slice(kWaiting, "exposed", message_words(span));
    case SpanKind::waiting:
      return slice(
          kWaiting, "waiting",
          span.message == MessageKind::agree ? "agreement" : "ranks: " + message_words(span));
    case SpanKind::push:
      return write_arrows(rank, step, span);
    case SpanKind::wire:
      slice(wire_of(span), "wire", message_words(span));
      return write_arrows(rank, step, span);
  }
}

// Writes the beginnings or the ends of a span's arrows. An arrow between ranks of this file is
// written only if it has both ends. An end lies just within its slice, else viewers do not find the
// slice.
void Writer::write_arrows(int rank, uint64_t step, const LedgerSpan& span) {
  const bool begins = span.kind == SpanKind::push;
  const TimePoint end = std::max(span.begin, span.end - Duration(1));
  for (int peer = 0; peer < info_.num_ranks; ++peer) {
    if (peer == rank || !is_known(peer, step)) continue;
    const uint64_t id = begins ? flow_id(step, span, rank, peer) : flow_id(step, span, peer, rank);
    event(fmt::format(
        R"({{"ph":"{}","id":"0x{:x}","pid":{},"tid":{},"ts":{},"cat":"rows","name":"{}"{}}})",
        begins ? 's' : 'f', id, rank, begins ? kCompute : wire_of(span),
        us(begins ? span.begin : end), message_name(span.message), begins ? "" : R"(,"bp":"e")"));
  }
}

// True if the step of `rank` is in this file, or may be in another.
bool Writer::is_known(int rank, uint64_t step) const {
  const bool is_here = std::ranges::find(tapes_, rank, &TraceTape::rank) != tapes_.end();
  return !is_here || known_.contains({rank, step});
}

}  // namespace

Result<void> write_trace(const std::string& path, const TraceInfo& info,
                         std::span<const TraceTape> tapes) {
  const std::string half_written = path + ".part";
  const auto failed = [&] {
    const int why = errno;
    std::remove(half_written.c_str());
    return fail(error(ErrorCode::io, "cannot write {}: {}", path, std::strerror(why))
                    .with_fix(why == EFBIG
                                  ? "fewer steps, or a larger limit of a file's size (ulimit -f)"
                                  : "another folder, or room on that disk"));
  };
  std::FILE* file = std::fopen(half_written.c_str(), "wx");
  if (file == nullptr) return failed();
  const bool is_written = Writer(file, info, tapes).write();
  const bool is_closed = std::fclose(file) == 0;
  if (!is_written || !is_closed) return failed();
  if (std::rename(half_written.c_str(), path.c_str()) != 0) return failed();
  return {};
}

Result<std::string> trace_text(const TraceInfo& info, std::span<const TraceTape> tapes) {
  char* bytes = nullptr;
  size_t num_bytes = 0;
  std::FILE* file = open_memstream(&bytes, &num_bytes);
  const bool is_written = file != nullptr && Writer(file, info, tapes).write();
  const bool is_closed = file != nullptr && std::fclose(file) == 0;
  const std::unique_ptr<char, decltype(&std::free)> owner(bytes, &std::free);
  if (!is_written || !is_closed)
    return fail(error(ErrorCode::io, "no memory for a timeline: {}", std::strerror(errno)));
  return std::string(bytes, num_bytes);
}

}  // namespace hocket
