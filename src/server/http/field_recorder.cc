#include "server/http/field_recorder.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace hocket {
namespace {

thread_local FieldRecorder* current_recorder = nullptr;

// Returns "tools[].function" for "tools[3].function".
std::string without_numbers(const std::string& path) {
  std::string out;
  for (const char c : path)
    if (out.empty() || out.back() != '[' || c < '0' || c > '9') out += c;
  return out;
}

bool is_any(const Json& what) {
  return what["kind"] == "any";
}

// Returns how precise a record of a field is; a parser may leave a field to another one.
int weight(const Json& what) {
  return what["kind"] == "ignored" ? 0 : is_any(what) ? 1 : 2;
}

}  // namespace

FieldRecorder::FieldRecorder(const Json& body) {
  HOCKET_CHECK(current_recorder == nullptr);
  current_recorder = this;
  std::vector<const Json*> remaining = {&body};
  while (!remaining.empty()) {
    const Json* one = remaining.back();
    remaining.pop_back();
    if (one->is_object()) objects_.insert(one);
    if (one->is_structured())
      for (const Json& inner : *one) remaining.push_back(&inner);
  }
}

FieldRecorder::~FieldRecorder() {
  current_recorder = nullptr;
}

FieldRecorder* FieldRecorder::current() {
  return current_recorder;
}

void FieldRecorder::note(const Json& object, const std::string& path, Json what) {
  Known& known = objects_.contains(&object) ? of_body_ : of_others_;
  const auto [field, is_new] = known.try_emplace(without_numbers(path), what);
  if (!is_new && weight(what) > weight(field->second)) field->second = std::move(what);
}

FieldRecorder::Known FieldRecorder::known() const {
  Known known = of_body_;
  for (auto& [path, what] : known)
    if (const auto passed_on = of_others_.find(path); is_any(what) && passed_on != of_others_.end())
      what = passed_on->second;
  return known;
}

}  // namespace hocket
