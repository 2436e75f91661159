#include "server/stream_endpoints.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/queue_limits.h"
#include "server/access/client_key.h"
#include "server/access/request_sender.h"
#include "server/apis/apis.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"
#include "server/http/retry_after.h"
#include "server/ranks/keeper_paths.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

// A rank that does not answer in this time is not waited for.
constexpr Duration kTakePatience = std::chrono::seconds(1);

constexpr QueueLimit<size_t> kReturningLimit{
    "other ranks are asked for the streams of {} clients already", kRetryAfterFix};

Error not_a_position(std::string_view what) {
  return error(ErrorCode::invalid_request, "{} is not the id of an event", what)
      .with_fix(
          "send the id field of the last event that has come, or starting_after with its "
          "number, from 0")
      .with_param(std::string(what));
}

// Returns the error for a stream that this rank does not have, and perhaps one that did not answer.
Error not_asked(std::string_view id, const PeerAnswer& peer) {
  return error(ErrorCode::lost_rank,
               "the stream '{}' was not found, but not all ranks answered: {}", id.substr(0, 128),
               error_text(peer))
      .with_fix(fmt::format("{}, or ask another rank", kRetryAfterFix));
}

// Returns nullopt for a text that is no number, or too large a one.
std::optional<uint32_t> read_count(std::string_view text) {
  uint32_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return count;
}

// Returns the answer's id and the position in it that the request names.
Result<NamedPosition> position_of(const HttpRequest& request, std::string_view id) {
  const std::string_view last = request.header(kLastEventHeader);
  const std::string_view after = query_value(request.query, "starting_after");
  if (id.size() > kMaxAnswerId) id = id.substr(0, kMaxAnswerId);
  NamedPosition named{.answer_id = std::string(id), .position = {}};
  if (!last.empty()) {
    auto read = read_event_id(last, kMaxRecordedChoices);
    if (!read || (!id.empty() && read->answer_id != id))
      return fail(not_a_position(kLastEventHeader));
    return *std::move(read);
  }
  if (after.empty()) return named;
  auto read = read_starting_after(after);
  if (!read) return fail(not_a_position("starting_after"));
  named.position = *std::move(read);
  return named;
}

// Checks the count of numbers that a client has of a stream, one for each choice; 0: none.
Result<void> check_position(size_t num_numbers, size_t num_choices) {
  if (num_numbers > num_choices) return fail(not_a_position(kLastEventHeader));
  if (num_choices > 1 && num_numbers == 1)
    return fail(
        error(ErrorCode::invalid_request,
              "the stream has {} choices, so one number does not say where to continue in each",
              num_choices)
            .with_fix("ask for it with X-Hocket-Event-Ids: true, and send the id of "
                      "the last event as Last-Event-ID")
            .with_param("starting_after"));
  return {};
}

}  // namespace

// A client that connects again, while other ranks are asked for its stream.
struct StreamEndpoints::ReturningClient {
  HttpRequest request;  // without its body
  Exchange exchange;
  NamedPosition named;
  TimePoint arrived;
  Result<StreamSnapshot> found;
  HeldBytes held;                 // counts `found`
  std::shared_ptr<void> place{};  // counted in num_returning_
};

bool asks_for_stream(const HttpRequest& head) {
  if (head.method != "GET") return false;
  const std::string_view path = head.path;
  const auto keeps = [path](const Api* api) {
    return api->keeps_answers && path.starts_with(api->path) &&
           path.substr(api->path.size()).starts_with('/');
  };
  return path.starts_with(kStreamsBelow) ||
         (std::ranges::any_of(all_apis(), keeps) && query_value(head.query, "stream") == "true");
}

Result<StreamSnapshot> StreamEndpoints::take(StreamSnapshot found) const {
  if (found.state != StreamState::live) return found;
  options_.reply->take_over(*found.stream);
  // With the tokens up to the end of the old stream.
  return options_.stream_records->find(found.request.identity.id, found.request.who);
}

