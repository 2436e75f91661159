// Writes the arguments of a call whose values are not JSON as one JSON object, each value with the
// type that the tool's schema asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "text/answers/call_reader.h"
#include "text/answers/typed_value.h"

namespace hocket {

class TypedArguments {
 public:
  // `unknown`: kinds of a value about which the schema says nothing.
  TypedArguments(CallContext context, ValueKinds unknown)
      : writer_(context.writer), tools_(context.tools), unknown_(unknown) {}

  // Begins the call. Returns false if `name` is no name of a function.
  bool begin(std::string_view name);
  // Begins the value of `key`. If the key has one already, the value is dropped with a warning.
  void key(std::string_view key);
  // Returns true if the value can only be text; then it may be passed in pieces: text(), ...,
  // end_text().
  bool is_text() const { return kinds_ == ValueKinds::only_string(); }
  void text(std::string_view piece);
  void end_text();
  // Writes the value as a whole.
  void value(std::string_view raw);
  void json(std::string_view value) { write(value); }
  // Ends the call; all arguments are written.
  void end();

 private:
  void write(std::string_view piece) {
    if (!is_repeated_) writer_->arguments(piece);
  }

  EventWriter* writer_;
  std::span<const Tool> tools_;
  ValueKinds unknown_, kinds_;
  std::shared_ptr<const ParameterKinds> parameters_;  // null: no tool has the name
  std::unordered_set<std::string> keys_;
  bool is_repeated_ = false;  // the key has a value already
  bool in_text_ = false;
};

}  // namespace hocket
