#include "engine/balance/expert_mover.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "compute/weights/stacked_experts.h"

namespace hocket {
namespace {

// First guess of the packing speed of one core (bf16 in memory); the first move replaces it by a
// measured one.
constexpr double kGuessedBytesPerSecond = 500e6;
constexpr int64_t kAlignment = 64;  // the loader's
constexpr int kLowestPriority = 19;

bool same_format(const PackedWeight& a, const PackedWeight& b) {
  return a.format == b.format && a.group == b.group && a.n == b.n && a.k == b.k;
}

int64_t bytes_of(const PackedWeight& weight) {
  const int64_t bias = weight.bias == nullptr ? 0 : round_up(weight.n, kPanelN) * 4;
  return weight.data_bytes() + weight.scale_bytes() + weight.zero_bytes() +
         round_up(weight.column_scale_bytes(), kAlignment) + round_up(bias, kAlignment);
}

// Returns what the loader takes for an expert.
int64_t bytes_of(const ExpertWeights& expert) {
  return bytes_of(expert.gate_up) + bytes_of(expert.down);
}

// The loader begins an expert with the numbers of gate and up.
const std::byte* memory_of(const ExpertWeights& expert) {
  return static_cast<const std::byte*>(expert.gate_up.data);
}

}  // namespace

ExpertMover::ExpertMover(Options options, Runner& runner, ExpertStats& stats)
    : options_(std::move(options)),
      runner_(runner),
      stats_of_rows_(stats),
      home_(runner.placement()),
      expert_bytes_(runner.moving().of_layers.bytes),
      last_(home_),
      memory_(runner.take_moving_memory(), runner.moving()) {
  for (int layer = 0; layer < home_.num_layers(); ++layer)
    has_experts_.push_back(!runner.experts(layer).empty());
  for (int layer = 0; runner.maps_weights() && layer < home_.num_layers(); ++layer)
    in_file_.emplace_back(runner.experts(layer).begin(), runner.experts(layer).end());
  epoch_.ranks = RankSet::all(home_.first().num_ranks());
  thread_ = Thread({.name = "mover"}, [this] { run(); });
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
    counts_ = counts;
    num_steps_ = num_steps;
    task_ = Task::plan;
  }
  changed_.notify_all();
}

void ExpertMover::plan_for(const RankSet& stay) {
  {
    MutexLock lock(mutex_);
    planned_ = false;
    stay_ = stay;
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
  MutexLock lock(mutex_);
  if (stats_.bytes_total == 0) return 1 / kGuessedBytesPerSecond;
  return stats_.load_seconds_total / static_cast<double>(stats_.bytes_total);
}

ExpertMoveStats ExpertMover::stats() const {
  MutexLock lock(mutex_);
  return stats_;
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

void ExpertMover::run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (task_ == Task::none && !stops_) changed_.wait(lock);
      if (stops_) return;
      task = std::exchange(task_, Task::none);
    }
    do_task(task);
  }
}

void ExpertMover::do_task(Task task) {
  may_be_dropped_ = task == Task::load;
  if (task == Task::plan || task == Task::plan_for) {
    work_out(task);
  } else if (task == Task::load) {
    load_layers();
    source_.reset();
  } else {
    load_places();
    source_.reset();
  }
}

// The changes are dropped if others are asked for meanwhile: the engine does not wait for these.
void ExpertMover::work_out(Task task) {
  std::span<const uint64_t> counts;
  uint64_t num_steps = 0;
  RankSet stay;
  {
    MutexLock lock(mutex_);
    counts = counts_, num_steps = num_steps_, stay = stay_;
  }
  ExpertChanges changes =
      task == Task::plan ? changes_for(counts, num_steps, runner_.placement(), options_.rebalance)
                         : changes_without_others(stay);
  MutexLock lock(mutex_);
  if (task_ != Task::none) return;
  changes_ = std::move(changes);
  planned_.store(true, std::memory_order_release);
}

void ExpertMover::load_layers() {
  for (int k = 0; k < std::ssize(changes_.layers); ++k) {
    const LayerChange& change = changes_.layers[static_cast<size_t>(k)];
    auto loaded = load_layer(change.layer, change.to);
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
    reclaim(*move_);
    if (!has_moved) return;
    stats_of_rows_.place(change.layer, change.to);
  }
}

Result<std::unique_ptr<LayerMove>> ExpertMover::load_layer(int layer, const Placement& to) {
  auto move = std::make_unique<LayerMove>(layer, to, options_.rank);
  const Placements now = runner_.placement();
  const std::span<const int> held = now.at(layer).experts_of(options_.rank);
  const std::span<const int> wanted = to.experts_of(options_.rank);
  const std::span<const ExpertWeights> here = runner_.experts(layer);
  if (here.empty()) return move;  // a layer without experts
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::ranges::lower_bound(held, wanted[i]);
    if (found != held.end() && *found == wanted[i]) {
      move->experts.push_back(here[static_cast<size_t>(found - held.begin())]);
    } else if (i > 0 && wanted[i - 1] == wanted[i]) {
      move->experts.push_back(move->experts.back());
    } else if (const ExpertWeights* const kept = find_in_file(layer, wanted[i])) {
      move->experts.push_back(*kept);
    } else {
      auto loaded = load_expert(layer, wanted[i]);
      if (!loaded) {
        reclaim(*move);
        return fail(std::move(loaded).error());
      }
      move->experts.push_back(*loaded);
    }
  }
  return move;
}

