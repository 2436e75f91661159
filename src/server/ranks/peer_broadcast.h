// Sends a request to all other ranks and collects their answers. Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/http/json_body.h"
#include "server/ranks/rank_peers.h"
#include "server/usage/request_memory.h"

namespace hocket {

// The answer of one rank to a request that was sent to all ranks.
struct PeerAnswer {
  int rank = 0;
  std::string name;  // "rank 1 (h1)"
  int status = 0;    // 0: no answer; `why` says the reason
  std::string body, why;
  bool is_member = false;             // it was in the epoch when the ranks were asked
  bool was_sent = false;              // without an answer: the rank may have received the request
  bool may_know = false;              // without an answer: its process runs, or ran a moment ago
  std::optional<Error> memory_error;  // set if the caller may hold no body of that size
  std::shared_ptr<HeldBytes> held;    // counts the body as the caller's
};
// Returns the reason of a failure with the rank's name: "rank 1 (h1): it is not there".
std::string error_text(const PeerAnswer& peer);
// Returns those of all answers that are failures: "rank 1 (h1): it is not there; rank 2 (h2): ...".
std::string error_texts(std::span<const PeerAnswer> peers,
                        const std::function<bool(const PeerAnswer&)>& is_failure);

class PeerBroadcast {
 public:
  explicit PeerBroadcast(RankPeers& peers) : peers_(peers) {}

  // Limits of the time that all answers may take, and of the bytes of one.
  struct BroadcastLimits {
    Duration patience = std::chrono::seconds(5);
    size_t max_bytes = 64 << 10;
    bool includes_lost = false;  // asks ranks, too, that are connected but no members
    bool is_counted = true;      // as HttpCall::is_counted
  };
  using Done = std::function<void(std::vector<PeerAnswer>&&)>;
  // POSTs path and body to all other ranks, in the name of the same principal. Calls `done` with
  // their answers when all have arrived, on this thread or the thread client.
  void post_to_all(const HttpRequest& asked, Done done, BroadcastLimits limits);
  void post_to_all(const HttpRequest& asked, Done done) { post_to_all(asked, std::move(done), {}); }

 private:
  RankPeers& peers_;
};

// Makes one answer of this rank's and those of all other ranks.
using MergeAnswers = Result<Json> (*)(Json here, const std::vector<PeerAnswer>& there);
// Answers with `here`. If a client sent the request, all other ranks are sent it too, and the
// answer is what `merge` makes of theirs. peers: null: there are no other ranks.
void answer_everywhere(PeerBroadcast* peers, const HttpRequest& request,
                       const std::shared_ptr<HttpExchange>& exchange, Result<Json> here,
                       MergeAnswers merge);

}  // namespace hocket
