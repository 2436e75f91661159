#include "server/reply/stream_position.h"

#include <charconv>

namespace hocket {
namespace {

constexpr std::string_view kEnd = "\n\n";
constexpr uint32_t kMaxNumber = 1u << 30;

// Reads a whole text that is a number.
std::optional<uint32_t> read_number(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number >= kMaxNumber)
    return std::nullopt;
  return number;
}

}  // namespace

std::string event_id(std::string_view answer_id, std::span<const uint32_t> next) {
  std::string id(answer_id);
  for (size_t i = 0; i < next.size(); ++i) {
    id += i == 0 ? ':' : ',';
    id += next[i] == 0 ? "-" : std::to_string(next[i] - 1);
  }
  return id;
}

std::optional<NamedPosition> read_event_id(std::string_view text, size_t max_choices) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || colon > kMaxAnswerId) return std::nullopt;
  NamedPosition named{.answer_id = std::string(text.substr(0, colon)), .position = {}};
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    const auto number = read_number(one);
    if ((!number && one != "-") || named.position.next.size() == max_choices) return std::nullopt;
    named.position.next.push_back(number ? *number + 1 : 0);
    if (comma == rest.npos) return named;
    rest.remove_prefix(comma + 1);
  }
}

std::optional<StreamPosition> read_starting_after(std::string_view text) {
  const auto number = read_number(text);
  if (!number) return std::nullopt;
  return StreamPosition{.next = {*number + 1}};
}

std::string number_events(ChoiceEvents events, std::span<uint32_t> next, const StreamPosition& has,
                          std::string_view answer_id) {
  auto& [framed, choice, number] = events;
  std::string out;
  while (!framed.empty()) {
    const size_t end = framed.find(kEnd);
    const size_t length = end == framed.npos ? framed.size() : end + kEnd.size();
    if (number) next[choice] = *number;
    ++next[choice];
    if (choice >= has.next.size() || next[choice] > has.next[choice]) {
      out.append(framed.substr(0, length));
      if (!answer_id.empty())  // as the last line, for clients that look for their lines in order
        out.insert(out.size() - 1, "id: " + event_id(answer_id, next) + "\n");
    }
    framed.remove_prefix(length);
  }
  return out;
}

}  // namespace hocket
