// Notes which other ranks, the keepers, shall have copies of this rank's streams, and what each of
// them does not know yet. StreamTable owns it; LockedStreams::mutex guards it.
//
//   stream wants 2, held by none      keepers k1 k2: both
//   stream wants 1, held by k1        keepers k1 k2: k2
//   stream wants 1, held by another   keepers k1 k2: k1
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply/stream_record.h"

namespace hocket {

class StreamCopies {
 public:
  // Sets the keepers, by the boot ids of their processes, the preferred first, at most kMaxKeepers.
  // One that stays keeps its slot. Returns the slots that have another keeper now, or none: the
  // caller resets their copies of all streams. nullopt: keepers and order are as before.
  std::optional<std::vector<size_t>> set_keepers(std::span<const std::string> boot_ids);
  // Returns the slot of a keeper; nullopt: it is none.
  std::optional<size_t> slot_of(std::string_view boot_id) const;
  // Returns true if the keeper in this slot shall have a copy.
  bool wants(const StreamRecord& stream, size_t slot) const;

  // Notes that the keepers, or the one in a slot, do not know all of the stream.
  void changed(StreamRecord& stream);
  void changed(StreamRecord& stream, size_t slot);
  // Notes whether the keeper has the request. It gets the tokens with the next changes.
  void set_known(StreamRecord& stream, size_t slot, bool is_known);
  // Notes that keepers which shall have no copy may forget the one that they have.
  void forget_unwanted(StreamRecord& stream) const;
  // Returns the streams that changed() named for this slot since the last call.
  std::vector<StreamRecordPtr> take_changed(size_t slot);

 private:
  struct Keeper {
    std::string boot_id;                   // empty: the slot is free
    size_t place = 0;                      // in the order of preference
    std::vector<StreamRecordPtr> changed;  // holds those that were removed, too
  };
  std::array<Keeper, kMaxKeepers> keepers_;
};

// Appends a line with the changes that this keeper lacks, and marks them as sent:
//   ID STATE CHOICE:INDEX:TOKEN,TOKEN.. CHOICE:..\n    INDEX: that of the first token
void append_changes(const StreamRecord& stream, StreamRecord::Copy& copy, std::string& lines);

}  // namespace hocket
