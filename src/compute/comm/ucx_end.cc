#ifdef HOCKET_HAS_UCX

#include "compute/comm/ucx_end.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace hocket {

namespace {

constexpr int kMaxTurns = 1000;                              // turns between two looks
constexpr Duration kSpin = std::chrono::microseconds(20);    // polling time before a sleep
constexpr Duration kSleep = std::chrono::milliseconds(100);  // longest sleep while an end is closed

}  // namespace

UcxEnd::UcxEnd(const UcxLibrary& ucx, int rank, int num_ranks, const UcxOptions& options)
    : ucx_(ucx), rank_(rank), options_(options), settings_(ucx_settings(options)) {
  peers_.resize(static_cast<size_t>(num_ranks));
  for (Peer& p : peers_) {
    p.end = this;
    p.rank = static_cast<int>(&p - peers_.data());
    for (Flow& f : p.flows) f.end = this, f.peer = p.rank;
  }
}

UcxEnd::~UcxEnd() {
  if (worker_ != nullptr) {
    say_goodbye();
    close();
  }
  if (context_ != nullptr) ucx_.ucp_cleanup(context_);
  for (const int fd : {epoll_fd_, wake_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

UcxEnd::Peer& UcxEnd::peer(int rank) {
  HOCKET_CHECK(rank >= 0 && rank < num_ranks());
  HOCKET_CHECK(rank != rank_);
  return peers_[static_cast<size_t>(rank)];
}

UcxEnd::Flow& UcxEnd::flow(const Channel& channel) {
  HOCKET_CHECK(channel.lane >= 0 && channel.lane < kMaxLanes);
  const int kind = static_cast<int>(channel.kind);
  HOCKET_CHECK(kind < kNumMessageKinds);
  const int index = channel.lane * kNumMessageKinds + kind;
  return peer(channel.peer).flows[static_cast<size_t>(index)];
}

TransportCaps UcxEnd::caps() const {
  // Two lanes share a connection, and each wants room for a message.
  return {.name = settings_.name(),
          .moves_by_itself = settings_.has_tcp,
          .exact_arrival = false,
          .max_message_bytes = settings_.has_tcp ? kernel_buffer_bytes() / 2 : 0};
}

std::string UcxEnd::describe() const {
  return fmt::format("ucx {} | {}", ucx_.ucp_get_version_string(), settings_.describe());
}

void UcxEnd::lose(Peer& p, std::string why) {
  if (!p.lost.empty()) return;
  p.lost = std::move(why);
  has_events_ = true;
}

Result<void> UcxEnd::reachable(const Peer& p) const {
  if (p.lost.empty()) return {};
  return fail(ErrorCode::lost_rank, "rank {} is lost: {}", p.rank, p.lost);
}

// Receiving.

void UcxEnd::expect(const Channel& from, std::span<std::byte> slot) {
  Flow& f = flow(from);
  HOCKET_CHECK(!f.expected);
  HOCKET_CHECK(!f.landed);
  f.slot = slot;
  f.expected = true;
  if (worker_ == nullptr) return;  // closed: arrived() reports it
  ucp_request_param_t how{};
  // Asks for the callback in any case, because UCX 1.13 reports the length only there.
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.cb.recv = on_received;
  how.user_data = &f;
  const ucp_tag_t from_tag = tag_in(peer(from.peer), from.lane, static_cast<int>(from.kind));
  void* request =
      ucx_.ucp_tag_recv_nbx(worker_, slot.data(), slot.size(), from_tag, ~ucp_tag_t{0}, &how);
  if (!UCS_PTR_IS_PTR(request)) {
    landed(f, UCS_PTR_STATUS(request), 0);
  } else if (f.landed) {
    ucx_.ucp_request_free(request);
  } else {
    f.receiving = request;
  }
}

// UCX also calls it from within expect(), which then frees the request.
void UcxEnd::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user) {
  Flow& f = *static_cast<Flow*>(user);
  if (status != UCS_ERR_CANCELED) f.end->landed(f, status, info->length);
  if (std::exchange(f.receiving, nullptr) != nullptr) f.end->ucx_.ucp_request_free(request);
}

void UcxEnd::landed(Flow& f, ucs_status_t status, size_t num_bytes) {
  f.expected = false;
  f.landed = true;
  f.in_status = status;
  f.arrival = {.num_bytes = num_bytes, .when = now()};
  has_events_ = true;
}

Result<std::optional<Transport::Arrival>> UcxEnd::arrived(const Channel& from) {
  Flow& f = flow(from);
  if (!f.landed) {
    HOCKET_CHECK(f.expected);
    HOCKET_TRY_VOID(reachable(peer(from.peer)));
    return std::nullopt;
  }
  if (f.in_status == UCS_ERR_MESSAGE_TRUNCATED || f.arrival.num_bytes > f.slot.size()) {
    return fail(ErrorCode::lost_rank, "rank {} sent rank {} {} bytes where {} have room", from.peer,
                rank_, f.arrival.num_bytes, f.slot.size());
  }
  if (f.in_status != UCS_OK) {
    return fail(ErrorCode::lost_rank, "rank {} is lost: a message of it broke off ({})", from.peer,
                ucx_.ucs_status_string(f.in_status));
  }
  f.landed = false;
  return f.arrival;
}

// Sending.

Result<void> UcxEnd::send(const Channel& to, std::span<const std::span<const std::byte>> parts) {
  Peer& p = peer(to.peer);
  Flow& f = flow(to);
  HOCKET_CHECK(parts.size() <= static_cast<size_t>(kMaxPieces));
  HOCKET_TRY_VOID(reachable(p));
  HOCKET_CHECK(p.endpoint != nullptr);
  HOCKET_CHECK(!f.is_sending);
  size_t num = 0;
  for (const auto part : parts) {
    if (!part.empty()) f.out[num++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.send = on_sent;
  how.user_data = &f;
  const void* what = f.out[0].buffer;
  size_t count = num == 0 ? 0 : f.out[0].length;
  if (num > 1) {
    how.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    how.datatype = ucp_dt_make_iov();
    what = f.out.data();
    count = num;
  }
  const ucp_tag_t mine = tag_out(p, to.lane, static_cast<int>(to.kind));
  void* request = ucx_.ucp_tag_send_nbx(p.endpoint, what, count, mine, &how);
  if (UCS_PTR_IS_ERR(request)) {
    lose(p, fmt::format("its connection to rank {} broke ({})", rank_,
                        ucx_.ucs_status_string(UCS_PTR_STATUS(request))));
    return reachable(p);
  }
  f.is_sending = request != nullptr;
  return {};
}

void UcxEnd::on_sent(void* request, ucs_status_t status, void* user) {
  Flow& f = *static_cast<Flow*>(user);
  UcxEnd& end = *f.end;
  f.is_sending = false;
  end.has_events_ = true;
  if (status != UCS_OK) {
    end.lose(end.peers_[static_cast<size_t>(f.peer)],
             fmt::format("its connection to rank {} broke ({})", end.rank_,
                         end.ucx_.ucs_status_string(status)));
  }
  end.ucx_.ucp_request_free(request);
}

Result<bool> UcxEnd::sent(const Channel& to) {
  if (!flow(to).is_sending) return true;
  HOCKET_TRY_VOID(reachable(peer(to.peer)));
  return false;
}

void UcxEnd::on_failure(void* user, ucp_ep_h, ucs_status_t status) {
  Peer& p = *static_cast<Peer*>(user);
  p.end->lose(p, fmt::format("its connection to rank {} broke ({})", p.end->rank_,
                             p.end->ucx_.ucs_status_string(status)));
}

void UcxEnd::on_goodbye(void* request, ucs_status_t status, const ucp_tag_recv_info_t*,
                        void* user) {
  Peer& p = *static_cast<Peer*>(user);
  if (status == UCS_OK) {
    p.end->lose(p, fmt::format("it closed its connection to rank {}", p.end->rank_));
  }
  if (std::exchange(p.goodbye, nullptr) != nullptr) p.end->ucx_.ucp_request_free(request);
}

// Progress, waits.

bool UcxEnd::progress() {
  if (worker_ != nullptr) {
    for (int i = 0; i < kMaxTurns && ucx_.ucp_worker_progress(worker_) != 0; ++i)
      has_events_ = true;
  }
  for (Peer& p : peers_) {  // only here, so that earlier messages are seen first
    if (p.has_ended) lose(p, "its process has ended");
  }
  return std::exchange(has_events_, false);
}

void UcxEnd::wait(Duration max_wait) {
  if (has_events_ || max_wait.count() <= 0) return;
  const TimePoint start = now(), look = start + std::min(max_wait, kSpin);
  while (worker_ != nullptr) {
    if (ucx_.ucp_worker_progress(worker_) != 0) has_events_ = true;
    if (has_events_) return;
    if (now() >= look) break;
    sched_yield();  // the sender may share this core
  }
  const Duration remaining = start + max_wait - now();
  if (remaining.count() <= 0) return;
  if (worker_ != nullptr && ucx_.ucp_worker_arm(worker_) != UCS_OK) return;  // something arrived
  sleep(remaining);
}

void UcxEnd::sleep(Duration max_wait) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(max_wait);
  const timespec remaining{.tv_sec = whole.count(), .tv_nsec = (max_wait - whole).count()};
  pollfd any{.fd = epoll_fd_, .events = POLLIN, .revents = 0};
  if (ppoll(&any, 1, &remaining, nullptr) > 0) note_ends();
}

// Reads wake-ups and the ends of processes.
void UcxEnd::note_ends() {
  epoll_event events[8];
  const int num = epoll_wait(epoll_fd_, events, 8, 0);
  for (int i = 0; i < num; ++i) {
    const auto who = static_cast<int>(events[i].data.u32);
    if (who == rank_) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
    } else if (who < num_ranks()) {
      Peer& p = peers_[static_cast<size_t>(who)];
      epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, p.process, nullptr);
      p.has_ended = true;
      has_events_ = true;
    }
  }
}

void UcxEnd::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_fd_, &one, sizeof(one));
}

