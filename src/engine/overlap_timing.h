// The times of one rank's steps of answers: whether steps shall overlap (--overlap-schedule auto),
// and how long the engine's thread may sleep while an overlapped step computes.
// Owner: OverlappedSteps. Thread: engine.
#pragma once

#include <optional>

#include "base/clock.h"
#include "engine/flight.h"
#include "engine/schedule_trials.h"

namespace hocket {

class OverlapTiming {
 public:
  // Sets whether this rank decides if steps overlap; as long as it does, it keeps its measurements.
  // Call it while no step is under way.
  void decide(bool decides);
  bool decides() const { return trials_.has_value(); }
  // Returns what it has decided. Precondition: decides().
  bool wants_overlap() const { return trials_->overlaps(); }
  // Returns the time of a step that overlaps, as a share of one that does not; 1 if it is not known
  // that overlap pays.
  double overlapped_share() const { return trials_ ? trials_->overlapped_share() : 1; }
  // Notes a step that was committed at `now`. Only steps of answers alone, without drafts, that
  // follow each other count, less the time in which the model's own module followed them.
  void note_commit(const Flight& flight, bool of_answers, bool overlapped, TimePoint now);
  // Notes that nothing is left to run.
  void note_idle() { last_answers_.reset(); }

  // The engine's thread begins to make a step, and has launched it.
  void begin_turn(TimePoint now) { begun_ = now; }
  void note_launch(TimePoint now) { preparing_ = now - begun_; }
  // Returns how long the thread may sleep until the step under way is about to end; 0: not at all.
  // Both steps are of answers alone; `finished` has ended, `rows` are those of the other one.
  Duration time_to_sleep(const Flight& finished, int rows, TimePoint now);

 private:
  std::optional<ScheduleTrials> trials_;
  std::optional<TimePoint> last_answers_;  // the last step was of answers alone; its commit
  Duration last_took_{};                   // the time of the last overlapped step of answers
  TimePoint begun_{};                      // when the last turn began to make its step
  Duration preparing_{};                   // the time from then until the step was launched
};

}  // namespace hocket
