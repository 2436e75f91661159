#include "server/disaggregation_fields.h"

#include <algorithm>

#include "cluster/socket.h"
#include "engine/pages/peer_source.h"

namespace hocket {

Result<void> apply_disaggregation_fields(PreparedRequest& prepared, const PeerSettings& peers) {
  GenerationRequest& request = prepared.request;
  if (!request.bootstrap) return {};
  if (peers.disaggregation_mode == "prefill") {
    for (Prompt& prompt : request.prompts) {
      prompt.sampling.max_new_tokens = std::min(prompt.sampling.max_new_tokens, 1);
      prompt.sampling.min_new_tokens = std::min(prompt.sampling.min_new_tokens, 1);
    }
    return {};
  }
  if (peers.disaggregation_mode != "decode")
    return fail(error(ErrorCode::invalid_request,
                      "bootstrap_host is for services that compute prompts and answers apart, and "
                      "this one computes both")
                    .with_fix("--disaggregation-mode prefill, or decode")
                    .with_param("bootstrap_host"));
  if (request.bootstrap->host.empty()) return {};
  HOCKET_TRY(const std::vector<HostPort> known,
             parse_peers(peers.disaggregation_prefill_url, "disaggregation-prefill-url"));
  const HostPort asked{.host = request.bootstrap->host,
                       .port = static_cast<uint16_t>(request.bootstrap->port)};
  const auto found = std::ranges::find(known, asked);
  if (found == known.end())
    return fail(error(ErrorCode::invalid_request,
                      "{} is not one of the services that compute prompts for this one",
                      to_text(asked).substr(0, 128))
                    .with_fix("name it in --disaggregation-prefill-url, with the port of its "
                              "--kv-cache-listen")
                    .with_param("bootstrap_host"));
  request.prefill_peer = static_cast<int>(found - known.begin());
  return {};
}

}  // namespace hocket
