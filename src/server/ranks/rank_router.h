// Makes ranks in several processes one service: the HTTP port of any rank takes any request.
//
//   client -> this rank: parsed, tokens, fits -> rank? -> this one: engine -> client
//                                                   \--> another: the request unchanged, to that
//                                                       rank's port for ranks; its answer -> client
//
// A request is forwarded whole, with all its prompts; a request from a port for ranks is never
// forwarded again. When a rank is lost, the requests that it had are returned to this rank at once,
// even if the connection reports nothing (a black hole), and so are those of a rank that answers no
// probe: this rank continues their answers where the clients have them, with the same bits.
// Requests that it cannot continue end with lost_rank. A lost coordinator loses no request that
// another rank has.
// Thread: any, unless stated otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cluster/control_plane.h"
#include "engine/engine.h"
#include "server/generation/prepared_request.h"
#include "server/ranks/forwarded_requests.h"
#include "server/ranks/peer_broadcast.h"
#include "server/ranks/rank_changes.h"
#include "server/ranks/rank_chooser.h"
#include "server/ranks/rank_peers.h"
#include "server/ranks/rank_probes.h"
#include "server/ranks/role_sender.h"
#include "server/ranks/stream_keeper.h"
#include "server/reply/reply.h"
#include "server/reply/stream_records.h"
#include "server/reports/metrics.h"

namespace hocket {

class RankRouter {
 public:
  struct Options {
    ControlPlane* cluster = nullptr;
    Engine* engine = nullptr;
    ReplyService* reply = nullptr;
    StreamRecords* stream_records = nullptr;
    RoutingPolicy routing = RoutingPolicy::cache_aware;
    bool has_store = false;  // any rank may leave, the one that coordinates too
    int tolerate_ranks = 0;
    const PrefillRole* role = nullptr;  // null: the service shares no pages
    size_t max_forwards = 1024;         // under way; beyond it begin() answers queue_full
    Duration probe_interval = RankProbes::kInterval;
  };
  explicit RankRouter(const Options& options);
  ~RankRouter();

  // See RankPeers::open().
  void open(const HostPort& own, std::string_view key) { peers_.open(own, key); }
  // Answers a request whose prompts are tokenized and fit, on this rank or another; answers an
  // error too.
  void begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
             PreparedRequest prepared, std::shared_ptr<RequestRecorder> recorder);
  // Forwards a request to `rank`; if that rank is lost, answers with an error. Returns false, and
  // does nothing, if `rank` is this rank or no rank of the service.
  bool forward_to(int rank, const HttpRequest& request,
                  const std::shared_ptr<HttpExchange>& exchange);
  PeerBroadcast& broadcast() { return broadcast_; }
  StreamKeeper& keeper() { return keeper_; }
  RankChanges& changes() { return changes_; }
  // Deletes the record of which rank has which prefix, because all prefix caches were emptied.
  void forget_prefixes();

  // True if ranks serve though others may be missing: a request goes to one of them, or waits here
  // until this rank has joined them.
  bool serves() const {
    const ClusterView view = options_.cluster->view();
    return view.began && view.serves();
  }
  int rank() const { return peers_.rank(); }
  size_t num_forwards() const;
  // Returns for how many clients this rank may ask all others at the same time, so that these are
  // about as many calls as it may forward.
  size_t max_returning() const {
    const auto num_others = static_cast<size_t>(std::max(1, peers_.num_ranks() - 1));
    return std::max<size_t>(1, options_.max_forwards / num_others);
  }
  ClusterCounts counts() const;
  // {"rank", "epoch", "peers": [{"rank", "host", "there", "address"}]}
  Json describe() const;

  // Ends all requests under way with shutting_down.
  void cut_off();
  // Calls cut_off() and ends the threads.
  void stop();

 private:
  // Another rank, and where it is reached. The endpoint is read once, because other threads may
  // forget it at any time.
  struct Destination {
    int rank = 0;
    PeerEndpoint endpoint;
  };
  // Returns nullopt for this rank.
  Result<std::optional<Destination>> choose(const PreparedRequest& prepared)
      HOCKET_REQUIRES(mutex_);
  bool send(const Destination& to, const HttpRequest& request,
            const std::shared_ptr<HttpExchange>& exchange, std::optional<PreparedRequest> prepared,
            const std::shared_ptr<RequestRecorder>& recorder) HOCKET_REQUIRES(mutex_);
  void forget(uint64_t ticket) HOCKET_REQUIRES(mutex_);
  std::optional<PeerEndpoint> endpoint_of(int rank) const HOCKET_REQUIRES(mutex_);
  Error too_many();
  void ended(uint64_t ticket, RelayEnd how, const std::string& why);
  void take_back(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                 std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent);
  void lose_forwards() HOCKET_REQUIRES(mutex_);
  void check_cluster();
  void refresh() HOCKET_REQUIRES(mutex_);

  const Options options_;
  RankPeers peers_;
  PeerBroadcast broadcast_;
  StreamKeeper keeper_;
  RankChanges changes_;
  RankProbes probes_;
  RoleSender role_sender_;
  mutable Mutex mutex_;
  RankChooser chooser_ HOCKET_GUARDED_BY(mutex_);
  std::shared_ptr<const ClusterView> view_ HOCKET_GUARDED_BY(mutex_);
  ForwardedRequests forwards_ HOCKET_GUARDED_BY(mutex_);
  uint64_t last_ticket_ HOCKET_GUARDED_BY(mutex_) = 0;
  ClusterCounts counts_ HOCKET_GUARDED_BY(mutex_);
};

// Returns the broadcast to the other ranks; null: all ranks are in this process.
inline PeerBroadcast* peers_of(RankRouter* router) {
  return router == nullptr ? nullptr : &router->broadcast();
}

}  // namespace hocket
