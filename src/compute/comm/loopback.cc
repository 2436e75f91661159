#include "compute/comm/loopback.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "compute/comm/link_simulation.h"

namespace hocket {

namespace {

// A thread wakes up late, so it sleeps until shortly before a message and then polls.
constexpr Duration kWakeEarly = std::chrono::microseconds(100);
constexpr Duration kMaxWait = std::chrono::hours(24 * 365);

}  // namespace

// The mutex guards everything that changes. In virtual time a rank is `running` unless it is inside
// pause(); the last rank that stops turns the clock. A rank that has not joined yet holds the
// clock; one that left does not.
struct LoopbackHub::State {
  enum class Activity : uint8_t { absent, running, waiting, spending };
  struct Rank {
    std::condition_variable wake;
    Activity activity = Activity::absent;
    TimePoint until{};
    bool has_joined = false;
    bool woken = false;  // wake() was called, and wait() has not returned since
    // Faults that take effect when the clock is turned.
    std::optional<bool> cut;
    Duration stall{};
    bool lose = false, leave = false;
  };

  State(int num_ranks_in, const LinkModel& links, Time mode)
      : num_ranks(num_ranks_in), is_virtual(mode == Time::virtual_time), wire(num_ranks_in, links) {
    for (int i = 0; i < num_ranks; ++i) ranks.emplace_back();
  }

  TimePoint now() const {
    return is_virtual ? virtual_now.load() : std::chrono::steady_clock::now();
  }

  // Real time: carries out everything up to now and wakes the ranks that it concerns.
  void settle() HOCKET_REQUIRES(mutex) {
    if (is_virtual) return;
    const TimePoint time = now();
    wire.commit(time);
    wire.advance(time);
    for (int i = 0; i < num_ranks; ++i) {
      if (ranks[i].activity == Activity::waiting && wire.has_events(i)) ranks[i].wake.notify_one();
    }
  }

  void apply_faults() HOCKET_REQUIRES(mutex) {
    if (new_links) wire.set_links(*std::exchange(new_links, std::nullopt));
    for (int i = 0; i < num_ranks; ++i) {
      Rank& rank = ranks[i];
      if (rank.cut) wire.cut(i, *std::exchange(rank.cut, std::nullopt));
      if (rank.stall.count() > 0) wire.stall(i, now() + std::exchange(rank.stall, Duration{}));
      if (std::exchange(rank.lose, false)) wire.lose(i);
      if (std::exchange(rank.leave, false)) wire.leave(i);
    }
  }

  // Called after a fault was noted.
  void faults_noted() HOCKET_REQUIRES(mutex) {
    if (is_virtual) return turn();
    apply_faults();
    settle();
  }

  bool may_turn() const HOCKET_REQUIRES(mutex) {
    return std::ranges::all_of(ranks, [](const Rank& rank) {
      return rank.has_joined && rank.activity != Activity::running;
    });
  }

  // Virtual time: if all ranks wait, moves the clock from event to event until one of them runs.
  void turn() HOCKET_REQUIRES(mutex) {
    if (!may_turn()) return;
    for (;;) {
      apply_faults();
      wire.commit(now());
      wire.advance(now());
      TimePoint next = wire.next_event();
      bool anybody = false, woken = false;
      for (int i = 0; i < num_ranks; ++i) {
        if (ranks[i].activity == Activity::absent) continue;
        anybody = true;
        woken |= wake_if_due(i);
        next = std::min(next, ranks[i].until);
      }
      if (woken || !anybody) return;
      virtual_now = next;
    }
  }

  bool wake_if_due(int i) HOCKET_REQUIRES(mutex) {
    Rank& rank = ranks[i];
    const bool told = rank.activity == Activity::waiting && (wire.has_events(i) || rank.woken);
    if (!told && !wire.is_lost(i) && rank.until > now()) return false;
    rank.activity = Activity::running;
    rank.wake.notify_one();
    return true;
  }

  // Virtual time: stops the rank until it is due.
  void pause(MutexLock& lock, int i, Activity activity, Duration max_wait) HOCKET_REQUIRES(mutex) {
    Rank& rank = ranks[i];
    HOCKET_CHECK(rank.activity == Activity::running);
    rank.until = now() + std::clamp(max_wait, Duration{}, kMaxWait);
    rank.activity = activity;
    turn();
    rank.wake.wait(lock, [&] { return rank.activity == Activity::running; });
  }

  void wait_real(MutexLock& lock, int i, Duration max_wait) HOCKET_REQUIRES(mutex) {
    Rank& rank = ranks[i];
    const TimePoint deadline = now() + std::clamp(max_wait, Duration{}, kMaxWait);
    for (;;) {
      settle();
      if (wire.has_events(i) || wire.is_lost(i) || rank.woken) return;
      const TimePoint time = now();
      if (time >= deadline) return;
      const TimePoint due = wire.next_event_of(i);
      const TimePoint until =
          due == TimePoint::max() ? deadline : std::min(deadline, due - kWakeEarly);
      if (until > time) {
        rank.activity = Activity::waiting;
        rank.wake.wait_until(lock, until);
        rank.activity = Activity::running;
      } else {
        mutex.unlock();
        std::this_thread::yield();
        mutex.lock();
      }
    }
  }