template <class Done>
bool UcxEnd::until(Duration max_wait, Done done) {
  const TimePoint deadline = now() + max_wait;
  for (;;) {
    // A bounded number, because strangers may send messages faster than they are thrown away.
    for (int i = 0; i < kMaxTurns && ucx_.ucp_worker_progress(worker_) != 0; ++i) {
    }
    if (done()) return true;
    const Duration remaining = deadline - now();
    if (remaining.count() <= 0) return false;
    if (ucx_.ucp_worker_arm(worker_) == UCS_OK) sleep(std::min(remaining, kSleep));
  }
}

// Closing.

bool UcxEnd::is_busy() const {
  return std::ranges::any_of(peers_, [](const Peer& p) {
    return std::ranges::any_of(
        p.flows, [](const Flow& f) { return f.receiving != nullptr || f.is_sending; });
  });
}

void UcxEnd::expect_no_more() {
  for (Peer& p : peers_) {
    for (Flow& f : p.flows) {
      if (f.receiving != nullptr) ucx_.ucp_request_cancel(worker_, f.receiving);
    }
  }
}

void UcxEnd::withdraw() {
  expect_no_more();
  if (worker_ != nullptr) {
    // A message that arrived in part, or that a silent peer does not take, cannot be cancelled: it
    // ends with the worker.
    if (!until(options_.patience, [&] { return !is_busy(); })) {
      for (Peer& p : peers_) {
        if (p.rank != rank_) lose(p, fmt::format("rank {} gave up what was under way", rank_));
      }
      close();
    } else {
      drop_early_messages();
    }
  }
  for (Peer& p : peers_) {
    for (Flow& f : p.flows) f.expected = f.landed = f.is_sending = false, f.slot = {};
  }
}

