#include "engine/runner/packed_weight_cache.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/show_bytes.h"

namespace hocket {
namespace {

constexpr int kLowestPriority = 19;

void finish_file(UnfinishedPackedFile& unfinished, const std::filesystem::path& path,
                 std::span<const std::byte> packed, const std::atomic<bool>* stopping) {
  const auto started = std::chrono::steady_clock::now();
  const auto written = unfinished.finish(packed, stopping);
  if (!written && written.error().code == ErrorCode::shutting_down)
    return log::info("weights are not kept: {}; the next start packs them again",
                     written.error().message);
  if (!written)
    return log::warning("weights are not kept: {} ({})", written.error().message,
                        written.error().fix);
  log::info("weights: {:.2f} GB written to {} in {:.1f} s; the next start maps them",
            static_cast<double>(packed.size()) / 1e9, path.string(),
            to_seconds(std::chrono::steady_clock::now() - started));
}

}  // namespace

PackedWeightCache::~PackedWeightCache() {
  if (writer_.joinable() && !written_.try_acquire_for(patience_)) stopping_ = true;
}

const std::byte* PackedWeightCache::map(WorkerPool& workers) {
  auto opened = PackedFile::open(path_, key_, &workers);
  if (!opened) {
    log::info("weights are packed again, because {} cannot be used: {}", path_.string(),
              opened.error().message);
    return nullptr;
  }
  mapped_ = *std::move(opened);
  log::info("weights: {} mapped from {}", show_bytes(mapped_->bytes()), path_.string());
  return mapped_->data();
}

std::optional<SettingChange> PackedWeightCache::write(std::span<const std::byte> packed,
                                                      Packed later) {
  auto unfinished = UnfinishedPackedFile::begin(path_, key_);
  if (!unfinished)
    return SettingChange{
        .flag = "--weight-cache",
        .from = folder_,
        .to = "none",
        .why = fmt::format("{} ({})", unfinished.error().message, unfinished.error().fix)};
  if (!*unfinished) {
    log::info("weights: another process is writing {}", path_.string());
  } else if (later == Packed::may_change) {
    finish_file(**unfinished, path_, packed, nullptr);
  } else {
    writer_ = Thread({.name = "weights"}, [this, packed, file = *std::move(*unfinished)]() mutable {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
      finish_file(file, path_, packed, &stopping_);
      written_.release();
    });
  }
  return std::nullopt;
}

}  // namespace hocket
