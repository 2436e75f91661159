// The requests that are with other ranks, and which of them are lost. RankRouter owns them, and its
// lock guards them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/control_plane.h"
#include "server/generation/prepared_request.h"
#include "server/http/http_client.h"
#include "server/observe/request_recorder.h"
#include "server/ranks/rank_probes.h"
#include "server/ranks/relay.h"

namespace hocket {

class ForwardedRequests {
 public:
  // A request that was forwarded to another rank.
  struct Forward {
    int rank = 0;
    std::string boot_id;  // that of the rank's process
    uint64_t call = 0;    // 0 before it begins
    std::shared_ptr<Relay> relay;
    // For this rank if the other refuses, or is lost; nullopt: it may not.
    std::optional<PreparedRequest> prepared;
    // For a third rank if the other refuses: only if this rank was out when it was sent.
    std::optional<HttpRequest> request;
    std::shared_ptr<RequestRecorder> recorder;  // null: nothing is observed
    TimePoint since{};
    bool returns = false;  // true: its rank is lost, and its call is about to end
  };

  // Borrows `probes`.
  explicit ForwardedRequests(RankProbes& probes) : probes_(probes) {}

  // The reference is valid until erase().
  Forward& add(uint64_t ticket, Forward forward) {
    return by_ticket_.emplace(ticket, std::move(forward)).first->second;
  }
  // Precondition: the ticket was added. The reference is valid until erase().
  Forward& at(uint64_t ticket);
  void erase(uint64_t ticket) { by_ticket_.erase(ticket); }
  size_t size() const { return by_ticket_.size(); }

  // Notes a change of the view.
  void note_view(const ClusterView& before, const ClusterView& view);
  // Returns true from the loss of the coordinator until ranks serve again.
  bool is_unsettled() const { return unsettled_since_.has_value(); }
  // Ends the calls of the requests that are lost, so that they return to this rank, `own`.
  void lose(const ClusterView& view, int own, const Error& why, HttpClient& client);
  // Probes the ranks from which nothing comes, and ends the calls to those that are silent in the
  // same way. Returns the silent ranks.
  std::vector<int> lose_silent(const ClusterView& view, HttpClient& client);
  // Ends all calls; the clients get `why`.
  void end_all(const Error& why, HttpClient& client);

 private:
  bool is_lost(const Forward& forward, const ClusterView& view, int own, TimePoint now) const;

  RankProbes& probes_;
  std::unordered_map<uint64_t, Forward> by_ticket_;
  // From the loss of the coordinator until ranks serve again: since when, and when that ended.
  std::optional<TimePoint> unsettled_since_;
  TimePoint settled_at_{};
};

}  // namespace hocket
