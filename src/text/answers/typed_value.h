// Values that a model writes without quotes, as <parameter=n>5</parameter>, to JSON of the type
// that the tool's schema asks for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace hocket {

// Which kinds of values a schema allows.
struct ValueKinds {
  bool string = false, number = false, boolean = false, object = false, array = false, null = false;

  static ValueKinds any() { return {true, true, true, true, true, true}; }
  static ValueKinds only_string() { return {.string = true}; }
  bool operator==(const ValueKinds&) const = default;
};

// Of property `name` of a tool's `parameters`: by type, enum, const, anyOf, oneOf, allOf and $ref
// within the document. `unknown` where the schema does not tell.
ValueKinds kinds_of(const nlohmann::json& parameters, std::string_view name, ValueKinds unknown);

// `raw` as JSON: the value it spells (JSON, or Python's True, None, lists) where that kind is
// allowed, else the text itself as a string.
std::string typed_json(std::string_view raw, ValueKinds kinds);

}  // namespace hocket
