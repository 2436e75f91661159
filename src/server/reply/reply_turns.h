// The thread `reply`: empties the outbox and gives each answer its turns.
//
//   outbox -> jobs -> turns: ReplyWriter -> exchange
//
// The thread empties the whole outbox and gives each output to its job, so that the engine never
// waits for an answer. Then each job with outputs has one turn of kTurn. A job that needs more time
// is moved to a second line. After each round of the first line, one job of the second has a turn,
// so long jobs delay only each other.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/reply/reply_table.h"
#include "server/reply/reply_writer.h"

namespace hocket {

class ReplyTurns {
 public:
  static constexpr Duration kTurn = std::chrono::milliseconds(1);

  // Starts the thread. All three must outlive it.
  ReplyTurns(Outbox* outbox, const ReplyTable& table, ReplyWriter& writer);
  ~ReplyTurns();

  // Ends the thread.   Thread: any but `reply`.
  void stop();

 private:
  using JobPtr = std::shared_ptr<ReplyJob>;
  void run();
  void collect();
  void hand_out(RequestOutput&& output);
  void give_turns();
  void end_pauses();
  void turn(const JobPtr& job);

  Outbox* const outbox_;
  const ReplyTable& table_;
  ReplyWriter& writer_;
  std::atomic<bool> stopping_ = false;
  // Lines of jobs: those with new outputs, those that used up a turn, those that another thread had
  // locked when it was their turn, and those whose client has to read first. Used by the thread
  // `reply` only.
  std::deque<JobPtr> first_line_, second_line_, locked_, paused_;
  TimePoint pause_end_ = TimePoint::max();  // the first end of a pause in paused_
  Thread thread_;
};

}  // namespace hocket
