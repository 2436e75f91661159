#include "engine/stats/profiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "engine/stats/trace_file.h"

namespace hocket {
namespace {

Result<void> check_dir(const std::string& dir) {
  std::error_code why;
  std::filesystem::create_directories(dir, why);
  if (!why && access(dir.c_str(), W_OK | X_OK) != 0) why.assign(errno, std::generic_category());
  if (!why) return {};
  return fail(error(ErrorCode::io, "cannot write profiles to {}: {}", dir, why.message())
                  .with_param("output_dir")
                  .with_fix("another output_dir, or another --admin-folder"));
}

}  // namespace

// Each engine holds the mutex of its tape while it notes. If a profile begins or ends just then,
// that step is left out.
struct Profiler::State {
  struct Tape {
    Mutex mutex;
    bool is_on HOCKET_GUARDED_BY(mutex) = false;  // records
    // True if the ledger kept spans of the whole step.
    bool is_primed HOCKET_GUARDED_BY(mutex) = false;
    uint64_t begin_step HOCKET_GUARDED_BY(mutex) = 0;
    size_t max_steps HOCKET_GUARDED_BY(mutex) = 0;
    TraceTape tape HOCKET_GUARDED_BY(mutex);
    std::atomic<uint64_t> last_step{0};
    std::atomic<int> num_steps{0};
  };

  State(Options options_in) : options(std::move(options_in)), tapes(options.num_here) {}

  bool record(Tape& tape, const Ledger& ledger) const HOCKET_REQUIRES(tape.mutex);
  void arm(const Start& start);
  void write();
  uint64_t first_common_step() const;
  Status current_status() const HOCKET_REQUIRES(mutex);

  const Options options;
  std::vector<Tape> tapes;

  mutable Mutex mutex;
  std::condition_variable changed;  // is_running changed
  bool is_running HOCKET_GUARDED_BY(mutex) = false;
  bool is_written HOCKET_GUARDED_BY(mutex) = false;
  std::atomic<int> num_recording{0};  // number of ranks; at 0 the writer begins
  std::string path HOCKET_GUARDED_BY(mutex);
  std::string failure HOCKET_GUARDED_BY(mutex);
  Thread writer HOCKET_GUARDED_BY(mutex);
};

std::string Profiler::fresh_id() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  return fmt::format("{}.{:03}", ms / 1000, ms % 1000);
}

Profiler::Profiler(Options options) : state_(std::make_unique<State>(std::move(options))) {}

Profiler::~Profiler() {
  static_cast<void>(stop());
  if (state_->writer.joinable()) state_->writer.join();
}

// Returns a first step that all ranks record: the step after the next, which no rank has begun.
uint64_t Profiler::State::first_common_step() const {
  uint64_t newest = 0;
  for (const Tape& tape : tapes) newest = std::max(newest, tape.last_step.load());
  return options.num_ranks > 1 ? newest + 2 : 0;
}

void Profiler::State::arm(const Start& start) {
  const size_t steps = start.num_steps > 0 ? start.num_steps : kMaxSteps;
  const size_t spans = std::min(kMaxSpans, steps * std::max<size_t>(1, options.spans_per_step));
  const uint64_t begin = std::max(start.start_step.value_or(0), first_common_step());
  num_recording = static_cast<int>(tapes.size());
  for (size_t i = 0; i < tapes.size(); ++i) {
    Tape& tape = tapes[i];
    const MutexLock lock(tape.mutex);
    tape.tape = {.rank = options.first_rank + static_cast<int>(i)};
    tape.tape.steps.reserve(steps);
    tape.tape.spans.reserve(spans);
    tape.begin_step = begin;
    tape.max_steps = steps;
    tape.num_steps = 0;
    tape.is_primed = false;
    tape.is_on = true;
  }
}

Result<Profiler::Status> Profiler::start(const Start& start) {
  if (start.num_steps < 0 || start.num_steps > kMaxSteps)
    return fail(error(ErrorCode::invalid_request, "num_steps is {}, must be 1 to {}",
                      start.num_steps, kMaxSteps)
                    .with_param("num_steps"));
  State& s = *state_;
  const MutexLock lock(s.mutex);
  if (s.is_running)
    return fail(error(ErrorCode::invalid_request, "a profile runs already, to {}", s.path)
                    .with_fix("/stop_profile ends it"));
  HOCKET_TRY_VOID(check_dir(start.dir));
  std::string path = fmt::format("{}/{}-rank{}.trace.json", start.dir,
                                 start.id.empty() ? fresh_id() : start.id, s.options.first_rank);
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored))  // a link may lead out of the folder
    return fail(error(ErrorCode::invalid_request, "{} is a link", path)
                    .with_fix("another profile_id")
                    .with_param("profile_id"));
  s.path = std::move(path);
  s.failure.clear();
  s.is_written = false;
  s.is_running = true;
  s.arm(start);
  is_on_.store(true, std::memory_order_release);
  s.writer = Thread({.name = "profile"}, [this] {
    State& state = *state_;
    for (int remaining = 0; (remaining = state.num_recording.load()) > 0;)
      state.num_recording.wait(remaining);
    is_on_.store(false, std::memory_order_release);
    state.write();
  });
  return s.current_status();
}

