// The body of POST /scale_ranks, and its answer. Thread: any.
#pragma once

#include <optional>
#include <span>

#include "core/rank_set.h"
#include "server/http/json_body.h"
#include "server/ranks/peer_broadcast.h"

namespace hocket {

// Which ranks are to leave, or how many are to stay: exactly one of the two.
struct ScaleRanks {
  RankSet leave;
  std::optional<int> keep;
  // "decided": the coordinator has decided and sends this to the others, which obey
  bool is_decided = false;

  const char* field() const { return keep ? "keep" : "leave"; }  // the one that is set
};
// Errors: invalid_request, naming the field.
Result<ScaleRanks> parse_scale_ranks(const Json& body);

// Returns the ranks as a list, ascending.
Json to_json(const RankSet& ranks);

// Returns the answer when the ranks `told` were told to leave and the others have given `answers`:
// {"leaving": [2]}, and if a rank could not be told {"leaving": [2], "staying": [3],
// "why": "rank 3 (h3): ..."}. A rank in `drains` was told, though its answer is late. A rank that
// was sent the request and has not answered may leave, or stay: it is in "unanswered". Errors:
// lost_rank, if all stay.
Result<Json> leaving_answer(const RankSet& told, std::span<const PeerAnswer> answers,
                            const RankSet& drains);

}  // namespace hocket
