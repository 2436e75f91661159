#include "server/reply/stream_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace hocket {

struct StreamRecord : std::enable_shared_from_this<StreamRecord> {
  RecordedRequest request;
  StreamRecords::Owner* owner = nullptr;  // until it is removed
  StreamState state = StreamState::live;
  TimePoint since{};
  size_t bytes = 0;
  bool removed = false;
  std::list<StreamRecordPtr>::iterator list_entry;  // in a list of its owner, unless it is live
  // The members below say how much of it the keeper has.
  bool copies = false, is_changed = false;
  std::string keeper;
  std::vector<size_t> num_told;  // by choice
};

namespace {

constexpr size_t kOverhead = 512;  // bytes of a record and its entries
constexpr size_t kMaxGone = 1024;
constexpr Duration kRenew = std::chrono::seconds(10);
// A copy is renewed every kRenew, so it lives that much longer than what the client may count on.
constexpr Duration kCopyLonger = std::chrono::seconds(15);

const char* name_of(StreamState state) {
  return state == StreamState::left ? "left" : state == StreamState::ended ? "ended" : "live";
}

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

}  // namespace

StreamRecordPtr StreamRecords::add(RecordedRequest request, StreamState state) {
  if (limits_.max_bytes == 0) return nullptr;
  auto stream = std::make_shared<StreamRecord>();
  stream->bytes = kOverhead + request.num_bytes();
  stream->num_told.resize(request.tokens.size());
  stream->request = std::move(request);
  const RecordedRequest& recorded = stream->request;
  MutexLock lock(mutex_);
  expire();
  const auto same = by_id_.find(recorded.identity.id);
  const bool foreign = same != by_id_.end() && same->second->request.who != recorded.who;
  // This rank goes on with the stream, so it needs no copy of another rank's.
  if (same != by_id_.end() && state == StreamState::copy &&
      same->second->state == StreamState::live)
    return nullptr;
  if (same != by_id_.end() && !foreign) {
    same->second->copies = false;  // the keeper replaces its copy too
    remove(*same->second);
  }
  Owner& owner = owners_[recorded.who];
  const bool fits = !foreign && recorded.tokens.size() <= kMaxRecordedChoices &&
                    recorded.body.size() <= limits_.max_body;
  if (!fits || !make_room(owner, stream->bytes, 1)) {
    if (fits) refuse();
    if (owner.num_records == 0) owners_.erase(recorded.who);
    return nullptr;
  }
  by_id_.emplace(recorded.identity.id, stream);
  stream->owner = &owner;
  owner.bytes += stream->bytes;
  ++owner.num_records;
  bytes_ += stream->bytes;
  if (state != StreamState::live) park(*stream, state);
  return stream;
}

StreamRecordPtr StreamRecords::add(const HttpRequest& request, const PreparedRequest& prepared) {
  auto record = recorded_request(request, prepared);
  return record ? add(*std::move(record), StreamState::live) : nullptr;
}

void StreamRecords::add_token(StreamRecord& stream, size_t choice, size_t index, TokenId token) {
  MutexLock lock(mutex_);
  if (stream.removed || choice >= stream.request.tokens.size()) return;
  if (stream.request.tokens[choice].size() == index && push_token(stream, choice, token))
    changed(stream);
}

// Says once that there is no room.
void StreamRecords::refuse() {
  if (num_refused_++ > 0) return;
  log::warning(
      "streams: there is no room for the record of one, so its client cannot come back to it; "
      "--stream-store-mib is {}",
      limits_.max_bytes >> 20);
}

// Returns false if there is no room for the token; the record is removed then.
bool StreamRecords::push_token(StreamRecord& stream, size_t choice, TokenId token) {
  Owner& owner = *stream.owner;
  const bool fits = make_room(owner, sizeof(TokenId), 0);
  if (stream.removed) return false;
  if (!fits) {
    refuse();
    remove(stream);
    return false;
  }
  stream.request.tokens[choice].push_back(token);
  stream.bytes += sizeof(TokenId);
  owner.bytes += sizeof(TokenId);
  bytes_ += sizeof(TokenId);
  return true;
}

void StreamRecords::set_state(StreamRecord& stream, StreamState state) {
  MutexLock lock(mutex_);
  if (stream.removed || stream.state == state) return;
  unpark(stream);
  changed(stream);
  if (state != StreamState::live) park(stream, state);
}

void StreamRecords::rename(StreamRecord& stream, const std::string& id) {
  MutexLock lock(mutex_);
  if (stream.removed || by_id_.contains(id)) return;
  auto entry = by_id_.extract(stream.request.identity.id);
  entry.key() = stream.request.identity.id = id;
  by_id_.insert(std::move(entry));
}

void StreamRecords::erase(StreamRecord& stream) {
  MutexLock lock(mutex_);
  if (!stream.removed) remove(stream);
}

void StreamRecords::erase(std::string_view id, std::string_view who) {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end() || (!who.empty() && found->second->request.who != who)) return;
  remove(*found->second);
}

