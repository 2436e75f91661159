// A call written as one JSON object: {"name": "f", "arguments": {...}}, its keys in any order.
// "function" (a string) is taken for "name", "parameters" for "arguments"; other keys are read
// over. Arguments are told as they come once the name is known; null or none are {}; a string is
// read as the JSON in it.
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
  known,  // a name that no tool has, or a first key that no call has, makes it no call
};

class JsonCallBody final : public CallBody {
 public:
  JsonCallBody(CallContext context, CallNames names)
      : writer_(context.writer), tools_(context.tools), names_(names) {}

  Step step(char c) override;
  bool finish() override;

 private:
  enum class At : uint8_t { begin, first_key, key, in_key, colon, value, after };
  enum class Value : uint8_t { none, name, arguments, other };

  Step refuse(std::string_view why);
  Step begin_value(char c);
  Step take_value(char c);
  Step end_value();
  Step end_call();
  Step begin_named();
  Step tell_text_arguments();
  void tell_arguments();

  EventWriter* writer_;
  std::span<const Tool> tools_;
  CallNames names_;
  At at_ = At::begin;
  Value value_ = Value::none;
  bool first_ = true;
  bool as_text_ = false;  // the arguments are a string that holds JSON
  bool has_name_ = false, has_arguments_ = false, arguments_whole_ = false;
  JsonCopier copier_;
  std::string text_;  // of the key or value that is being read, as JSON
  std::string name_;
  std::string arguments_;  // that wait for the name
};

// Whether a tool has this name.
bool is_known(std::span<const Tool> tools, std::string_view name);

}  // namespace hocket
