// The record of one stream, as it lies in a StreamTable; LockedStreams::mutex guards it.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/generation/prepared_request.h"
#include "server/reply/recorded_request.h"

namespace hocket {

enum class StreamState : uint8_t { live, copy, left, ended };

// Number of other ranks that get copies of a rank's streams, at most.
inline constexpr size_t kMaxKeepers = 2;

struct StreamRecord;
using StreamRecordPtr = std::shared_ptr<StreamRecord>;

// The streams of one principal. It exists while it has records.
struct StreamOwner {
  std::list<StreamRecordPtr> left, ended, copies;  // at rest, the oldest first
  size_t bytes = 0, num_records = 0;
};

struct StreamRecord : StreamHandle, std::enable_shared_from_this<StreamRecord> {
  // The part of the stream that one keeper has.
  struct Copy {
    bool is_known = false;         // it has the request
    bool is_changed = false;       // it lacks something
    bool is_sending = false;       // the request is on its way
    std::vector<size_t> num_sent;  // tokens, by choice
    TimePoint retry_at{};          // after a refusal: the request is not sent before
    Duration pause{};              // between the refusal and retry_at
  };

  RecordedRequest request;
  StreamOwner* owner = nullptr;  // until it is removed
  StreamState state = StreamState::live;
  TimePoint since{};
  size_t bytes = 0;
  bool removed = false;
  std::list<StreamRecordPtr>::iterator list_entry;  // in a list of its owner, unless it is live
  std::string sender;                               // the rank whose changes count; of copies only

  // Only StreamCopies uses the members below.
  size_t num_copies = 0;  // that are wanted
  std::string holder;     // boot id of a process that has the record of its own accord
  std::array<Copy, kMaxKeepers> copies;
};

// Returns the record of the request's stream; null: none is kept.
inline StreamRecord* record_of(const PreparedRequest& prepared) {
  return static_cast<StreamRecord*>(prepared.stream_record.get());
}

// A record as it was when the lock was released.
struct StreamSnapshot {
  RecordedRequest request;
  StreamState state = StreamState::left;
  StreamRecordPtr stream;
};

}  // namespace hocket
