#include "server/reply/answer_progress.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <utility>

namespace hocket {
namespace {

constexpr std::string_view kBegin = ": progress ";
constexpr int kMaxChoices = 1 << 16;

// Reads the next number and the space behind it.
template <class T>
bool read_number(std::string_view& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.empty()) return true;
  if (text.front() != ' ') return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

struct ProgressReader::Line {
  int choice = 0;
  size_t num_bytes = 0;
  std::vector<TokenId> ids;
};

void append_progress(std::string& out, int choice, std::span<const TokenId> new_ids,
                     std::string_view events) {
  fmt::format_to(std::back_inserter(out), "{}{} {}", kBegin, choice, events.size());
  for (const TokenId id : new_ids) fmt::format_to(std::back_inserter(out), " {}", value(id));
  out.append("\n").append(events);
}

size_t ProgressReader::take(std::string_view bytes, std::string& out) {
  size_t used = 0;
  while (!failed_ && used < bytes.size()) {
    const std::string_view rest = bytes.substr(used);
    if (!rest.starts_with(kBegin)) {
      if (kBegin.starts_with(rest)) break;
      const size_t end = rest.find("\n\n");
      if (end == rest.npos) break;
      out += rest.substr(0, end + 2);
      used += end + 2;
      continue;
    }
    const size_t end = rest.find('\n');
    if (end == rest.npos) break;
    Line line;
    failed_ = !read(rest.substr(kBegin.size(), end - kBegin.size()), line);
    if (failed_ || rest.size() - end - 1 < line.num_bytes) break;
    out += rest.substr(end + 1, line.num_bytes);
    used += end + 1 + line.num_bytes;
    note(std::move(line));
  }
  return used;
}

bool ProgressReader::read(std::string_view text, Line& line) const {
  if (!read_number(text, line.choice) || line.choice < kClosingBlock ||
      line.choice >= kMaxChoices || !read_number(text, line.num_bytes))
    return false;
  while (!text.empty()) {
    int id = 0;
    if (!read_number(text, id) || id < 0) return false;
    line.ids.push_back(TokenId{id});
  }
  return true;
}

void ProgressReader::note(Line&& line) {
  if (line.choice == kClosingBlock) {
    progress_.closed = true;
    return;
  }
  const auto index = static_cast<size_t>(line.choice);
  if (index >= progress_.choices.size()) progress_.choices.resize(index + 1);
  AnswerProgress::ChoiceProgress& choice = progress_.choices[index];
  if (!line.ids.empty()) choice.num_blocks = 0;
  ++choice.num_blocks;
  num_ids_ += line.ids.size();
  choice.ids.insert(choice.ids.end(), line.ids.begin(), line.ids.end());
}

}  // namespace hocket
