#include "server/reply/reply_turns.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "server/reply/reply_job.h"

namespace hocket {
namespace {

constexpr Duration kIdle = std::chrono::milliseconds(200);    // longest wait for an output
constexpr Duration kLocked = std::chrono::microseconds(200);  // longest wait while a job is locked

TimePoint now() {
  return RealClock().now();
}

}  // namespace

ReplyTurns::ReplyTurns(Outbox* outbox, const ReplyTable& table, ReplyWriter& writer)
    : outbox_(outbox), table_(table), writer_(writer) {
  HOCKET_CHECK(outbox_ != nullptr);
  thread_ = Thread({.name = "reply"}, [this] { run(); });
}

ReplyTurns::~ReplyTurns() {
  stop();
}

void ReplyTurns::stop() {
  stopping_ = true;
  outbox_->wake();
  if (thread_.joinable()) thread_.join();
}

void ReplyTurns::run() {
  while (!stopping_) {
    if (first_line_.empty() && second_line_.empty()) {
      const Duration wait = std::clamp(pause_end_ - now(), Duration{}, kIdle);
      if (auto output = outbox_->wait_pop(locked_.empty() ? wait : kLocked))
        hand_out(*std::move(output));
    }
    collect();
    give_turns();
  }
}

void ReplyTurns::collect() {
  while (auto output = outbox_->pop()) hand_out(*std::move(output));
}

void ReplyTurns::hand_out(RequestOutput&& output) {
  const ReplyTable::Entry to = table_.find(output.id);
  if (!to.job) return;  // it was dropped
  ReplyJob& job = *to.job;
  try {
    job.pending.add(to.choice, std::move(output), job.pending_bytes(to.choice));
  } catch (...) {
    job.pending.set_out_of_memory();  // its next turn fails the job
  }
  if (job.in_line) return;
  job.in_line = true;
  try {
    first_line_.push_back(to.job);
  } catch (const std::bad_alloc&) {
    turn(to.job);  // it is in no line, and there may be no later output
  }
}

// Lets jobs whose pause is over join the first line.
void ReplyTurns::end_pauses() {
  const TimePoint t = now();
  if (t < pause_end_) return;
  const auto over = std::ranges::stable_partition(
      paused_, [t](const JobPtr& job) { return t < job->pause.until(); });
  first_line_.insert(first_line_.end(), over.begin(), over.end());
  paused_.erase(over.begin(), over.end());
  pause_end_ = TimePoint::max();
  for (const JobPtr& job : paused_) pause_end_ = std::min(pause_end_, job->pause.until());
}

// locked_       d         joins first_line_ again
// paused_       r        the same, when its client may have read
// first_line_   a b c d   one turn each; a job that needs another one moves to second_line_
// second_line_  x y       one turn, for x
void ReplyTurns::give_turns() {
  try {
    first_line_.insert(first_line_.end(), locked_.begin(), locked_.end());
    locked_.clear();
    end_pauses();
  } catch (const std::bad_alloc&) {
    collect();  // the outbox is emptied anyway; jobs in locked_ stay there
  }
  const auto next_of = [this](std::deque<JobPtr>& line) {
    const JobPtr job = std::move(line.front());
    line.pop_front();
    turn(job);
    collect();
  };
  for (size_t n = first_line_.size(); n > 0; --n) next_of(first_line_);
  if (!second_line_.empty()) next_of(second_line_);
}

void ReplyTurns::turn(const JobPtr& job) {
  if (!job->mutex.try_lock()) {
    try {
      return locked_.push_back(job);
    } catch (const std::bad_alloc&) {  // no memory to come back later, so wait here:
      job->mutex.lock();               // begin() holds the lock only briefly
    }
  }
  const MutexLock lock(job->mutex, std::adopt_lock);
  try {
    const TimePoint end = now() + kTurn;
    do {
      if (job->waits_for_client()) {
        pause_end_ = std::min(pause_end_, job->pause.begin(now()));
        return paused_.push_back(job);
      }
      job->pause.end();
      if (now() >= end) return second_line_.push_back(job);
    } while (writer_.step(*job));
  } catch (...) {
    writer_.fail_by_exception(*job);
    job->pending.clear();
  }
  job->in_line = false;
}

}  // namespace hocket
