// Keeps the requests of streams with the tokens that they have so far, so that a client whose
// connection or whose rank was lost can come back: any rank that gets such a record makes the rest
// of the stream, with the same bytes.
//
//   live -> left (the client went)      -> gone after `retention`
//        -> ended (all bytes were sent) -> gone after `retention`, or when room is needed
//   copy (of a stream of another rank)  -> gone `retention` after the last changes of it
//
// If there is no room, the principal with the most bytes loses its oldest records, those of ended
// streams first; records of live streams stay. A principal may hold half of the bytes.
// Thread: any.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/reply/recorded_request.h"

namespace hocket {

enum class StreamState : uint8_t { live, copy, left, ended };

// The record of one stream. Only StreamRecords reads and writes it.
struct StreamRecord;
using StreamRecordPtr = std::shared_ptr<StreamRecord>;

class StreamRecords {
 public:
  struct Limits {
    size_t max_bytes = 64 << 20;  // bodies and tokens of all records; 0: none is kept
    size_t max_count = 16384;
    size_t max_body = 1 << 20;
    Duration retention = std::chrono::seconds(60);
  };
  explicit StreamRecords(Limits limits) : limits_(limits) {}

  // Returns null if it is not kept: too large, no room, or another principal has that id. A record
  // of the same id and principal is replaced.
  StreamRecordPtr add(RecordedRequest request, StreamState state);
  // Keeps the record of a live stream; null as above, or if the request has none.
  StreamRecordPtr add(const HttpRequest& request, const PreparedRequest& prepared);
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

  // The functions below are for the rank that tells another one, the keeper, of its live streams.

  enum class Copies : uint8_t { wanted, unwanted };
  void set_copies(StreamRecord& stream, Copies copies);
  // Says that the keeper, known by its boot id, has the request; it gets the tokens with the next
  // changes. Empty: none has it, or an older copy, so it is sent whole again.
  void copied_to(StreamRecord& stream, std::string_view keeper);
  // The copies that this keeper had are lost.
  void forget_keeper(std::string_view keeper);
  // Forgets what the keeper does not know, because there is none. Records that were removed are
  // held until then.
  void drop_changes();
  struct Changes {
    std::vector<Found> whole;  // requests without their tokens
    std::string lines;         // for take_changes()
  };
  // Returns what the keeper does not know yet: at most `limit` whole requests, and lines of
  // about kChangesBytes.
  static constexpr size_t kChangesBytes = 256 << 10;
  Changes changes_for(std::string_view keeper, size_t limit);
  // Reads lines that another rank's changes_for() wrote. Returns false if one is not as it should
  // be.
  bool take_changes(std::string_view lines);

  // Returns a copy of the record, without its tokens.
  Found without_tokens(const StreamRecordPtr& stream) const;

  struct Counts {
    size_t num_records = 0, bytes = 0;
    uint64_t num_refused = 0;  // streams for which there was no room
  };
  Counts counts() const;

 private:
  friend struct StreamRecord;
  // It exists while it has records.
  struct Owner {
    std::list<StreamRecordPtr> left, ended;  // at rest, the oldest first; copies are in `left`
    size_t bytes = 0, num_records = 0;
  };
  static Found bare(const StreamRecordPtr& stream);
  void park(StreamRecord& stream, StreamState state) HOCKET_REQUIRES(mutex_);
  void unpark(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  void remove(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  void refuse() HOCKET_REQUIRES(mutex_);
  void expire() HOCKET_REQUIRES(mutex_);
  bool make_room(const Owner& owner, size_t bytes, size_t records) HOCKET_REQUIRES(mutex_);
  bool push_token(StreamRecord& stream, size_t choice, TokenId token) HOCKET_REQUIRES(mutex_);
  void changed(StreamRecord& stream) HOCKET_REQUIRES(mutex_);
  void append_changes(StreamRecord& stream, std::string& lines) HOCKET_REQUIRES(mutex_);
  bool take_line(std::string_view line) HOCKET_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, StreamRecordPtr> by_id_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Owner> owners_ HOCKET_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, std::string>> gone_ HOCKET_GUARDED_BY(mutex_);  // id, who
  std::vector<StreamRecordPtr> told_later_ HOCKET_GUARDED_BY(mutex_);
  TimePoint renewed_ HOCKET_GUARDED_BY(mutex_){};
  size_t bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t num_refused_ HOCKET_GUARDED_BY(mutex_) = 0;
};

}  // namespace hocket
