#include "server/reply/stream_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hocket {

namespace {

constexpr size_t kOverhead = 512;  // bytes of a record and its entries
constexpr size_t kMaxGone = 1024;
// A copy is renewed every 10 s (StreamChanges::changes_for), so it lives longer than what the
// client may count on.
constexpr Duration kCopyLonger = std::chrono::seconds(15);
constexpr Duration kWarnAgain = std::chrono::seconds(60);

std::list<StreamRecordPtr>& list_of(StreamOwner& owner, StreamState state) {
  return state == StreamState::ended  ? owner.ended
         : state == StreamState::copy ? owner.copies
                                      : owner.left;
}

// Returns the first record of the list that is not `exempt`.
StreamRecordPtr first_of(const std::list<StreamRecordPtr>& list, const StreamRecord* exempt) {
  for (const StreamRecordPtr& stream : list)
    if (stream.get() != exempt) return stream;
  return nullptr;
}

}  // namespace

// Returns why the record cannot be kept, whatever room there is.
Result<void> StreamTable::may_put(const RecordedRequest& request, StreamState state) const {
  if (request.tokens.size() > kMaxRecordedChoices || request.body.size() > limits_.max_body)
    return fail(error(ErrorCode::payload_too_large,
                      "the stream is not kept: it has {} choices and a body of {} bytes",
                      request.tokens.size(), request.body.size())
                    .with_fix(fmt::format("ask for at most {} choices and {} bytes",
                                          kMaxRecordedChoices, limits_.max_body)));
  const auto same = by_id_.find(request.identity.id);
  if (same == by_id_.end()) return {};
  const StreamRecord& other = *same->second;
  const std::string_view id = std::string_view(request.identity.id).substr(0, 128);
  if (other.request.who != request.who)
    return fail(error(ErrorCode::taken_over, "'{}' is the stream of another principal", id)
                    .with_fix("choose another id"));
  // An id may be used again; the seed distinguishes one answer from another.
  const bool is_older = other.request.identity.call_seed == request.identity.call_seed &&
                        other.request.num_takeovers > request.num_takeovers;
  if (state == StreamState::copy && (other.state == StreamState::live || is_older))
    return fail(error(ErrorCode::taken_over, "another rank continues the stream '{}'", id)
                    .with_fix("read it there"));
  return {};
}

Result<StreamRecordPtr> StreamTable::put(RecordedRequest request, StreamState state,
                                         std::string_view sender) {
  auto stream = std::make_shared<StreamRecord>();
  stream->bytes = kOverhead + request.num_bytes();
  stream->request = std::move(request);
  stream->sender = sender;
  const RecordedRequest& recorded = stream->request;
  expire();
  HOCKET_TRY_VOID(may_put(recorded, state));
  const auto found = by_id_.find(recorded.identity.id);
  const StreamRecordPtr same = found == by_id_.end() ? nullptr : found->second;
  // The old record stays until it is sure that the new one fits.
  const size_t more = stream->bytes - std::min(stream->bytes, same ? same->bytes : 0);
  const StreamOwner& holder = owners_[recorded.who];
  if (limits_.max_bytes == 0 ||
      !make_room(holder, more, same ? 0 : 1,
                 {.copies = state == StreamState::copy, .record = same.get()})) {
    if (holder.num_records == 0) owners_.erase(recorded.who);
    if (limits_.max_bytes > 0) refuse();
    return fail(error(ErrorCode::out_of_memory, "there is no room for the stream")
                    .with_fix("raise --stream-store-mib"));
  }
  if (same) {
    same->num_copies = 0;  // the keepers replace their copies too
    remove(*same);
  }
  StreamOwner& owner = owners_[recorded.who];
  by_id_.emplace(recorded.identity.id, stream);
  stream->owner = &owner;
  owner.bytes += stream->bytes;
  ++owner.num_records;
  counts_.bytes += stream->bytes;
  set_state(*stream, state);
  return stream;
}

StreamRecordPtr StreamTable::find(std::string_view id) const {
  const auto found = by_id_.find(std::string(id));
  return found == by_id_.end() ? nullptr : found->second;
}

bool StreamTable::is_too_old(std::string_view id, std::string_view who) const {
  return std::ranges::find(gone_, std::pair{std::string(id), std::string(who)}) != gone_.end();
}