Result<StreamRecords::Found> StreamRecords::find(std::string_view id, std::string_view who) {
  const std::string name(id);
  MutexLock lock(mutex_);
  expire();
  const auto found = by_id_.find(name);
  if (found != by_id_.end() && found->second->request.who == who) {
    const StreamRecordPtr& stream = found->second;
    const StreamState state = stream->state;
    if (state != StreamState::live) {
      unpark(*stream);
      park(*stream, state);
    }
    return Found{.request = stream->request, .state = state, .stream = stream};
  }
  if (std::ranges::find(gone_, std::pair{name, std::string(who)}) != gone_.end())
    return fail(error(ErrorCode::not_found,
                      "the stream '{}' is too old: it was left or ended more "
                      "than {} s ago",
                      id.substr(0, 128), to_seconds(limits_.retention))
                    .with_fix("send the request again"));
  return fail(
      error(ErrorCode::not_found, "there is no stream '{}' that could go on", id.substr(0, 128))
          .with_fix(fmt::format("streams are kept for {} s after they were left or ended, "
                                "and for the key that began them",
                                to_seconds(limits_.retention))));
}

void StreamRecords::park(StreamRecord& stream, StreamState state) {
  Owner& owner = *stream.owner;
  std::list<StreamRecordPtr>& list = state == StreamState::ended ? owner.ended : owner.left;
  stream.list_entry = list.insert(list.end(), stream.shared_from_this());
  stream.state = state;
  stream.since = RealClock().now();
}

// Makes the stream live: takes it out of its list.
void StreamRecords::unpark(StreamRecord& stream) {
  if (stream.state == StreamState::live) return;
  Owner& owner = *stream.owner;
  (stream.state == StreamState::ended ? owner.ended : owner.left).erase(stream.list_entry);
  stream.state = StreamState::live;
}

void StreamRecords::remove(StreamRecord& stream) {
  const StreamRecordPtr holder = stream.shared_from_this();
  unpark(stream);
  changed(stream);
  stream.removed = true;
  Owner& owner = *std::exchange(stream.owner, nullptr);
  owner.bytes -= stream.bytes;
  bytes_ -= stream.bytes;
  by_id_.erase(stream.request.identity.id);
  if (--owner.num_records == 0) owners_.erase(stream.request.who);
}

void StreamRecords::expire() {
  const TimePoint now = RealClock().now();
  std::vector<StreamRecordPtr> old;
  for (auto& [who, owner] : owners_)
    for (const std::list<StreamRecordPtr>* list : {&owner.left, &owner.ended})
      for (const StreamRecordPtr& stream : *list) {
        const bool copy = stream->state == StreamState::copy;
        if (now - stream->since < limits_.retention + (copy ? kCopyLonger : Duration{})) break;
        old.push_back(stream);
      }
  for (const StreamRecordPtr& stream : old) {
    gone_.emplace_back(stream->request.identity.id, stream->request.who);
    if (gone_.size() > kMaxGone) gone_.pop_front();
    remove(*stream);
  }
}

// Removes records until the owner may have `bytes` more in `records` more records. Returns false if
// that is not possible.
bool StreamRecords::make_room(const Owner& owner, size_t bytes, size_t records) {
  const auto fits = [&]() HOCKET_REQUIRES(mutex_) {
    return bytes_ + bytes <= limits_.max_bytes && by_id_.size() + records <= limits_.max_count;
  };
  const auto first_at_rest = [](const Owner& of) {
    return !of.ended.empty() ? of.ended.front() : !of.left.empty() ? of.left.front() : nullptr;
  };
  while (owner.bytes + bytes > limits_.max_bytes / 2) {
    const StreamRecordPtr first = first_at_rest(owner);
    if (first == nullptr || owner.num_records == 1) return false;
    remove(*first);
  }
  while (!fits()) {
    StreamRecordPtr first;
    size_t most = 0;
    for (const auto& [who, other] : owners_)
      if (const auto found = first_at_rest(other); found && (!first || other.bytes > most)) {
        first = found;
        most = other.bytes;
      }
    if (first == nullptr) return false;
    if (first->owner == &owner && owner.num_records == 1) return false;
    remove(*first);
  }
  return true;
}

void StreamRecords::set_copies(StreamRecord& stream, Copies copies) {
  MutexLock lock(mutex_);
  stream.copies = copies == Copies::wanted;
  if (!stream.removed) changed(stream);
}

void StreamRecords::copied_to(StreamRecord& stream, std::string_view keeper) {
  MutexLock lock(mutex_);
  if (keeper.empty() && stream.keeper.empty()) return;  // it is sent again with the others
  stream.keeper = keeper;
  std::ranges::fill(stream.num_told, 0);
  changed(stream);
}

void StreamRecords::drop_changes() {
  MutexLock lock(mutex_);
  for (const StreamRecordPtr& stream : told_later_) stream->is_changed = false;
  told_later_.clear();
}

