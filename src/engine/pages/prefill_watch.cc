#include "engine/pages/prefill_watch.h"

#include <algorithm>
#include <iterator>

#include "core/queue_limits.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kPrefillLimit{"{} prompts are computed for others already",
                                            "ask another service"};

}  // namespace

PrefillWatch::PrefillWatch() {
  const MutexLock lock(mutex_);
  lost_.reserve(kMaxLost);  // a page may be lost for lack of memory
}

Result<void> PrefillWatch::begin(RequestId id) {
  const MutexLock lock(mutex_);
  HOCKET_TRY_VOID(check_limit(kPrefillLimit, {.used = std::ssize(live_), .max = kMax}, kMax));
  live_.insert(id);
  return {};
}

bool PrefillWatch::is_watched(RequestId id) const {
  const MutexLock lock(mutex_);
  return live_.contains(id);
}

int PrefillWatch::size() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(live_.size());
}

void PrefillWatch::end(RequestId id) {
  {
    const MutexLock lock(mutex_);
    live_.erase(id);
    if (live_.empty()) lost_.clear();
  }
  note_progress();
}

void PrefillWatch::end_all() {
  {
    const MutexLock lock(mutex_);
    if (live_.empty()) return;
    live_.clear();
    lost_.clear();
  }
  note_progress();
}

void PrefillWatch::note_page(const PageKey& key) {
  {
    const MutexLock lock(mutex_);
    std::erase(lost_, key);
  }
  note_progress();
}

void PrefillWatch::note_lost(const PageKey& key) {
  {
    const MutexLock lock(mutex_);
    if (live_.empty() || std::ranges::find(lost_, key) != lost_.end()) return;
    if (lost_.size() < kMaxLost) {
      lost_.push_back(key);
    } else {
      live_.clear();
      lost_.clear();
    }
  }
  changed_.notify_all();
}

bool PrefillWatch::is_lost(const PageKey& key) const {
  const MutexLock lock(mutex_);
  return std::ranges::find(lost_, key) != lost_.end();
}

void PrefillWatch::wait(Duration max_wait) {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, max_wait);
}

void PrefillWatch::note_progress() {
  progress_ns_ = RealClock().now().time_since_epoch().count();
  changed_.notify_all();
}

}  // namespace hocket
