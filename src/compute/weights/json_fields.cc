#include "compute/weights/json_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <unordered_set>

namespace hocket {
namespace {

constexpr size_t kShownBytes = 120;

}  // namespace

JsonFields::JsonFields(simdjson::dom::object object, std::string where)
    : object_(object), where_(std::move(where)) {}

std::optional<simdjson::dom::element> JsonFields::find(std::string_view key) const {
  simdjson::dom::element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::optional<simdjson::dom::element> JsonFields::take(std::string_view key) {
  if (!was_read(key)) read_.emplace_back(key);
  return find(key);
}

bool JsonFields::has(std::string_view key) const {
  return find(key).has_value();
}

bool JsonFields::is_null(std::string_view key) const {
  simdjson::dom::element value;
  return object_.at_key(key).get(value) == simdjson::SUCCESS && value.is_null();
}

bool JsonFields::was_read(std::string_view key) const {
  return std::find(read_.begin(), read_.end(), key) != read_.end();
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> names;
  for (const simdjson::dom::key_value_pair field : object_) names.emplace_back(field.key);
  return names;
}

std::string JsonFields::show(std::string_view key) const {
  const auto value = find(key);
  if (!value) return {};
  const std::string text = simdjson::minify(*value);
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

void JsonFields::refuse(Error error) {
  if (!error_) error_ = std::move(error);
}

void JsonFields::absorb(const JsonFields& part) {
  if (part.error_) refuse(*part.error_);
}

Result<void> JsonFields::status() const {
  if (error_) return std::unexpected(*error_);
  return {};
}

void JsonFields::wrong(std::string_view key, std::string_view wanted) {
  refuse(
      error(ErrorCode::bad_config, "{}: {} is {}, but must be {}", where_, key, show(key), wanted)
          .with_fix("take the file from the model's publisher again, or correct this key")
          .with_param(std::string(key)));
}

void JsonFields::missing(std::string_view key) {
  refuse(error(ErrorCode::bad_config, "{}: {} is missing", where_, key)
             .with_fix("take the file from the model's publisher again, or add this key")
             .with_param(std::string(key)));
}

int64_t JsonFields::integer(std::string_view key, Range range, std::optional<int64_t> fallback) {
  const auto value = take(key);
  if (!value) {
    if (!fallback) missing(key);
    return fallback.value_or(0);
  }
  int64_t n = 0;
  if (value->get(n) == simdjson::SUCCESS && n >= static_cast<int64_t>(range.min) &&
      n <= static_cast<int64_t>(range.max))
    return n;
  wrong(key, fmt::format("an integer from {:.0f} to {:.0f}", range.min, range.max));
  return fallback.value_or(0);
}

std::optional<double> JsonFields::number_if(std::string_view key, Range range) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  double x = 0;
  if (value->get(x) == simdjson::SUCCESS && std::isfinite(x) && x >= range.min && x <= range.max)
    return x;
  wrong(key, fmt::format("a number from {} to {}", range.min, range.max));
  return std::nullopt;
}

double JsonFields::number(std::string_view key, Range range, std::optional<double> fallback) {
  const std::optional<double> x = number_if(key, range);
  if (!x && !fallback && !has(key)) missing(key);
  return x.value_or(fallback.value_or(0));
}

bool JsonFields::flag(std::string_view key, std::optional<bool> fallback) {
  const auto value = take(key);
  if (!value) {
    if (!fallback) missing(key);
    return fallback.value_or(false);
  }
  bool on = false;
  if (value->get(on) != simdjson::SUCCESS) wrong(key, "true or false");
  return on;
}

std::string JsonFields::text(std::string_view key, std::optional<std::string_view> fallback) {
  const auto value = take(key);
  if (!value) {
    if (!fallback) missing(key);
    return std::string(fallback.value_or(""));
  }
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) wrong(key, "a string");
  return std::string(text);
}

std::vector<int64_t> JsonFields::integers(std::string_view key, Range range) {
  const auto value = take(key);
  if (!value) return {};
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) {
    const int64_t number = integer(key, range);
    if (error_) return {};
    return {number};
  }
  std::vector<int64_t> numbers;
  for (const simdjson::dom::element item : list) {
    int64_t n = 0;
    if (item.get(n) != simdjson::SUCCESS || n < static_cast<int64_t>(range.min) ||
        n > static_cast<int64_t>(range.max)) {
      wrong(key, fmt::format("integers from {:.0f} to {:.0f}", range.min, range.max));
      return {};
    }
    numbers.push_back(n);
  }
  return numbers;
}

