#include "engine/balance/expert_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/weights/read_ahead.h"
#include "compute/weights/stacked_experts.h"

namespace hocket {
namespace {

constexpr int64_t kAlignment = 64;                   // the loader's
constexpr int64_t kClearedBytes = int64_t{1} << 20;  // memory that a worker clears at once

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

void clear(std::byte* memory, int64_t bytes, LoadingThreads* threads) {
  const auto clear_piece = [&](int piece, int) {
    const int64_t begin = piece * kClearedBytes;
    std::memset(memory + begin, 0, static_cast<size_t>(std::min(kClearedBytes, bytes - begin)));
  };
  const auto pieces = static_cast<int>((bytes + kClearedBytes - 1) / kClearedBytes);
  if (threads != nullptr) return threads->pool().run(pieces, clear_piece);
  for (int piece = 0; piece < pieces; ++piece) clear_piece(piece, 0);
}

}  // namespace

ExpertLoader::ExpertLoader(Options options, Runner& runner)
    : options_(std::move(options)),
      runner_(runner),
      home_(runner.placement()),
      memory_(runner.take_moving_memory(), runner.moving()) {
  for (int layer = 0; runner.maps_weights() && layer < home_.num_layers(); ++layer)
    in_file_.emplace_back(runner.experts(layer).begin(), runner.experts(layer).end());
}

Result<std::unique_ptr<LayerMove>> ExpertLoader::load_layer(int layer, const Placement& to,
                                                            LoadingThreads* threads) {
  auto move = std::make_unique<LayerMove>(layer, to, options_.rank);
  const Placements now = runner_.placement();
  const std::span<const int> held = now.at(layer).experts_of(options_.rank);
  const std::span<const int> wanted = to.experts_of(options_.rank);
  const std::span<const ExpertWeights> here = runner_.experts(layer);
  if (here.empty()) return move;  // a layer without experts
  const auto next_to_load = [&](size_t i) {
    for (const int expert : wanted.subspan(i))
      if (expert != wanted[i] && !std::ranges::binary_search(held, expert) &&
          find_in_file(layer, expert) == nullptr)
        return expert;
    return -1;
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::ranges::lower_bound(held, wanted[i]);
    if (found != held.end() && *found == wanted[i]) {
      move->experts.push_back(here[static_cast<size_t>(found - held.begin())]);
    } else if (i > 0 && wanted[i - 1] == wanted[i]) {
      move->experts.push_back(move->experts.back());
    } else if (const ExpertWeights* const kept = find_in_file(layer, wanted[i])) {
      move->experts.push_back(*kept);
    } else {
      auto loaded = load_expert({layer, wanted[i], next_to_load(i)}, threads);
      if (!loaded) {
        reclaim(*move);
        return fail(std::move(loaded).error());
      }
      move->experts.push_back(*loaded);
    }
  }
  return move;
}

const ExpertWeights* ExpertLoader::find_in_file(int layer, int expert) const {
  if (in_file_.empty()) return nullptr;
  const std::span<const int> home = home_.at(layer).experts_of(options_.rank);
  const auto found = std::ranges::lower_bound(home, expert);
  if (found == home.end() || *found != expert) return nullptr;
  return &in_file_.at(static_cast<size_t>(layer))[static_cast<size_t>(found - home.begin())];
}

Result<ExpertWeights> ExpertLoader::load_expert(const Wanted& wanted, LoadingThreads* threads) {
  if (options_.is_over()) return fail(ErrorCode::shutting_down, "the move was given up");
  {
    MutexLock lock(mutex_);
    reading_since_ = RealClock().now();
  }
  auto read = read_expert(wanted, threads);
  MutexLock lock(mutex_);
  reading_since_.reset();
  return read;
}

// Asks the kernel for the files of an expert that is loaded soon. Its own load finds its errors.
void ExpertLoader::ask_ahead(int layer, int expert) const {
  const ReadAhead ahead(*source_);
  WeightLoader::Options options = runner_.choice().loader_options();
  options.source = &ahead;
  WeightLoader measuring = WeightLoader::measuring(options);
  hocket::load_expert(runner_.choice(), layer, expert, measuring);
}

Result<ExpertWeights> ExpertLoader::read_expert(const Wanted& wanted, LoadingThreads* threads) {
  const auto [layer, expert, next] = wanted;
  HOCKET_TRY_VOID(open_source());
  const auto used_time = [&] {
    return options_.used_time() + (threads != nullptr ? threads->time_of_others() : Duration{});
  };
  const Duration begin = used_time();
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
  clear(slot.data, options.bytes, threads);
  options.memory = slot.data;
  if (threads != nullptr) options.workers = &threads->pool();
  auto loading = WeightLoader::loading(options);
  if (!loading) return give_back(std::move(loading).error());
  const ExpertWeights loaded = hocket::load_expert(runner_.choice(), layer, expert, *loading);
  if (threads != nullptr && source_ != nullptr && next >= 0) ask_ahead(layer, next);
  if (auto status = loading->status(); !status) return give_back(std::move(status).error());
  const ExpertWeights& first = runner_.experts(layer).front();
  if (!same_format(loaded.gate_up, first.gate_up) || !same_format(loaded.down, first.down))
    return give_back(error(ErrorCode::unsupported_model,
                           "expert {} of layer {} is stored in another format than those of rank "
                           "{}",
                           expert, layer, options_.rank));
  HOCKET_CHECK(memory_of(loaded) == slot.data);
  HOCKET_CHECK(bytes_of(loaded) == options.bytes);
  MutexLock lock(mutex_);
  ++loaded_.num_experts;
  loaded_.num_bytes += static_cast<uint64_t>(options.bytes);
  loaded_.seconds += to_seconds(used_time() - begin);
  loaded_.last_at = RealClock().now();
  return loaded;
}

ExpertLoader::Loaded ExpertLoader::loaded() const {
  MutexLock lock(mutex_);
  return loaded_;
}

std::optional<TimePoint> ExpertLoader::reading_since() const {
  MutexLock lock(mutex_);
  return reading_since_;
}

void ExpertLoader::reclaim(const LayerMove& move) {
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

Result<void> ExpertLoader::open_source() {
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

}  // namespace hocket
