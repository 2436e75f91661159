// The begin of a service: when ranks may be missing, and on what the ranks agree before they load.
// With Options::tolerate_ranks the service has begun once all ranks were ready, or enough of them
// for begin_after: then those begin without the others. A rank is ready when it has loaded. Owner:
// Membership, whose epochs and newest heartbeats (by rank) it is given. Thread: the control
// plane's.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "cluster/epochs.h"

namespace hocket {

class ServiceBegin {
 public:
  struct Options {
    int tolerate_ranks = 0;  // ranks that may be missing in an epoch that serves
    Duration gather{};       // a new coordinator waits this long for all ranks
    Duration begin_after{};
  };
  // now: when the coordinator began.
  ServiceBegin(const Options& options, TimePoint now) : options_(options), started_(now) {}

  // Notes that the service had begun before this rank coordinated. While a service starts, ranks
  // that load are members; in one that others have begun they are not, until they are ready.
  void note_began(Epochs& epochs, std::span<const Heartbeat> heartbeats);
  // Notes that the service has begun if all ranks are in and ready.
  void note_ready(Epochs& epochs, std::span<const Heartbeat> heartbeats);
  // Lets ranks be missing once the coordinator has waited long enough for all of them. The epoch
  // stays the same, because no rank has entered it yet, or it serves already.
  void end_gathering(Epochs& epochs, TimePoint now) const;
  // Begins without the ranks that are not ready if enough are, and were for begin_after.
  void begin_without_missing(Epochs& epochs, std::span<const Heartbeat> heartbeats, TimePoint now);
  // Settles on the replicas for which every rank has memory, once all have said it, or enough.
  void settle_replicas(Epochs& epochs, std::span<const Heartbeat> heartbeats, TimePoint now) const;
  // Returns when end_gathering() is due. The ones above are called when ranks join, send
  // heartbeats, or at a tick.
  TimePoint next_deadline(const Epochs& epochs) const;
  // True if a rank that has not loaded may not join.
  bool keeps_loading_out(const ClusterView& view) const {
    return options_.tolerate_ranks > 0 && view.began;
  }

 private:
  // True if these ranks are enough to serve, once some may be missing.
  bool may_serve(const Epochs& epochs, const RankSet& ranks) const;
  // Sets why the service has not begun; empty if there is no such reason any more.
  void set_why(Epochs& epochs, std::string why);

  const Options options_;
  const TimePoint started_;
  std::optional<TimePoint> enough_since_;  // enough ranks are ready to begin; nullopt: not enough
  std::string why_;                        // the last one of set_why()
};

}  // namespace hocket