void StreamEndpoints::resume(const HttpRequest& request, const Exchange& exchange,
                             std::string_view id, TimePoint arrived) const {
  auto named = position_of(request, id);
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
                    .sender = request.sender,
                    .memory = request.memory,
                    .held_body = nullptr};
  const bool asks_others = options_.rank_router != nullptr && !is_from_rank(request);
  // Calls to other ranks are made however busy these are, so they have a limit of their own.
  std::shared_ptr<void> place;
  if (asks_others) {
    const size_t num_before = num_returning_.fetch_add(1);
    place = std::shared_ptr<void>(nullptr, [this](void*) { --num_returning_; });
    if (num_before >= options_.rank_router->max_returning()) {
      respond_error(*exchange, queue_full(kReturningLimit, num_before));
      return;
    }
  }
  // A request that is refused does not end the stream, so it is checked before take().
  auto found = options_.stream_records->find(named->answer_id, principal_name(request));
  HeldBytes held(request.memory);
  if (found) {
    auto fits = check_position(named->position.next.size(), found->request.tokens.size());
    if (fits) fits = held.grow(static_cast<int64_t>(found->request.num_bytes()));
    if (!fits) {
      respond_error(*exchange, fits.error());
      return;
    }
    found = take(*std::move(found));
  }
  const auto client = std::make_shared<ReturningClient>(
      std::move(asked), exchange, *std::move(named), arrived, std::move(found), std::move(held));
  if (!asks_others) return choose(*client, {});
  client->place = std::move(place);
  HttpRequest to_all = client->request;
  to_all.path = kTakePath;
  to_all.body =
      to_text({{"id", client->named.answer_id}, {"numbers", client->named.position.next.size()}});
  options_.rank_router->broadcast().post_to_all(
      to_all,
      [this, client](std::vector<PeerAnswer>&& there) {
        auto task = [this, client, there = std::move(there)] { choose(*client, there); };
        if (auto taken = options_.push(std::move(task), proven_client_hash(client->request));
            !taken)
          respond_error(*client->exchange, taken.error());
      },
      {.patience = kTakePatience,
       .max_bytes = max_text_bytes(options_.stream_records->max_bytes()),
       .includes_lost = true,
       .is_counted = false});
}

// Continues the record that has the most tokens.
void StreamEndpoints::choose(ReturningClient& client, const std::vector<PeerAnswer>& there) const {
  try {
    HeldBytes held(client.request.memory);
    uint32_t num_takeovers = client.found ? client.found->request.num_takeovers : 0;
    for (const PeerAnswer& peer : there) {
      if (peer.memory_error && !client.found) client.found = std::unexpected(*peer.memory_error);
      const bool told = peer.status == 200 || peer.status == 404;
      const bool is_open = peer.status == 0 ? peer.may_know : !told;
      if (is_open && !client.found && client.found.error().code == ErrorCode::not_found)
        client.found = fail(not_asked(client.named.answer_id, peer));
      if (peer.status != 200) continue;
      const auto json = parse_json_object(peer.body, held);
      auto theirs = json ? read_recorded_request(*json, principal_name(client.request))
                         : Result<RecordedRequest>(std::unexpected(json.error()));
      if (!theirs || theirs->identity.id != client.named.answer_id) continue;
      num_takeovers = std::max(num_takeovers, theirs->num_takeovers);
      if (!client.found || theirs->num_tokens() > client.found->request.num_tokens())
        client.found = StreamSnapshot{.request = *std::move(theirs)};
    }
    held.release();
    if (!client.found) {
      respond_error(*client.exchange, client.found.error());
      return;
    }
    if (auto fits =
            check_position(client.named.position.next.size(), client.found->request.tokens.size());
        !fits) {
      respond_error(*client.exchange, fits.error());
      return;
    }
    client.found->request.num_takeovers = num_takeovers;
    options_.starter->resume(client.request, client.exchange, std::move(client.found->request),
                             std::move(client.named.position), client.arrived);
  } catch (...) {
    fail_by_exception(*client.exchange, "a client that came back");
  }
}

