#include "server/accepted_fields.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "server/apis/apis.h"
#include "server/disaggregation_fields.h"
#include "server/http/field_recorder.h"
#include "server/observe/observer.h"
#include "server/ranks/scale_ranks.h"
#include "server/reports/expert_distribution.h"
#include "server/reports/profile.h"

namespace hocket {
namespace {

struct BodyParser {
  std::string_view path;
  std::vector<const char*> examples;
  // Reads a body. Errors do not matter here: a parser continues after a wrong field.
  std::function<void(const Json&)> parse;
};

// Returns a model with sizes only, since parsers read nothing else of it.
const ServedModel& some_model() {
  static const EngineInfo info = [] {
    EngineInfo i;
    i.model.vocab_size = 2048;
    i.context_length = 4096;
    i.max_total_tokens = 8192;
    return i;
  }();
  static const ServedModel model{&info, nullptr, nullptr, nullptr};
  return model;
}

// The bodies that belong to no API.
std::vector<BodyParser> admin_parsers() {
  const auto logging = [](const Json& body) {
    if (auto observer = Observer::create({})) std::ignore = (*observer)->configure(body);
  };
  return {{"/configure_logging", {R"({"log_requests": false})"}, logging},
          {"/disaggregation_mode",
           {R"({"mode": "null"})"},
           [](const Json& body) { std::ignore = parse_disaggregation_change(body); }},
          {"/scale_ranks",
           {R"({"leave": [3]})", R"({"keep": 2})"},
           [](const Json& body) { std::ignore = parse_scale_ranks(body); }},
          {"/start_profile",
           {R"({"num_steps": 1})"},
           [](const Json& body) { std::ignore = parse_start_profile(body); }},
          {"/start_expert_distribution_record", {R"({"mode": "stat"})"}, [](const Json& body) {
             std::ignore = parse_expert_start(body);
           }}};
}

std::vector<BodyParser> body_parsers() {
  std::vector<BodyParser> parsers;
  for (const Api* api : all_apis())
    for (const ApiBody& body : api->bodies())
      parsers.push_back({body.path,
                         {body.examples.begin(), body.examples.end()},
                         [parse = body.parse](const Json& json) { parse(json, some_model()); }});
  std::ranges::move(admin_parsers(), std::back_inserter(parsers));
  return parsers;
}

// Returns `body` with `value` at a path like "a.b"; missing objects are created. A list on the path
// gets one object.
Json with(Json body, std::string_view path, const Json& value) {
  Json* at = &body;
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    std::string_view name = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    const bool in_list = name.ends_with("[]");
    if (in_list) name.remove_suffix(2);
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[std::string(name)];
    if (!in_list) continue;
    if (!at->is_array() || at->empty()) *at = Json::array({Json::object()});
    at = &at->front();
  }
  *at = value;
  return body;
}

// Returns values that make a parser read more fields inside them, as `type` does in some objects.
std::vector<Json> openings(const Json& what) {
  const Json& kind = what["kind"];
  std::vector<Json> objects = {Json::object()};
  for (const char* type : {"json_schema", "structural_tag", "function", "enabled"})
    objects.push_back({{"type", type}});
  if (kind == "object") return objects;
  if (kind == "list") return {Json::array({Json::object()})};
  if (kind != "any") return {};
  objects.push_back(Json::array({Json::object()}));
  return objects;
}

Json fields_of(const BodyParser& one) {
  FieldRecorder::Known known;
  std::vector<std::string> unopened;
  const auto record = [&](const Json& body) {
    FieldRecorder recorder(body);
    one.parse(body);
    for (auto& [path, what] : recorder.known()) {
      const auto [field, is_new] = known.try_emplace(path, what);
      if (is_new) unopened.push_back(path);
      const Json& before = field->second["kind"];
      if (before == "any" || before == "ignored") field->second = what;
    }
  };
  for (const char* example : one.examples) record(Json::parse(example));
  while (!unopened.empty()) {
    const std::string path = std::move(unopened.back());
    unopened.pop_back();
    for (const char* example : one.examples)
      for (const Json& value : openings(known.at(path)))
        record(with(Json::parse(example), path, value));
  }
  return known;
}

}  // namespace

Json accepted_fields() {
  Json table = Json::array();
  for (const BodyParser& one : body_parsers()) {
    Json examples = Json::array();
    for (const char* example : one.examples) examples.push_back(Json::parse(example));
    table.push_back({{"path", one.path}, {"examples", examples}, {"fields", fields_of(one)}});
  }
  return table;
}

}  // namespace hocket