void StreamTable::rename(StreamRecord& stream, const std::string& id) {
  if (by_id_.contains(id)) return;
  auto entry = by_id_.extract(stream.request.identity.id);
  entry.key() = stream.request.identity.id = id;
  by_id_.insert(std::move(entry));
}

// Says once that there is no room.
void StreamTable::refuse() {
  if (counts_.num_refused++ > 0) return;
  log::warning(
      "streams: there is no room for the record of one, so its client cannot resume it; "
      "--stream-store-mib is {}",
      limits_.max_bytes >> 20);
}

bool StreamTable::push_token(StreamRecord& stream, size_t choice, TokenId token) {
  StreamOwner& owner = *stream.owner;
  const bool is_copy = stream.state == StreamState::copy;
  if (!make_room(owner, sizeof(TokenId), 0, {.copies = is_copy, .record = &stream})) {
    refuse();
    is_copy ? evict(stream) : remove(stream);
    return false;
  }
  stream.request.tokens[choice].push_back(token);
  stream.bytes += sizeof(TokenId);
  owner.bytes += sizeof(TokenId);
  counts_.bytes += sizeof(TokenId);
  return true;
}

void StreamTable::set_state(StreamRecord& stream, StreamState state) {
  if (stream.state != StreamState::live)
    list_of(*stream.owner, stream.state).erase(stream.list_entry);
  stream.state = state;
  if (state == StreamState::live) return;
  std::list<StreamRecordPtr>& list = list_of(*stream.owner, state);
  stream.list_entry = list.insert(list.end(), stream.shared_from_this());
  stream.since = RealClock().now();
}

// Its keepers and its answer may hold the record longer, so its texts and tokens go at once.
void StreamTable::remove(StreamRecord& stream) {
  const StreamRecordPtr holder = stream.shared_from_this();
  set_state(stream, StreamState::live);
  copies_.changed(stream);
  stream.removed = true;
  StreamOwner& owner = *std::exchange(stream.owner, nullptr);
  owner.bytes -= stream.bytes;
  counts_.bytes -= stream.bytes;
  by_id_.erase(stream.request.identity.id);
  if (--owner.num_records == 0) owners_.erase(stream.request.who);
  std::string().swap(stream.request.body);
  for (std::vector<TokenId>& ids : stream.request.tokens) std::vector<TokenId>().swap(ids);
}

void StreamTable::expire() {
  const TimePoint now = RealClock().now();
  std::vector<StreamRecordPtr> old;
  for (auto& [who, owner] : owners_)
    for (const std::list<StreamRecordPtr>* list : {&owner.left, &owner.ended, &owner.copies})
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

// Removes a record to make room. Says it once in kWarnAgain if its client may still connect again.
void StreamTable::evict(StreamRecord& stream) {
  if (stream.state != StreamState::ended) {
    ++counts_.num_evicted;
    const TimePoint now = RealClock().now();
    if (warned_ == TimePoint{} || now - warned_ >= kWarnAgain) {
      warned_ = now;
      log::warning(
          "streams: {} records of streams that had not ended made room for others so far; "
          "--stream-store-mib is {}",
          counts_.num_evicted, limits_.max_bytes >> 20);
    }
  }
  remove(stream);
}

// Removes records until the owner may have `bytes` more in `records` more records. Returns false if
// that is not possible.
bool StreamTable::make_room(const StreamOwner& owner, size_t bytes, size_t records,
                            EvictionExemption exempt) {
  const auto fits = [&]() {
    return counts_.bytes + bytes <= limits_.max_bytes &&
           by_id_.size() + records <= limits_.max_count;
  };
  const auto first_at_rest = [&](const StreamOwner& of) {
    StreamRecordPtr first = first_of(of.ended, exempt.record);
    if (!first) first = first_of(of.left, exempt.record);
    if (!first && !exempt.copies) first = first_of(of.copies, exempt.record);
    return first;
  };
  while (owner.bytes + bytes > limits_.max_bytes / 2) {
    const StreamRecordPtr first = first_at_rest(owner);
    if (first == nullptr || owner.num_records == 1) return false;
    evict(*first);
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
    evict(*first);
  }
  return true;
}

void StreamTable::change_all_live() {
  for (const auto& [id, stream] : by_id_)
    if (stream->state == StreamState::live) copies_.changed(*stream);
}

StreamTable::Counts StreamTable::counts() const {
  Counts counts = counts_;
  counts.num_records = by_id_.size();
  return counts;
}

}  // namespace hocket
