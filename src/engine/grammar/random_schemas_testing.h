// Helpers for tests and benches: random JSON schemas, and a checker that knows nothing of grammars.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>

namespace hocket::testing {

using SchemaJson = nlohmann::ordered_json;

inline size_t num_characters(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Checks that values are valid, for the keywords that RandomSchemas writes.
class SchemaCheck {
 public:
  explicit SchemaCheck(const SchemaJson& root) : root_(root) {}
  bool valid(const SchemaJson& value) const { return valid(value, root_); }

 private:
  static bool has_type(const SchemaJson& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer")
      return value.is_number() && value.get<double>() == static_cast<int64_t>(value.get<double>());
    return type == "number" && value.is_number();
  }

  bool valid(const SchemaJson& value, const SchemaJson& schema) const {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref")) {
      const auto name = schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
      return valid(value, root_["$defs"][name]);
    }
    if (schema.contains("anyOf"))
      return std::ranges::any_of(schema["anyOf"],
                                 [&](const SchemaJson& one) { return valid(value, one); });
    if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
      return false;
    if (schema.contains("const") && value != schema["const"]) return false;
    if (schema.contains("type") && !valid_type(value, schema["type"])) return false;
    if (value.is_string()) return valid_string(value, schema);
    if (value.is_number()) return valid_number(value, schema);
    if (value.is_array()) return valid_array(value, schema);
    return !value.is_object() || valid_object(value, schema);
  }

  static bool valid_type(const SchemaJson& value, const SchemaJson& type) {
    if (type.is_string()) return has_type(value, type);
    return std::ranges::any_of(type, [&](const SchemaJson& one) { return has_type(value, one); });
  }

  static bool valid_string(const SchemaJson& value, const SchemaJson& schema) {
    const size_t length = num_characters(value.get<std::string>());
    if (length < schema.value("minLength", size_t{0})) return false;
    if (length > schema.value("maxLength", SIZE_MAX)) return false;
    return !schema.contains("pattern") ||
           std::regex_search(value.get<std::string>(),
                             std::regex(schema["pattern"].get<std::string>()));
  }

  static bool valid_number(const SchemaJson& value, const SchemaJson& schema) {
    const auto number = value.get<double>();
    return number >= schema.value("minimum", -1e300) && number <= schema.value("maximum", 1e300);
  }

  bool valid_array(const SchemaJson& value, const SchemaJson& schema) const {
    if (value.size() < schema.value("minItems", size_t{0})) return false;
    if (value.size() > schema.value("maxItems", SIZE_MAX)) return false;
    return !schema.contains("items") || std::ranges::all_of(value, [&](const SchemaJson& item) {
      return valid(item, schema["items"]);
    });
  }

  bool valid_object(const SchemaJson& value, const SchemaJson& schema) const {
    const SchemaJson none = SchemaJson::object();
    const SchemaJson& properties = schema.contains("properties") ? schema["properties"] : none;
    if (schema.contains("required"))
      for (const SchemaJson& name : schema["required"])
        if (!value.contains(name.get<std::string>())) return false;
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!valid(member, properties[name])) return false;
      } else if (schema.contains("additionalProperties") &&
                 !valid(member, schema["additionalProperties"])) {
        return false;
      }
    }
    return true;
  }

  const SchemaJson& root_;
};

// Makes schemas that have short answers only: lengths and numbers are bounded.
class RandomSchemas {
 public:
  explicit RandomSchemas(uint32_t seed) : random_(seed) {}

  SchemaJson next() {
    defs_ = SchemaJson::object();
    SchemaJson root = pick(0, 5) == 0 ? value(2) : object(2);
    if (!defs_.empty()) root["$defs"] = defs_;
    return root;
  }

 private:
  int pick(int from, int to) {
    return from + static_cast<int>(random_() % static_cast<uint32_t>(to - from + 1));
  }

  std::string name() {
    static const char* const kNames[] = {"a",     "name", "x y",     "größe", "count", "is-ok",
                                         "\"q\"", "id",   "back\\s", "日本",  "_",     "Total/Sum"};
    return kNames[pick(0, static_cast<int>(std::size(kNames)) - 1)];
  }

  SchemaJson string() {
    switch (pick(0, 4)) {
      case 0:
        return {{"enum", {"red", "green", "blue \"sky\"", "grün"}}};
      case 1:
        return {{"type", "string"}, {"pattern", "^[a-z]{1,4}-[0-9]{2}$"}};
      case 2:
        return {{"const", name()}};
      default:
        const int least = pick(0, 3);
        return {{"type", "string"}, {"minLength", least}, {"maxLength", least + pick(0, 8)}};
    }
  }

  SchemaJson integer() {
    const int least = pick(-50, 120);
    return {{"type", "integer"}, {"minimum", least}, {"maximum", least + pick(0, 2000)}};
  }

  SchemaJson array(int depth) {
    const int least = pick(0, 2);
    return {{"type", "array"},
            {"items", value(depth - 1)},
            {"minItems", least},
            {"maxItems", least + pick(0, 2)}};
  }

  SchemaJson object(int depth) {
    SchemaJson properties = SchemaJson::object(), required = SchemaJson::array();
    for (int i = pick(0, 4); i > 0; --i) {
      const std::string key = name();
      if (properties.contains(key)) continue;
      properties[key] = value(depth - 1);
      if (pick(0, 2) > 0) required.push_back(key);
    }
    return {{"type", "object"},
            {"properties", properties},
            {"required", required},
            {"additionalProperties", false}};
  }

  SchemaJson value(int depth) {
    switch (pick(0, depth > 0 ? 8 : 4)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
      case 2:
        return integer();
      case 3:
        return string();
      case 4:
        return {{"type", {"null", "boolean"}}};
      case 5:
        return {{"anyOf", {integer(), object(depth - 1), {{"type", "null"}}}}};
      case 6: {
        const std::string key = "d" + std::to_string(defs_.size());
        defs_[key] = nullptr;  // reserves its name for nested schemas
        SchemaJson inside = object(depth - 1);
        defs_[key] = std::move(inside);
        return {{"$ref", "#/$defs/" + key}};
      }
      case 7:
        return array(depth);
      default:
        return object(depth);
    }
  }

  std::mt19937 random_;
  SchemaJson defs_;
};

}  // namespace hocket::testing
