// Makes the rest of a stream whose client came back.
#include <algorithm>
#include <utility>

#include "server/apis/apis.h"
#include "server/apis/responses/responses_request.h"
#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/usage/request_memory.h"
#include "server/usage/request_meter.h"

namespace hocket {

void Endpoints::resume_stream(const HttpRequest& asked, const Exchange& exchange,
                              RecordedRequest recorded, StreamPosition position,
                              TimePoint arrived) {
  const auto recorder = options_.observer->begin(asked, arrived);
  const auto refuse = [&](const Error& why) {
    if (recorder) recorder->failed(why);
    respond_error(*exchange, why);
  };
  const auto api = std::ranges::find(all_apis(), recorded.path, &Api::path);
  HttpRequest first = asked;
  first.method = "POST";
  first.path = recorded.path;
  first.body = recorded.body;
  HeldBytes body(asked.memory);
  if (auto counted = body.grow(2 * std::ssize(first.body)); !counted)
    return refuse(counted.error());
  if (api == all_apis().end())
    return refuse(error(ErrorCode::not_found, "{} streams nothing", recorded.path.substr(0, 128)));
  auto prepared = prepare(**api, first, recorded.identity);
  if (!prepared) return refuse(prepared.error());
  if (auto done = add_client_facts(*prepared, first, arrived); !done) return refuse(done.error());
  if (recorded.client != 0) prepared->request.client = recorded.client;
  if (asked.meter != nullptr)
    for (const auto& prompt : prepared->prompts) asked.meter->take_tokens(std::ssize(prompt));
  prepared->request.routing_key = recorded.routing_key;
  prepared->event_ids |= recorded.event_ids;
  AnswerProgress known;
  for (auto& ids : recorded.tokens) known.choices.push_back({.ids = ids});
  const bool stays = prepared->request.responses && prepared->request.responses->continues;
  recorded.event_ids = prepared->event_ids;
  prepared->stream_record = options_.stream_records->add(std::move(recorded), StreamState::live);
  if (options_.rank_router != nullptr && !stays) options_.rank_router->keeper().keep(*prepared);
  if (recorder) recorder->began(*prepared);
  options_.reply->resume(exchange, *std::move(prepared), recorder, std::move(known),
                         std::move(position));
}

}  // namespace hocket
