#include "base/log_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace hocket::log {
namespace {

// Bytes of one write(2). A pipe takes this much at once, so lines of several processes do not mix.
constexpr size_t kPieceBytes = PIPE_BUF;

// Bytes of the queue that stderr has not taken yet. It is not a member of the queue, because a
// signal handler reads it and must not be the first to call queue(), which allocates.
constinit std::atomic<int64_t> num_unwritten{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t lines_in(std::string_view text) {
  return std::ranges::count(text, '\n');
}

}  // namespace

Queue& queue() {
  static Queue& instance = *new Queue;
  return instance;
}

void Queue::put(std::string_view line) {
  {
    const MutexLock lock(mutex_);
    if (mode_ != Mode::direct) {
      if (mode_ == Mode::abandoned || line.size() > kQueueBytes - num_bytes_) {
        ++num_lost_;
        return;
      }
      num_unwritten += std::ssize(line);
      for (const char c : line) ring_[(first_ + num_bytes_++) % kQueueBytes] = c;
      arrived_.notify_one();
      return;
    }
  }
  num_lost_ += lines_in(write_out(line));
}

void Queue::start() {
  const MutexLock lock(mutex_);
  if (mode_ == Mode::queued) return;
  mode_ = Mode::queued;
  // Lines that are lost before the thread runs are among those that it reports.
  thread_ = Thread({.name = "log"}, [this, turn = ++turn_, num_reported = num_lost_.load()] {
    run(turn, num_reported);
  });
}

void Queue::stop(Duration patience) {
  MutexLock lock(mutex_);
  if (mode_ != Mode::queued) return;
  const bool all = wait_written(lock, patience);
  mode_ = all ? Mode::direct : Mode::abandoned;
  ++turn_;
  for (; num_bytes_ > 0; --num_bytes_)
    num_lost_ += ring_[std::exchange(first_, (first_ + 1) % kQueueBytes)] == '\n' ? 1 : 0;
  num_lost_ += std::exchange(num_writing_, 0);
  num_unwritten = 0;
  arrived_.notify_one();
  lock.unlock();
  if (all)
    thread_.join();
  else
    thread_.detach();
}

bool Queue::flush(Duration patience) {
  MutexLock lock(mutex_);
  return mode_ != Mode::queued || wait_written(lock, patience);
}

bool Queue::wait_written(MutexLock& lock, Duration patience) {
  return written_.wait_for(lock, patience, [this]() HOCKET_REQUIRES(mutex_) {
    return num_bytes_ == 0 && num_writing_ == 0;
  });
}

// Takes the oldest whole lines, or the beginning of one that is longer than a piece.
std::string_view Queue::take(std::span<char> piece) {
  size_t count = std::min(num_bytes_, piece.size());
  for (size_t i = 0; i < count; ++i) piece[i] = ring_[(first_ + i) % kQueueBytes];
  const std::string_view bytes(piece.data(), count);
  if (const size_t end = bytes.rfind('\n'); end != bytes.npos) count = end + 1;
  first_ = (first_ + count) % kQueueBytes;
  num_bytes_ -= count;
  return bytes.substr(0, count);
}

void Queue::run(int turn, int64_t num_reported) {
  std::array<char, kPieceBytes> piece;
  MutexLock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&]() HOCKET_REQUIRES(mutex_) { return turn != turn_ || num_bytes_ > 0; });
    if (turn != turn_) return;
    const std::string_view lines = take(piece);
    num_writing_ = std::max<int64_t>(1, lines_in(lines));
    lock.unlock();
    const std::string_view rest = write_out(lines);
    lock.lock();
    if (turn != turn_) return;
    num_unwritten -= std::ssize(lines);
    num_lost_ += lines_in(rest);
    // Logged only when new lines arrive and have room; otherwise this line would be lost as well.
    if (const int64_t lost = num_lost_ - num_reported;
        rest.empty() && lost > 0 && num_bytes_ <= kQueueBytes / 2) {
      num_reported += lost;
      lock.unlock();
      warning("log: {} lines are lost: stderr failed or took them too slowly", lost);
      lock.lock();
      if (turn != turn_) return;
    }
    num_writing_ = 0;
    if (num_bytes_ == 0) written_.notify_all();
  }
}

// Returns the lines that stderr did not take because it failed.
std::string_view Queue::write_out(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, lines.data(), lines.size());
    if (count >= 0) {
      lines.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd wait{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      break;
    }
  }
  return lines;
}

void wait_in_signal(Duration patience) {
  constexpr Duration kTick = std::chrono::milliseconds(1);
  const int before = errno;
  const timespec tick{.tv_sec = 0, .tv_nsec = kTick.count()};
  for (; num_unwritten > 0 && patience > Duration{}; patience -= kTick) nanosleep(&tick, nullptr);
  errno = before;
}

void write_now(std::string_view text) {
  const int before = errno;  // errno of the code that a signal interrupted
  pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0)
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  errno = before;
}

}  // namespace hocket::log
