#include "engine/stats/expert_stats.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hocket {

int ExpertRecord::num_kept() const {
  return static_cast<int>(std::min<uint64_t>(num_steps, passes.size()));
}

size_t ExpertRecord::slot(int i) const {
  HOCKET_CHECK((i >= 0 && i < num_kept()));
  return (num_steps - static_cast<uint64_t>(num_kept() - i)) % passes.size();
}

std::span<const uint32_t> ExpertRecord::counts_of_pass(int i) const {
  return std::span(pass_counts).subspan(slot(i) * counts.size(), counts.size());
}

std::optional<double> balancedness(std::span<const uint64_t> loads) {
  const uint64_t largest = std::ranges::max(loads);
  if (largest == 0) return std::nullopt;
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  return static_cast<double>(sum) / static_cast<double>(loads.size()) /
         static_cast<double>(largest);
}

std::optional<double> balancedness(std::span<const uint64_t> loads, int columns) {
  double sum = 0;
  int num_loaded = 0;
  for (; !loads.empty(); loads = loads.subspan(static_cast<size_t>(columns)))
    if (const auto one = balancedness(loads.first(static_cast<size_t>(columns)))) {
      sum += *one;
      ++num_loaded;
    }
  if (num_loaded == 0) return std::nullopt;
  return sum / num_loaded;
}

ExpertStats::ExpertStats(int num_layers, const Placements& placement, int rank)
    : num_layers_(num_layers),
      num_experts_(placement.first().num_experts()),
      num_ranks_(placement.first().num_ranks()),
      rank_(rank),
      num_counts_(static_cast<size_t>(num_layers) * static_cast<size_t>(num_experts_)),
      placement_(placement),
      rank_tokens_(static_cast<size_t>(num_ranks_)) {
  HOCKET_CHECK(num_counts_ > 0u);
}

Placements ExpertStats::placement() const {
  MutexLock lock(mutex_);
  return placement_;
}

void ExpertStats::place(int layer, Placement placement) {
  MutexLock lock(mutex_);
  placement_.swap(layer, placement);
}

ExpertRecord ExpertStats::empty_record(const Start& how) const {
  ExpertRecord record{.mode = how.mode, .num_layers = num_layers_, .num_experts = num_experts_};
  record.counts.resize(num_counts_);
  record.rank_counts.resize(static_cast<size_t>(num_layers_) * static_cast<size_t>(num_ranks_));
  if (how.mode == ExpertRecordMode::per_pass) {
    record.passes.resize(static_cast<size_t>(how.buffer_size));
    record.pass_counts.resize(record.passes.size() * num_counts_);
  }
  return record;
}

Result<void> ExpertStats::start(const Start& how) {
  const auto max_passes =
      static_cast<int>(std::max<int64_t>(1, kMaxPassCounts / static_cast<int64_t>(num_counts_)));
  if (how.buffer_size < 0 || how.buffer_size > max_passes)
    return fail(error(ErrorCode::invalid_request,
                      "buffer_size is {}, must be 1 to {}: a pass of this model has {} counts",
                      how.buffer_size, max_passes, num_counts_)
                    .with_param("buffer_size"));
  MutexLock one_at_a_time(asking_);
  how_ = how;
  if (how_.buffer_size == 0) how_.buffer_size = std::min(kDefaultPasses, max_passes);
  std::optional<ExpertRecord> fresh = empty_record(how_);
  if (++last_ == 0) ++last_;
  MutexLock lock(mutex_);
  recorded_.swap(fresh);
  record_ = last_;
  return {};
}

Result<void> ExpertStats::stop() {
  MutexLock one_at_a_time(asking_);
  MutexLock lock(mutex_);
  if (record_.exchange(0) == 0)
    return fail(error(ErrorCode::invalid_request, "nothing is being recorded")
                    .with_fix("POST /start_expert_distribution_record first"));
  return {};
}

Result<ExpertRecord> ExpertStats::take() {
  MutexLock one_at_a_time(asking_);
  // Allocates the next record before taking the mutex that the engine waits for.
  std::optional<ExpertRecord> record;
  if (recording()) record = empty_record(how_);
  {
    MutexLock lock(mutex_);
    recorded_.swap(record);
  }
  if (!record)
    return fail(error(ErrorCode::invalid_request,
                      "there is no record: none was started, or it was dumped already")
                    .with_fix("POST /start_expert_distribution_record first"));
  return *std::move(record);
}

std::optional<ExpertRecord> ExpertStats::snapshot() const {
  MutexLock lock(mutex_);
  if (!recorded_) return std::nullopt;
  ExpertRecord sums;
  sums.mode = recorded_->mode;
  sums.num_layers = recorded_->num_layers;
  sums.num_experts = recorded_->num_experts;
  sums.num_steps = recorded_->num_steps;
  sums.num_tokens = recorded_->num_tokens;
  sums.counts = recorded_->counts;
  sums.rank_counts = recorded_->rank_counts;
  return sums;
}

ExpertBalance ExpertStats::balance() const {
  MutexLock lock(mutex_);
  ExpertBalance now{.rank_tokens = rank_tokens_};
  if (recorded_)
    now.balancedness = hocket::balancedness(recorded_->rank_counts, num_ranks_).value_or(0);
  return now;
}

View<uint32_t> ExpertStats::open(ExpertPass& pass) const {
  HOCKET_CHECK(pass.counts.size() == num_counts_);
  pass.record = pass.num_tokens > 0 ? record_.load(std::memory_order_relaxed) : 0;
  if (pass.record == 0 && !(always_ && pass.num_tokens > 0)) return {};
  std::ranges::fill(pass.counts, 0);
  return {pass.counts.data(), num_layers_, num_experts_};
}

void ExpertStats::note(const ExpertPass& pass) {
  if (pass.record == 0) return;
  MutexLock lock(mutex_);
  if (pass.record != record_) return;
  ExpertRecord& record = *recorded_;
  const size_t num_ranks = rank_tokens_.size();
  for (size_t i = 0, layer = 0; i < num_counts_; ++layer)
    for (int e = 0; e < record.num_experts; ++e, ++i) {
      record.counts[i] += pass.counts[i];
      const Placement& placement = placement_.at(static_cast<int>(layer));
      const std::span<const int> places = placement.places_of(e);
      for (size_t turn = 0; turn < places.size(); ++turn) {
        const size_t place = (turn + record.num_steps) % places.size();
        const uint64_t count = (pass.counts[i] + places.size() - 1 - turn) / places.size();
        const auto home = static_cast<size_t>(placement.rank_at(places[place]));
        record.rank_counts[layer * num_ranks + home] += count;
        rank_tokens_[home] += count;
      }
    }
  if (!record.passes.empty()) {
    const size_t slot = record.num_steps % record.passes.size();
    record.passes[slot] = {.rank = pass.rank,
                           .step = pass.step != 0 ? pass.step : record.num_steps,
                           .num_tokens = pass.num_tokens};
    std::ranges::copy(pass.counts,
                      record.pass_counts.begin() + static_cast<ptrdiff_t>(slot * num_counts_));
  }
  ++record.num_steps;
  record.num_tokens += static_cast<uint64_t>(pass.num_tokens);
}

}  // namespace hocket
