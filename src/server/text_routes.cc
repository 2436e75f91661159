#include "server/text_routes.h"

#include "server/apis/apis.h"
#include "server/http/error_map.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

// Returns the named tokens, which programs need that tokenize with /tokenize.
Result<Json> tokenizer_info(const ServedModel& model) {
  if (model.tokenizer == nullptr) return fail(no_tokenizer_error());
  Json info = {{"vocab_size", model.tokenizer->vocab_size()},
               {"model_max_length", model.info->context_length}};
  for (const auto& [name, text] : model.tokenizer->named_tokens()) info[name] = text;
  return info;
}

}  // namespace

void add_text_routes(std::vector<Route>& routes, const ServedModel& model) {
  for (const Api* api : all_apis()) {
    for (const ApiBody& body : api->bodies()) {
      if (body.answer == nullptr) continue;
      routes.push_back({"POST", body.path, HandlerThread::text,
                        [model, answer = body.answer](const HttpRequest& request,
                                                      const auto& exchange, TimePoint) {
                          HeldBytes held(request.memory);
                          const auto json =
                              parse_json_object(request.body, held, kConversationCopies);
                          respond_json(*exchange, json ? answer(*json, model, held) : json);
                        }});
    }
  }
  routes.push_back({"GET", "/tokenizer_info", HandlerThread::text,
                    [=](const HttpRequest&, const auto& exchange, TimePoint) {
                      respond_json(*exchange, tokenizer_info(model));
                    }});
}

}  // namespace hocket
