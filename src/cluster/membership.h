// Rank 0's judgement of who is there: arithmetic on beats and times, without a socket.
//
//   rank 0 hears a beat of every rank 4 times a second. Of a rank it
//     hears nothing, or a beat that says "stuck", for 1 s ....... it is suspect (a line in the log)
//     the same for 3 s .......................................... it is lost
//     sees the connection end, and no new one within 0.3 s ...... it is lost (its process died)
//     is told by another rank that the data plane misses it ..... it is lost
//   It is taken back when it is connected, agrees, and has no step open.
//
// Every loss and every return is a new epoch; a step belongs to one epoch and is given up with it.
// Why the rules are so:
// - A dead process ends its connection at once (its kernel says so), a cut link says nothing. So an
//   ended connection needs little patience, but some, for a rank that only dials anew; silence
//   needs as much as the longest outage that is to be survived, 2 s, and time to be heard again.
// - A rank that computes too long makes all others wait. Those say `waiting` and are not blamed; of
//   those that compute, only the ones furthest behind are.
// - A rank that was lost though it is connected (stuck, or missed by another rank) may be so again:
//   it waits a second before it is taken back, and twice as long each time, up to 32 s.
// - A rank is taken back only without an open step, for its engine may still be inside a step of
// the
//   epoch that ended; engines leave those by the abort flag.
// Thread: the control plane's. Time is passed in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/wire.h"

namespace hocket {

struct LivenessLimits {
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration suspect_after = std::chrono::seconds(1);
  Duration lost_after = std::chrono::seconds(3);
  Duration reconnect = std::chrono::milliseconds(300);  // after a connection ended
  Duration pause = std::chrono::seconds(1);  // of a connected rank that was lost; doubles
  Duration pause_max = std::chrono::seconds(32);
  Duration good_after = std::chrono::seconds(60);  // a member for so long has no past
};

class Membership {
 public:
  Membership(Identity rank_0, const LivenessLimits& limits, TimePoint now);

  // A rank says who it is, over a new connection. Errors: lost_rank where it disagrees with rank 0
  // (final); queue_full where another process is that rank and alive (it may try again).
  Result<void> join(const JoinMessage& join, TimePoint now);
  void beat(int rank, const Beat& beat, TimePoint now);
  // Its connection ended.
  void cut(int rank, TimePoint now);
  // It said that it goes.
  void leave(int rank, std::string_view why);
  // Rank `by` misses `rank` (-1: nobody; it gives up the step). Of another epoch: ignored.
  struct Report {
    int by = 0, rank = -1;
    uint32_t epoch = 0;
    std::string why;
  };
  void report(const Report& report, TimePoint now);
  // Judges. Call it at next_deadline() and after everything that was there to read was told.
  void tick(TimePoint now);
  TimePoint next_deadline() const;

  const ClusterView& view() const { return view_; }
  // Grows with every change of view().
  uint64_t version() const { return version_; }
  // Whether a connection of this rank is to be kept: false once it is silent for too long.
  bool connected(int rank) const { return slots_[static_cast<size_t>(rank)].connected; }
  std::vector<RankStatus> status(TimePoint now) const;

 private:
  struct Slot {
    bool connected = false;
    bool suspect = false;
    Beat beat;
    TimePoint heard{}, moved{};           // last beat; last beat that told of another place
    TimePoint cut_at = TimePoint::max();  // of a member whose connection ended
    TimePoint in_since{}, pause_until{};
    Duration pause{};
  };
  Member& member(int rank) { return view_.members[static_cast<size_t>(rank)]; }
  const Member& member(int rank) const { return view_.members[static_cast<size_t>(rank)]; }
  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  int num_ranks() const { return static_cast<int>(slots_.size()); }
  // For how long it has been silent, or stuck beyond what it said it needs.
  Duration silence(const Slot& s, TimePoint now) const;
  Duration stuck(const Slot& s, TimePoint now) const;
  void judge_silence(int rank, TimePoint now);
  void judge_stuck(TimePoint now);
  void warn(int rank, TimePoint now);
  void lose(int rank, const std::string& why);
  void pause(Slot& s, TimePoint now) const;
  void let_in(int rank, TimePoint now);
  void next_epoch();
  int first_missing() const;  // -1: none

  LivenessLimits limits_;
  std::vector<Slot> slots_;
  ClusterView view_;
  uint64_t version_ = 1;
};

}  // namespace hocket
