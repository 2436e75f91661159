// Reads a call that is one JSON object: {"name": "f", "arguments": {...}}, with keys in any order.
// "function" (a string) counts as "name", and "parameters" as "arguments"; other keys are ignored.
// Arguments are passed on as they arrive once the name is known; null or missing ones become {}; a
// string is read as the JSON in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/answers/call_body.h"
#include "text/answers/json_copier.h"

namespace hocket {

enum class CallNames : uint8_t {
  any,
  known,  // an unknown tool, or a first key that no call has, makes it no call
};

class JsonCallBody final : public CallBody {
 public:
  JsonCallBody(CallContext context, CallNames names)
      : writer_(context.writer), tools_(context.tools), names_(names) {}

  Step step(char c) override;
  bool finish() override;

 private:
  enum class State : uint8_t { begin, first_key, key, in_key, colon, value, after };
  enum class Value : uint8_t { none, name, arguments, other };

  Step refuse(std::string_view why);
  Step begin_value(char c);
  Step take_value(char c);
  Step end_value();
  Step end_call();
  Step begin_named();
  Step emit_text_arguments();
  void emit_arguments();

  EventWriter* writer_;
  std::span<const Tool> tools_;
  CallNames names_;
  State at_ = State::begin;
  Value value_ = Value::none;
  bool first_ = true;
  bool as_text_ = false;  // the arguments are a string that holds JSON
  bool has_name_ = false, has_arguments_ = false, arguments_whole_ = false;
  JsonCopier copier_;
  std::string text_;  // the key or value that is being read, as JSON
  std::string name_;
  std::string arguments_;  // arguments that wait for the name
};

// Returns true if a tool has this name.
bool is_known(std::span<const Tool> tools, std::string_view name);

}  // namespace hocket