  const int num_ranks;
  const bool is_virtual;
  mutable Mutex mutex;
  LinkSimulation wire HOCKET_GUARDED_BY(mutex);
  std::atomic<TimePoint> virtual_now{};  // written under the lock
  std::deque<Rank> ranks HOCKET_GUARDED_BY(mutex);
  std::optional<LinkModel> new_links HOCKET_GUARDED_BY(mutex);
};

// One rank's end of the hub.
class LoopbackHub::End final : public Transport {
 public:
  End(State& hub, int rank) : hub_(hub), rank_(rank) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() override {
    const MutexLock lock(hub_.mutex);
    hub_.wire.withdraw(rank_);
    hub_.ranks[rank_].activity = State::Activity::absent;
    hub_.ranks[rank_].leave = true;
    hub_.faults_noted();
  }

  int rank() const override { return rank_; }
  int num_ranks() const override { return hub_.num_ranks; }
  TransportCaps caps() const override {
    return {.name = "loopback",
            .moves_by_itself = true,
            .exact_arrival = true,
            .one_clock = true,
            .max_message_bytes = std::numeric_limits<int64_t>::max()};
  }

  void expect(const Channel& from, std::span<std::byte> slot) override {
    const MutexLock lock(hub_.mutex);
    hub_.wire.expect(rank_, from, slot);
  }
  Result<std::optional<Arrival>> arrived(const Channel& from) override {
    const MutexLock lock(hub_.mutex);
    hub_.settle();
    return hub_.wire.arrived(rank_, from);
  }
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override {
    const MutexLock lock(hub_.mutex);
    HOCKET_TRY_VOID(hub_.wire.post(rank_, to, parts));
    hub_.settle();
    // A sleeping receiver must compute again when its next message arrives.
    if (!hub_.is_virtual) hub_.ranks[to.peer].wake.notify_one();
    return {};
  }
  Result<bool> sent(const Channel& to) override {
    const MutexLock lock(hub_.mutex);
    hub_.settle();
    return hub_.wire.sent(rank_, to);
  }
  void withdraw() override {
    const MutexLock lock(hub_.mutex);
    hub_.wire.withdraw(rank_);
  }
  bool progress() override {
    const MutexLock lock(hub_.mutex);
    hub_.settle();
    return hub_.wire.take_events(rank_);
  }
  void wait(Duration max_wait) override {
    MutexLock lock(hub_.mutex);
    bool& woken = hub_.ranks[rank_].woken;
    if (!hub_.is_virtual)
      hub_.wait_real(lock, rank_, max_wait);
    else if (!hub_.wire.has_events(rank_) && !woken)
      hub_.pause(lock, rank_, State::Activity::waiting, max_wait);
    woken = false;
  }
  void wake() override {
    const MutexLock lock(hub_.mutex);
    hub_.ranks[rank_].woken = true;
    if (hub_.is_virtual)
      hub_.turn();
    else
      hub_.ranks[rank_].wake.notify_one();
  }
  TimePoint now() const override { return hub_.now(); }

 private:
  State& hub_;
  const int rank_;
};

LoopbackHub::LoopbackHub(int num_ranks, LinkModel links, Time time)
    : state_(std::make_unique<State>(num_ranks, links, time)) {}

LoopbackHub::~LoopbackHub() {
  for (const State::Rank& rank : state_->ranks) {
    HOCKET_CHECK(rank.activity == State::Activity::absent);
  }
}

std::unique_ptr<Transport> LoopbackHub::join(int rank) {
  HOCKET_CHECK(rank >= 0 && rank < state_->num_ranks);
  auto end = std::make_unique<End>(*state_, rank);
  const MutexLock lock(state_->mutex);
  State::Rank& here = state_->ranks[rank];
  HOCKET_CHECK(here.activity == State::Activity::absent);
  if (std::exchange(here.leave, false)) state_->wire.leave(rank);
  here.lose = here.woken = false;
  here.activity = State::Activity::running;
  if (std::exchange(here.has_joined, true)) state_->wire.enter(rank);
  return end;
}

void LoopbackHub::spend(int rank, Duration duration) {
  MutexLock lock(state_->mutex);
  if (!state_->is_virtual) return;
  state_->pause(lock, rank, State::Activity::spending, duration);
}

TimePoint LoopbackHub::now() const {
  return state_->now();
}

void LoopbackHub::set_links(LinkModel links) {
  const MutexLock lock(state_->mutex);
  state_->new_links = links;
  state_->faults_noted();
}

void LoopbackHub::cut(int rank, bool is_cut) {
  const MutexLock lock(state_->mutex);
  state_->ranks.at(static_cast<size_t>(rank)).cut = is_cut;
  state_->faults_noted();
}

void LoopbackHub::stall(int rank, Duration how_long) {
  const MutexLock lock(state_->mutex);
  Duration& stall = state_->ranks.at(static_cast<size_t>(rank)).stall;
  stall = std::max(stall, std::min(how_long, kMaxWait));
  state_->faults_noted();
}

void LoopbackHub::lose(int rank) {
  const MutexLock lock(state_->mutex);
  state_->ranks.at(static_cast<size_t>(rank)).lose = true;
  state_->faults_noted();
}

}  // namespace hocket
