// Converts values that a model writes without quotes, as <parameter=n>5</parameter>, to JSON of the
// type that the tool's schema asks for.   Thread: any.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/answers/schema_visits.h"

namespace hocket {

// The kinds of values that a schema allows.
struct ValueKinds {
  bool string = false, number = false, boolean = false, object = false, array = false, null = false;

  static ValueKinds any() { return {true, true, true, true, true, true}; }
  static ValueKinds only_string() { return {.string = true}; }
  bool operator==(const ValueKinds&) const = default;
};

// The kinds of values that each property of a tool's parameters allows. They follow from type,
// enum, const, anyOf, oneOf, allOf and from $ref within the document. The schema is read once, so
// that the work for a tool call does not grow with its length.
class ParameterKinds {
 public:
  // parameters: the schema, as JSON text.
  explicit ParameterKinds(std::string_view parameters);
  // Counts what it reads in `visits`. Once they are used up, kinds are missing, and the caller
  // refuses the tools.
  ParameterKinds(std::string_view parameters, SchemaVisits& visits);
  // Returns `unknown` if the schema says nothing, or SchemaVisits::kMax visits did not suffice.
  ValueKinds of(std::string_view name, ValueKinds unknown) const;

 private:
  // Holds the properties about which the schema says something.
  std::map<std::string, ValueKinds, std::less<>> kinds_;
};

// Returns `raw` as JSON: the value it spells (JSON, or Python's True, None, lists) if that kind is
// allowed, else the text itself as a string.
std::string typed_json(std::string_view raw, ValueKinds kinds);

}  // namespace hocket
