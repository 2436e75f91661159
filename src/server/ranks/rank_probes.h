// Asks ranks from which nothing comes whether they still answer HTTP. An answer that is not
// streamed may take hours and shows nothing meanwhile, and heartbeats come from another thread of
// the rank. So the wait for an answer is limited by the answers to these probes:
//
//   a request without a byte for an interval -> GET /livez, every interval, each with that limit
//   kMaxUnanswered of them without an answer, one after the other -> the rank is silent
//
// Probes are counted, not timed, because this process may have been stopped itself.
// Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "cluster/member.h"
#include "server/ranks/rank_peers.h"

namespace hocket {

class RankProbes {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(10);
  static constexpr int kMaxUnanswered = 6;

  // Borrows `peers`, whose calls have begun when probe() is called.
  RankProbes(RankPeers& peers, Duration interval);

  Duration interval() const { return interval_; }
  // Begins a probe of this process of a rank, unless one is under way or began less than an
  // interval ago.
  void probe(const Identity& rank, TimePoint now);
  // Returns true while the last kMaxUnanswered probes of this process had no answer.
  bool is_silent(const Identity& rank) const;
  // Returns true from the first probe of this process without an answer until one is answered.
  bool is_doubtful(const Identity& rank) const;

 private:
  struct Probed {
    mutable Mutex mutex;
    std::string boot_id HOCKET_GUARDED_BY(mutex);  // that of the process to which the rest belongs
    int num_unanswered HOCKET_GUARDED_BY(mutex) = 0;
    bool is_under_way HOCKET_GUARDED_BY(mutex) = false;
    TimePoint next HOCKET_GUARDED_BY(mutex){};
  };
  class Sink;
  int num_unanswered(const Identity& rank) const;

  RankPeers& peers_;
  const Duration interval_;
  std::vector<std::shared_ptr<Probed>> ranks_;  // the probes under way own them, too
};

}  // namespace hocket
