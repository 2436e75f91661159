#include "engine/stats/request_board.h"

namespace hocket {

void RequestBoard::note(const Scheduler& scheduler, TimePoint now) {
  if (is_watched(now) && now - last_ >= kPeriod) write(scheduler, now);
}

void RequestBoard::note_idle(const Scheduler& scheduler, TimePoint now) {
  if (is_watched(now)) write(scheduler, now);
}

void RequestBoard::write(const Scheduler& scheduler, TimePoint now) {
  if (!mutex_.try_lock()) return;
  const MutexLock lock(mutex_, std::adopt_lock);
  num_rows_ = scheduler.snapshot(rows_);
  noted_ = last_ = now;
}

std::vector<RequestSnapshot> RequestBoard::snapshot(TimePoint now) {
  watched_until_ = (now + kInterest).time_since_epoch().count();
  const MutexLock lock(mutex_);
  if (now - noted_ > kInterest) return {};
  return {rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(num_rows_)};
}

}  // namespace hocket