// Receives them into an empty buffer: UCX then discards them, also those not complete yet.
void UcxEnd::drop_early_messages() {
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h message = ucx_.ucp_tag_probe_nb(worker_, 0, 0, 1, &info)) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.recv = on_dropped;
    how.user_data = this;
    ucx_.ucp_tag_msg_recv_nbx(worker_, nullptr, 0, message, &how);
  }
}

void UcxEnd::on_dropped(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* user) {
  static_cast<UcxEnd*>(user)->ucx_.ucp_request_free(request);
}

// Says goodbye after all messages; waits until the peers have it, if they take it.
void UcxEnd::say_goodbye() {
  std::vector<void*> requests;
  const auto keep = [&](void* request) {
    if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
  };
  ucp_request_param_t how{};
  for (Peer& p : peers_) {
    if (p.endpoint == nullptr || !p.lost.empty()) continue;
    keep(ucx_.ucp_tag_send_nbx(p.endpoint, nullptr, 0, tag_out(p, 0, kGoodbye), &how));
    keep(ucx_.ucp_ep_flush_nbx(p.endpoint, &how));
  }
  until(options_.patience, [&] {
    return std::ranges::all_of(requests, [&](void* request) {
      return ucx_.ucp_request_check_status(request) != UCS_INPROGRESS;
    });
  });
  for (void* request : requests) ucx_.ucp_request_free(request);
}

// Afterwards no slot or part is read or written.
void UcxEnd::close() {
  std::vector<void*> requests;
  expect_no_more();
  drop_early_messages();
  for (Peer& p : peers_) {
    if (p.goodbye != nullptr) ucx_.ucp_request_cancel(worker_, p.goodbye);
    if (p.process >= 0) ::close(p.process);
    p.process = -1;
    if (p.endpoint == nullptr || !p.tells_failures) continue;  // these end with the worker
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucx_.ucp_ep_close_nbx(p.endpoint, &how);
    if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
  }
  until(options_.patience, [&] {
    return std::ranges::all_of(requests, [&](void* request) {
      return ucx_.ucp_request_check_status(request) != UCS_INPROGRESS;
    });
  });
  for (void* request : requests) ucx_.ucp_request_free(request);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, worker_fd_, nullptr);
  ucx_.ucp_worker_destroy(std::exchange(worker_, nullptr));
  for (Peer& p : peers_) p.endpoint = nullptr;
}

}  // namespace hocket

#endif
