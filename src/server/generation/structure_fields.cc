#include "server/generation/structure_fields.h"

#include <utility>

#include "text/grammar/ebnf.h"
#include "text/grammar/spellings.h"
#include "text/grammar/structural_tag.h"

namespace hocket {
namespace {

constexpr std::string_view kAnyJson = "$$ANY$$";  // as SGLang's callers spell it
constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Reads the fields of one object of a request that ask for structured output. `fields` is that
// object.
class StructureReader {
 public:
  StructureReader(Fields& fields, SamplingParams& sampling) : fields_(fields), out_(sampling) {}

  void schema(std::string_view name) {
    const Json* value = fields_.get(name);
    if (value == nullptr) return;
    if (!value->is_string()) {
      if (!value->is_object() && !value->is_boolean())
        return wrong(name, "must be a JSON schema, as an object or as its text");
      return set(GrammarKind::json_schema, to_text(*value), name);
    }
    const auto& text = value->get_ref<const std::string&>();
    if (text == kAnyJson) return set(GrammarKind::json_schema, "{}", name);
    if (!fits(name, text.size())) return;
    if (const auto parsed = parse_json(text); !parsed)
      return wrong(name, "holds no JSON: " + parsed.error().message);
    set(GrammarKind::json_schema, text, name);
  }

  void regex(std::string_view name) {
    if (const auto text = string(name)) set(GrammarKind::regex, regex_without_anchors(*text), name);
  }

  void ebnf(std::string_view name) {
    if (const auto text = string(name)) converted(name, lark_of_ebnf(*text));
  }

  // Reads vLLM's grammars: EBNF, or Lark.
  void grammar(std::string_view name) {
    const auto text = string(name);
    if (!text) return;
    if (text->find("::=") != text->npos) return converted(name, lark_of_ebnf(*text));
    set(GrammarKind::lark, *text, name);
  }

  void choice(std::string_view name) {
    const Json* list = fields_.array(name, kMaxStructureChoices);
    if (list == nullptr) return;
    std::vector<std::string> choices;
    size_t bytes = 0;
    for (const Json& one : *list) {
      if (!one.is_string()) return wrong(name, "must hold strings");
      bytes += choices.emplace_back(one.get<std::string>()).size();
    }
    if (!fits(name, bytes)) return;
    auto regex = regex_of_choices(choices);
    if (!regex) return wrong(name, "must hold at least one string");
    set(GrammarKind::regex, *std::move(regex), name);
  }

  void structural_tag(std::string_view name) {
    const Json* value = fields_.get(name);
    if (value == nullptr) return;
    const std::string text = value->is_string() ? value->get<std::string>() : to_text(*value);
    if (fits(name, text.size())) converted(name, lark_of_structural_tag(text));
  }

  void object(std::string_view name) {
    bool wanted = false;
    if (fields_.read(name, wanted) && wanted)
      set(GrammarKind::json_schema, std::string(kAnyObject), name);
  }

  void set(GrammarKind kind, std::string text, std::string_view name) {
    std::string field = fields_.name_of(name);
    if (out_.grammar != nullptr)
      return wrong(name,
                   "cannot be given beside " + out_.grammar->field + ": an answer has one form");
    if (!fits(name, text.size())) return;
    out_.grammar = std::make_shared<const GrammarSpec>(
        GrammarSpec{.kind = kind, .text = std::move(text), .field = std::move(field)});
  }

  void converted(std::string_view name, Result<std::string> lark) {
    if (!lark) return wrong(name, "cannot be made a grammar: " + lark.error().message);
    set(GrammarKind::lark, *std::move(lark), name);
  }

  void wrong(std::string_view name, std::string_view what) {
    fields_.fail_field(name, fmt::format("{} {}", fields_.name_of(name), what));
  }

  // Checked before anything is made of the text, and again for the grammar that it becomes.
  bool fits(std::string_view name, size_t bytes) {
    if (bytes <= kMaxGrammarBytes) return true;
    wrong(name, fmt::format("comes to {} bytes, at most {} are taken", bytes, kMaxGrammarBytes));
    return false;
  }

 private:
  std::optional<std::string> string(std::string_view name) {
    std::string text;
    if (!fields_.read(name, text)) return std::nullopt;
    if (text.empty()) return wrong(name, "is empty"), std::nullopt;
    if (!fits(name, text.size())) return std::nullopt;
    return text;
  }

  Fields& fields_;
  SamplingParams& out_;
};

// Reads response_format.json_schema: {"name", "description", "schema", "strict"}. The answer
// follows the schema exactly, even if `strict` is false.
void read_named_schema(const Json& named, Fields& outer, SamplingParams& sampling) {
  Fields fields(named, "response_format.json_schema");
  std::string name, description;
  bool strict = false;
  fields.read("name", name);
  fields.read("description", description);
  fields.read("strict", strict);
  StructureReader reader(fields, sampling);
  if (named.contains("schema") && !named["schema"].is_null())
    reader.schema("schema");
  else
    reader.set(GrammarKind::json_schema, std::string(kAnyObject), "schema");
  if (auto done = fields.finish(); !done) outer.fail(std::move(done).error());
}

// Reads {"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag": ...}.
void read_structured_outputs(const Json& object, Fields& outer, SamplingParams& sampling) {
  Fields fields(object, "structured_outputs");
  StructureReader reader(fields, sampling);
  reader.schema("json");
  reader.regex("regex");
  reader.choice("choice");
  reader.grammar("grammar");
  reader.object("json_object");
  reader.structural_tag("structural_tag");
  fields.ignore({"disable_fallback", "disable_additional_properties"});
  fields.refuse("disable_any_whitespace", "is not supported",
                "put \"x-guidance\": {\"whitespace_flexible\": false} into the schema");
  fields.refuse("whitespace_pattern", "is not supported",
                "put \"x-guidance\": {\"whitespace_pattern\": ...} into the schema");
  if (auto done = fields.finish(); !done) outer.fail(std::move(done).error());
}

}  // namespace

void read_structure(Fields& fields, SamplingParams& sampling) {
  StructureReader reader(fields, sampling);
  for (const char* name : {"json_schema", "guided_json"}) reader.schema(name);
  for (const char* name : {"regex", "guided_regex"}) reader.regex(name);
  reader.ebnf("ebnf");
  reader.grammar("guided_grammar");
  reader.choice("guided_choice");
  reader.structural_tag("structural_tag");
  if (const Json* object = fields.object("structured_outputs"))
    read_structured_outputs(*object, fields, sampling);
  fields.ignore({"guided_decoding_backend"});
}

void read_response_format(Fields& fields, SamplingParams& sampling) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format");
  StructureReader reader(inner, sampling);
  std::string type;
  if (!inner.read("type", type)) {
    inner.fail_field("type", "response_format.type is missing");
  } else if (type == "json_object") {
    reader.set(GrammarKind::json_schema, std::string(kAnyObject), "type");
  } else if (type == "json_schema") {
    if (const Json* named = inner.object("json_schema"))
      read_named_schema(*named, inner, sampling);
    else
      inner.fail_field("json_schema", "response_format.json_schema is missing");
  } else if (type == "structural_tag") {
    if (const std::string text = to_text(*format); reader.fits("type", text.size()))
      reader.converted("type", lark_of_structural_tag(text));
    inner.ignore({"structures", "triggers", "format"});
  } else if (type != "text") {
    inner.fail_field("type", fmt::format("response_format.type must be text, json_object, "
                                         "json_schema or structural_tag, not {}",
                                         type.substr(0, 64)));
  }
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

}  // namespace hocket
