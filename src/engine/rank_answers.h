// The answers of a rank's requests: which requests still get one, the results that are kept for
// them until they can be sent, and the sending.
//
//   add() .. keep() after each step, send_tokens(), .. send_end() with the summary
//
// Thread: engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/flight.h"
#include "engine/messages.h"
#include "engine/rank_report.h"
#include "engine/tier/cache_tier.h"

namespace hocket {

class RankAnswers {
 public:
  // Both outlive it. The report counts the requests that end.
  RankAnswers(const ModelConfig& model, int rank, RankReport& report)
      : model_(model), rank_(rank), report_(report) {}

  // Sets the outbox for answers. If the rank has no thread of its own, its caller reads the outbox,
  // so a full one is a bug; otherwise sending waits for the reader.
  void send_to(Outbox& outbox) { outbox_ = &outbox; }
  void wait_if_full() { may_wait_ = true; }
  // Sets the tier from which summaries learn which tokens were read from it. It outlives this.
  void attach(const CacheTier& tier) { tier_ = &tier; }

  // Takes a request in. Returns false if memory is short; then the request gets no answer from
  // here.
  [[nodiscard]] bool add(const RequestInput& input);
  void forget(RequestId id);
  const std::unordered_set<RequestId>& live() const { return live_; }

  // Sends the tokens of the answer that were known when the request arrived.
  void send_known(RequestId id, std::span<const TokenId> answer);

  // Keeps what the answers will need of a step's results.
  void keep(Flight& flight);
  // Sends the step's tokens, and the summaries of the requests that end with them.
  void send_tokens(Flight& flight);
  // Sends the summary of a request that ended without a token, unless it was sent already.
  void send_end(Request& request);
  // Answers a request that was never taken in.
  void refuse(RequestId id, Error why);

 private:
  void keep_prompt_logprobs(Flight& flight);
  void keep_routed(const Flight& flight);
  void send_tokens(const Slice& slice, size_t first, Flight& flight);
  std::unique_ptr<RequestSummary> summarise(Request& request);
  void send(RequestOutput&& output);

  const ModelConfig& model_;
  const int rank_;
  RankReport& report_;
  Outbox* outbox_ = nullptr;
  const CacheTier* tier_ = nullptr;  // null: the prefix cache is in memory alone
  bool may_wait_ = false;
  std::unordered_set<RequestId> live_;  // submitted and not answered
  // These are collected until the first token.
  std::unordered_map<RequestId, std::vector<PositionLogprobs>> prompt_logprobs_;
  std::unordered_map<RequestId, std::vector<uint16_t>> routed_;  // collected until the last token
};

}  // namespace hocket
