// Tests only: a service in simulation, whose views come late, twice or not at all, while ranks are
// lost, leave on request, join again, come late, hear their coordinator no longer or lose the link
// between them, and the seat of the coordinator moves, or its rank is started anew.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "cluster/control_role.h"
#include "cluster/leave_check.h"

namespace hocket {

using std::chrono::milliseconds;

inline constexpr Duration kTick = std::chrono::milliseconds(20);
inline constexpr std::array kCut = {2, 3};  // the ranks whose link is cut
inline constexpr Duration kBeginAfter = std::chrono::seconds(2);
inline constexpr Duration kLossIsKnown = milliseconds(400);  // after a connection ended

struct ServiceSize {
  int num_ranks = 0, tolerate_ranks = 0;
  bool has_store = false;  // the seat moves between the ranks 0 and 1; else rank 0 has it

  bool has_link() const { return num_ranks > kCut[1]; }
};

class SimulatedService {
 public:
  SimulatedService(const ServiceSize& size, unsigned seed) : size_(size), random_(seed) {
    for (int rank = 0; rank < size_.num_ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(rank));
    take_seat(0);
    for (int rank = 1; rank < size_.num_ranks; ++rank) {
      if (chance(4))  // it comes late
        ranks_[static_cast<size_t>(rank)]->away_until = now_ + some_time(8000);
      else
        join(rank);
    }
  }

  void tick() {
    now_ += kTick;
    if (fails(300)) change_coordinator();
    if (size_.has_link()) change_link();
    for (int rank = 0; rank < size_.num_ranks; ++rank) live(rank);
    for (auto& coordinator : coordinators_) {
      if (!coordinator) continue;
      coordinator->members.tick(now_);
      // Only the holder of the seat takes epochs, and counts on from the last one.
      if (size_.has_store && coordinator == coordinators_[holder_] &&
          coordinator->members.view().epoch > last_taken_)
        last_taken_ = coordinator->granted = coordinator->members.view().epoch;
      send(*coordinator);
    }
    if (size_.has_link()) check_link();
    for (auto& rank : ranks_) receive(*rank);
    for (auto& rank : ranks_)
      if (rank->shared->abort != 0 && rank->is_ready && chance(5)) enter(*rank);
    check();
  }

  // Nothing fails from now on.
  void calm_down() { is_calm_ = true; }
  // True if all ranks are in one epoch.
  bool all_serve() const {
    return std::ranges::all_of(ranks_, [&](const auto& rank) {
      return rank->shared->abort == 0 && rank->key() == ranks_[0]->key();
    });
  }

  int num_whole = 0, num_smaller = 0;  // ticks in which all ranks served, and some of them
  int num_left = 0;                    // leaves on request, with no fault meanwhile
  int num_begun = 0;                   // ticks in which some served before all were there once
  int num_apart = 0;                   // ticks in which a cut link kept a rank out

 private:
  struct Rank {
    explicit Rank(int of) : number(of), shared(std::make_unique<Shared>(of)) {}
    const int number;
    std::unique_ptr<Shared> shared;
    int hears = 0;  // a coordinator
    bool is_connected = false, is_ready = true;
    int num_starts = 0;
    uint32_t entered = 0;
    int coordinates = 0;                  // the coordinator of `entered`, and of the next epoch
    std::optional<TimePoint> notices_at;  // it is lost, and believes until then that it is not
    std::optional<TimePoint> leaves_at;   // it drains until then
    TimePoint asked_at{};                 // when it was allowed to leave
    TimePoint away_until{};               // it has left
    RankSet unreachable;                  // behind a cut link
    Heartbeat heartbeat() const {
      return {.terms = is_ready ? "t" : "",
              .leaves = leaves_at.has_value(),
              .unreachable = unreachable};
    }
    struct DelayedView {
      TimePoint due;
      ClusterView view;
    };
    std::deque<DelayedView> mail;  // in order, as a connection brings it
    // Names the epoch that it entered: without a store a new coordinator may count anew.
    std::pair<int, uint32_t> key() const { return {coordinates, entered}; }
  };
  struct Coordinator {
    Membership members;
    uint32_t granted = 0, announced = 0;
    uint64_t sent_version = 0;
    bool was_over = false;
  };

  bool chance(int one_in) { return std::uniform_int_distribution<>(1, one_in)(random_) == 1; }
  bool fails(int one_in) { return !is_calm_ && chance(one_in); }
  Duration some_time(int max_ms) {
    return milliseconds(std::uniform_int_distribution<>(0, max_ms)(random_));
  }
  Identity identity(const Rank& rank) const {
    return {.rank = rank.number,
            .num_ranks = size_.num_ranks,
            .boot_id = fmt::format("start {}", rank.num_starts),
            .version = "1"};
  }