void StreamEndpoints::keep(const HttpRequest& request, const Exchange& exchange) const {
  const auto identity = read_identity(request.header(kAnswerHeader));
  const auto num_choices = read_count(request.header(kChoicesHeader));
  const auto num_takeovers = read_count(request.header(kTakeoversHeader));
  if (!identity || !num_takeovers || !num_choices || *num_choices == 0 ||
      *num_choices > kMaxRecordedChoices) {
    respond_error(*exchange,
                  error(ErrorCode::invalid_request, "the body is not a valid stream record"));
    return;
  }
  RecordedRequest recorded{.identity = *identity,
                           .who = std::string(principal_name(request)),
                           .path = std::string(request.header(kKeptPathHeader)),
                           .body = request.body,
                           .routing_key = std::string(request.header("X-SMG-Routing-Key")),
                           .client = client_from_rank(request),
                           .event_ids = !request.header(kEventIdsHeader).empty(),
                           .num_takeovers = *num_takeovers,
                           .tokens = std::vector<std::vector<TokenId>>(*num_choices)};
  const auto kept =
      options_.stream_records->add_copy(std::move(recorded), request.header(kViaHeader));
  if (kept)
    exchange->respond(200, kJsonType, "{}");
  else
    respond_error(*exchange, kept.error());
}

void StreamEndpoints::give(const HttpRequest& request, const Exchange& exchange) const {
  const Json body = parse_bounded_json(request.body);
  const auto id = body.is_object() ? body.find("id") : body.end();
  if (!body.is_object() || id == body.end() || !id->is_string()) {
    respond_error(*exchange, error(ErrorCode::invalid_request, "id is missing"));
    return;
  }
  const auto numbers = body.find("numbers");
  const size_t num_numbers =
      numbers != body.end() && numbers->is_number_unsigned() ? numbers->get<size_t>() : 0;
  auto found = options_.stream_records->find(id->get<std::string>(), principal_name(request));
  // With a wrong position the stream is not ended here; the asking rank refuses the client.
  if (found && check_position(num_numbers, found->request.tokens.size()))
    found = take(*std::move(found));
  if (!found)
    respond_error(*exchange, found.error());
  else
    exchange->respond(200, kJsonType, to_text(found->request));
}

void StreamEndpoints::begin(const Api& api, const HttpRequest& request, const Exchange& exchange,
                            TimePoint arrived) const {
  if (!is_from_rank(request) && !request.header(kLastEventHeader).empty())
    return resume(request, exchange, "", arrived);
  options_.starter->begin(api, request, exchange, arrived);
}

void StreamEndpoints::add_routes(std::vector<Route>& routes) const {
  for (const Api* api : all_apis())
    if (!api->keeps_answers)
      routes.push_back({"POST", api->path, HandlerThread::text,
                        [this, api](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                          begin(*api, r, e, arrived);
                        }});
  routes.push_back({"GET", kStreamsBelow, HandlerThread::text,
                    [this](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                      const std::string_view path = r.path;
                      resume(r, e, path.substr(kStreamsBelow.size()), arrived);
                    }});
  if (options_.rank_router == nullptr) return;
  const auto of_ranks = [&](std::string_view path, HandlerThread thread, auto handle) {
    routes.push_back(
        {"POST", path, thread, [handle, path](const HttpRequest& r, const Exchange& e, TimePoint) {
           if (is_from_rank(r)) return handle(r, e);
           respond_error(*e, error(ErrorCode::not_found, "{} is only for other ranks", path));
         }});
  };
  of_ranks(kKeepPath, HandlerThread::http,
           [this](const HttpRequest& r, const Exchange& e) { keep(r, e); });
  of_ranks(kChangesPath, HandlerThread::http, [this](const HttpRequest& r, const Exchange& e) {
    if (const auto unknown =
            options_.stream_records->changes().take_changes(r.body, r.header(kViaHeader)))
      e->respond(200, kJsonType, to_text({{"unknown", *unknown}}));
    else
      respond_error(*e, error(ErrorCode::invalid_request, "these are no changes of streams"));
  });
  of_ranks(kTakePath, HandlerThread::control,
           [this](const HttpRequest& r, const Exchange& e) { give(r, e); });
}

}  // namespace hocket
