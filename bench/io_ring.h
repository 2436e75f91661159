// A ring of io_uring: requests to send and receive that the kernel plays by itself, by plain system
// calls. For benches only. Thread: one.
#pragma once

#include <linux/io_uring.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"

namespace hocket {

class IoRing {
 public:
  static constexpr unsigned kMaxRequests = 1024;

  // Errors: io (the kernel has no io_uring, or does not allow it).
  static Result<std::unique_ptr<IoRing>> create();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;
  // The kernel may use what requests name until it has completed them: close no ring before.
  ~IoRing();

  // Add a request that returns with `id` when all bytes are moved or the connection ends. `message`
  // and its bytes, or `to`, stay until then. With zero_copy a second completion, is_notice, says
  // that the bytes may be changed.
  enum class Copy : uint8_t { once, never };
  void send(int socket, const msghdr& message, Copy copy, uint64_t id);
  void receive(int socket, std::span<std::byte> to, uint64_t id);
  // Hands the added requests to the kernel.
  void submit();

  struct Completion {
    uint64_t id = 0;
    int64_t result = 0;  // bytes, or -errno
    bool has_notice = false, is_notice = false;
  };
  std::optional<Completion> next();
  // Returns the requests and notices that next() has still to return.
  int num_open() const { return num_open_; }
  // The descriptor is readable while next() has something.
  int fd() const { return fd_; }

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    size_t num_bytes = 0;
  };
  IoRing() = default;
  io_uring_sqe& add(uint64_t id);

  int fd_ = -1;
  int num_open_ = 0;
  unsigned num_added_ = 0;  // and not submitted
  Mapping rings_, requests_;
  unsigned *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* completions_ = nullptr;
};

}  // namespace hocket
