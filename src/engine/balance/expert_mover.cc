#include "engine/balance/expert_mover.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

// First guess of the packing speed of one core (bf16 in memory); the first move replaces it by a
// measured one.
constexpr double kGuessedBytesPerSecond = 500e6;
constexpr int kLowestPriority = 19;

std::vector<bool> layers_with_experts(const Runner& runner) {
  std::vector<bool> found;
  for (int layer = 0; layer < runner.placement().num_layers(); ++layer)
    found.push_back(!runner.experts(layer).empty());
  return found;
}

}  // namespace

ExpertMover::ExpertMover(Options options, Runner& runner, ExpertStats& stats)
    : options_(std::move(options)),
      runner_(runner),
      stats_of_rows_(stats),
      places_(runner.placement(), layers_with_experts(runner)),
      loader_({.model = options_.model,
               .rank = options_.rank,
               .used_time = options_.used_time,
               .is_over = [this] { return is_over(); }},
              runner),
      threads_(runner.info().num_workers, runner.info().ranks.front().cpus),
      epoch_(RankSet::all(places_.num_ranks())) {
  {
    MutexLock lock(mutex_);
    plan_input_.counts.reserve(stats.num_counts());
  }
  mover_ = Thread({.name = "mover"}, [this] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
    run([](Task task) { return task != Task::none && task != Task::load_for_epoch; });
  });
  takeover_ = Thread({.name = "takeover"}, [this] {
    threads_.adopt_caller();
    run([](Task task) { return task == Task::load_for_epoch; });
  });
}

ExpertMover::~ExpertMover() {
  {
    MutexLock lock(mutex_);
    dropped_ = stops_ = true;
  }
  changed_.notify_all();
}

void ExpertMover::begin(Task task) {
  {
    MutexLock lock(mutex_);
    task_ = task;
  }
  changed_.notify_all();
}

void ExpertMover::plan(std::span<const uint64_t> counts, uint64_t num_steps) {
  {
    MutexLock lock(mutex_);
    planned_ = false;
    plan_input_.counts.assign(counts.begin(), counts.end());
    plan_input_.num_steps = num_steps;
    task_ = Task::plan;
  }
  changed_.notify_all();
}

void ExpertMover::plan_for(const RankSet& stay) {
  {
    MutexLock lock(mutex_);
    planned_ = false;
    plan_input_.stay = stay;
    task_ = Task::plan_for;
  }
  changed_.notify_all();
}

const ExpertChanges* ExpertMover::planned() const {
  return planned_.load(std::memory_order_acquire) ? &changes_ : nullptr;
}

void ExpertMover::load() {
  num_loaded_ = 0;
  failed_ = false;
  {
    MutexLock lock(mutex_);
    dropped_ = false;
    num_handed_out_ = num_moved_ = 0;
  }
  begin(Task::load);
}

LayerMove& ExpertMover::next() {
  MutexLock lock(mutex_);
  ++num_handed_out_;
  return *move_;
}

void ExpertMover::moved() {
  {
    MutexLock lock(mutex_);
    num_moved_ = num_handed_out_;
  }
  changed_.notify_all();
}

void ExpertMover::drop() {
  {
    MutexLock lock(mutex_);
    dropped_ = true;
    stats_.num_remaining_layers = 0;
  }
  changed_.notify_all();
}

double ExpertMover::seconds_per_byte() const {
  const ExpertLoader::Loaded loaded = loader_.loaded();
  if (loaded.num_bytes == 0) return 1 / kGuessedBytesPerSecond;
  return loaded.seconds / static_cast<double>(loaded.num_bytes);
}

ExpertMoveStats ExpertMover::stats() const {
  ExpertMoveStats all;
  {
    MutexLock lock(mutex_);
    all = stats_;
  }
  const ExpertLoader::Loaded loaded = loader_.loaded();
  all.moves_total = loaded.num_experts;
  all.bytes_total = loaded.num_bytes;
  all.load_seconds_total = loaded.seconds;
  return all;
}

void ExpertMover::note_balance_check(const ExpertChanges& changes, double gain_seconds,
                                     double cost_seconds, bool moves) {
  MutexLock lock(mutex_);
  ++stats_.checks_total;
  stats_.rebalances_total += moves ? 1 : 0;
  stats_.balancedness_before = changes.balancedness_before;
  stats_.balancedness_after = changes.balancedness_after;
  stats_.gain_seconds = gain_seconds;
  stats_.cost_seconds = cost_seconds;
  stats_.num_remaining_layers = moves ? static_cast<int>(changes.layers.size()) : 0;
}

