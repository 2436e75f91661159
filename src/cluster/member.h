// The types of the control plane: a rank's identity, its heartbeat, and the list of members.
// Thread: values; any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/rank_set.h"

namespace hocket {

inline constexpr int kMaxRanks = RankSet::kMaxRank + 1;
// Limit of every text of an Identity, and of Heartbeat::terms. An IPv6 address with the name of its
// interface and a port takes 69 bytes at most; addresses of transports are values of the store.
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxWhyBytes = 1024;  // limit of a reason; longer ones are cut
// An epoch above this is refused before counters overflow; no cluster ever reaches it.
inline constexpr uint32_t kMaxEpoch = uint32_t{1} << 30;
// A rank that joins is refused if its epoch is further than this beyond the coordinator's, or if it
// is within this of kMaxEpoch.
inline constexpr uint32_t kMaxEpochLead = uint32_t{1} << 20;
inline constexpr int kMaxReplicas = 1 << 20;  // limit of Heartbeat::max_replicas

// The facts that a rank publishes when it joins.
struct Identity {
  int rank = 0;
  int num_ranks = 1;
  int ranks_per_node = 1;
  std::string host;            // shown to people
  std::string boot_id;         // id of the process: a restarted rank has another
  std::string version;         // version of hocket
  std::string model_hash;      // hash of the model's files
  std::string plans;           // describes which steps the ranks can run
  std::string arithmetic;      // arithmetic level; another level gives other bits
  std::string disaggregation;  // --disaggregation-mode at the start
  std::string address;         // HOST:PORT of its datagrams; only the port before it has joined

  bool operator==(const Identity&) const = default;
};

// Returns "rank 2 (h2)", or "rank 2" if the host is not known.
std::string name_of(const Identity& identity);
// Returns the first kMaxWhyBytes of `why`.
std::string cut_why(std::string_view why);
// Texts of other processes are printed. With a line end or an escape sequence, one process could
// forge lines in another's log. Returns false for a text with control characters.
bool is_printable(std::string_view text);
// Returns the text with a space for each control character.
std::string in_one_line(std::string_view text);
// Makes a random boot id of 16 hexadecimal digits.
std::string make_boot_id();
// Checks that texts and numbers lie within their limits. Errors: bad_value, naming the field.
Result<void> check(const Identity& identity);
// Compares the fields that must be equal in a cluster. Returns an error that names the first one
// that differs, with both values; nullopt if they agree.
std::optional<Error> disagreement(const Identity& own, const Identity& other);

// Returns the error of rank `other`, whose terms (Heartbeat::terms) are not those of the members.
Error other_terms(const Identity& member, std::string_view theirs, const Identity& other,
                  std::string_view its);

// The state of the engine thread. `waiting` means that it waits for messages of other ranks, which
// have a time limit of their own, so a waiting rank never counts as stuck.
enum class EngineState : uint8_t { closed, computing, waiting };

// One heartbeat. loaded and to_load are the progress of loading in bytes; both 0 before it is
// known.
struct Heartbeat {
  uint64_t step = 0;
  uint32_t stage = 0;
  EngineState state = EngineState::closed;
  uint32_t expected_ms = 0;  // expected time of the whole open step
  uint64_t loaded = 0, to_load = 0;
  // The settings that all ranks must share, as text. It is set when the rank has loaded and could
  // join an epoch at once; empty before.
  std::string terms;
  bool leaves = false;  // it drains, and ends when it has done so
  // With --ep-num-redundant-experts auto: for how many replicas of experts in each layer the rank
  // has memory. -1: not known.
  int max_replicas = -1;
  RankSet
      // ranks whose datagrams arrived before and no longer do (cluster/link_monitor.h)
      unreachable;

  bool ready() const { return !terms.empty(); }
  bool same_progress(const Heartbeat& other) const {
    return step == other.step && stage == other.stage && state == other.state;
  }
  bool operator==(const Heartbeat&) const = default;
};

// Checks that the terms are short and printable. Errors: bad_value.
Result<void> check(const Heartbeat& heartbeat);

// absent: the rank has no connection. connected: it has one, but is not a member (yet). member: it
// belongs to the epoch.
enum class MemberState : uint8_t { absent, connected, member };

struct Member {
  MemberState state = MemberState::absent;
  Identity identity;    // the identity that joined last; only `rank` is set if none ever did
  bool leaves = false;  // as its last heartbeat says

  bool operator==(const Member&) const = default;
};

// Returns true if `ranks` may serve while the others of `num_ranks` are missing. Without the
// coordinator they must be more than the ranks that may be missing. So any two sets that may serve
// have a rank in common, and no two epochs serve at once. Where the coordinator moves, more than
// half of all must be left, which are enough with any coordinator.
bool are_enough(const RankSet& ranks, int64_t num_ranks, int tolerate_ranks, int coordinator);

// The list of ranks as the coordinator sends it. `epoch` counts memberships: 0 until all ranks were
// there once, then 1, and one more for every rank that is lost, joins again, or gives up a step.
struct ClusterView {
  uint32_t epoch = 0;
  bool over = false;            // that epoch has ended, and the next one is not taken yet (etcd)
  int coordinator = 0;          // the rank that sends this
  std::vector<Member> members;  // indexed by rank
  int lost = -1;                // the last rank that was lost and is not back; -1 if none
  std::string why;  // the last loss, "rank 2 (h2) is silent for 3.0 s"; kept when the rank is back
  int tolerate_ranks = 0;  // number of ranks that may be missing in an epoch that serves
  // All ranks were ready once, or enough of them for long, so that some may be missing
  // (--tolerate-ranks).
  bool began = false;
  // The replicas of experts in each layer of each rank on which the ranks have agreed; -1: on none.
  int replicas = -1;

  // True if epoch > 0, the epoch is not over, and every rank is a member.
  bool whole() const { return serves() && present().size() == std::ssize(members); }
  // True if steps may run in this epoch: as whole(), but tolerate_ranks ranks may be missing.
  bool serves() const;
  // True if these ranks are enough to serve once the service has begun.
  bool are_enough(const RankSet& ranks) const {
    return hocket::are_enough(ranks, std::ssize(members), tolerate_ranks, coordinator);
  }
  // True if the members that stay are enough to serve without these, too.
  bool may_lose(const RankSet& leaving) const {
    return began && are_enough(staying().without(leaving));
  }
  RankSet present() const;  // the members
  RankSet staying() const;  // the members that do not leave
  bool operator==(const ClusterView&) const = default;
};

// Returns "rank 2 (h2) is silent for 3.0 s" or "ranks .. are not there: .."; empty if the view is
// whole.
std::string missing(const ClusterView& view);

// The facts that the coordinator knows of each rank, for people and metrics.
struct RankStatus {
  MemberState state = MemberState::absent;
  bool suspect = false;
  std::string host;
  Heartbeat heartbeat;
  Duration silence{};  // time since its last message; 0 for absent ranks and the coordinator
};

// Returns "1 of 3 ranks are loaded; rank 1 (h1) 40 %, rank 2 is not there"; it names at most 8 of
// the ranks that are not loaded.
std::string loading_line(const std::vector<RankStatus>& status);

}  // namespace hocket