void StreamRecords::forget_keeper(std::string_view keeper) {
  MutexLock lock(mutex_);
  for (const auto& [id, stream] : by_id_) {
    if (stream->keeper != keeper) continue;
    stream->keeper.clear();
    changed(*stream);
  }
}

// Notes that the keeper does not know all of the stream.
void StreamRecords::changed(StreamRecord& stream) {
  if (!stream.copies || std::exchange(stream.is_changed, true)) return;
  told_later_.push_back(stream.shared_from_this());
}

StreamRecords::Changes StreamRecords::changes_for(std::string_view keeper, size_t limit) {
  Changes changes;
  MutexLock lock(mutex_);
  expire();
  if (const TimePoint now = RealClock().now(); now - renewed_ >= kRenew) {
    renewed_ = now;
    for (const auto& [id, stream] : by_id_)
      if (stream->state == StreamState::live) changed(*stream);
  }
  std::vector<StreamRecordPtr> later;
  for (const StreamRecordPtr& stream : std::exchange(told_later_, {})) {
    stream->is_changed = false;
    const bool known = stream->keeper == keeper;
    const bool replaced = stream->removed && by_id_.contains(stream->request.identity.id);
    if (!stream->copies || replaced ||
        (!known && (stream->removed || stream->state != StreamState::live)))
      continue;
    const bool full = known ? changes.lines.size() >= kChangesBytes : changes.whole.size() == limit;
    if (full) {
      stream->is_changed = true;
      later.push_back(stream);
    } else if (known) {
      append_changes(*stream, changes.lines);
    } else {
      changes.whole.push_back(bare(stream));
    }
  }
  told_later_.insert(told_later_.end(), later.begin(), later.end());
  return changes;
}

//   ID STATE CHOICE:PLACE:TOKEN,TOKEN.. CHOICE:..\n    PLACE: that of the first token
void StreamRecords::append_changes(StreamRecord& stream, std::string& lines) {
  const bool gone = stream.removed;
  const auto out = std::back_inserter(lines);
  fmt::format_to(out, "{} {}", stream.request.identity.id, gone ? "gone" : name_of(stream.state));
  for (size_t c = 0; c < stream.num_told.size() && !gone; ++c) {
    const std::vector<TokenId>& ids = stream.request.tokens[c];
    size_t& told = stream.num_told[c];
    if (told == ids.size()) continue;
    fmt::format_to(out, " {}:{}:", c, told);
    for (const size_t first = told; told < ids.size(); ++told)
      fmt::format_to(out, "{}{}", told == first ? "" : ",", value(ids[told]));
  }
  lines += '\n';
}

bool StreamRecords::take_changes(std::string_view lines) {
  MutexLock lock(mutex_);
  while (!lines.empty())
    if (!take_line(next_part(lines, '\n'))) return false;
  expire();
  return true;
}

bool StreamRecords::take_line(std::string_view line) {
  const auto found = by_id_.find(std::string(next_part(line, ' ')));
  const std::string_view state = next_part(line, ' ');
  // Only copies are told of: a stream that this rank goes on with is its own.
  if (found == by_id_.end() || found->second->state != StreamState::copy) return true;
  const StreamRecordPtr stream = found->second;
  if (state == "gone") return remove(*stream), true;
  while (!line.empty()) {
    std::string_view part = next_part(line, ' ');
    size_t choice = 0, index = 0;
    if (!read_whole(next_part(part, ':'), choice) || !read_whole(next_part(part, ':'), index) ||
        choice >= stream->request.tokens.size())
      return false;
    if (index != stream->request.tokens[choice].size()) continue;
    while (!part.empty()) {
      int token = 0;
      if (!read_whole(next_part(part, ','), token)) return false;
      if (!push_token(*stream, choice, TokenId{token})) return true;
    }
  }
  const bool over = state == "left" || state == "ended";
  unpark(*stream);
  park(*stream, !over             ? StreamState::copy
                : state == "left" ? StreamState::left
                                  : StreamState::ended);
  return true;
}

StreamRecords::Found StreamRecords::without_tokens(const StreamRecordPtr& stream) const {
  MutexLock lock(mutex_);
  return bare(stream);
}

StreamRecords::Found StreamRecords::bare(const StreamRecordPtr& stream) {
  const RecordedRequest& full = stream->request;
  RecordedRequest request{.identity = full.identity,
                          .who = full.who,
                          .path = full.path,
                          .body = full.body,
                          .routing_key = full.routing_key,
                          .client = full.client,
                          .event_ids = full.event_ids};
  request.tokens.resize(full.tokens.size());
  return {.request = std::move(request), .state = stream->state, .stream = stream};
}

StreamRecords::Counts StreamRecords::counts() const {
  MutexLock lock(mutex_);
  return {.num_records = by_id_.size(), .bytes = bytes_, .num_refused = num_refused_};
}

}  // namespace hocket
