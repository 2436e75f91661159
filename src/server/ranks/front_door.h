// One service over ranks that are processes of their own: any rank's HTTP port takes any request.
//
//   client -> this rank: parsed, tokens, fits -> who? -> this one: generator -> client
//                                                  \--> another: the request as it came, to that
//                                                       rank's port for ranks; its answer -> client
//
// The whole request goes, with all its prompts; what comes through a port for ranks goes no
// further. When a rank is lost, so is every answer: all that is under way ends at once with
// lost_rank, even if the connection says nothing (a black hole).
// Who takes a request: policy/routing/request_router.h over the loads that ranks tell each other
// with every step, and what this door handed over since.   Thread: any, unless it says otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/control_plane.h"
#include "policy/routing/request_router.h"
#include "server/generator.h"
#include "server/protocol/answer.h"
#include "server/ranks/peer_book.h"
#include "server/ranks/relay.h"
#include "server/reply.h"
#include "server/views/metrics.h"
#include "server/wire/http_client.h"

namespace hocket {

// What another rank said when all were asked.
struct PeerAnswer {
  std::string name;  // "rank 1 (h1)"
  int status = 0;    // 0: nothing, and `why`
  std::string body, why;
};
// What went wrong there, in words: "rank 1 (h1): it is not there".
std::string complaint_of(const PeerAnswer& peer);

class FrontDoor {
 public:
  struct Parts {
    ControlPlane* cluster = nullptr;
    Generator* generator = nullptr;
    ReplyService* reply = nullptr;
    RoutingPolicy routing = RoutingPolicy::cache_aware;
    size_t max_forwards = 1024;  // under way; beyond it queue_full
  };
  explicit FrontDoor(const Parts& parts);
  ~FrontDoor();

  // Tells other ranks that this one is reached at `own` with `key`, and asks for their places. To
  // be called once.
  void open(const HostPort& own, std::string_view key);
  // Answers a request whose prompts are tokens and fit, on this rank or another, be it with an
  // error.
  void begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
             Answer answer);
  // Hands a request to `rank`, whatever comes of it; an error where it is not there. False, and
  // nothing done, when that rank is none of ours.
  bool pass_on(int rank, const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange);
  // POSTs path and body to all others, in the name of who asked; `done` is told what they said
  // within 5 s, here or on the thread forward.
  void ask_all(const HttpRequest& asked, std::function<void(std::vector<PeerAnswer>&&)> done);
  // All prefix caches are empty.
  void forget_prefixes();

  int rank() const { return parts_.cluster->self().rank; }
  size_t num_forwards() const;
  ClusterCounts counts() const;
  // {"rank", "epoch", "peers": [{"rank", "host", "there", "address"}]}
  Json describe() const;

  // Ends what is under way with shutting_down.
  void cut_off();
  // cut_off(), and the threads end.
  void stop();

 private:
  // A request that another rank has.
  struct Forward {
    int rank = 0;
    uint32_t epoch = 0;
    uint64_t call = 0;
    std::shared_ptr<Relay> relay;
    std::optional<Answer> answer;  // for this rank, should the other refuse; none: it may not
    RankLoad load;
    TimePoint since{};
    bool heard = false;  // it is in the load that its rank tells
  };

  Result<int> choose(const Answer& answer);
  bool send(int rank, const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
            std::optional<Answer> answer);
  HttpCall call_to(const PeerPlace& to, const HttpRequest& asked) const;
  std::vector<RankLoad> loads();
  std::optional<PeerPlace> place(int rank) const;
  void refuse_more(HttpExchange& exchange) const;
  void ended(uint64_t ticket, RelayEnd how, const std::string& why);
  void give_up_all(const Error& why);
  void look();
  void refresh();

  const Parts parts_;
  mutable std::mutex mutex_;  // of what follows, but for the client
  RequestRouter router_;
  ClusterView view_;
  uint64_t num_changes_ = 0;
  std::unordered_map<uint64_t, Forward> forwards_;  // by ticket
  uint64_t last_ticket_ = 0;
  std::vector<RankLoad> told_;          // by rank: its load as it was last told
  std::vector<TimePoint> avoid_until_;  // by rank: it refused
  ClusterCounts counts_;
  std::unique_ptr<PeerBook> book_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace hocket
