// Makes ranks in several processes one service: the HTTP port of any rank takes any request.
//
//   client -> this rank: parsed, tokens, fits -> rank? -> this one: engine -> client
//                                                   \--> another: the request as it came, to that
//                                                       rank's port for ranks; its answer -> client
//
// A request is forwarded whole, with all its prompts; a request from a port for ranks is never
// forwarded again. When a rank is lost, the requests that it had come back at once, even if the
// connection reports nothing (a black hole): this rank goes on with their answers where the clients
// have them, with the same bits. Requests that it cannot go on with end with lost_rank.
// policy/routing/request_router.h chooses the rank, from the loads that ranks send each other with
// every step and from the requests that this rank forwarded since.   Thread: any, unless stated
// otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "cluster/control_plane.h"
#include "engine/engine.h"
#include "policy/routing/request_router.h"
#include "server/generation/prepared_request.h"
#include "server/http/http_client.h"
#include "server/ranks/peer_book.h"
#include "server/ranks/relay.h"
#include "server/reply/reply.h"
#include "server/reply/stream_records.h"
#include "server/views/metrics.h"

namespace hocket {

struct ScaleRanks;  // server/ranks/scale_ranks.h

// The answer of another rank to a question that went to all ranks.
struct PeerAnswer {
  int rank = 0;
  std::string name;  // "rank 1 (h1)"
  int status = 0;    // 0: no answer; `why` says the reason
  std::string body, why;
  std::optional<Error> memory_error;  // set if the asker may hold no body of that size
  std::shared_ptr<HeldBytes> held;    // counts the body as the asker's
};
// Returns the rank's complaint in words: "rank 1 (h1): it is not there".
std::string complaint_of(const PeerAnswer& peer);

class RankRouter {
 public:
  struct Options {
    ControlPlane* cluster = nullptr;
    Engine* engine = nullptr;
    ReplyService* reply = nullptr;
    StreamRecords* stream_records = nullptr;
    RoutingPolicy routing = RoutingPolicy::cache_aware;
    bool has_store = false;      // any rank may leave, the one that coordinates too
    size_t max_forwards = 1024;  // under way; beyond it begin() answers queue_full
  };
  explicit RankRouter(const Options& options);
  ~RankRouter();

  // Publishes the address `own` and the `key` of this rank, and looks up those of the others. Call
  // it once.
  void open(const HostPort& own, std::string_view key);
  // Answers a request whose prompts are tokenized and fit, on this rank or another; answers an
  // error too.
  void begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
             PreparedRequest prepared, std::shared_ptr<RequestRecorder> recorder);
  // Forwards a request to `rank`; if that rank is lost, answers with an error. Returns false, and
  // does nothing, if `rank` is this rank or no rank of the service.
  bool forward_to(int rank, const HttpRequest& request,
                  const std::shared_ptr<HttpExchange>& exchange);
  // Limits of the time that all answers may take, and of the bytes of one.
  struct AskLimits {
    Duration patience = std::chrono::seconds(5);
    size_t max_bytes = 64 << 10;
  };
  // POSTs path and body to all other ranks, in the name of the same principal. Calls `done` with
  // their answers when all have come, on this thread or the thread forward.
  void ask_all(const HttpRequest& asked, std::function<void(std::vector<PeerAnswer>&&)> done,
               AskLimits limits);
  void ask_all(const HttpRequest& asked, std::function<void(std::vector<PeerAnswer>&&)> done) {
    ask_all(asked, std::move(done), {});
  }
  // Has another rank keep a stream from now on that this rank goes on with; it is told with the
  // next changes, ten times a second.
  void keep_elsewhere(const PreparedRequest& prepared) const;
  // Forgets which rank has which prefix, because all prefix caches were emptied.
  void forget_prefixes();

  // Returns invalid_request, with the reason, if the others could not serve on without these ranks
  // and those that leave already.
  Result<void> may_leave(const RankSet& leaving) const;
  // The rank that decides which ranks leave.
  int coordinator() const { return options_.cluster->view().coordinator; }
  // Decides which ranks leave, and notes them. If `wanted` says how many stay, these are the
  // coordinator and the lowest ranks. Errors: invalid_request, if a named rank leaves already, if
  // no more than `keep` ranks stay, or if the others could not serve on without these ranks and
  // those that leave already.
  Result<RankSet> decide_leaving(const ScaleRanks& wanted);
  // Notes that these ranks were told to leave; if this rank is among them, the others hear it.
  void note_leaving(const RankSet& leaving);
  // Returns the rank that a process shall have which joins: one that none has, and for which none
  // has asked for the longest time. Errors: invalid_request, if there is none, or if this rank
  // leaves.
  Result<int> offer_rank();
  // Returns the ranks of this host, which one process started and which end together.
  RankSet own_host() const;

