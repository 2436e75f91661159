#include "server/disaggregation_fields.h"

#include <algorithm>

#include "cluster/socket.h"
#include "engine/pages/peer_source.h"

namespace hocket {

Result<void> apply_disaggregation_fields(PreparedRequest& prepared, const PeerSettings& peers,
                                         const PrefillRole* role) {
  GenerationRequest& request = prepared.request;
  if (!request.bootstrap) return {};
  const Disaggregation mode = role != nullptr ? role->mode() : Disaggregation::null;
  if (mode == Disaggregation::prefill) {
    for (Prompt& prompt : request.prompts) {
      prompt.sampling.max_new_tokens = std::min(prompt.sampling.max_new_tokens, 1);
      prompt.sampling.min_new_tokens = std::min(prompt.sampling.min_new_tokens, 1);
    }
    return {};
  }
  if (mode != Disaggregation::decode && mode != Disaggregation::automatic)
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

Result<Disaggregation> parse_disaggregation_change(const Json& json) {
  Fields fields(json);
  std::string mode;
  if (!fields.read("mode", mode) && fields.get("mode") == nullptr)
    fields.fail_field("mode", "mode is missing", "one of null, prefill, decode, auto");
  const Result<Disaggregation> named = parse_disaggregation(mode);
  if (fields.ok() && !named)
    fields.fail_field("mode", "names no mode", "one of null, prefill, decode, auto");
  HOCKET_TRY_VOID(fields.finish());
  return named;
}

Result<Json> change_disaggregation_mode(std::string_view body, PrefillRole* role) {
  std::optional<Disaggregation> wanted;
  if (!body.empty()) {
    HOCKET_TRY(const Json json, parse_json_object(body));
    HOCKET_TRY(wanted, parse_disaggregation_change(json));
  }
  if (role == nullptr)
    return fail(error(ErrorCode::invalid_request, "this service shares no pages with others")
                    .with_fix("start with --kv-cache-listen, or --disaggregation-prefill-url")
                    .with_param("mode"));
  if (wanted) HOCKET_TRY_VOID(role->set(*wanted));
  return Json{{"disaggregation_mode", disaggregation_name(role->mode())},
              {"takes_prompts", role->takes_prompts()},
              {"sends_prompts", role->sends_prompts()}};
}

}  // namespace hocket
