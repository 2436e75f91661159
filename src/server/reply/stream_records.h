// Keeps the requests of streams with the tokens that they have so far, so that a client whose
// connection or whose rank was lost can connect again: any rank that gets such a record makes the
// rest of the stream, with the same bytes. StreamTable says which records stay, and StreamChanges
// what other ranks have of them.
// Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "server/http/http.h"
#include "server/reply/recorded_request.h"
#include "server/reply/stream_changes.h"
#include "server/reply/stream_record.h"
#include "server/reply/stream_table.h"

namespace hocket {

class StreamRecords {
 public:
  using Limits = StreamTable::Limits;
  explicit StreamRecords(const Limits& limits)
      : streams_{.mutex = {}, .table = StreamTable(limits)} {}

  // Returns null if it is not kept: too large, no room, or another principal has that id. A record
  // of the same id and principal is replaced.
  StreamRecordPtr add(RecordedRequest request, StreamState state);
  // Keeps the record of a live stream; null as above, or if the request has none.
  StreamRecordPtr add(const HttpRequest& request, const PreparedRequest& prepared);
  // Keeps a copy of a stream of the rank `sender`. Errors: taken_over (this rank, or one that sent
  // it after a later takeover, continues the stream, or the id is another principal's),
  // payload_too_large, out_of_memory (there is no room).
  Result<StreamRecordPtr> add_copy(RecordedRequest request, std::string_view sender);
  // Adds the token at `index` of a choice, unless the record has it already.
  void add_token(StreamRecord& stream, size_t choice, size_t index, TokenId token);
  void set_state(StreamRecord& stream, StreamState state);
  void rename(StreamRecord& stream, const std::string& id);
  void erase(StreamRecord& stream);
  // Deletes the records of this id, or of `who` only if that is not empty.
  void erase(std::string_view id, std::string_view who);

  // A record that is found is kept for another `retention`. Errors: not_found, which says whether
  // it is unknown or too old.
  Result<StreamSnapshot> find(std::string_view id, std::string_view who);

  // The copies of this rank's records that other ranks have, and those of theirs.
  StreamChanges& changes() { return changes_; }
  StreamTable::Counts counts() const;
  // Returns the bytes that one record may have.
  size_t max_bytes() const;

 private:
  LockedStreams streams_;
  StreamChanges changes_{streams_};
};

}  // namespace hocket