  // Now and then the link between two ranks is cut for a while, neither of which ever coordinates.
  // Both notice it, and report it while both are in their epoch.
  void change_link() {
    Rank& one = *ranks_.at(kCut[0]);
    Rank& other = *ranks_.at(kCut[1]);
    if (cut_until_ && (is_calm_ || now_ >= *cut_until_)) {
      one.unreachable = other.unreachable = {};
      cut_until_.reset();
    }
    if (cut_until_ || !fails(200)) return;
    cut_at_ = now_;
    cut_until_ = now_ + some_time(8000);
    one.unreachable.add(other.number);
    other.unreachable.add(one.number);
  }
  bool reports_cut(const Rank& rank) const {
    const RankSet present = rank.shared->view().present();
    return rank.entered != 0 && rank.unreachable.size() > 0 && present.has(rank.number) &&
           present.has(rank.unreachable.first());
  }
  // While the link is cut, neither of the two is taken in beside the other.
  void check_link() {
    const RankSet present = coordinators_[holder_]->members.view().present();
    const int num_there = (present.has(kCut[0]) ? 1 : 0) + (present.has(kCut[1]) ? 1 : 0);
    if (cut_until_ && now_ >= cut_at_ + kLossIsKnown) {
      ASSERT_FALSE(num_there == 2 && !were_together_);
      num_apart += num_there == 1 ? 1 : 0;
    }
    were_together_ = num_there == 2;
  }

  // The seat moves, or the only rank that can have it is started anew.
  void change_coordinator() {
    if (!size_.has_store) start_anew(*ranks_[0]);
    take_seat(size_.has_store ? (static_cast<int>(holder_) + 1) % 2 : 0);
  }

