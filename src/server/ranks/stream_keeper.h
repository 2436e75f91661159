// Replicates the requests of this rank's streams to other ranks, which can continue the streams
// when this rank is lost:
//
//   a stream begins here -> POST kKeepPath: its request -> keepers have it -> the engine gets it
//   ten times a second   -> POST kChangesPath: new tokens, and which streams were left or ended
//
// The keepers are the next ranks that are there and do not leave, because a rank that leaves takes
// no requests; those of other hosts first (keeper_choice.h). When a keeper is gone, the next rank
// gets all requests; while the ranks do not serve, the keepers do not change. With --tolerate-ranks
// 2 or more a stream has its record at two other ranks, else at one. The rank that forwarded its
// request is one of them, unless it is on the same host.
//
// These calls are made however many requests are forwarded, or no stream would be protected while
// this rank has most to do. Thread: any, unless stated otherwise.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/member.h"
#include "server/generation/prepared_request.h"
#include "server/observe/request_recorder.h"
#include "server/ranks/rank_peers.h"
#include "server/reply/reply.h"
#include "server/reply/stream_changes.h"

namespace hocket {

class StreamKeeper {
 public:
  struct Options {
    ReplyService* reply = nullptr;
    StreamChanges* changes = nullptr;
    int tolerate_ranks = 0;
  };
  StreamKeeper(RankPeers& peers, const Options& options);

  // Begins a request on this rank. A stream begins when its keepers have its request, so from its
  // first event on it can continue elsewhere. `forwarder`: the rank that forwarded it; -1: none.
  void begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
             std::shared_ptr<RequestRecorder> recorder, int forwarder = -1);
  // Replicates from now on a stream that this rank continues for a lost one; the keepers get it
  // with the next changes.
  void keep(const PreparedRequest& prepared);
  // Sends the changes to the keepers that have answered the last ones. Thread: client.
  void send_changes();
  // Returns the number of requests that begin when their keepers have them.
  size_t num_beginning() const { return num_beginning_; }

 private:
  struct Keeper {
    Identity identity;
    PeerEndpoint to;
  };
  // Changes for which no call could be begun, and the keeper that they are for.
  struct UnsentLines {
    std::string boot_id, lines;
  };
  class Beginning;
  class Sink;
  size_t num_copies() const;
  void find_keepers() HOCKET_REQUIRES(mutex_);
  bool was_reached(const Identity& rank) HOCKET_REQUIRES(mutex_);
  // Returns the keepers whose endpoint is known.
  std::vector<Keeper> reachable_keepers() HOCKET_REQUIRES(mutex_);
  void send(const Keeper& to, const StreamSnapshot& record, std::shared_ptr<Beginning> beginning);
  void send_changes_to(const Keeper& to, std::atomic<bool>& is_under_way);
  void warn_not_recorded(int rank, const std::string& why);

  RankPeers& peers_;
  const Options options_;
  std::atomic<size_t> num_beginning_ = 0;
  std::vector<std::unique_ptr<std::atomic<bool>>> changes_under_way_;  // by rank
  std::vector<UnsentLines> unsent_;  // by rank; the thread client alone uses it
  Mutex mutex_;
  std::vector<Identity> keepers_ HOCKET_GUARDED_BY(mutex_);
  std::vector<TimePoint> reached_ HOCKET_GUARDED_BY(mutex_);  // by rank: its address was known
  // When a warning said that streams are not kept.
  TimePoint warned_ HOCKET_GUARDED_BY(mutex_){};
};

}  // namespace hocket