const ExpertWeights* ExpertMover::find_in_file(int layer, int expert) const {
  if (in_file_.empty()) return nullptr;
  const std::span<const int> home = home_.at(layer).experts_of(options_.rank);
  const auto found = std::ranges::lower_bound(home, expert);
  if (found == home.end() || *found != expert) return nullptr;
  return &in_file_.at(static_cast<size_t>(layer))[static_cast<size_t>(found - home.begin())];
}

Result<ExpertWeights> ExpertMover::load_expert(int layer, int expert) {
  {
    MutexLock lock(mutex_);
    if (stops_ || (may_be_dropped_ && is_dropped()))
      return fail(ErrorCode::shutting_down, "the move was given up");
    reading_since_ = RealClock().now();
  }
  auto read = read_expert(layer, expert);
  MutexLock lock(mutex_);
  reading_since_.reset();
  return read;
}

Result<ExpertWeights> ExpertMover::read_expert(int layer, int expert) {
  HOCKET_TRY_VOID(open_source());
  const Duration begin = options_.used_time();
  WeightLoader::Options options = runner_.choice().loader_options();
  if (source_ != nullptr) options.source = source_.get();
  options.seed = static_cast<uint64_t>(options_.model.dummy_seed);
  WeightLoader measuring = WeightLoader::measuring(options);
  hocket::load_expert(runner_.choice(), layer, expert, measuring);
  HOCKET_TRY_VOID(measuring.status());
  options.bytes = measuring.bytes();
  HOCKET_TRY(const ExpertMemory::Slot slot, memory_.take(options.bytes));
  const auto give_back = [&](Error why) {
    memory_.give_back(slot);
    return fail(std::move(why));
  };
  std::memset(slot.data, 0, static_cast<size_t>(options.bytes));
  options.memory = slot.data;
  auto loading = WeightLoader::loading(options);
  if (!loading) return give_back(std::move(loading).error());
  const ExpertWeights loaded = hocket::load_expert(runner_.choice(), layer, expert, *loading);
  if (auto status = loading->status(); !status) return give_back(std::move(status).error());
  const ExpertWeights& first = runner_.experts(layer).front();
  if (!same_format(loaded.gate_up, first.gate_up) || !same_format(loaded.down, first.down))
    return give_back(error(ErrorCode::unsupported_model,
                           "expert {} of layer {} is stored in another format than those of rank "
                           "{}",
                           expert, layer, options_.rank));
  HOCKET_CHECK(memory_of(loaded) == slot.data);
  HOCKET_CHECK(bytes_of(loaded) == options.bytes);
  note_progress();
  MutexLock lock(mutex_);
  ++stats_.moves_total;
  stats_.bytes_total += static_cast<uint64_t>(options.bytes);
  stats_.load_seconds_total += to_seconds(options_.used_time() - begin);
  return loaded;
}

bool ExpertMover::check_files() {
  {
    MutexLock lock(mutex_);
    if (!reading_since_ || RealClock().now() - *reading_since_ < options_.max_expert_time)
      return false;
  }
  if (!failed())
    fail_with(error(ErrorCode::io, "the model's files have not answered for {:.0f} s",
                    to_seconds(options_.max_expert_time))
                  .with_fix("mend the storage of the model's files"));
  return true;
}

void ExpertMover::reclaim(const LayerMove& move) {
  const std::span<const ExpertWeights> used = runner_.experts(move.layer);
  const auto owned = [&](const std::byte* at) { return runner_.owns(at) || memory_.owns(at); };
  const std::byte* last = nullptr;
  for (const ExpertWeights& expert : move.experts) {
    const std::byte* const at = memory_of(expert);
    const bool is_used =
        std::ranges::any_of(used, [&](const ExpertWeights& one) { return memory_of(one) == at; });
    if (is_used || at == std::exchange(last, at) || !owned(at)) continue;
    memory_.give_back({const_cast<std::byte*>(at), bytes_of(expert)});
  }
}

Result<void> ExpertMover::open_source() {
  if (source_ != nullptr || options_.model.load_format == "dummy") return {};
  HOCKET_TRY(auto source,
             open_model_weights(options_.model.model_path, runner_.choice().model.moe));
  if (source->identity() != runner_.source_identity())
    return fail(error(ErrorCode::io, "the files of {} have changed since the start",
                      options_.model.model_path)
                    .with_fix("restart the server, or put the files back"));
  source_ = std::move(source);
  return {};
}

// A reason is logged once, until another comes.
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

}  // namespace hocket
