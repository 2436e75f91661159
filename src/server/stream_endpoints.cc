#include "server/stream_endpoints.h"

#include <charconv>
#include <utility>

#include "server/access/client_key.h"
#include "server/apis/responses/input_page.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"
#include "server/ranks/keeper_paths.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

// A rank that does not answer in this time is not waited for.
constexpr Duration kTakePatience = std::chrono::seconds(1);
constexpr size_t kMaxRecord = 16 << 20;  // bytes of a record as JSON

Error not_told(std::string_view what) {
  return error(ErrorCode::invalid_request, "{} is not the id of an event", what)
      .with_fix(
          "send the id field of the last event that has come, or starting_after with its "
          "number, from 0")
      .with_param(std::string(what));
}

// Returns the answer's id and the place in it that the request names.
Result<NamedPosition> place_of(const HttpRequest& request, std::string_view id) {
  const std::string_view last = request.header(kPlaceHeader);
  const std::string_view after = query_value(request.query, "starting_after");
  if (id.size() > kMaxAnswerId) id = id.substr(0, kMaxAnswerId);
  NamedPosition named{.answer_id = std::string(id), .position = {}};
  if (!last.empty()) {
    auto read = read_event_id(last, kMaxRecordedChoices);
    if (!read || (!id.empty() && read->answer_id != id)) return fail(not_told(kPlaceHeader));
    return *std::move(read);
  }
  if (after.empty()) return named;
  auto read = read_starting_after(after);
  if (!read) return fail(not_told("starting_after"));
  named.position = *std::move(read);
  return named;
}

}  // namespace

// A client that is coming back, while other ranks are asked for its stream.
struct StreamEndpoints::Coming {
  HttpRequest request;  // without its body
  Exchange exchange;
  NamedPosition named;
  TimePoint arrived;
  Result<StreamRecords::Found> found;
  HeldBytes held;  // counts `found`
};

bool asks_for_stream(const HttpRequest& head) {
  return head.method == "GET" &&
         (head.path.starts_with(kStreamsBelow) ||
          (head.path.starts_with("/v1/responses/") && query_value(head.query, "stream") == "true"));
}

Result<StreamRecords::Found> StreamEndpoints::take(std::string_view id,
                                                   std::string_view who) const {
  HOCKET_TRY(StreamRecords::Found found, options_.stream_records->find(id, who));
  if (found.state != StreamState::live) return found;
  options_.reply->take_over(*found.stream);
  return options_.stream_records->find(id, who);  // with the tokens up to the end of the old stream
}

void StreamEndpoints::resume(const HttpRequest& request, const Exchange& exchange,
                             std::string_view id, TimePoint arrived) const {
  auto named = place_of(request, id);
  if (!named) {
    respond_error(*exchange, named.error());
    return;
  }
  HttpRequest asked{.method = request.method,
                    .path = request.path,
                    .query = {},
                    .headers = request.headers,
                    .body = {},
                    .client = request.client,
                    .principal = request.principal,
                    .meter = request.meter,
                    .memory = request.memory,
                    .held_body = nullptr,
                    .from_rank = request.from_rank};
  auto found = take(named->answer_id, request.who());
  HeldBytes held(request.memory);
  if (found)
    if (auto counted = held.grow(static_cast<int64_t>(found->request.num_bytes())); !counted) {
      respond_error(*exchange, counted.error());
      return;
    }
  const auto coming = std::make_shared<Coming>(std::move(asked), exchange, *std::move(named),
                                               arrived, std::move(found), std::move(held));
  if (options_.rank_router == nullptr || request.from_rank) return choose(*coming, {});
  HttpRequest to_all = coming->request;
  to_all.path = kTakePath;
  to_all.body = to_text({{"id", coming->named.answer_id}});
  options_.rank_router->ask_all(
      to_all,
      [this, coming](std::vector<PeerAnswer>&& there) {
        auto task = [this, coming, there = std::move(there)] { choose(*coming, there); };
        if (auto taken = options_.push(std::move(task), proven_asker(coming->request)); !taken)
          respond_error(*coming->exchange, taken.error());
      },
      {.patience = kTakePatience, .max_bytes = kMaxRecord});
}

