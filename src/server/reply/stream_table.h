// All records of streams: by their ids, and those at rest by owner and age. Makes room for new
// ones.
//
//   live -> left (the client is gone)   -> gone after `retention`
//        -> ended (all bytes were sent) -> gone after `retention`, or when room is needed
//   copy (of a stream of another rank)  -> gone `retention` after the last changes of it
//
// If there is no room, the principal with the most bytes loses its oldest records, those of ended
// streams first; records of live streams stay. A copy makes no other copy go: it is refused
// instead. A principal may hold half of the bytes.
// Owner: LockedStreams, whose mutex guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/reply/stream_copies.h"
#include "server/reply/stream_record.h"

namespace hocket {

class StreamTable {
 public:
  struct Limits {
    size_t max_bytes = 64 << 20;  // bodies and tokens of all records; 0: none is kept
    size_t max_count = 16384;
    size_t max_body = 1 << 20;
    Duration retention = std::chrono::seconds(60);
    // A keeper that refuses a copy is asked again after this time, then after up to 60 times it.
    Duration retry = std::chrono::seconds(1);
  };
  explicit StreamTable(const Limits& limits) : limits_(limits) {}

  // Puts the record in place of the one of the same id and principal, if there is one. `sender`:
  // the rank that sent a copy. Errors: those of StreamRecords::add_copy.
  Result<StreamRecordPtr> put(RecordedRequest request, StreamState state, std::string_view sender);
  // Returns null if there is none.
  StreamRecordPtr find(std::string_view id) const;
  // Returns true if there was such a record, which became too old.
  bool is_too_old(std::string_view id, std::string_view who) const;
  // Gives the record another id, unless that has one.
  void rename(StreamRecord& stream, const std::string& id);
  // Adds a token behind those of the choice. Returns false if there is no room; the record is
  // removed then.
  bool push_token(StreamRecord& stream, size_t choice, TokenId token);
  // Moves the record to where those in that state are; one at rest is the youngest then.
  void set_state(StreamRecord& stream, StreamState state);
  void remove(StreamRecord& stream);
  // Removes the records that are too old.
  void expire();
  // Notes that keepers do not know all of any live stream.
  void change_all_live();

  struct Counts {
    size_t num_records = 0, bytes = 0;
    uint64_t num_refused = 0;  // streams for which there was no room
    uint64_t num_evicted = 0;  // records of streams that had not ended, which made room for others
  };
  Counts counts() const;
  const Limits& limits() const { return limits_; }
  StreamCopies& copies() { return copies_; }
  const std::unordered_map<std::string, StreamRecordPtr>& by_id() const { return by_id_; }

 private:
  // Records that make_room() must not remove, besides those of live streams.
  struct EvictionExemption {
    bool copies = false;
    const StreamRecord* record = nullptr;
  };
  Result<void> may_put(const RecordedRequest& request, StreamState state) const;
  void refuse();
  void evict(StreamRecord& stream);
  bool make_room(const StreamOwner& owner, size_t bytes, size_t records, EvictionExemption exempt);

  const Limits limits_;
  std::unordered_map<std::string, StreamRecordPtr> by_id_;
  std::unordered_map<std::string, StreamOwner> owners_;
  std::deque<std::pair<std::string, std::string>> gone_;  // id, who
  StreamCopies copies_;
  Counts counts_;       // num_records aside
  TimePoint warned_{};  // when a warning named num_evicted
};

// The table and its lock.
struct LockedStreams {
  mutable Mutex mutex;
  StreamTable table HOCKET_GUARDED_BY(mutex);
};

}  // namespace hocket
