#include "engine/forecast/forecast.h"

#include <algorithm>
#include <cmath>

#include "compute/overlap/prediction.h"
#include "engine/plan/expert_places.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/tier_plan.h"
#include "policy/cache/page_allocator.h"

namespace hocket {
namespace {

constexpr double kMatters = 1.05;  // a smaller gain is not worth advising
constexpr int kShownBatches[] = {1, 8, 32, 128};
// Values that advice proposes.
constexpr int kSmallChunk = 512, kSmallBatch = 32, kShortContext = 1024;

int wanted_batch(const ServerSettings& settings) {
  return std::max(1, settings.memory.max_running_requests);
}

// Returns the number of sequences of the whole context that decode together: as wanted, or as fit.
int running_batch(const ServerSettings& settings, const Forecast& f) {
  return std::clamp(f.largest_batch, 1, wanted_batch(settings));
}

double decode_speed(const Forecast& f, int batch, const MachineSpeed& speed) {
  return f.num_ranks * batch / f.decode_seconds(batch, speed);
}

void plan_room(const ForecastInput& q, Forecast& f) {
  const int page_tokens = q.settings.memory.page_size;
  const int64_t pages = f.memory.fitting_pages;
  f.fitting_tokens = pages * page_tokens;
  f.largest_context = static_cast<int>(std::min<int64_t>(
      pages / std::clamp(f.memory.max_running_requests, 1, wanted_batch(q.settings)) * page_tokens,
      f.choice.model.max_position_embeddings));
  // Each running request also needs slots for its states, where a model has them.
  const int most = f.memory.num_states > 0 ? f.memory.num_states / kStatesOfARequest : 1 << 30;
  f.largest_batch = static_cast<int>(
      std::min<int64_t>(pages / pages_for(f.memory.context_length, page_tokens), most));
}

void foretell_speed(const ForecastInput& q, Forecast& f) {
  std::vector<int> batches(std::begin(kShownBatches), std::end(kShownBatches));
  if (q.settings.memory.max_running_requests > 0)
    batches.push_back(q.settings.memory.max_running_requests);
  std::ranges::sort(batches);
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  for (const int batch : batches) {
    // One sequence is always shown: weights allow its speed even if its keys do not fit.
    const bool fits = int64_t{batch} * f.kv_len <= f.fitting_tokens;
    if (batch <= f.memory.max_running_requests && (fits || batch == 1))
      f.decode.push_back({batch, decode_speed(f, batch, q.speed)});
  }
  const int chunk = f.memory.chunk_tokens > 0 ? f.memory.chunk_tokens : 2048;
  f.prefill_len = std::min({chunk, f.memory.max_prefill_tokens, f.memory.context_length});
  f.prefill_tokens_per_s = f.num_ranks * f.prefill_len / f.prefill_seconds(f.prefill_len, q.speed);
}

double serial_seconds(const StageEstimate& stages, const Bucket& bucket) {
  const StageTimes times = stages.at(bucket);
  return 1e-6 * Predictor(std::span(&times, 1), {}, stages.layers(bucket)).step_us(serial_order());
}

struct Change {
  std::string flag, value;
  void (*apply)(ServerSettings& settings, const std::string& value);