// The memory of a plan's input and that of the next are used in turn, so plan() allocates nothing.
void ExpertMover::run(bool (*is_mine)(Task)) {
  PlanInput input;
  if (is_mine(Task::plan)) input.counts.reserve(stats_of_rows_.num_counts());
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while ((is_working_ || !is_mine(task_)) && !stops_) changed_.wait(lock);
      if (stops_) return;
      is_working_ = true;
      task = std::exchange(task_, Task::none);
      if (task == Task::plan || task == Task::plan_for) std::swap(input, plan_input_);
    }
    do_task(task, input);
    {
      MutexLock lock(mutex_);
      is_working_ = false;
    }
    changed_.notify_all();
  }
}

void ExpertMover::do_task(Task task, const PlanInput& input) {
  may_be_dropped_ = task == Task::load;
  if (task == Task::plan || task == Task::plan_for) {
    work_out(task, input);
  } else if (task == Task::load) {
    load_layers();
    loader_.close_files();
  } else {
    load_places();
    loader_.close_files();
  }
}

// The changes are given up if another task is begun meanwhile: the engine does not wait for these,
// but the next epoch waits for its task.
void ExpertMover::work_out(Task task, const PlanInput& input) {
  const Placements now = runner_.placement();
  ExpertChanges changes = task == Task::plan
                              ? changes_for(input.counts, input.num_steps, now, options_.rebalance,
                                            [this] { return is_superseded(); })
                              : places_.changes_without_others(now, input.stay);
  MutexLock lock(mutex_);
  if (stops_ || task_ != Task::none) return;
  changes_ = std::move(changes);
  planned_.store(true, std::memory_order_release);
}

// The experts of an epoch are given up if there is another one.
bool ExpertMover::is_over() const {
  MutexLock lock(mutex_);
  return stops_ || (may_be_dropped_ ? is_dropped() : task_ != Task::none);
}

void ExpertMover::load_layers() {
  for (int k = 0; k < std::ssize(changes_.layers); ++k) {
    const LayerChange& change = changes_.layers[static_cast<size_t>(k)];
    auto loaded = loader_.load_layer(change.layer, change.to);
    if (!loaded) {
      if (!is_dropped()) fail_with(loaded.error());
      return;
    }
    bool has_moved = false;
    {
      MutexLock lock(mutex_);
      move_ = *std::move(loaded);
      num_loaded_.store(k + 1, std::memory_order_release);
      // A move that a step has must be over before its memory is used again.
      while (num_moved_ <= k && !stops_ && !(is_dropped() && num_handed_out_ <= k))
        changed_.wait(lock);
      if (stops_) return;
      has_moved = num_moved_ > k;
      stats_.layers_total += has_moved ? 1 : 0;
      if (has_moved && !is_dropped()) --stats_.num_remaining_layers;
    }
    loader_.reclaim(*move_);
    if (!has_moved) return;
    stats_of_rows_.place(change.layer, change.to);
  }
}

bool ExpertMover::check_files() {
  const auto since = loader_.reading_since();
  if (!since || RealClock().now() - *since < options_.max_expert_time) return false;
  if (!failed())
    fail_with(error(ErrorCode::io, "the model's files have not answered for {:.0f} s",
                    to_seconds(options_.max_expert_time))
                  .with_fix("repair the storage of the model's files"));
  return true;
}

// A reason is logged once, until there is another.
void ExpertMover::fail_with(const Error& why) {
  bool is_new = false;
  {
    MutexLock lock(mutex_);
    is_new = stats_.last_error != why.message;
    stats_.last_error = why.message;
    ++stats_.failures_total;
    stats_.num_remaining_layers = 0;
  }
  if (is_new)
    log::warning("rank {}: experts stay where they are, since one could not be loaded: {}{}",
                 options_.rank, why.message, why.fix.empty() ? "" : "; " + why.fix);
  failed_.store(true, std::memory_order_release);
}

void ExpertMover::end_epoch() {
  moved();
  drop();
  places_.note_end(runner_.placement());
  MutexLock lock(mutex_);
  epoch_.end();
}