  // A process that has never met the others does not know that the service has begun.
  void take_seat(int rank) {
    last_fault_ = now_;
    if (!size_.has_store) ++num_coordinators_;
    Rank& own = *ranks_[static_cast<size_t>(rank)];
    const bool began = own.shared->view().began;
    for (auto& other : ranks_)  // its connections of the time before have ended
      if (other->number == rank || other->hears == rank) leave(*other);
    own.hears = rank;
    own.coordinates = num_coordinators_;
    own.mail.clear();
    const uint32_t last = std::max(last_taken_, own.shared->view().epoch);
    holder_ = static_cast<size_t>(rank);
    coordinators_[holder_] = std::make_unique<Coordinator>(
        Coordinator{.members = Membership(identity(own), {}, now_,
                                          {.last_epoch = last,
                                           .tolerate_ranks = size_.tolerate_ranks,
                                           .began = began,
                                           .begin_after = kBeginAfter}),
                    .granted = size_.has_store ? last : kMaxEpoch,
                    .announced = last});
  }
  // This rank hears its coordinator no longer.
  void leave(Rank& rank) {
    rank.is_connected = false;
    rank.notices_at.reset();
    rank.mail.clear();
    ClusterView known = rank.shared->view();
    if (known.members.empty()) return;
    known.members[static_cast<size_t>(known.coordinator)].state = MemberState::absent;
    rank.shared->publish_over(known);
  }
  void join(int number) {
    Rank& rank = *ranks_[static_cast<size_t>(number)];
    rank.hears = static_cast<int>(holder_);
    if (rank.hears == number) return;
    const ClusterView known = rank.shared->view();
    Membership& members = coordinators_[holder_]->members;
    if (fails(50)) {
      EXPECT_FALSE(members.join({.identity = identity(rank), .last_epoch = kMaxEpoch}, now_));
    }
    rank.is_connected = members
                            .join({.identity = identity(rank),
                                   .last_epoch = rank.shared->last_epoch(),
                                   .began = known.began,
                                   .heartbeat = rank.heartbeat()},
                                  now_)
                            .has_value();
    if (rank.is_connected) rank.coordinates = num_coordinators_;
    coordinators_[holder_]->sent_version = 0;
  }
  // Its process has ended, and another loads.
  void start_anew(Rank& rank) {
    leave(rank);
    rank.shared = std::make_unique<Shared>(rank.number);
    rank.entered = 0;
    rank.is_ready = false;
    rank.leaves_at.reset();
    ++rank.num_starts;
  }
  // Nobody waits for a rank that has left, unless a rank was lost while it drained, or so shortly
  // before that the others did not know it yet.
  void end_leave(Rank& rank, Membership& members) {
    members.leave(rank.number, "it was asked to");
    if (last_fault_ + kLossIsKnown < rank.asked_at) {
      EXPECT_TRUE(members.view().serves());
      ++num_left;
    }
    start_anew(rank);
    rank.away_until = now_ + some_time(4000);
  }
  void live(int number) {
    Rank& rank = *ranks_[static_cast<size_t>(number)];
    if (rank.notices_at) {
      if (now_ >= *rank.notices_at) leave(rank);
      return;
    }
    if (coordinators_[static_cast<size_t>(rank.hears)] == nullptr) {
      if (chance(20)) join(number);  // that one has stepped down
      return;
    }
    Membership& members = coordinators_[static_cast<size_t>(rank.hears)]->members;
    const bool is_own = rank.hears == number;
    const auto heartbeat = [&] {
      rank.is_ready |= chance(60);
      members.heartbeat(number, rank.heartbeat(), now_);
    };
    if (is_own && number == static_cast<int>(holder_)) {
      heartbeat();
    } else if (is_own) {  // another has the seat: it steps down some day
      if (!chance(40)) return heartbeat();
      leave(rank);
      coordinators_[static_cast<size_t>(number)].reset();
      for (auto& other : ranks_)
        if (other->hears == number && other->number != number) leave(*other);
      join(number);
    } else if (!rank.is_connected) {
      if (chance(20) && (is_calm_ || now_ >= rank.away_until)) join(number);
    } else if (rank.leaves_at && now_ >= *rank.leaves_at) {
      end_leave(rank, members);
    } else if (fails(150)) {  // its process ends, and another loads
      last_fault_ = now_;
      members.cut(number, now_);
      start_anew(rank);
    } else if (fails(150)) {  // it is asked to leave
      RankSet leaving;
      leaving.add(number);
      const bool has_seat = rank.hears == static_cast<int>(holder_);  // else the view is old
      if (!has_seat || rank.leaves_at ||
          !may_leave(members.view(), leaving, EligibleCoordinators::rank_0))
        return;
      rank.asked_at = now_;
      rank.leaves_at = now_ + some_time(1000);
      heartbeat();
    } else if (reports_cut(rank)) {
      last_fault_ = now_;
      heartbeat();
      members.report({.by = number,
                      .rank = rank.unreachable.first(),
                      .epoch = rank.entered,
                      .why = "the link is cut"},
                     now_);
    } else if (fails(300)) {  // it waits in vain for another
      last_fault_ = now_;
      members.report({.by = number,
                      .rank = std::uniform_int_distribution<>(0, size_.num_ranks - 1)(random_),
                      .epoch = rank.entered,
                      .why = "no message"},
                     now_);
    } else if (fails(150)) {  // its words are lost, and it notices that later
      last_fault_ = now_;
      members.cut(number, now_);
      rank.is_connected = false;
      rank.mail.clear();
      rank.notices_at = now_ + some_time(3000);
    } else if (fails(150)) {  // its connection ends, and it loses the coordinator
      last_fault_ = now_;
      members.cut(number, now_);
      leave(rank);
    } else if (rank.hears != static_cast<int>(holder_) && chance(30)) {
      leave(rank);  // it sees that another has the seat
    } else if (!chance(4)) {
      heartbeat();
    }
  }
  void send(Coordinator& from) {
    ClusterView view = from.members.view();
    if (view.epoch > from.granted) {
      view.epoch = from.announced;
      view.over = true;
    }
    if (from.sent_version == from.members.version() && from.was_over == view.over) return;
    from.sent_version = from.members.version();
    from.was_over = view.over;
    from.announced = view.epoch;
    if (view.serves()) {
      const auto key = std::pair(num_coordinators_, view.epoch);
      const auto [known, is_new] = members_of_.emplace(key, view.present());
      EXPECT_EQ(known->second, view.present()) << "in epoch " << view.epoch;
    }
    for (auto& rank : ranks_) {
      if (rank->hears != view.coordinator) continue;
      if (rank->number == view.coordinator) {
        rank->shared->publish(view);
      } else if (rank->is_connected) {
        const TimePoint before = rank->mail.empty() ? now_ : rank->mail.back().due;
        for (int i = chance(4) ? 0 : 1; i < 2; ++i)  // sometimes twice
          rank->mail.push_back({std::max(before, now_ + some_time(200)), view});
      }
    }
  }
  void receive(Rank& rank) {
    for (; !rank.mail.empty() && rank.mail.front().due <= now_; rank.mail.pop_front())
      rank.shared->publish(rank.mail.front().view);
  }
  void enter(Rank& rank) {
    rank.entered = 0;
    const uint32_t epoch = rank.shared->view().epoch;
    if (rank.shared->enter(epoch)) rank.entered = epoch;
  }
  // An epoch serves while all its ranks are in it, since its steps need messages of all.
  void check() {
    std::map<std::pair<int, uint32_t>, RankSet> in;
    for (const auto& rank : ranks_)
      if (rank->shared->abort == 0) in[rank->key()].add(rank->number);
    int num_serving = 0;
    for (const auto& [epoch, ranks] : in) {
      const auto found = members_of_.find(epoch);
      ASSERT_NE(found, members_of_.end());
      if (ranks != found->second) continue;
      ++num_serving;
      ++(ranks.size() == size_.num_ranks ? num_whole : num_smaller);
      num_begun += num_whole == 0 ? 1 : 0;
    }
    ASSERT_LE(num_serving, 1);
  }

  const ServiceSize size_;
  std::mt19937 random_;
  TimePoint last_fault_{};
  std::optional<TimePoint> cut_until_;  // nullopt: all links are whole
  TimePoint cut_at_{};
  bool were_together_ = false;  // both ranks of kCut were in the epoch a tick ago
  bool is_calm_ = false;
  TimePoint now_ = TimePoint(std::chrono::seconds(1000));
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::array<std::unique_ptr<Coordinator>, 2> coordinators_;
  size_t holder_ = 0;         // the coordinator that has the seat
  int num_coordinators_ = 0;  // processes of the rank that coordinates; 0 with a store
  uint32_t last_taken_ = 0;
  std::map<std::pair<int, uint32_t>, RankSet> members_of_;  // each epoch that was announced
};

}  // namespace hocket
