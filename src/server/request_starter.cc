#include "server/request_starter.h"

#include <algorithm>
#include <utility>

#include "server/access/client_key.h"
#include "server/access/request_meter.h"
#include "server/access/request_sender.h"
#include "server/apis/apis.h"
#include "server/disaggregation_fields.h"
#include "server/http/error_map.h"
#include "server/ranks/keeper_paths.h"
#include "server/session_routes.h"
#include "server/usage/request_memory.h"

namespace hocket {

RequestContext RequestStarter::context_of(const HttpRequest& request) const {
  return {.store = options_.answers,
          .who = principal_name(request),
          .rank = options_.rank_router == nullptr ? -1 : options_.rank_router->rank()};
}

Result<PreparedRequest> RequestStarter::prepare(const Api& api, const HttpRequest& request,
                                                std::optional<AnswerIdentity> given,
                                                TimePoint arrived) const {
  HeldBytes held(request.memory);
  HOCKET_TRY(const Json json, parse_json_object(request.body, held, api.num_copies));
  RequestContext context = context_of(request);
  context.held = &held;
  if (given) context.answer_id = given->id;
  HOCKET_TRY(GenerationRequest asked, api.parse(json, options_.model, context));
  HOCKET_TRY(PreparedRequest prepared,
             prepare_request(std::move(asked), options_.model, request.memory, std::move(given)));
  HOCKET_TRY_VOID(add_client_facts(prepared, request, arrived));
  if (const auto meter = meter_of(request); meter != nullptr)
    for (const auto& prompt : prepared.prompts) meter->take_tokens(std::ssize(prompt));
  return prepared;
}

Result<void> RequestStarter::add_client_facts(PreparedRequest& prepared, const HttpRequest& request,
                                              TimePoint arrived) const {
  HOCKET_TRY_VOID(apply_disaggregation_fields(
      prepared, {.peers = options_.settings->peers,
                 .role = options_.engine->parts().role,
                 .num_prefill_tokens = num_prefill_tokens(options_.engine->info().model),
                 .reached_at = is_from_rank(request) ? "" : request.header("host")}));
  prepared.received = arrived;
  prepared.event_ids = prepared.request.api->format().style() == StreamStyle::named ||
                       request.header(kEventIdsHeader) == "true";
  GenerationRequest& asked = prepared.request;
  asked.client =
      is_from_rank(request) ? client_from_rank(request) : client_key(request, asked.user);
  asked.who = principal_name(request);
  asked.cache_owner = cache_owner_of(request, options_.settings->http);
  asked.meter = meter_of(request);
  asked.memory = request.memory;
  if (const auto key = request.header("x-smg-routing-key"); !key.empty()) asked.routing_key = key;
  return {};
}

void RequestStarter::begin(const Api& api, const HttpRequest& request, const Exchange& exchange,
                           TimePoint arrived) const {
  // If ranks run in other processes, this check finds a lost rank before any work and any call.
  const bool serves = options_.rank_router == nullptr || options_.rank_router->serves();
  auto ready = serves ? options_.health->ready() : options_.health->ready(options_.engine->stats());
  const auto recorder = options_.observer->begin(request, &api, arrived);
  const auto refuse = [&](const Error& why) {
    if (recorder) recorder->failed(why);
    respond_error(*exchange, why);
  };
  if (!ready) return refuse(ready.error());
  std::optional<AnswerIdentity> given;
  if (is_from_rank(request)) given = read_identity(request.header(kAnswerHeader));
  const bool sends_progress = given.has_value();
  auto prepared = prepare(api, request, std::move(given), arrived);
  if (!prepared) return refuse(prepared.error());
  prepared->sends_progress = sends_progress;
  if (recorder) recorder->began(*prepared);
  const bool stays = prepared->request.stays_on_rank;
  if (options_.rank_router != nullptr && !is_from_rank(request) && !stays)
    return options_.rank_router->begin(request, exchange, *std::move(prepared), recorder);
  prepared->stream_record = options_.stream_records->add(request, *prepared);
  if (options_.rank_router != nullptr && !stays)
    return options_.rank_router->keeper().begin(exchange, *std::move(prepared), recorder,
                                                rank_in_via(request.header(kViaHeader)));
  options_.reply->begin(exchange, *std::move(prepared), recorder);
}

void RequestStarter::resume(const HttpRequest& asked, const Exchange& exchange,
                            RecordedRequest recorded, StreamPosition position,
                            TimePoint arrived) const {
  const auto api = std::ranges::find(all_apis(), recorded.path, &Api::path);
  const auto recorder =
      options_.observer->begin(asked, api == all_apis().end() ? nullptr : *api, arrived);
  const auto refuse = [&](const Error& why) {
    if (recorder) recorder->failed(why);
    respond_error(*exchange, why);
  };
  HttpRequest first = asked;
  first.method = "POST";
  first.path = recorded.path;
  first.body = recorded.body;
  HeldBytes body(asked.memory);
  if (auto counted = body.grow(2 * std::ssize(first.body)); !counted)
    return refuse(counted.error());
  if (api == all_apis().end())
    return refuse(error(ErrorCode::not_found, "{} streams nothing", recorded.path.substr(0, 128)));
  auto prepared = prepare(**api, first, recorded.identity, arrived);
  if (!prepared) return refuse(prepared.error());
  if (recorded.client != 0) prepared->request.client = recorded.client;
  prepared->request.routing_key = recorded.routing_key;
  prepared->event_ids |= recorded.event_ids;
  AnswerProgress known;
  for (auto& ids : recorded.tokens) known.choices.push_back({.ids = ids});
  recorded.event_ids = prepared->event_ids;
  prepared->stream_record = options_.stream_records->add(std::move(recorded), StreamState::live);
  if (options_.rank_router != nullptr && !prepared->request.stays_on_rank)
    options_.rank_router->keeper().keep(*prepared);
  if (recorder) recorder->began(*prepared);
  options_.reply->resume(exchange, *std::move(prepared), recorder, std::move(known),
                         std::move(position));
}

}  // namespace hocket
