// The tools of a request, in a form that does not depend on its API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hocket {

class ParameterKinds;  // typed_value.h

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON schema of an object, as JSON text; empty: any arguments
  bool strict = false;     // arguments must follow the schema exactly
  // Made from `parameters`; null: not read yet.
  std::shared_ptr<const ParameterKinds> kinds = nullptr;
};

struct ToolChoice {
  enum class Kind : uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name;  // for Kind::named
};

}  // namespace hocket
