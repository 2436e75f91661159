#include "text/grammar/structural_tag.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/json_text.h"
#include "core/ordered_tree.h"
#include "text/grammar/lark_writer.h"
#include "text/grammar/spellings.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr int kMaxFormatDepth = 16;
constexpr size_t kMaxTags = 1024;
// The rule of each trigger contains all other triggers, so their number is limited.
constexpr size_t kMaxTriggers = 64;
constexpr size_t kMaxTriggerBytes = 256;

Result<void> check_size(std::string_view text) {
  if (text.size() <= kMaxGrammarBytes) return {};
  return fail(ErrorCode::invalid_request, "it has {} bytes, at most {} are taken", text.size(),
              kMaxGrammarBytes);
}

Result<std::string> read_string(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string())
    return fail(ErrorCode::invalid_request, "{} must be a string", name);
  return found->get<std::string>();
}

Result<const Json*> read_list(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->empty() || found->size() > kMaxTags)
    return fail(ErrorCode::invalid_request, "{} must be a list of 1 to {} entries", name, kMaxTags);
  return &*found;
}

bool read_flag(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool is_free_text(const Json& content) {
  return content.is_object() && content.contains("type") && content["type"] == "any_text";
}

// Joins pieces to one: `a b` or `a | b`.
std::string joined(std::span<const std::string> pieces, const char* between) {
  std::string out = "(";
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) out += between;
    out += pieces[i];
  }
  return out + ")";
}

class TagReader {
 public:
  Result<std::string> read(const Json& root) {
    if (!root.is_object()) return fail(ErrorCode::invalid_request, "it must be an object");
    HOCKET_TRY(const std::string start, root.contains("format") ? read_format(root["format"], 0)
                                                                : read_triggered(older(root)));
    return lark_.finish(start);
  }

 private:
  // Converts the older format to the newer one.
  static Json older(const Json& root) {
    Json triggered = {{"triggers", root.value("triggers", Json())}, {"tags", Json::array()}};
    if (const auto list = root.find("structures"); list != root.end() && list->is_array())
      for (const Json& one : *list)
        triggered["tags"].push_back(
            {{"begin", one.is_object() ? one.value("begin", Json()) : Json()},
             {"content",
              {{"type", "json_schema"},
               {"json_schema", one.is_object() ? one.value("schema", Json(true)) : Json()}}},
             {"end", one.is_object() ? one.value("end", Json()) : Json()}});
    return triggered;
  }

  // Called before each part, because a few triggers make long rules.
  Result<void> check_written() const {
    if (lark_.num_bytes() <= kMaxGrammarBytes) return {};
    return fail(ErrorCode::invalid_request,
                "as a grammar it comes to more than {} bytes; give fewer or shorter triggers",
                kMaxGrammarBytes);
  }

  Result<std::string> read_format(const Json& format, int depth) {
    HOCKET_TRY_VOID(check_written());
    if (!format.is_object() || depth > kMaxFormatDepth)
      return fail(ErrorCode::invalid_request,
                  "a format must be an object, at most {} of them in one another", kMaxFormatDepth);
    HOCKET_TRY(const std::string type, read_string(format, "type"));
    if (type == "const_string") {
      HOCKET_TRY(const std::string text, read_string(format, "value"));
      return lark_.text(text);
    }
    if (type == "json_schema")
      return lark_.schema(schema_text(format.value("json_schema", Json(true))));
    if (type == "regex") {
      HOCKET_TRY(const std::string pattern, read_string(format, "pattern"));
      return lark_.regex(pattern);
    }
    if (type == "any_text") return lark_.text_without({});
    if (type == "sequence") return read_sequence(format, depth);
    if (type == "or") {
      HOCKET_TRY(const Words pieces, read_elements(format, depth));
      return joined(pieces, " | ");
    }
    if (type == "tag") return read_tag(format, "", depth);
    if (type == "triggered_tags") return read_triggered(format);
    if (type == "tags_with_separator") return read_separated(format, depth);
    return fail(ErrorCode::invalid_request,
                "a format of type {} is not supported; const_string, json_schema, regex, any_text, "
                "sequence, or, tag, triggered_tags and tags_with_separator are",
                type.substr(0, 64));
  }

  Result<Words> read_elements(const Json& format, int depth) {
    HOCKET_TRY(const Json* const list, read_list(format, "elements"));
    Words pieces;
    for (const Json& element : *list) {
      HOCKET_TRY(pieces.emplace_back(), read_format(element, depth + 1));
    }
    return pieces;
  }

