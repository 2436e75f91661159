#include "text/answers/typed_arguments.h"

#include <algorithm>
#include <utility>

#include "base/json_text.h"
#include "text/answers/json_pieces.h"
#include "text/answers/typed_value.h"

namespace hocket {
namespace {

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxCallNameBytes &&
         name.find_first_of(" \t\n\r<>{}\"'`") == std::string_view::npos;
}

}  // namespace

bool TypedArguments::begin(std::string_view name) {
  if (!is_name(name)) return false;
  const auto tool = std::ranges::find(tools_, name, &Tool::name);
  if (tool == tools_.end())
    writer_->warn("a call names a function that is none of the tools");
  else
    parameters_ = tool->kinds ? tool->kinds : std::make_shared<ParameterKinds>(tool->parameters);
  writer_->begin(name);
  return true;
}

void TypedArguments::key(std::string_view key) {
  kinds_ = parameters_ ? parameters_->of(key, unknown_) : unknown_;
  is_repeated_ = !keys_.emplace(key).second;
  if (is_repeated_) writer_->warn("a call gives an argument twice, of which the first is kept");
  write(keys_.size() == 1 ? "{" : ", ");
  write(quoted_json(key) + ": ");
}

void TypedArguments::text(std::string_view piece) {
  std::string out = std::exchange(in_text_, true) ? "" : "\"";
  append_json_escaped(out, piece, BadUtf8::keep);
  write(out);
}

void TypedArguments::end_text() {
  write(std::exchange(in_text_, false) ? "\"" : "\"\"");
}

void TypedArguments::value(std::string_view raw) {
  write(typed_json(raw, kinds_));
}

void TypedArguments::end() {
  writer_->arguments(keys_.empty() ? "{}" : "}");
  writer_->end();
}

}  // namespace hocket
