// Keeps the requests of streams with the tokens that they have so far, so that a client whose
// connection or whose rank was lost can come back: any rank that gets such a record makes the rest
// of the stream, with the same bytes.
//
//   live -> left (the client went)      -> gone after `retention`
//        -> ended (all bytes were sent) -> gone after `retention`, or when room is needed
//   copy (of a stream of another rank)  -> gone `retention` after the last changes of it
//
// If there is no room, the principal with the most bytes loses its oldest records, those of ended
// streams first; records of live streams stay. A copy makes no other copy go: it is refused
// instead. A principal may hold half of the bytes.
// Thread: any.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/reply/recorded_request.h"
#include "server/reply/stream_copies.h"
#include "server/reply/stream_record.h"

namespace hocket {

class StreamRecords {
 public:
  struct Limits {
    size_t max_bytes = 64 << 20;  // bodies and tokens of all records; 0: none is kept
    size_t max_count = 16384;
    size_t max_body = 1 << 20;
    Duration retention = std::chrono::seconds(60);
    // A keeper that refuses a copy is asked again after this time, then after up to 60 times it.
    Duration retry = std::chrono::seconds(1);
  };
  explicit StreamRecords(Limits limits) : limits_(limits) {}

  // Returns null if it is not kept: too large, no room, or another principal has that id. A record
  // of the same id and principal is replaced.
  StreamRecordPtr add(RecordedRequest request, StreamState state);
  // Keeps the record of a live stream; null as above, or if the request has none.
  StreamRecordPtr add(const HttpRequest& request, const PreparedRequest& prepared);
  // Keeps a copy of a stream of the rank `sender`. Errors: taken_over (this rank, or one that sent
  // it after a later takeover, goes on with the stream, or the id is another principal's),
  // payload_too_large, out_of_memory (there is no room).
  Result<StreamRecordPtr> add_copy(RecordedRequest request, std::string_view sender);
  // Adds the token at `index` of a choice, unless the record has it already.
  void add_token(StreamRecord& stream, size_t choice, size_t index, TokenId token);
  void set_state(StreamRecord& stream, StreamState state);
  void rename(StreamRecord& stream, const std::string& id);
  void erase(StreamRecord& stream);
  // Forgets the records of this id, or of `who` only if that is not empty.
  void erase(std::string_view id, std::string_view who);

  struct Found {
    RecordedRequest request;
    StreamState state = StreamState::left;
    StreamRecordPtr stream;
  };
  // A record that is found is kept for another `retention`. Errors: not_found, which says whether
  // it is unknown or too old.
  Result<Found> find(std::string_view id, std::string_view who);

  // The functions below are for the rank that tells others, the keepers, of its live streams. A
  // keeper is known by its boot id.

  // Sets the keepers, at most kMaxKeepers. New ones get all that is live with the next changes.
  void set_keepers(std::span<const std::string> boot_ids);
  // Says how many keepers shall have a copy of the stream. `holder`: a process that has the record
  // already; it is sent no copy and is not counted.
  void set_copies(StreamRecord& stream, size_t num, std::string_view holder = {});
  // Notes that this rank goes on with another rank's stream: keepers refuse that rank's copies.
  void count_takeover(StreamRecord& stream);
  // Returns the request without its tokens if this keeper shall have a copy and none is on its way;
  // the caller sends it, and calls copied_to().
  std::optional<Found> begin_copy(const StreamRecordPtr& stream, std::string_view keeper);
  // Says whether the keeper has the request; it gets the tokens with the next changes. If it has
  // not, or if its copy was replaced, it is sent the request and all tokens again.
  void copied_to(StreamRecord& stream, std::string_view keeper, bool is_known);
  // The keeper lacks the copies of these ids, or tokens in them: they are sent whole again.
  void copies_lack(std::span<const std::string> ids, std::string_view keeper);
  // The copies that this keeper had are lost.
  void forget_copies(std::string_view keeper);
  struct Changes {
    std::vector<Found> whole;  // requests without their tokens; copied_to() says what came of each
    std::string lines;         // for take_changes()
  };
  // Returns what the keeper does not know yet: at most `limit` whole requests, and lines of
  // about kChangesBytes.
  static constexpr size_t kChangesBytes = 256 << 10;
  Changes changes_for(std::string_view keeper, size_t limit);
  // Reads lines that the changes_for() of the rank `sender` wrote; those of streams whose copy came
  // from another rank do not count. Returns the ids of live streams, at most kMaxLacking, of which
  // it has no copy, or one that lacks tokens before those in the line. Returns nullopt if a line is
  // not as it should be.
  static constexpr size_t kMaxLacking = 1024;
  std::optional<std::vector<std::string>> take_changes(std::string_view lines,
                                                       std::string_view sender);

  struct Counts {
    size_t num_records = 0, bytes = 0;
    uint64_t num_refused = 0;  // streams for which there was no room
    uint64_t num_evicted = 0;  // records of streams that had not ended, which made room for others
  };
  Counts counts() const;

 private:
  // Records that make_room() must not remove, besides those of live streams.
  struct EvictionExemption {
    bool copies = false;
    const StreamRecord* record = nullptr;
  };
  Result<StreamRecordPtr> put(RecordedRequest request, StreamState state, std::string_view sender);
  Result<void> may_put(const RecordedRequest& request, StreamState state) HOCKET_REQUIRES(mutex_);
  static Found bare(const StreamRecordPtr& stream);
  void park(StreamRecord& stream, StreamState state) HOCKET_REQUIRES(mutex_);
  void unpark(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  void remove(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  void refuse() HOCKET_REQUIRES(mutex_);
  void expire() HOCKET_REQUIRES(mutex_);
  void evict(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  bool make_room(const StreamOwner& owner, size_t bytes, size_t records, EvictionExemption exempt)
      HOCKET_REQUIRES(mutex_);
  bool push_token(StreamRecord& stream, size_t choice, TokenId token) HOCKET_REQUIRES(mutex_);
  void change_all_live() HOCKET_REQUIRES(mutex_);
  bool take_line(std::string_view line, std::string_view sender, std::vector<std::string>& lacking)
      HOCKET_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, StreamRecordPtr> by_id_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<std::string, StreamOwner> owners_ HOCKET_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, std::string>> gone_ HOCKET_GUARDED_BY(mutex_);  // id, who
  StreamCopies copies_ HOCKET_GUARDED_BY(mutex_);
  TimePoint renewed_ HOCKET_GUARDED_BY(mutex_){};
  size_t bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t num_refused_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t num_evicted_ HOCKET_GUARDED_BY(mutex_) = 0;
  TimePoint warned_ HOCKET_GUARDED_BY(mutex_){};  // when a warning named num_evicted_
};

}  // namespace hocket