std::vector<double> JsonFields::numbers(std::string_view key, Range range,
                                        std::optional<double> for_null) {
  const auto value = take(key);
  if (!value) return {};
  simdjson::dom::array list;
  std::vector<double> numbers;
  if (value->is_number()) {
    if (const auto one = number_if(key, range)) return {*one};
    return {};
  }
  bool good = value->get(list) == simdjson::SUCCESS;
  if (good) {
    for (const simdjson::dom::element item : list) {
      double x = for_null.value_or(0);
      const bool is_given = !for_null || !item.is_null();
      good = good &&
             (!is_given || (item.get(x) == simdjson::SUCCESS && x >= range.min && x <= range.max));
      numbers.push_back(x);
    }
  }
  if (!good) wrong(key, fmt::format("a list of numbers from {} to {}", range.min, range.max));
  return good ? numbers : std::vector<double>{};
}

std::vector<std::string> JsonFields::texts(std::string_view key) {
  const auto value = take(key);
  if (!value) return {};
  simdjson::dom::array list;
  std::vector<std::string> names;
  bool good = value->get(list) == simdjson::SUCCESS;
  if (good) {
    for (const simdjson::dom::element item : list) {
      std::string_view name;
      good = good && item.get(name) == simdjson::SUCCESS;
      names.emplace_back(name);
    }
  }
  if (!good) wrong(key, "a list of strings");
  return good ? names : std::vector<std::string>{};
}

std::optional<JsonFields> JsonFields::object(std::string_view key) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  simdjson::dom::object inner;
  if (value->get(inner) != simdjson::SUCCESS) {
    wrong(key, "an object");
    return std::nullopt;
  }
  if (const auto twice = repeated_key(inner))
    refuse(
        error(ErrorCode::bad_config, "{}: {} holds the key {} twice", where_, key, shown(*twice)));
  return JsonFields(inner, where_ + ": " + std::string(key));
}

Result<std::string> read_small_file(const std::filesystem::path& file, int64_t max_bytes) {
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) {
    return fail(error(ErrorCode::model_not_found, "there is no file {}", file.string())
                    .with_fix("--model-path must name a Hugging Face model folder"));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"),
                                                           std::fclose);
  std::string text;
  char block[1 << 16];
  if (in && std::filesystem::is_regular_file(file, ec)) {
    size_t got;
    while ((got = std::fread(block, 1, sizeof block, in.get())) > 0) {
      text.append(block, got);
      if (static_cast<int64_t>(text.size()) > max_bytes)
        return fail(ErrorCode::bad_config,
                    "{} is larger than {} MB, so it is not what its name says", file.string(),
                    max_bytes >> 20);
    }
    if (std::ferror(in.get()) == 0) return text;
  }
  return fail(error(ErrorCode::io, "cannot read {}", file.string())
                  .with_fix("check that it is a file and that this user may read it"));
}

std::optional<std::string> repeated_key(simdjson::dom::object object) {
  std::unordered_set<std::string_view> seen;
  for (const simdjson::dom::key_value_pair field : object)
    if (!seen.insert(field.key).second) return std::string(field.key);
  return std::nullopt;
}

std::string shown(std::string_view name) {
  std::string text = "\"";
  for (const char c : name.substr(0, kShownBytes))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  // The cut may fall inside a character: drop its first bytes.
  if (name.size() > kShownBytes) {
    while ((static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
    if (static_cast<unsigned char>(text.back()) >= 0xc0) text.pop_back();
    text += "...";
  }
  return text + '"';
}

}  // namespace hocket
