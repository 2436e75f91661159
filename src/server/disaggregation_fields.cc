#include "server/disaggregation_fields.h"

#include <algorithm>

#include "cluster/socket.h"
#include "engine/pages/peer_source.h"

namespace hocket {

namespace {

// The answer has one token, and is computed a little longer.
void limit_to_prompt(GenerationRequest& request, int num_prefill_tokens) {
  for (Prompt& prompt : request.prompts) {
    SamplingParams& sampling = prompt.sampling;
    sampling.max_new_tokens = std::min(sampling.max_new_tokens, num_prefill_tokens);
    sampling.min_new_tokens = std::min(sampling.min_new_tokens, 1);
    prompt.max_tokens = std::min(prompt.max_tokens.value_or(1), 1);
  }
}

// Returns true if that is where this service offers its pages. An address of all its interfaces has
// the name by which the client reached it.
bool is_own(const HostPort& asked, const DisaggregationFacts& facts) {
  const auto own = parse_host_port(facts.peers.kv_cache_listen);
  if (!own || own->port != asked.port) return false;
  const auto reached = parse_host_port(facts.reached_at);
  return facts.reached_at.empty() || own->host == asked.host ||
         (reached ? reached->host : facts.reached_at) == asked.host;
}

Result<void> check_shares_pages(const PrefillRole* role) {
  if (role != nullptr) return {};
  return fail(error(ErrorCode::invalid_request, "this service shares no pages with others")
                  .with_fix("start with --kv-cache-listen, or --disaggregation-prefill-url")
                  .with_param("mode"));
}

Json role_view(const PrefillRole& role) {
  return {{"disaggregation_mode", disaggregation_name(role.mode())},
          {"takes_prompts", role.takes_prompts()},
          {"sends_prompts", role.sends_prompts()}};
}

}  // namespace

Result<void> apply_disaggregation_fields(PreparedRequest& prepared,
                                         const DisaggregationFacts& facts) {
  GenerationRequest& request = prepared.request;
  if (!request.bootstrap) return {};
  const Disaggregation mode = facts.role != nullptr ? facts.role->mode() : Disaggregation::null;
  const HostPort asked{.host = request.bootstrap->host,
                       .port = static_cast<uint16_t>(request.bootstrap->port)};
  // A router goes on with its fields when the mode changes, and this service can compute both.
  if (mode == Disaggregation::null && facts.role != nullptr && facts.role->has_roles()) return {};
  if (mode == Disaggregation::null)
    return fail(error(ErrorCode::invalid_request,
                      "bootstrap_host is for services that compute prompts and answers apart, and "
                      "this one computes both")
                    .with_fix("--disaggregation-mode prefill, or decode")
                    .with_param("bootstrap_host"));
  if (mode == Disaggregation::prefill)
    return limit_to_prompt(request, facts.num_prefill_tokens), Result<void>();
  if (asked.host.empty()) return {};
  HOCKET_TRY(const std::vector<HostPort> known,
             parse_peers(facts.peers.disaggregation_prefill_url, "disaggregation-prefill-url"));
  const auto found = std::ranges::find(known, asked);
  // The list may name this service, too. A request that was forwarded shows no more than its port,
  // which other services may have as well, so there the list counts first.
  const bool may_be_own = found == known.end() || !facts.reached_at.empty();
  if (mode == Disaggregation::automatic && may_be_own && is_own(asked, facts))
    return limit_to_prompt(request, facts.num_prefill_tokens), Result<void>();
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
  HOCKET_TRY_VOID(check_shares_pages(role));
  if (wanted) HOCKET_TRY_VOID(role->set(*wanted));
  return role_view(*role);
}

Result<Json> take_disaggregation_mode(std::string_view body, PrefillRole* role) {
  HOCKET_TRY(Json json, parse_json_object(body));
  const auto number = json.find("change");
  if (number == json.end() || !number->is_number_unsigned())
    return fail(error(ErrorCode::invalid_request, "change is missing").with_param("change"));
  RoleChange change{.number = number->get<uint64_t>()};
  json.erase("change");
  HOCKET_TRY(change.mode, parse_disaggregation_change(json));
  HOCKET_TRY_VOID(check_shares_pages(role));
  HOCKET_TRY_VOID(role->take(change));
  return role_view(*role);
}

}  // namespace hocket
