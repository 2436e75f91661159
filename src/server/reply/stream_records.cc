#include "server/reply/stream_records.h"

#include <fmt/format.h>

#include <utility>

namespace hocket {

StreamRecordPtr StreamRecords::add(RecordedRequest request, StreamState state) {
  MutexLock lock(streams_.mutex);
  return streams_.table.put(std::move(request), state, {}).value_or(nullptr);
}

Result<StreamRecordPtr> StreamRecords::add_copy(RecordedRequest request, std::string_view sender) {
  MutexLock lock(streams_.mutex);
  return streams_.table.put(std::move(request), StreamState::copy, sender);
}

StreamRecordPtr StreamRecords::add(const HttpRequest& request, const PreparedRequest& prepared) {
  auto record = recorded_request(request, prepared);
  return record ? add(*std::move(record), StreamState::live) : nullptr;
}

void StreamRecords::add_token(StreamRecord& stream, size_t choice, size_t index, TokenId token) {
  MutexLock lock(streams_.mutex);
  if (stream.removed || choice >= stream.request.tokens.size()) return;
  if (stream.request.tokens[choice].size() == index &&
      streams_.table.push_token(stream, choice, token))
    streams_.table.copies().changed(stream);
}

void StreamRecords::set_state(StreamRecord& stream, StreamState state) {
  MutexLock lock(streams_.mutex);
  if (stream.removed || stream.state == state) return;
  streams_.table.set_state(stream, state);
  streams_.table.copies().changed(stream);
}

void StreamRecords::rename(StreamRecord& stream, const std::string& id) {
  MutexLock lock(streams_.mutex);
  if (!stream.removed) streams_.table.rename(stream, id);
}

void StreamRecords::erase(StreamRecord& stream) {
  MutexLock lock(streams_.mutex);
  if (!stream.removed) streams_.table.remove(stream);
}

void StreamRecords::erase(std::string_view id, std::string_view who) {
  MutexLock lock(streams_.mutex);
  const StreamRecordPtr stream = streams_.table.find(id);
  if (stream && (who.empty() || stream->request.who == who)) streams_.table.remove(*stream);
}

Result<StreamSnapshot> StreamRecords::find(std::string_view id, std::string_view who) {
  MutexLock lock(streams_.mutex);
  StreamTable& table = streams_.table;
  table.expire();
  const StreamRecordPtr stream = table.find(id);
  if (stream && stream->request.who == who) {
    table.set_state(*stream, stream->state);
    return StreamSnapshot{.request = stream->request, .state = stream->state, .stream = stream};
  }
  const Duration retention = table.limits().retention;
  if (table.is_too_old(id, who))
    return fail(error(ErrorCode::not_found,
                      "the stream '{}' is too old: it was left or ended more "
                      "than {} s ago",
                      id.substr(0, 128), to_seconds(retention))
                    .with_fix("send the request again"));
  return fail(error(ErrorCode::not_found, "there is no stream '{}' that could be continued",
                    id.substr(0, 128))
                  .with_fix(fmt::format("streams are kept for {} s after they were left or ended, "
                                        "and for the key that began them",
                                        to_seconds(retention))));
}

StreamTable::Counts StreamRecords::counts() const {
  MutexLock lock(streams_.mutex);
  return streams_.table.counts();
}

size_t StreamRecords::max_bytes() const {
  MutexLock lock(streams_.mutex);
  return streams_.table.limits().max_bytes;
}

}  // namespace hocket
