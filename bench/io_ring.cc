#include "bench/io_ring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace hocket {

Result<std::unique_ptr<IoRing>> IoRing::create() {
  io_uring_params params{};
  const auto fd = static_cast<int>(syscall(SYS_io_uring_setup, kMaxRequests, &params));
  if (fd < 0) return fail(ErrorCode::io, "io_uring_setup: {}", std::strerror(errno));
  std::unique_ptr<IoRing> ring(new IoRing());
  ring->fd_ = fd;
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0)
    return fail(ErrorCode::io, "io_uring is older than Linux 5.4");
  const auto map = [&](size_t num_bytes, uint64_t offset) -> Mapping {
    void* const begin = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                             fd, static_cast<off_t>(offset));
    if (begin == MAP_FAILED) return {};
    return {static_cast<std::byte*>(begin), num_bytes};
  };
  ring->rings_ = map(std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe)),
                     IORING_OFF_SQ_RING);
  ring->requests_ = map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  if (ring->rings_.begin == nullptr || ring->requests_.begin == nullptr)
    return fail(ErrorCode::io, "io_uring's memory: {}", std::strerror(errno));
  const auto at = [&](uint32_t offset) {
    return reinterpret_cast<unsigned*>(ring->rings_.begin + offset);
  };
  ring->sq_tail_ = at(params.sq_off.tail);
  ring->sq_array_ = at(params.sq_off.array);
  ring->sq_mask_ = *at(params.sq_off.ring_mask);
  ring->cq_head_ = at(params.cq_off.head);
  ring->cq_tail_ = at(params.cq_off.tail);
  ring->cq_mask_ = *at(params.cq_off.ring_mask);
  ring->completions_ = reinterpret_cast<io_uring_cqe*>(at(params.cq_off.cqes));
  return ring;
}

IoRing::~IoRing() {
  for (const Mapping& mapping : {rings_, requests_})
    if (mapping.begin != nullptr) munmap(mapping.begin, mapping.num_bytes);
  if (fd_ >= 0) close(fd_);
}

// The kernel reads the tail when requests are submitted, so until then it may lag.
io_uring_sqe& IoRing::add(uint64_t id) {
  if (num_added_ == kMaxRequests) submit();
  const unsigned place = (*sq_tail_ + num_added_) & sq_mask_;
  sq_array_[place] = place;
  auto& request = reinterpret_cast<io_uring_sqe*>(requests_.begin)[place];
  request = {};
  request.user_data = id;
  ++num_added_;
  ++num_open_;
  return request;
}

void IoRing::send(int socket, const msghdr& message, Copy copy, uint64_t id) {
  io_uring_sqe& request = add(id);
  request.opcode = copy == Copy::never ? IORING_OP_SENDMSG_ZC : IORING_OP_SENDMSG;
  request.fd = socket;
  request.addr = reinterpret_cast<uint64_t>(&message);
  request.len = 1;
  request.msg_flags = MSG_WAITALL | MSG_NOSIGNAL;
}

void IoRing::receive(int socket, std::span<std::byte> to, uint64_t id) {
  io_uring_sqe& request = add(id);
  request.opcode = IORING_OP_RECV;
  request.fd = socket;
  request.addr = reinterpret_cast<uint64_t>(to.data());
  request.len = static_cast<uint32_t>(to.size());
  request.msg_flags = MSG_WAITALL;
}

void IoRing::submit() {
  if (num_added_ == 0) return;
  std::atomic_ref(*sq_tail_).store(*sq_tail_ + num_added_, std::memory_order_release);
  while (num_added_ > 0) {
    const long taken = syscall(SYS_io_uring_enter, fd_, num_added_, 0, 0, nullptr, 0);
    if (taken < 0) HOCKET_CHECK(errno == EINTR || errno == EAGAIN || errno == EBUSY);
    if (taken > 0) num_added_ -= static_cast<unsigned>(taken);
  }
}

std::optional<IoRing::Completion> IoRing::next() {
  const unsigned head = *cq_head_;
  if (head == std::atomic_ref(*cq_tail_).load(std::memory_order_acquire)) return std::nullopt;
  const io_uring_cqe& found = completions_[head & cq_mask_];
  const Completion completion = {.id = found.user_data,
                                 .result = found.res,
                                 .has_notice = (found.flags & IORING_CQE_F_MORE) != 0,
                                 .is_notice = (found.flags & IORING_CQE_F_NOTIF) != 0};
  std::atomic_ref(*cq_head_).store(head + 1, std::memory_order_release);
  if (!completion.has_notice) --num_open_;
  return completion;
}

}  // namespace hocket
