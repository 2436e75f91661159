#include "text/answers/json_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/bounded_json.h"
#include "text/answers/blank.h"

namespace hocket {
namespace {

// Returns the text of a JSON string; empty if it is not one.
std::string unquoted(const std::string& json) {
  const auto value = parse_bounded_json(json);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Returns the JSON object in `text`; nullopt if it is something else.
std::optional<std::string> object_in(std::string_view text) {
  JsonCopier copier;
  std::string out;
  for (const char c : text) {
    if (copier.whole() && is_blank(c)) continue;
    const auto step = copier.step(c, out);
    if (step != JsonCopier::Step::more && step != JsonCopier::Step::done) return std::nullopt;
  }
  if (!copier.whole() || !out.starts_with('{')) return std::nullopt;
  return out;
}

bool is_key_of_call(std::string_view key) {
  for (const std::string_view known : {"name", "function", "arguments", "parameters", "type", "id"})
    if (key == known) return true;
  return false;
}

}  // namespace

bool is_known(std::span<const Tool> tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const Tool& tool) { return tool.name == name; });
}

// A mistake after the arguments are whole does not undo the call.
JsonCallBody::Step JsonCallBody::refuse(std::string_view why) {
  if (!arguments_whole_ || !writer_->begun()) return fail(why);
  end_call();
  return Step::over;
}

JsonCallBody::Step JsonCallBody::step(char c) {
  switch (at_) {
    case State::in_key:
      return take_value(c);
    case State::value:
      if (value_ != Value::none) return take_value(c);
      break;
    default:
      break;
  }
  if (is_blank(c)) return Step::more;
  switch (at_) {
    case State::begin:
      if (c != '{') return refuse("no JSON object follows the mark");
      at_ = State::first_key;
      return Step::more;
    case State::first_key:
      if (c == '}') return end_call();
      [[fallthrough]];
    case State::key:
      if (c != '"') return refuse("its JSON is broken");
      copier_ = JsonCopier();
      text_.clear();
      at_ = State::in_key;
      return take_value(c);
    case State::colon:
      if (c != ':') return refuse("its JSON is broken");
      at_ = State::value;
      return Step::more;
    case State::value:
      return begin_value(c);
    default:
      break;
  }
  if (c == ',' && at_ == State::after) {
    at_ = State::key;
    return Step::more;
  }
  if (c == '}') return end_call();
  return refuse("its JSON is broken");
}

JsonCallBody::Step JsonCallBody::begin_value(char c) {
  const std::string key = unquoted(text_);
  const bool is_first = std::exchange(first_, false);
  if (is_first && names_ == CallNames::known && !is_key_of_call(key))
    return refuse("it has a key that no call has");
  copier_ = JsonCopier();
  text_.clear();
  value_ = Value::other;
  if (key == "name" || (key == "function" && c == '"')) {
    if (c != '"' || has_name_) return refuse("its name is no string, or there are two");
    value_ = Value::name;
  } else if (key == "arguments" || key == "parameters") {
    if (has_arguments_) return refuse("it has arguments twice");
    if (c != '{' && c != '"' && c != 'n') return refuse("its arguments are no object");
    has_arguments_ = true;
    as_text_ = c != '{';
    value_ = Value::arguments;
  }
  return take_value(c);
}

JsonCallBody::Step JsonCallBody::take_value(char c) {
  const auto step = copier_.step(c, text_);
  if (step == JsonCopier::Step::wrong) return refuse("its JSON is broken");
  if (at_ == State::in_key) {
    if (step == JsonCopier::Step::done) at_ = State::colon;
    return Step::more;
  }
  if (value_ == Value::arguments && !as_text_) emit_arguments();
  if (step == JsonCopier::Step::more) {
    if (value_ == Value::other) text_.clear();
    return Step::more;
  }
  const Step ended = end_value();
  if (ended != Step::more || step == JsonCopier::Step::done) return ended;
  return this->step(c);  // c is the byte after a number
}

// Passes on the arguments as far as copied; without a name yet, keeps them.
void JsonCallBody::emit_arguments() {
  if (writer_->begun())
    writer_->arguments(text_);
  else
    arguments_ += text_;
  text_.clear();
}

JsonCallBody::Step JsonCallBody::end_value() {
  at_ = State::after;
  const Value value = std::exchange(value_, Value::none);
  if (copier_.repaired() && value == Value::arguments)
    writer_->warn("the arguments of a call had control characters or unknown escapes in a string");
  if (value == Value::name) {
    name_ = unquoted(text_);
    has_name_ = true;
    return begin_named();
  }
  if (value == Value::arguments) {
    if (as_text_) return emit_text_arguments();
    arguments_whole_ = true;
  }
  return Step::more;
}

JsonCallBody::Step JsonCallBody::emit_text_arguments() {
  auto object = text_ == "null" ? std::string("{}") : object_in(unquoted(text_));
  if (!object) return refuse("its arguments are no object");
  arguments_whole_ = true;
  text_ = *std::move(object);
  emit_arguments();
  return Step::more;
}

JsonCallBody::Step JsonCallBody::begin_named() {
  if (name_.empty()) return refuse("its name is empty");
  if (!is_known(tools_, name_)) {
    if (names_ == CallNames::known) return refuse("no tool has its name");
    writer_->warn("a call names a function that is none of the tools");
  }
  writer_->begin(name_);
  writer_->arguments(std::exchange(arguments_, {}));
  return Step::more;
}

JsonCallBody::Step JsonCallBody::end_call() {
  if (!has_name_) return refuse("it has no name");
  if (!has_arguments_) writer_->arguments("{}");
  writer_->end();
  return Step::done;
}

bool JsonCallBody::finish() {
  const bool whole = has_name_ && arguments_whole_;
  if (whole) end_call();
  return whole;
}

}  // namespace hocket
