// What a client says of its tools, whatever API it came in.
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
  bool strict = false;     // arguments must follow the schema to the letter
  std::shared_ptr<const ParameterKinds> kinds = nullptr;  // of `parameters`; null: not read yet
};

struct ToolChoice {
  enum class Kind : uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name;  // of the tool, where named
};

}  // namespace hocket
