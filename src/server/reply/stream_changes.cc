#include "server/reply/stream_changes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "server/reply/stream_position.h"

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
  if (lacking.size() < StreamChanges::kMaxLacking && id.size() <= kMaxAnswerId && !id.empty())
    lacking.emplace_back(id);
}

// Returns the record without its tokens.
StreamSnapshot bare(const StreamRecordPtr& stream) {
  const RecordedRequest& full = stream->request;
  RecordedRequest request{.identity = full.identity,
                          .who = full.who,
                          .path = full.path,
                          .body = full.body,
                          .routing_key = full.routing_key,
                          .client = full.client,
                          .event_ids = full.event_ids,
                          .num_takeovers = full.num_takeovers,
                          .tokens = {}};
  request.tokens.resize(full.tokens.size());
  return {.request = std::move(request), .state = stream->state, .stream = stream};
}

// Returns false if the line is not as it should be.
bool take_line(StreamTable& table, std::string_view line, std::string_view sender,
               std::vector<std::string>& lacking) {
  const std::string_view id = next_part(line, ' ');
  const std::string_view state = next_part(line, ' ');
  const bool is_over = state == "left" || state == "ended";
  const StreamRecordPtr stream = table.find(id);
  if (!stream) {
    if (state == "live") add_lacking(id, lacking);
    return true;
  }
  // Ignore changes of a stream that this rank continues itself, or that another rank sent since:
  // what the sender says is outdated.
  if (stream->state != StreamState::copy || stream->sender != sender) return true;
  if (state == "gone") return table.remove(*stream), true;
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
      if (table.push_token(*stream, choice, TokenId{token})) continue;
      if (!is_over) add_lacking(id, lacking);
      return true;
    }
  }
  if (has_gap && !is_over) add_lacking(id, lacking);
  table.set_state(*stream, !is_over          ? StreamState::copy
                           : state == "left" ? StreamState::left
                                             : StreamState::ended);
  return true;
}

}  // namespace

void StreamChanges::set_keepers(std::span<const std::string> boot_ids) {
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  StreamCopies& copies = table.copies();
  const auto other = copies.set_keepers(boot_ids);
  if (!other) return;
  for (const auto& [id, stream] : table.by_id()) {
    for (const size_t slot : *other) stream->copies[slot] = {};
    copies.forget_unwanted(*stream);
  }
  table.change_all_live();
}

void StreamChanges::set_copies(StreamRecord& stream, size_t num, std::string_view holder) {
  MutexLock lock(streams_.mutex);
  StreamCopies& copies = streams_.table.copies();
  stream.num_copies = num;
  stream.holder = holder;
  copies.forget_unwanted(stream);
  if (!stream.removed) copies.changed(stream);
}

void StreamChanges::count_takeover(StreamRecord& stream) {
  MutexLock lock(streams_.mutex);
  if (stream.request.num_takeovers < UINT32_MAX) ++stream.request.num_takeovers;
}

std::optional<StreamSnapshot> StreamChanges::begin_copy(const StreamRecordPtr& stream,
                                                        std::string_view keeper) {
  MutexLock lock(streams_.mutex);
  StreamCopies& copies = streams_.table.copies();
  const auto slot = copies.slot_of(keeper);
  if (!slot || stream->removed || !copies.wants(*stream, *slot)) return std::nullopt;
  if (stream->copies[*slot].is_sending) return std::nullopt;
  StreamSnapshot found = bare(stream);
  stream->copies[*slot].is_sending = true;
  return found;
}

void StreamChanges::copied_to(StreamRecord& stream, std::string_view keeper, bool is_known) {
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  StreamCopies& copies = table.copies();
  const auto slot = copies.slot_of(keeper);
  if (!slot) return;
  StreamRecord::Copy& copy = stream.copies[*slot];
  copy.is_sending = false;
  if (!is_known) pause_copy(copy, table.limits().retry);
  // A keeper that never had the request gets it with the next changes after the pause.
  copies.set_known(stream, *slot, is_known && copies.wants(stream, *slot));
}

void StreamChanges::copies_lack(std::span<const std::string> ids, std::string_view keeper) {
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  StreamCopies& copies = table.copies();
  const auto slot = copies.slot_of(keeper);
  if (!slot) return;
  for (const std::string& id : ids) {
    const StreamRecordPtr stream = table.find(id);
    if (!stream || !stream->copies[*slot].is_known) continue;
    pause_copy(stream->copies[*slot], table.limits().retry);
    copies.set_known(*stream, *slot, false);
  }
}

void StreamChanges::forget_copies(std::string_view keeper) {
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  StreamCopies& copies = table.copies();
  const auto slot = copies.slot_of(keeper);
  if (!slot) return;
  for (const auto& [id, stream] : table.by_id())
    if (stream->copies[*slot].is_known) copies.set_known(*stream, *slot, false);
}

StreamChanges::Changes StreamChanges::changes_for(std::string_view keeper, size_t limit) {
  Changes changes;
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  StreamCopies& copies = table.copies();
  table.expire();
  const TimePoint now = RealClock().now();
  if (now - renewed_ >= kRenew) {
    renewed_ = now;
    table.change_all_live();
  }
  const auto slot = copies.slot_of(keeper);
  if (!slot) return changes;
  std::vector<StreamRecordPtr> later;
  for (const StreamRecordPtr& stream : copies.take_changed(*slot)) {
    StreamRecord::Copy& copy = stream->copies[*slot];
    const bool replaced = stream->removed && table.find(stream->request.identity.id) != nullptr;
    if (!copies.wants(*stream, *slot) || replaced ||
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
  for (const StreamRecordPtr& stream : later) copies.changed(*stream, *slot);
  return changes;
}

std::optional<std::vector<std::string>> StreamChanges::take_changes(std::string_view lines,
                                                                    std::string_view sender) {
  std::vector<std::string> lacking;
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  while (!lines.empty())
    if (!take_line(table, next_part(lines, '\n'), sender, lacking)) return std::nullopt;
  table.expire();
  return lacking;
}

}  // namespace hocket
