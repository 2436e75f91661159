#include "server/responses_endpoints.h"

#include "server/access/request_sender.h"
#include "server/apis/responses/input_page.h"
#include "server/apis/responses/responses_api.h"
#include "server/http/error_map.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr std::string_view kBelow = "/v1/responses/";

void respond(HttpExchange& exchange, const Result<std::string>& answer) {
  if (answer)
    exchange.respond(200, kJsonType, *answer);
  else
    respond_error(exchange, answer.error());
}

// Returns the response's body; if it is being cancelled, its status is already "cancelled".
Result<std::string> body_of(const ResponseStore::Record& record) {
  if (!record.running || !record.cancelled) return record.body->str();
  HOCKET_TRY(Json body, parse_json(record.body->str()));
  body["status"] = "cancelled";
  return to_text(body);
}

}  // namespace

bool ResponsesEndpoints::is_elsewhere(const std::string& id, const HttpRequest& request,
                                      const Exchange& exchange) const {
  if (options_.rank_router == nullptr || is_from_rank(request)) return false;
  const int rank = rank_of_response(id);
  // An answer that this rank took over from a lost one is here.
  if (options_.store->find(id, principal_name(request)) != nullptr) return false;
  if (rank < 0 || rank == options_.rank_router->rank()) return false;
  return options_.rank_router->forward_to(rank, request, exchange);
}

void ResponsesEndpoints::create(const HttpRequest& request, const Exchange& exchange,
                                TimePoint arrived) const {
  if (options_.rank_router != nullptr && !is_from_rank(request)) {
    HeldBytes held(request.memory);
    auto body = parse_json_object(request.body, held);
    if (!body) return respond(*exchange, std::unexpected(std::move(body).error()));
    const auto previous = body->find("previous_response_id");
    if (previous != body->end() && previous->is_string() &&
        is_elsewhere(previous->get<std::string>(), request, exchange))
      return;
  }
  options_.streams->begin(kResponsesApi, request, exchange, arrived);
}

Result<std::string> ResponsesEndpoints::do_with(const HttpRequest& request, const std::string& id,
                                                std::string_view what) const {
  const RequestContext context = options_.starter->context_of(request);
  if (request.method == "DELETE" && what.empty()) {
    HOCKET_TRY_VOID(find_response(context, id, "response_id"));
    const auto gone = options_.store->erase(id, context.who);
    if (gone != nullptr && gone->running) options_.reply->abort(id);
    return to_text({{"id", id}, {"object", "response.deleted"}, {"deleted", true}});
  }
  HOCKET_TRY(auto record, find_response(context, id, "response_id"));
  if (request.method == "GET" && what == "input_items")
    return input_page(*record, request.query, HeldBytes(request.memory));
  if (request.method == "GET" && what.empty()) return body_of(*record);
  if (request.method == "POST" && what == "cancel") {
    if (!record->background)
      return fail(error(ErrorCode::invalid_request,
                        "only answers made with \"background\": true can be cancelled")
                      .with_fix("to end another one, close its connection"));
    if (record->running) {
      record = options_.store->cancel(id, context.who);
      options_.reply->abort(id);
    }
    if (record != nullptr) return body_of(*record);
  }
  return fail(error(ErrorCode::not_found, "there is no {} {}", request.method,
                    std::string_view(request.path).substr(0, 128))
                  .with_fix("docs/api.md of hocket lists the paths"));
}

Result<std::string> ResponsesEndpoints::count_input(const HttpRequest& request) const {
  HeldBytes held(request.memory);
  HOCKET_TRY(const Json body, parse_json_object(request.body, held, kConversationCopies));
  RequestContext context = options_.starter->context_of(request);
  context.held = &held;
  HOCKET_TRY(const GenerationRequest asked, parse_responses(body, options_.model, context));
  HOCKET_TRY(const auto ids, prompt_ids(asked.prompts.front(), asked, options_.model));
  return to_text({{"object", "response.input_tokens"}, {"input_tokens", ids.size()}});
}

void ResponsesEndpoints::one(const HttpRequest& request, const Exchange& exchange,
                             TimePoint arrived) const {
  const std::string_view below = std::string_view(request.path).substr(kBelow.size());
  const size_t slash = below.find('/');
  const std::string id(below.substr(0, slash));
  const std::string_view what = slash == below.npos ? std::string_view() : below.substr(slash + 1);
  if (what.empty() && asks_for_stream(request))
    return options_.streams->resume(request, exchange, id, arrived);
  if (is_elsewhere(id, request, exchange)) return;
  respond(*exchange, do_with(request, id, what));
}

void ResponsesEndpoints::add_routes(std::vector<Route>& routes) const {
  routes.push_back({"POST", "/v1/responses", HandlerThread::text,
                    [this](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                      create(r, e, arrived);
                    }});
  routes.push_back({"POST", "/v1/responses/input_tokens", HandlerThread::text,
                    [this](const HttpRequest& r, const Exchange& e, TimePoint) {
                      respond(*e, count_input(r));
                    }});
  const auto of_one = [&](std::string_view methods, HandlerThread thread) {
    routes.push_back({methods, kBelow, thread,
                      [this](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                        one(r, e, arrived);
                      }});
  };
  of_one("GET", HandlerThread::text);
  of_one("POST, DELETE", HandlerThread::control);  // POST cancels an answer
}

}  // namespace hocket
