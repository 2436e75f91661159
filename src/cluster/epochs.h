// The epochs of a coordinator: the view of the newest one, the number of the next, and the reasons
// why ranks are missing. Every loss and every return of a rank starts an epoch, except before all
// ranks were there once. Owner: Membership, which decides which ranks are lost and which may join.
// Thread: the control plane's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/member.h"

namespace hocket {

class Epochs {
 public:
  struct Start {
    uint32_t last_epoch = 0;  // epochs count on from it
    bool began = false;       // as ClusterView::began
    int replicas = -1;        // as ClusterView::replicas
  };
  // The coordinator is connected, and the other ranks are absent.
  Epochs(Identity coordinator, const Start& start);

  const ClusterView& view() const { return view_; }
  // Grows with every change of view().
  uint64_t version() const { return version_; }
  int num_ranks() const { return static_cast<int>(view_.members.size()); }
  const Member& member(int rank) const { return view_.members[static_cast<size_t>(rank)]; }
  bool is_in(int rank) const { return member(rank).state == MemberState::member; }

  // These change the view and start no epoch. note_joined() makes an absent rank a connected one.
  void note_joined(const Identity& identity, bool leaves);
  void set_leaves(int rank, bool leaves);
  void set_state(int rank, MemberState state);
  void set_began();
  void set_replicas(int replicas);
  void set_tolerated(int num_ranks);
  void set_why(std::string why);

  // Returns the last epoch that any rank knows. note_known(): another rank knows this one.
  uint32_t last_known() const { return std::max(view_.epoch, last_known_); }
  void note_known(uint32_t epoch) { last_known_ = std::max(last_known_, epoch); }
  // Starts the next epoch.
  void begin_next();
  // Takes a rank out, which is `left` from then on, and logs why ("is silent for 3.0 s").
  void lose(int rank, MemberState left, const std::string& why);
  // Makes a connected rank a member.
  void take_in(int rank);
  // Returns `why`, followed by why the other ranks are missing that are.
  std::string with_reasons(const std::string& why) const;
  // Logs which ranks serve.
  void log_members() const;

 private:
  Member& at(int rank) { return view_.members[static_cast<size_t>(rank)]; }
  int first_missing() const;  // -1 if none is missing

  ClusterView view_;
  uint64_t version_ = 1;
  uint32_t last_known_ = 0;            // the last epoch that was counted, or another rank knows
  std::vector<std::string> why_lost_;  // by rank, until it is in again; empty: never lost
};

}  // namespace hocket