  // Free text may only come last, since it would swallow the text behind it.
  Result<std::string> read_sequence(const Json& format, int depth) {
    HOCKET_TRY(const Words pieces, read_elements(format, depth));
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const std::string type = format["elements"][i].value("type", "");
      if (type == "any_text" || type == "triggered_tags")
        return fail(ErrorCode::invalid_request,
                    "{} may only end a sequence, or be the content of a tag", type);
    }
    return joined(pieces, " ");
  }

  // `begun`: the first part of its begin, which is written already.
  Result<std::string> read_tag(const Json& tag, std::string_view begun, int depth) {
    if (!tag.is_object()) return fail(ErrorCode::invalid_request, "a tag must be an object");
    HOCKET_TRY(const std::string begin, read_string(tag, "begin"));
    HOCKET_TRY(const std::string end, read_string(tag, "end"));
    const auto content = tag.find("content");
    if (content == tag.end()) return fail(ErrorCode::invalid_request, "a tag needs content");
    const std::string opening = lark_.text(std::string_view(begin).substr(begun.size()));
    if (is_free_text(*content)) {
      if (end.empty()) return fail(ErrorCode::invalid_request, "free text in a tag needs an end");
      return fmt::format("({} {})", opening, lark_.text_up_to(end));
    }
    HOCKET_TRY(const std::string inside, read_format(*content, depth + 1));
    return fmt::format("({} {} {})", opening, inside, lark_.text(end));
  }

  static Result<Words> read_triggers(const Json& format) {
    HOCKET_TRY(const Json* const list, read_list(format, "triggers"));
    if (list->size() > kMaxTriggers)
      return fail(ErrorCode::invalid_request, "triggers are {}, at most {} may be", list->size(),
                  kMaxTriggers);
    Words triggers;
    for (const Json& one : *list) {
      triggers.push_back(one.is_string() ? one.get<std::string>() : std::string());
      if (triggers.back().empty() || triggers.back().size() > kMaxTriggerBytes)
        return fail(ErrorCode::invalid_request, "triggers must be strings of 1 to {} bytes",
                    kMaxTriggerBytes);
    }
    return triggers;
  }

  // Writes free text in which each trigger is continued by one of its tags.
  Result<std::string> read_triggered(const Json& format) {
    HOCKET_TRY(const Words triggers, read_triggers(format));
    HOCKET_TRY(const Json* const tags, read_list(format, "tags"));
    std::vector<Words> begun(triggers.size());
    for (const Json& tag : *tags) {
      if (!tag.is_object()) return fail(ErrorCode::invalid_request, "a tag must be an object");
      HOCKET_TRY(const std::string begin, read_string(tag, "begin"));
      const auto mine = std::ranges::find_if(
          triggers, [&](const std::string& trigger) { return begin.starts_with(trigger); });
      if (mine == triggers.end())
        return fail(ErrorCode::invalid_request, "no trigger begins the tag {}",
                    begin.substr(0, 64));
      Words& pieces = begun[static_cast<size_t>(mine - triggers.begin())];
      HOCKET_TRY(pieces.emplace_back(), read_tag(tag, *mine, 0));
    }
    Words parts;
    for (size_t i = 0; i < triggers.size(); ++i) {
      HOCKET_TRY_VOID(check_written());
      if (begun[i].empty())
        return fail(ErrorCode::invalid_request, "no tag begins with the trigger {}",
                    triggers[i].substr(0, 64));
      Words others = triggers;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      parts.push_back(
          fmt::format("{} {}", lark_.text_up_to(triggers[i], others), joined(begun[i], " | ")));
    }
    const std::string part = lark_.rule(joined(parts, " | "));
    if (read_flag(format, "stop_after_first"))
      return read_flag(format, "at_least_one")
                 ? part
                 : fmt::format("({} | {})", part, lark_.text_without(triggers));
    const char* count = read_flag(format, "at_least_one") ? "+" : "*";
    return fmt::format("({}{} {})", part, count, lark_.text_without(triggers));
  }

  Result<std::string> read_separated(const Json& format, int depth) {
    HOCKET_TRY(const Json* const tags, read_list(format, "tags"));
    HOCKET_TRY(const std::string separator, read_string(format, "separator"));
    Words pieces;
    for (const Json& tag : *tags) {
      HOCKET_TRY(pieces.emplace_back(), read_tag(tag, "", depth));
    }
    const std::string tag = lark_.rule(joined(pieces, " | "));
    const char* optional = read_flag(format, "at_least_one") ? "" : "?";
    if (read_flag(format, "stop_after_first")) return fmt::format("({}){}", tag, optional);
    return fmt::format("({0} ({1} {0})*){2}", tag, lark_.text(separator), optional);
  }

  LarkWriter lark_;
};

}  // namespace

Result<std::string> lark_of_structural_tag(std::string_view json) {
  HOCKET_TRY_VOID(check_size(json));
  if (json_shape(json).too_deep())
    return fail(ErrorCode::invalid_request, "it is nested deeper than {} levels", kMaxJsonDepth);
  const Json root = parse_ordered(json);
  if (root.is_discarded()) return fail(ErrorCode::invalid_request, "it is not JSON");
  return TagReader().read(root);
}

}  // namespace hocket
