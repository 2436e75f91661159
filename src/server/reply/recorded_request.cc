#include "server/reply/recorded_request.h"

#include <utility>

namespace hocket {
namespace {

Error malformed() {
  return error(ErrorCode::invalid_request, "a record of a stream is not as it should be");
}

}  // namespace

size_t RecordedRequest::num_tokens() const {
  size_t sum = 0;
  for (const auto& ids : tokens) sum += ids.size();
  return sum;
}

size_t RecordedRequest::num_bytes() const {
  return body.size() + path.size() + routing_key.size() + identity.id.size() +
         num_tokens() * sizeof(TokenId);
}

// A control character takes six bytes, a token of four bytes eleven with its comma; names, numbers
// and brackets take less than the rest.
size_t max_text_bytes(size_t record_bytes) {
  constexpr size_t kMaxPerByte = 6, kMaxOther = 4096;
  return kMaxPerByte * record_bytes + kMaxOther;
}

std::string to_text(const RecordedRequest& request) {
  Json tokens = Json::array();
  for (const auto& ids : request.tokens) {
    Json& of_choice = tokens.emplace_back(Json::array());
    for (const TokenId id : ids) of_choice.push_back(value(id));
  }
  return to_text(Json{{"answer", to_header(request.identity)},
                      {"path", request.path},
                      {"body", request.body},
                      {"routing_key", request.routing_key},
                      {"client", request.client},
                      {"event_ids", request.event_ids},
                      {"takeovers", request.num_takeovers},
                      {"tokens", std::move(tokens)}});
}

Result<RecordedRequest> read_recorded_request(const Json& json, std::string_view who) {
  RecordedRequest request;
  request.who = who;
  for (const auto& [name, to] : {std::pair{"path", &request.path},
                                 {"body", &request.body},
                                 {"routing_key", &request.routing_key}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(malformed());
    *to = found->get<std::string>();
  }
  const auto answer = json.find("answer"), client = json.find("client"),
             event_ids = json.find("event_ids"), tokens = json.find("tokens"),
             takeovers = json.find("takeovers");
  for (const auto& found : {answer, client, event_ids, tokens, takeovers})
    if (found == json.end()) return fail(malformed());
  const auto identity =
      answer->is_string() ? read_identity(answer->get<std::string>()) : std::nullopt;
  if (!identity || !client->is_number_unsigned() || !event_ids->is_boolean() ||
      !tokens->is_array() || tokens->size() > kMaxRecordedChoices ||
      !takeovers->is_number_unsigned() || takeovers->get<uint64_t>() > UINT32_MAX)
    return fail(malformed());
  request.identity = *identity;
  request.client = client->get<uint64_t>();
  request.event_ids = event_ids->get<bool>();
  request.num_takeovers = takeovers->get<uint32_t>();
  for (const Json& of_choice : *tokens) {
    auto& ids = request.tokens.emplace_back();
    for (const Json& id : of_choice) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) return fail(malformed());
      ids.push_back(TokenId{id.get<int>()});
    }
  }
  return request;
}

std::optional<RecordedRequest> recorded_request(const HttpRequest& request,
                                                const PreparedRequest& prepared) {
  size_t num_choices = 0;
  for (const Prompt& prompt : prepared.request.prompts)
    num_choices += static_cast<size_t>(prompt.n);
  if (!prepared.request.stream || num_choices > kMaxRecordedChoices) return std::nullopt;
  return RecordedRequest{.identity = identity_of(prepared),
                         .who = prepared.request.who,
                         .path = request.path,
                         .body = request.body,
                         .routing_key = prepared.request.routing_key,
                         .client = prepared.request.client,
                         .event_ids = prepared.event_ids,
                         .tokens = std::vector<std::vector<TokenId>>(num_choices)};
}

}  // namespace hocket