// Goes on with the record that has the most tokens.
void StreamEndpoints::choose(Coming& coming, const std::vector<PeerAnswer>& there) const {
  try {
    HeldBytes held(coming.request.memory);
    for (const PeerAnswer& peer : there) {
      if (peer.memory_error && !coming.found) coming.found = std::unexpected(*peer.memory_error);
      if (peer.status != 200) continue;
      const auto json = parse_json_object(peer.body, held);
      auto theirs = json ? read_recorded_request(*json, coming.request.who())
                         : Result<RecordedRequest>(std::unexpected(json.error()));
      if (!theirs || theirs->identity.id != coming.named.answer_id) continue;
      if (!coming.found || theirs->num_tokens() > coming.found->request.num_tokens())
        coming.found = StreamRecords::Found{.request = *std::move(theirs)};
    }
    held.release();
    if (!coming.found) {
      respond_error(*coming.exchange, coming.found.error());
      return;
    }
    const size_t num_choices = coming.found->request.tokens.size();
    if (coming.named.position.next.size() > num_choices) {
      respond_error(*coming.exchange, not_told(kPlaceHeader));
      return;
    }
    if (num_choices > 1 && coming.named.position.next.size() == 1) {
      respond_error(
          *coming.exchange,
          error(ErrorCode::invalid_request,
                "the stream has {} choices, so one number does not tell a place in it", num_choices)
              .with_fix("ask for it with X-Hocket-Event-Ids: true, and send the id of "
                        "the last event as Last-Event-ID")
              .with_param("starting_after"));
      return;
    }
    options_.go_on(coming.request, coming.exchange, std::move(coming.found->request),
                   std::move(coming.named.position), coming.arrived);
  } catch (...) {
    fail_by_exception(*coming.exchange, "a client that came back");
  }
}

void StreamEndpoints::keep(const HttpRequest& request, const Exchange& exchange) const {
  const auto identity = read_identity(request.header(kAnswerHeader));
  const std::string_view text = request.header(kChoicesHeader);
  size_t num_choices = 0;
  std::from_chars(text.data(), text.data() + text.size(), num_choices);
  if (!identity || num_choices == 0 || num_choices > kMaxRecordedChoices) {
    respond_error(*exchange, error(ErrorCode::invalid_request, "this is no record of a stream"));
    return;
  }
  RecordedRequest recorded{.identity = *identity,
                           .who = std::string(request.who()),
                           .path = std::string(request.header(kKeptPathHeader)),
                           .body = request.body,
                           .routing_key = std::string(request.header("X-SMG-Routing-Key")),
                           .client = client_from_rank(request),
                           .event_ids = !request.header(kEventIdsHeader).empty(),
                           .tokens = std::vector<std::vector<TokenId>>(num_choices)};
  if (options_.stream_records->add(std::move(recorded), StreamState::copy) != nullptr)
    exchange->respond(200, kJsonType, "{}");
  else
    respond_error(*exchange, error(ErrorCode::out_of_memory, "there is no room for the stream")
                                 .with_fix("raise --stream-store-mib"));
}

void StreamEndpoints::give(const HttpRequest& request, const Exchange& exchange) const {
  const Json body = parse_bounded_json(request.body);
  const auto id = body.is_object() ? body.find("id") : body.end();
  if (!body.is_object() || id == body.end() || !id->is_string()) {
    respond_error(*exchange, error(ErrorCode::invalid_request, "id is missing"));
    return;
  }
  const auto found = take(id->get<std::string>(), request.who());
  if (!found)
    respond_error(*exchange, found.error());
  else
    exchange->respond(200, kJsonType, to_text(found->request));
}

void StreamEndpoints::add_routes(std::vector<Route>& routes) {
  routes.push_back({"GET", kStreamsBelow, RunOn::text,
                    [this](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                      const std::string_view path = r.path;
                      resume(r, e, path.substr(kStreamsBelow.size()), arrived);
                    }});
  if (options_.rank_router == nullptr) return;
  const auto of_ranks = [&](std::string_view path, RunOn where, auto handle) {
    routes.push_back(
        {"POST", path, where, [handle, path](const HttpRequest& r, const Exchange& e, TimePoint) {
           if (r.from_rank) return handle(r, e);
           respond_error(*e, error(ErrorCode::not_found, "{} is for ranks", path));
         }});
  };
  of_ranks(kKeepPath, RunOn::http, [this](const HttpRequest& r, const Exchange& e) { keep(r, e); });
  of_ranks(kChangesPath, RunOn::http, [this](const HttpRequest& r, const Exchange& e) {
    if (options_.stream_records->take_changes(r.body))
      e->respond(200, kJsonType, "{}");
    else
      respond_error(*e, error(ErrorCode::invalid_request, "these are no changes of streams"));
  });
  of_ranks(kTakePath, RunOn::control,
           [this](const HttpRequest& r, const Exchange& e) { give(r, e); });
}

}  // namespace hocket
