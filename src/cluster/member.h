// The nouns of the room: who a rank says it is, what its heart beats, and who is there.
// Thread: values; any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

inline constexpr int kMaxRanks = 128;
inline constexpr size_t kMaxNameBytes = 255;      // of every text of an Identity but the address
inline constexpr size_t kMaxAddressBytes = 4096;  // of the transport's address
inline constexpr size_t kMaxWhyBytes = 1024;      // of a reason; longer ones are cut

// What a rank publishes when it joins.
struct Identity {
  int rank = 0;
  int num_ranks = 1;
  int ranks_per_node = 1;
  std::string host;        // for people
  std::string boot_id;     // of this process: a restarted rank has another
  std::string version;     // of hocket
  std::string model_hash;  // of the model's files
  std::string plans;       // what a step of all ranks may be, in words
  std::string arithmetic;  // level of the arithmetic: ranks of other levels give other bits
  std::string address;     // where the data plane reaches it; opaque bytes

  bool operator==(const Identity&) const = default;
};

// "rank 2 (h2)"; "rank 2" where the host is not known.
std::string name_of(const Identity& identity);
// At most kMaxWhyBytes of it.
std::string cut_why(std::string_view why);
// A random boot id: 16 hexadecimal digits.
std::string make_boot_id();
// Whether the texts and numbers lie within their limits. Errors: bad_value, naming the field.
Result<void> check(const Identity& identity);
// What keeps `other` out of the cluster of `rank_0`: the first field that must be equal and is not,
// with both values. Nothing where they agree.
std::optional<Error> disagreement(const Identity& rank_0, const Identity& other);

// What the engine thread is doing. `waiting`: for messages of other ranks, which have their own
// limit; so it is never taken for stuck.
enum class EngineState : uint8_t { closed, computing, waiting };

// One heartbeat. loaded of to_load: progress of loading, in bytes; 0 of 0 before it is known.
struct Beat {
  uint64_t step = 0;
  uint32_t stage = 0;
  EngineState state = EngineState::closed;
  uint32_t expected_ms = 0;  // of the open step as a whole
  uint64_t loaded = 0, to_load = 0;

  bool same_place(const Beat& other) const {
    return step == other.step && stage == other.stage && state == other.state;
  }
  bool operator==(const Beat&) const = default;
};

// absent: no connection. out: connected, and not (yet) a member. in: a member.
enum class Presence : uint8_t { absent, out, in };

struct Member {
  Presence presence = Presence::absent;
  Identity identity;  // of the last that came; only its rank where none ever did

  bool operator==(const Member&) const = default;
};

// Who is there, as rank 0 says. epoch counts memberships: 0 until all were there once, 1 then, one
// more for every rank that is lost, comes back, or makes the others give up a step.
struct ClusterView {
  uint32_t epoch = 0;
  std::vector<Member> members;  // by rank
  int lost = -1;                // the last rank that was lost and is not back, else -1
  std::string why;              // the last loss: "rank 2 (h2) is silent for 3.0 s"; kept when it is
                                // back

  bool whole() const;  // epoch > 0 and every rank is in
  bool operator==(const ClusterView&) const = default;
};

// "rank 2 (h2) is silent for 3.0 s", "ranks .. are not there: ..". Empty where the view is whole.
std::string missing(const ClusterView& view);

// What rank 0 knows of each rank, for people and metrics.
struct RankStatus {
  Presence presence = Presence::absent;
  bool suspect = false;
  std::string host;
  Beat beat;
  Duration silence{};  // since it was last heard; 0 for absent ones
};

// "1 of 3 ranks are loaded; rank 1 (h1) 40 %, rank 2 is not there": of those that are not, the
// first 8 are named.
std::string loading_line(const std::vector<RankStatus>& status);

}  // namespace hocket
