// The arguments of a call whose values are written without JSON: tells them as one JSON object,
// each value of the type that the tool's schema asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/answers/call_reader.h"
#include "text/answers/typed_value.h"

namespace hocket {

class TypedArguments {
 public:
  // `unknown`: of a value that the schema does not tell.
  TypedArguments(CallContext context, ValueKinds unknown)
      : writer_(context.writer), tools_(context.tools), unknown_(unknown) {}

  // The call begins. False: this is no name of a function.
  bool begin(std::string_view name);
  // The next value is that of `key`.
  void key(std::string_view key);
  // It can be nothing but text, which may come in pieces: text(), text(), ..., end_text().
  bool is_text() const { return kinds_ == ValueKinds::only_string(); }
  void text(std::string_view piece);
  void end_text();
  // It as a whole.
  void value(std::string_view raw);
  // All are there; the call has ended.
  void end();

 private:
  EventWriter* writer_;
  std::span<const Tool> tools_;
  ValueKinds unknown_, kinds_;
  std::shared_ptr<const ParameterKinds> parameters_;  // null: no tool has the name
  int num_keys_ = 0;
  bool in_text_ = false;
};

}  // namespace hocket
