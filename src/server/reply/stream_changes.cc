// Tells keepers of the streams of this rank, and takes what other ranks tell of theirs.
#include <algorithm>
#include <charconv>
#include <utility>

#include "server/reply/stream_position.h"
#include "server/reply/stream_records.h"

namespace hocket {

namespace {

constexpr Duration kRenew = std::chrono::seconds(10);
constexpr int kMaxPauses = 60;  // the longest pause after refusals, in first ones

// Returns the text up to the next `mark`, and takes both from the front of `text`.
std::string_view next_part(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

template <class T>
bool read_whole(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number >= 0;
}

// Sets when a keeper is sent a request again. The pause doubles if the last one was not long ago.
void pause_copy(StreamRecord::Copy& copy, Duration first) {
  const TimePoint now = RealClock().now();
  const bool again = copy.pause != Duration{} && now - copy.retry_at < kMaxPauses * first;
  copy.pause = again ? std::min(2 * copy.pause, kMaxPauses * first) : first;
  copy.retry_at = now + copy.pause;
}

void add_lacking(std::string_view id, std::vector<std::string>& lacking) {
  if (lacking.size() < StreamRecords::kMaxLacking && id.size() <= kMaxAnswerId && !id.empty())
    lacking.emplace_back(id);
}

}  // namespace

void StreamRecords::set_keepers(std::span<const std::string> boot_ids) {
  MutexLock lock(mutex_);
  const std::vector<size_t> other = copies_.set_keepers(boot_ids);
  if (other.empty()) return;
  for (const auto& [id, stream] : by_id_) {
    for (const size_t slot : other) stream->copies[slot] = {};
    copies_.forget_unwanted(*stream);
  }
  change_all_live();
}

void StreamRecords::change_all_live() {
  for (const auto& [id, stream] : by_id_)
    if (stream->state == StreamState::live) copies_.changed(*stream);
}

void StreamRecords::set_copies(StreamRecord& stream, size_t num, std::string_view holder) {
  MutexLock lock(mutex_);
  stream.num_copies = num;
  stream.holder = holder;
  copies_.forget_unwanted(stream);
  if (!stream.removed) copies_.changed(stream);
}

void StreamRecords::count_takeover(StreamRecord& stream) {
  MutexLock lock(mutex_);
  if (stream.request.num_takeovers < UINT32_MAX) ++stream.request.num_takeovers;
}

std::optional<StreamRecords::Found> StreamRecords::begin_copy(const StreamRecordPtr& stream,
                                                              std::string_view keeper) {
  MutexLock lock(mutex_);
  const auto slot = copies_.slot_of(keeper);
  if (!slot || stream->removed || !copies_.wants(*stream, *slot)) return std::nullopt;
  if (stream->copies[*slot].is_sending) return std::nullopt;
  Found found = bare(stream);
  stream->copies[*slot].is_sending = true;
  return found;
}

void StreamRecords::copied_to(StreamRecord& stream, std::string_view keeper, bool is_known) {
  MutexLock lock(mutex_);
  const auto slot = copies_.slot_of(keeper);
  if (!slot) return;
  StreamRecord::Copy& copy = stream.copies[*slot];
  copy.is_sending = false;
  if (!is_known) pause_copy(copy, limits_.retry);
  // A keeper that never had the request gets it with the next changes after the pause.
  copies_.set_known(stream, *slot, is_known && copies_.wants(stream, *slot));
}

void StreamRecords::copies_lack(std::span<const std::string> ids, std::string_view keeper) {
  MutexLock lock(mutex_);
  const auto slot = copies_.slot_of(keeper);
  if (!slot) return;
  for (const std::string& id : ids) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || !found->second->copies[*slot].is_known) continue;
    pause_copy(found->second->copies[*slot], limits_.retry);
    copies_.set_known(*found->second, *slot, false);
  }
}

void StreamRecords::forget_copies(std::string_view keeper) {
  MutexLock lock(mutex_);
  const auto slot = copies_.slot_of(keeper);
  if (!slot) return;
  for (const auto& [id, stream] : by_id_)
    if (stream->copies[*slot].is_known) copies_.set_known(*stream, *slot, false);
}

StreamRecords::Changes StreamRecords::changes_for(std::string_view keeper, size_t limit) {
  Changes changes;
  MutexLock lock(mutex_);
  expire();
  const TimePoint now = RealClock().now();
  if (now - renewed_ >= kRenew) {
    renewed_ = now;
    change_all_live();
  }
  const auto slot = copies_.slot_of(keeper);
  if (!slot) return changes;
  std::vector<StreamRecordPtr> later;
  for (const StreamRecordPtr& stream : copies_.take_changed(*slot)) {
    StreamRecord::Copy& copy = stream->copies[*slot];
    const bool replaced = stream->removed && by_id_.contains(stream->request.identity.id);
    if (!copies_.wants(*stream, *slot) || replaced ||
        (!copy.is_known && (stream->removed || stream->state != StreamState::live)))
      continue;
    const bool waits =
        copy.is_known ? changes.lines.size() >= kChangesBytes
                      : changes.whole.size() == limit || copy.is_sending || now < copy.retry_at;
    if (waits) {
      later.push_back(stream);
    } else if (copy.is_known) {
      append_changes(*stream, copy, changes.lines);
    } else {
      changes.whole.push_back(bare(stream));
      copy.is_sending = true;
    }
  }
  for (const StreamRecordPtr& stream : later) copies_.changed(*stream, *slot);
  return changes;
}

std::optional<std::vector<std::string>> StreamRecords::take_changes(std::string_view lines,
                                                                    std::string_view sender) {
  std::vector<std::string> lacking;
  MutexLock lock(mutex_);
  while (!lines.empty())
    if (!take_line(next_part(lines, '\n'), sender, lacking)) return std::nullopt;
  expire();
  return lacking;
}

bool StreamRecords::take_line(std::string_view line, std::string_view sender,
                              std::vector<std::string>& lacking) {
  const std::string_view id = next_part(line, ' ');
  const std::string_view state = next_part(line, ' ');
  const bool is_over = state == "left" || state == "ended";
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) {
    if (state == "live") add_lacking(id, lacking);
    return true;
  }
  // Ignore changes of a stream that this rank continues itself, or that another rank sent since:
  // what the sender says is outdated.
  if (found->second->state != StreamState::copy || found->second->sender != sender) return true;
  const StreamRecordPtr stream = found->second;
  if (state == "gone") return remove(*stream), true;
  bool has_gap = false;
  while (!line.empty()) {
    std::string_view part = next_part(line, ' ');
    size_t choice = 0, index = 0;
    if (!read_whole(next_part(part, ':'), choice) || !read_whole(next_part(part, ':'), index) ||
        choice >= stream->request.tokens.size())
      return false;
    // The copy may have been replaced since, so it lacks tokens or has some of these.
    const std::vector<TokenId>& has = stream->request.tokens[choice];
    has_gap |= index > has.size();
    for (; !part.empty(); ++index) {
      int token = 0;
      if (!read_whole(next_part(part, ','), token)) return false;
      if (index != has.size()) continue;
      if (push_token(*stream, choice, TokenId{token})) continue;
      if (!is_over) add_lacking(id, lacking);
      return true;
    }
  }
  if (has_gap && !is_over) add_lacking(id, lacking);
  unpark(*stream);
  park(*stream, !is_over          ? StreamState::copy
                : state == "left" ? StreamState::left
                                  : StreamState::ended);
  return true;
}

}  // namespace hocket
