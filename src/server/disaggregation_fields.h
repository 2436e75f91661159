// The meaning of the fields bootstrap_host, bootstrap_port and bootstrap_room. An outside router
// sends each request to two services: the one of prompts, which answers with one token, and the
// one of answers, which gets the prompt's pages from the first.   Thread: any.
#pragma once

#include <string_view>

#include "core/server_settings.h"
#include "engine/pages/prefill_role.h"
#include "server/generation/prepared_request.h"
#include "server/http/json_body.h"

namespace hocket {

// Says how this service computes prompts apart from answers.
struct DisaggregationFacts {
  const PeerSettings& peers;
  const PrefillRole* role = nullptr;  // null: it shares no pages
  int num_prefill_tokens = 1;         // the function's of that name
  // The address at which the client has reached this service; empty: another rank has forwarded the
  // request, and has made the checks.
  std::string_view reached_at;
};

// Sets prefill_peer, or the limit of one token. In mode `auto` this service computes the prompt if
// the fields name itself. Errors: invalid_request if this service is neither of the two, or
// --disaggregation-prefill-url does not name the other: so a client cannot make the server connect
// to an arbitrary host.
Result<void> apply_disaggregation_fields(PreparedRequest& prepared,
                                         const DisaggregationFacts& facts);

// Errors: invalid_request, bad_value.
Result<Disaggregation> parse_disaggregation_change(const Json& json);
// Reads {"mode": "decode"}, changes the role, and returns the mode. Without a body: only returns
// it. Errors: invalid_request, bad_value, those of parse_json_object().
Result<Json> change_disaggregation_mode(std::string_view body, PrefillRole* role);
// The same with the body that another rank sends, that of role_change_body(): a change that is not
// after this rank's last one changes nothing.
Result<Json> take_disaggregation_mode(std::string_view body, PrefillRole* role);

}  // namespace hocket