void Profiler::State::write() {
  std::vector<TraceTape> taken;
  for (Tape& tape : tapes) {
    const MutexLock lock(tape.mutex);
    tape.is_on = false;
    taken.push_back(std::exchange(tape.tape, {}));
  }
  const TraceInfo info = {
      .model = options.model, .num_ranks = options.num_ranks, .orders = options.orders};
  const std::string to = [this] {
    const MutexLock lock(mutex);
    return path;
  }();
  const Result<void> done = write_trace(to, info, taken);
  if (done)
    log::info("profile of {} steps is in {}", taken.empty() ? 0 : taken[0].steps.size(), to);
  else
    log::warning("profile is lost: {}", describe(done.error()));
  const MutexLock lock(mutex);
  is_running = false;
  is_written = done.has_value();
  if (!done) failure = done.error().message;
  changed.notify_all();
}

Result<Profiler::Status> Profiler::stop() {
  State& s = *state_;
  MutexLock lock(s.mutex);
  if (!s.is_running) {
    Error none = error(ErrorCode::invalid_request, "no profile runs");
    if (!s.path.empty()) none.fix = fmt::format("the last one is in {}", s.path);
    return fail(std::move(none));
  }
  s.num_recording = 0;
  s.num_recording.notify_all();
  if (!s.changed.wait_for(lock, s.options.patience,
                          [&]() HOCKET_REQUIRES(s.mutex) { return !s.is_running; }))
    return fail(error(ErrorCode::timed_out, "{} is not written yet after {:.1f} s", s.path,
                      to_seconds(s.options.patience))
                    .with_fix("/stop_profile again later; a disk that stays slow needs another "
                              "--admin-folder"));
  if (!s.failure.empty()) return fail(error(ErrorCode::io, "{}", s.failure));
  return s.current_status();
}

Profiler::Status Profiler::State::current_status() const {
  int fewest = kMaxSteps;
  for (const Tape& tape : tapes) fewest = std::min(fewest, tape.num_steps.load());
  return {.running = is_running,
          .num_steps = tapes.empty() ? 0 : fewest,
          .file = path,
          .is_written = is_written,
          .error = failure};
}

Profiler::Status Profiler::status() const {
  const MutexLock lock(state_->mutex);
  return state_->current_status();
}

// Returns true if recording continues.
bool Profiler::State::record(Tape& tape, const Ledger& ledger) const {
  const StepAccount& account = ledger.account();
  if (!std::exchange(tape.is_primed, true) || !account.has_pass) return true;
  TraceTape& out = tape.tape;
  // Steps count from 1 again after the ranks have joined again.
  if (!out.steps.empty() && account.step <= out.steps.back().account.step && account.step > 0)
    return false;
  if (account.step < tape.begin_step) return true;
  const std::span<const LedgerSpan> spans = ledger.spans();
  if (out.spans.size() + spans.size() > out.spans.capacity()) {
    ++out.num_left_out;
    return false;
  }
  out.spans.insert(out.spans.end(), spans.begin(), spans.end());
  out.steps.push_back({.account = account, .end_span = out.spans.size()});
  tape.num_steps = static_cast<int>(out.steps.size());
  return out.steps.size() < tape.max_steps;
}

void Profiler::note(int rank, Ledger& ledger) {
  State& s = *state_;
  State::Tape& tape = s.tapes.at(static_cast<size_t>(rank - s.options.first_rank));
  tape.last_step.store(ledger.account().step, std::memory_order_relaxed);
  if (!is_on_.load(std::memory_order_acquire)) return ledger.keep_spans(false);
  if (!tape.mutex.try_lock()) return ledger.keep_spans(false);
  const MutexLock lock(tape.mutex, std::adopt_lock);
  if (!tape.is_on) return ledger.keep_spans(false);
  ledger.keep_spans(true);
  if (s.record(tape, ledger)) return;
  ledger.keep_spans(false);
  tape.is_on = false;
  if (--s.num_recording <= 0) s.num_recording.notify_all();
}

}  // namespace hocket
