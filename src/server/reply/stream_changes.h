// Sends the live streams of this rank to other ranks, the keepers, and stores the records that
// other ranks send of theirs. A keeper is known by its boot id.
// Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/reply/stream_record.h"
#include "server/reply/stream_table.h"

namespace hocket {

class StreamChanges {
 public:
  explicit StreamChanges(LockedStreams& streams) : streams_(streams) {}

  // Sets the keepers, the preferred first, at most kMaxKeepers. New ones get all that is live with
  // the next changes.
  void set_keepers(std::span<const std::string> boot_ids);
  // Says how many keepers shall have a copy of the stream. `holder`: a process that has the record
  // already; it is sent no copy and is not counted.
  void set_copies(StreamRecord& stream, size_t num, std::string_view holder = {});
  // Notes that this rank continues another rank's stream: keepers refuse that rank's copies.
  void count_takeover(StreamRecord& stream);
  // Returns the request without its tokens if this keeper shall have a copy and none is on its way;
  // the caller sends it, and calls copied_to().
  std::optional<StreamSnapshot> begin_copy(const StreamRecordPtr& stream, std::string_view keeper);
  // Says whether the keeper has the request; it gets the tokens with the next changes. If it has
  // not, or if its copy was replaced, it is sent the request and all tokens again.
  void copied_to(StreamRecord& stream, std::string_view keeper, bool is_known);
  // The keeper lacks the copies of these ids, or tokens in them: they are sent whole again.
  void copies_lack(std::span<const std::string> ids, std::string_view keeper);
  // The copies that this keeper had are lost.
  void forget_copies(std::string_view keeper);
  struct Changes {
    std::vector<StreamSnapshot>
        whole;          // requests without their tokens; copied_to() has the result for each
    std::string lines;  // for take_changes()
  };
  // Returns what the keeper does not know yet: at most `limit` whole requests, and lines of
  // about kChangesBytes.
  static constexpr size_t kChangesBytes = 256 << 10;
  Changes changes_for(std::string_view keeper, size_t limit);
  // Reads lines that changes_for() of the rank `sender` wrote. Lines about streams whose copy came
  // from another rank are ignored. Returns the ids of live streams, at most kMaxLacking, of which
  // it has no copy, or one that lacks tokens before those in the line. Returns nullopt if a line is
  // not as it should be.
  static constexpr size_t kMaxLacking = 1024;
  std::optional<std::vector<std::string>> take_changes(std::string_view lines,
                                                       std::string_view sender);

 private:
  LockedStreams& streams_;
  TimePoint renewed_ HOCKET_GUARDED_BY(streams_.mutex){};
};

}  // namespace hocket