Duration ExpertMover::load_for_epoch(const RankSet& ranks) {
  {
    MutexLock lock(mutex_);
    if (!epoch_.begin(ranks, RealClock().now())) return {};
    task_ = Task::load_for_epoch;  // or what is under way for other ranks could count as this
  }
  changed_.notify_all();
  const auto bytes = static_cast<double>(places_.max_lacking(ranks) * expert_bytes());
  return from_seconds(seconds_per_byte() * bytes);
}

void ExpertMover::check_progress() {
  const TimePoint last_came = loader_.loaded().last_at;
  MutexLock lock(mutex_);
  const auto since = epoch_.still_since(last_came);
  if (!since || RealClock().now() - *since < options_.max_expert_time) return;
  epoch_.give_up(
      error(ErrorCode::lost_rank,
            "rank {} has waited {:.0f} s for an expert that it needs before the next step: the "
            "model's files do not answer",
            options_.rank, to_seconds(RealClock().now() - *since))
          .with_fix("repair the storage of the model's files, and restart the rank"));
}

bool ExpertMover::has_loaded(const RankSet& ranks) const {
  MutexLock lock(mutex_);
  return epoch_.has_loaded(ranks);
}

void ExpertMover::load_places() {
  const TimePoint since = RealClock().now();
  const ExpertLoader::Loaded before = loader_.loaded();
  RankSet ranks;
  {
    MutexLock lock(mutex_);
    ranks = epoch_.ranks();
    epoch_.clear_error();
  }
  const Placements to = places_.of(ranks);
  Retries retries(options_.max_retry_time);
  for (int layer = 0; layer < places_.num_layers(); ++layer)
    if (!load_layer_with_retries(layer, to.at(layer), retries)) return;
  {
    MutexLock lock(mutex_);
    if (task_ != Task::none) return;
    epoch_.finish();
  }
  log_loaded(ranks, before, since);
  if (options_.wake) options_.wake();
}

bool ExpertMover::load_layer_with_retries(int layer, const Placement& to, Retries& retries) {
  while (runner_.placement().at(layer).fingerprint() != to.fingerprint()) {
    if (is_superseded()) return false;
    auto back = loader_.load_layer(layer, to, &threads_);
    if (back) {
      runner_.place(**back);
      loader_.reclaim(**back);
      stats_of_rows_.place(layer, to);
      retries.succeeded();
      MutexLock lock(mutex_);
      epoch_.clear_error();
      continue;
    }
    if (is_superseded()) return false;
    const Duration remaining = retries.failed(RealClock().now());
    note_load_error(back.error(), remaining);
    loader_.close_files();  // the next try opens the files as they are then
    MutexLock lock(mutex_);
    if (remaining <= Duration{}) epoch_.give_up();
    if (stops_ || remaining <= Duration{}) return false;
    changed_.wait_for(lock, std::min(remaining, Retries::kPause));
  }
  return true;
}

bool ExpertMover::is_superseded() const {
  MutexLock lock(mutex_);
  return stops_ || task_ != Task::none;
}

void ExpertMover::log_loaded(const RankSet& ranks, const ExpertLoader::Loaded& before,
                             TimePoint since) const {
  const ExpertLoader::Loaded now = loader_.loaded();
  if (now.num_experts == before.num_experts) return;
  log::info("rank {}: loaded {} experts, {:.3g} GB, in {:.2f} s, for an epoch of the ranks {}",
            options_.rank, now.num_experts - before.num_experts,
            static_cast<double>(now.num_bytes - before.num_bytes) / 1e9,
            to_seconds(RealClock().now() - since), ranks.text());
}

// A reason is logged once, until there is another.
void ExpertMover::note_load_error(const Error& why, Duration remaining) {
  const Error failure =
      error(ErrorCode::lost_rank,
            "rank {} cannot load the experts that it needs before the next step: {}", options_.rank,
            why.message)
          .with_fix(why.fix.empty() ? "restart the server" : why.fix);
  {
    MutexLock lock(mutex_);
    epoch_.note_progress(RealClock().now());
    if (stops_ || !epoch_.note_error(failure)) return;
    stats_.last_error = why.message;
  }
  log::warning("{}; {}. It tries again for {:.0f} s", failure.message, failure.fix,
               to_seconds(remaining));
}

std::optional<Error> ExpertMover::last_load_error() const {
  MutexLock lock(mutex_);
  return epoch_.last_error();
}

std::optional<Error> ExpertMover::final_load_error() const {
  MutexLock lock(mutex_);
  return epoch_.final_error();
}

}  // namespace hocket