  std::string text() const { return fmt::format("{} {}", flag, value); }
};

// Returns single changes, from the mildest to the one that costs most.
std::vector<Change> changes(const ServerSettings& settings, const Forecast& now) {
  const MemoryPlan& memory = now.memory;
  std::vector<Change> all;
  if (settings.memory.mamba_full_memory_ratio > 0 && memory.state_bytes > 0 && !now.fits())
    all.push_back({"--mamba-full-memory-ratio", "0", [](ServerSettings& s, const std::string&) {
                     s.memory.mamba_full_memory_ratio = 0;
                   }});
  if (memory.chunk_tokens > kSmallChunk || memory.chunk_tokens == -1)
    all.push_back({"--chunked-prefill-size", std::to_string(kSmallChunk),
                   [](auto& s, auto& v) { s.scheduler.chunked_prefill_size = std::stoi(v); }});
  if (memory.max_running_requests > std::max(memory.chunk_tokens, kSmallBatch))
    all.push_back({"--max-running-requests", std::to_string(kSmallBatch),
                   [](auto& s, auto& v) { s.memory.max_running_requests = std::stoi(v); }});
  if (now.choice.kv_dtype != DType::int8)
    all.push_back(
        {"--kv-cache-dtype", "int8", [](auto& s, auto& v) { s.memory.kv_cache_dtype = v; }});
  if (now.choice.dtype == DType::f32)
    all.push_back({"--dtype", "bfloat16", [](auto& s, auto& v) { s.model.dtype = v; }});
  const WeightFormat held = now.choice.weight_format();
  const auto quantize = [](ServerSettings& s, const std::string& v) { s.model.quantization = v; };
  if (held == WeightFormat::bf16) all.push_back({"--quantization", "int8", quantize});
  const int room = now.largest_context / 1024 * 1024;
  const int shorter =
      room >= 1024 && room < memory.context_length ? room : memory.context_length / 2;
  // A context that was not asked for is lowered without advice.
  if ((settings.model.context_length > 0 || now.fits()) && shorter >= settings.memory.page_size)
    all.push_back({"--context-length", std::to_string(shorter),
                   [](auto& s, auto& v) { s.model.context_length = std::stoi(v); }});
  if (held == WeightFormat::bf16 || held == WeightFormat::int8 || held == WeightFormat::q8_0 ||
      held == WeightFormat::fp8 || held == WeightFormat::mxfp8)
    all.push_back({"--quantization", "int4", quantize});
  return all;
}

// Returns the context for which needed_bytes() is: the whole one if it was asked for, else the
// shortest that is offered.
int needed_context(const ServerSettings& settings) {
  return settings.model.context_length > 0 ? settings.model.context_length : kShortContext;
}

// Returns the memory that must be available for a start.
int64_t needed_bytes(const ServerSettings& settings, const Forecast& f) {
  const MemoryPlanInput input = memory_plan_input(settings, f.choice);
  const int pages = pages_for(needed_context(settings), settings.memory.page_size);
  const auto used = static_cast<double>(f.total_bytes() - f.memory.kv_bytes - f.memory.tree_bytes +
                                        kv_bytes_of(input, f.memory, pages) +
                                        tree_bytes_of(input, f.memory, pages));
  return static_cast<int64_t>(std::ceil(used / kDefaultMemoryShare)) + 1;
}

// Forecasts with `settings` and compares the result with `now`.
std::optional<Advice> advice_for(const ForecastInput& q, const Forecast& now,
                                 const ServerSettings& settings, std::string flags) {
  ForecastInput changed = q;
  changed.settings = settings;
  const Result<Forecast> then = forecast(changed, now.kv_len);
  if (!then) return std::nullopt;
  const int batch_before = running_batch(q.settings, now), batch = running_batch(q.settings, *then);
  return Advice{
      .flags = std::move(flags),
      .settings = settings,
      .fits = then->fits(),
      .needed_bytes = needed_bytes(settings, *then),
      .context_length = then->fits() ? then->memory.context_length : needed_context(settings),
      .batch = batch,
      .tokens_per_s_before = decode_speed(now, batch_before, q.speed),
      .tokens_per_s = decode_speed(*then, batch, q.speed)};
}

// Returns how many ranks there must be so that the weights alone fit; more than kMaxRanksTried: no
// number of them is enough.
int min_fitting_ranks(const Forecast& now) {
  const int64_t experts = now.cost.part(WeightPart::experts).bytes;
  const int64_t room = now.memory.budget_bytes - (now.cost.weight_bytes() - experts);
  if (room <= 0) return kMaxRanksTried + 1;
  return static_cast<int>(std::min<int64_t>((experts + room - 1) / room, kMaxRanksTried + 1));
}

// Adds up changes that matter, until the model fits or there are no more.
Advice combine(const ForecastInput& q, const Forecast& now) {
  Advice best{.settings = q.settings,
              .needed_bytes = needed_bytes(q.settings, now),
              .context_length = needed_context(q.settings)};
  ServerSettings settings = q.settings;
  std::vector<Change> kept;
  for (const Change& change : changes(q.settings, now)) {
    ServerSettings more = settings;
    change.apply(more, change.value);
    std::vector<Change> tried = kept;
    std::erase_if(tried, [&](const Change& c) { return c.flag == change.flag; });
    tried.push_back(change);
    std::string flags;
    for (const Change& c : tried) flags += (flags.empty() ? "" : " ") + c.text();
    const std::optional<Advice> advice = advice_for(q, now, more, std::move(flags));
    if (!advice || static_cast<double>(advice->needed_bytes) * kMatters >
                       static_cast<double>(best.needed_bytes))
      continue;
    best = *advice;
    settings = more;
    kept = std::move(tried);
    if (best.fits) break;
  }
  return best;
}

}  // namespace

double Forecast::decode_seconds(int batch, const MachineSpeed& speed) const {
  if (!stages) return cost.seconds(cost.decode(batch, kv_len), speed);
  return serial_seconds(*stages, {Phase::decode, batch, int64_t{batch} * kv_len});
}

double Forecast::prefill_seconds(int tokens, const MachineSpeed& speed) const {
  if (!stages) return cost.seconds(cost.prefill(tokens, 0), speed);
  return serial_seconds(*stages, {Phase::prefill, tokens, int64_t{tokens} * (tokens + 1) / 2});
}

Result<Forecast> forecast(const ForecastInput& q, int kv_len) {
  const ParallelSettings& parallel = q.settings.parallel;
  HOCKET_TRY(ModelChoice choice, choose_model_form(q.settings));
  HOCKET_TRY(ModelCost cost, ModelCost::measure(choice));
  int64_t weight_bytes = cost.loaded_bytes(), moving_bytes = 0;
  std::optional<Placements> placement;
  if (parallel.ep_size > 1) {
    HOCKET_TRY(ExpertPlaces places,
               place_experts(parallel, choice, parallel.ep_size, q.available_bytes));
    placement = std::move(places.placements);
    choice.experts = placement->held_by(placement->first().fullest_rank());
    HOCKET_TRY(const MeasuredWeights held_weights, measure_weights(choice, nullptr));
    weight_bytes = held_weights.bytes;
    if (parallel.moves_experts()) {
      HOCKET_TRY(const MovingMemory moving, moving_memory(q.settings, choice, *placement, nullptr));
      moving_bytes = moving.bytes();
    }
  }
  MemoryPlanInput memory = memory_plan_input(q.settings, choice);
  memory.weight_bytes = weight_bytes;
  memory.max_stored_bytes = max_stored_bytes(q.settings.memory);
  memory.moving_bytes = moving_bytes;
  memory.total_bytes = q.total_bytes;
  memory.available_bytes = q.available_bytes;
  memory.num_workers = q.num_workers;
  memory.placement = placement ? &*placement : nullptr;
  memory.isa = q.isa;
  HOCKET_TRY(MemoryPlan sizes, size_memory(memory));
  Forecast f{.choice = choice,
             .cost = std::move(cost),
             .num_ranks = parallel.ep_size,
             .memory = std::move(sizes)};
  if (placement)
    f.stages.emplace(
        choice, f.cost,
        StageEstimateInput{.speed = q.speed, .num_ranks = parallel.ep_size, .link = q.link});
  if (Result<MemoryPlan> planned = plan_memory(memory)) {
    f.memory = *std::move(planned);
  } else {
    f.refusal = std::move(planned).error();
    // The KV cache that one request of the whole context would need.
    const int pages = pages_for(f.memory.context_length, q.settings.memory.page_size);
    f.memory.kv_bytes = kv_bytes_of(memory, f.memory, pages);
    f.memory.tree_bytes = tree_bytes_of(memory, f.memory, pages);
    f.memory.index_bytes += f.memory.tree_bytes;
  }
  f.kv_len = kv_len > 0 ? std::min(kv_len, f.memory.context_length)
                        : std::max(1, f.memory.context_length / 2);
  plan_room(q, f);
  foretell_speed(q, f);
  return f;
}

// Tries one number after the other: with each rank there are fewer weights here, but more room for
// rows of others.
std::optional<FittingRanks> fitting_ranks(const ForecastInput& q, const Forecast& now, int a_host) {
  ForecastInput spread = q;
  int& ranks = spread.settings.parallel.ep_size;
  const int most = std::min(kMaxRanksTried, now.choice.model.moe.num_experts);
  const int least = std::max(now.num_ranks + 1, min_fitting_ranks(now));
  for (ranks = (least + a_host - 1) / a_host * a_host; ranks <= most; ranks += a_host) {
    const Result<Forecast> then = forecast(spread, now.kv_len);
    if (then && then->fits()) return FittingRanks{ranks, then->memory.context_length};
  }
  return std::nullopt;
}

std::optional<Advice> advise(const ForecastInput& q, const Forecast& now) {
  std::optional<Advice> best;
  for (const Change& change : changes(q.settings, now)) {
    ServerSettings settings = q.settings;
    change.apply(settings, change.value);
    const std::optional<Advice> advice = advice_for(q, now, settings, change.text());
    if (!advice || !advice->fits) continue;
    if (!now.fits()) return advice;
    if (advice->tokens_per_s >= kMatters * advice->tokens_per_s_before &&
        (!best || advice->tokens_per_s > best->tokens_per_s))
      best = advice;
  }
  return now.fits() ? best : combine(q, now);
}

}  // namespace hocket