  int rank() const { return options_.cluster->self().rank; }
  size_t num_forwards() const;
  ClusterCounts counts() const;
  // {"rank", "epoch", "peers": [{"rank", "host", "there", "address"}]}
  Json describe() const;

  // Ends all requests under way with shutting_down.
  void cut_off();
  // Calls cut_off() and ends the threads.
  void stop();

 private:
  // A request that was forwarded to another rank.
  struct Forward {
    int rank = 0;
    std::string boot_id;  // that of the rank's process
    uint64_t call = 0;
    std::shared_ptr<Relay> relay;
    // For this rank if the other refuses, or is lost; nullopt: it may not.
    std::optional<PreparedRequest> prepared;
    std::shared_ptr<RequestRecorder> recorder;  // null: nothing is observed
    RankLoad load;
    TimePoint since{};
    bool in_load = false;  // true: the load that its rank sends includes it
  };

  Result<int> choose(const PreparedRequest& prepared) HOCKET_REQUIRES(mutex_);
  bool send(int rank, const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
            std::optional<PreparedRequest> prepared, std::shared_ptr<RequestRecorder> recorder)
      HOCKET_REQUIRES(mutex_);
  HttpCall call_to(const PeerEndpoint& to, const HttpRequest& asked) const;
  std::vector<RankLoad> loads() HOCKET_REQUIRES(mutex_);
  // True if this rank may serve in the epoch of the view.
  bool takes_part() const HOCKET_REQUIRES(mutex_);
  std::optional<PeerEndpoint> endpoint_of(int rank) const HOCKET_REQUIRES(mutex_);
  Error too_many() const;
  ClusterView view_with_leaving() const;
  Result<RankSet> ranks_to_leave(const ScaleRanks& wanted) const;
  // A rank that keeps the records of this rank's streams, in keeper.cc.
  struct Keeper {
    int rank = 0;
    std::string boot_id;
    PeerEndpoint to;
  };
  class KeeperSink;
  // Returns the next rank that is there; nullopt: none is.
  std::optional<Keeper> keeper() const HOCKET_REQUIRES(mutex_);
  bool tell_keeper(const StreamRecords::Found& record, std::function<void()> then)
      HOCKET_REQUIRES(mutex_);
  void begin_here(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                  std::shared_ptr<RequestRecorder> recorder);
  void warn_not_recorded(int rank, const std::string& why);
  void send_changes() HOCKET_REQUIRES(mutex_);
  void ended(uint64_t ticket, RelayEnd how, const std::string& why);
  void take_back(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                 std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent);
  void end_forwards(const Error& why) HOCKET_REQUIRES(mutex_);
  bool is_lost(const Forward& forward, const ClusterView& view) const;
  void check_cluster();
  void refresh() HOCKET_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  RequestRouter router_ HOCKET_GUARDED_BY(mutex_);
  ClusterView view_ HOCKET_GUARDED_BY(mutex_);
  uint64_t num_changes_ HOCKET_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Forward> forwards_ HOCKET_GUARDED_BY(mutex_);  // by ticket
  uint64_t last_ticket_ HOCKET_GUARDED_BY(mutex_) = 0;
  std::atomic<size_t> num_recorded_first_ = 0;  // requests that begin when another rank keeps them
  std::atomic<bool> changes_under_way_ = false;
  TimePoint warned_{};  // when a warning said that streams are not kept; thread forward only
  // By rank: the load it sent last, and until when it is avoided after a refusal.
  std::vector<RankLoad> last_loads_ HOCKET_GUARDED_BY(mutex_);
  std::vector<TimePoint> avoid_until_ HOCKET_GUARDED_BY(mutex_);
  // A process that was told to leave, and by when its beats say so.
  struct LeavingProcess {
    std::string boot_id;
    TimePoint until{};
  };
  std::vector<LeavingProcess> leaving_ HOCKET_GUARDED_BY(mutex_);  // by rank
  Mutex deciding_;  // held while decide_leaving() decides
  std::vector<TimePoint> offered_at_ HOCKET_GUARDED_BY(mutex_);  // by rank: to a process that joins
  ClusterCounts counts_ HOCKET_GUARDED_BY(mutex_);
  std::unique_ptr<PeerBook> book_ HOCKET_GUARDED_BY(mutex_);
  std::unique_ptr<HttpClient> client_;
};

}  // namespace hocket
