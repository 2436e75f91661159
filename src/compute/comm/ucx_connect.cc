// Starts the UCX transport: library, context, worker, secrets, endpoints.
#ifdef HOCKET_HAS_UCX

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "compute/comm/ucx_end.h"
#include "core/rank_set.h"

namespace hocket {

namespace {

constexpr int kRankBits = 7, kLaneBits = 4, kKindBits = 2;
static_assert(RankSet::kMaxRank < 1 << kRankBits && kMaxLanes <= 1 << kLaneBits);
static_assert(kNumMessageKinds < 1 << kKindBits);  // one more says goodbye
static_assert(UcxTransport::kSecretBits + kRankBits + kLaneBits + kKindBits == 64);

ucp_tag_t tag_of(uint64_t secret, int source, int lane, int kind) {
  ucp_tag_t tag = secret;
  tag = tag << kRankBits | static_cast<ucp_tag_t>(source);
  tag = tag << kLaneBits | static_cast<ucp_tag_t>(lane);
  return tag << kKindBits | static_cast<ucp_tag_t>(kind);
}

struct Configuration {
  const UcxLibrary& ucx;
  ucp_config_t* config = nullptr;
  explicit Configuration(const UcxLibrary& library) : ucx(library) {}
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
  ~Configuration() {
    if (config != nullptr) ucx.ucp_config_release(config);
  }
};

bool watch(int epoll_fd, int fd, int who) {
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(who)}};
  return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<void> UcxEnd::open() {
  const auto refused = [&](ucs_status_t status) {
    return fail(
        error(ErrorCode::bad_value, "UCX cannot start over {}: {}; network devices here: {}",
              settings_.ways(), ucx_.ucs_status_string(status), ucx_devices_here())
            .with_fix("name one of these devices, and of the ways tcp, ib, posix, self those that "
                      "ucx_info -d (of ucx-utils) lists"));
  };
  Configuration settings(ucx_);
  if (const auto status = ucx_.ucp_config_read(nullptr, nullptr, &settings.config);
      status != UCS_OK) {
    return refused(status);
  }
  for (const UcxSettings::Entry& entry : settings_.entries) {
    if (entry.by_user) continue;
    const auto status =
        ucx_.ucp_config_modify(settings.config, entry.name.c_str(), entry.value.c_str());
    if (status != UCS_OK) return refused(status);
  }
  ucp_params_t what{};
  what.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  what.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  what.estimated_num_eps = peers_.size();
  if (const auto status =
          ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &what, settings.config, &context_);
      status != UCS_OK) {
    return refused(status);
  }
  ucp_worker_params_t how{};
  how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  how.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // one thread at a time
  if (const auto status = ucx_.ucp_worker_create(context_, &how, &worker_); status != UCS_OK) {
    worker_ = nullptr;
    return refused(status);
  }
  if (const auto status = ucx_.ucp_worker_get_efd(worker_, &worker_fd_); status != UCS_OK) {
    return refused(status);
  }
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // Events of the worker carry the number after the last rank, wake-ups this rank's number.
  if (!watch(epoll_fd_, wake_fd_, rank_) || !watch(epoll_fd_, worker_fd_, num_ranks())) {
    return fail(ErrorCode::io, "no descriptors for UCX: {}", std::strerror(errno));
  }
  ucp_address_t* worker = nullptr;
  size_t num_bytes = 0;
  if (const auto status = ucx_.ucp_worker_get_address(worker_, &worker, &num_bytes);
      status != UCS_OK) {
    return refused(status);
  }
  RankAddress own = address_here();
  own.rank = rank_;
  own.epoch = options_.epoch;
  own.worker = {reinterpret_cast<const std::byte*>(worker), num_bytes};
  address_ = encode(own);
  ucx_.ucp_worker_release_address(worker_, worker);
  return {};
}

void UcxEnd::set_secrets(std::span<const Secret> of_ranks) {
  HOCKET_CHECK(of_ranks.size() == peers_.size());
  for (Peer& p : peers_) {
    HOCKET_CHECK(p.endpoint == nullptr);
    p.secret = of_ranks[static_cast<size_t>(p.rank)];
  }
}

ucp_tag_t UcxEnd::tag_in(const Peer& from, int lane, int kind) const {
  return tag_of(from.secret.in, from.rank, lane, kind);
}

ucp_tag_t UcxEnd::tag_out(const Peer& to, int lane, int kind) const {
  return tag_of(to.secret.out, rank_, lane, kind);
}

std::expected<void, UcxTransport::UnreachableRank> UcxEnd::connect(
    std::span<const std::span<const std::byte>> addresses) {
  HOCKET_CHECK(addresses.size() == peers_.size());
  const Result<RankAddress> own = decode_address(address_);
  HOCKET_CHECK(own.has_value());
  for (Peer& p : peers_) {
    const std::span<const std::byte> address = addresses[static_cast<size_t>(p.rank)];
    if (p.rank == rank_ || address.empty()) continue;
    HOCKET_CHECK(p.endpoint == nullptr);
    if (const auto done = connect_to(p, *own, address); !done)
      return std::unexpected(
          UnreachableRank{error(ErrorCode::lost_rank, "rank {} cannot reach rank {}: {}", rank_,
                                p.rank, done.error().message),
                          p.rank});
  }
  return {};
}

Result<void> UcxEnd::connect_to(Peer& p, const RankAddress& own,
                                std::span<const std::byte> address) {
  const auto decoded = decode_address(address);
  if (!decoded) return fail(ErrorCode::bad_value, "what it sent {}", decoded.error().message);
  if (decoded->rank != p.rank) {
    return fail(ErrorCode::bad_value, "its address is that of rank {}", decoded->rank);
  }
  if (decoded->epoch != options_.epoch) {
    return fail(ErrorCode::bad_value, "it is in epoch {}, this rank in epoch {}", decoded->epoch,
                options_.epoch);
  }
  const bool is_here = decoded->host == own.host;
  // Over shared memory UCX cannot report failures and refuses endpoints that ask for it. There the
  // system says when the process ends.
  p.tells_failures = !(is_here && settings_.has_own_host);
  if (is_here && decoded->pid != own.pid) {
    HOCKET_TRY(p.process, watch_process(*decoded));
    if (p.process >= 0) watch(epoll_fd_, p.process, p.rank);
  }
  // Copied, because received bytes may be unaligned.
  const std::vector<std::byte> worker(decoded->worker.begin(), decoded->worker.end());
  ucp_ep_params_t how{};
  how.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                   UCP_EP_PARAM_FIELD_ERR_HANDLER;
  how.address = reinterpret_cast<const ucp_address_t*>(worker.data());
  how.err_mode = p.tells_failures ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  how.err_handler = {.cb = on_failure, .arg = &p};
  if (const auto status = ucx_.ucp_ep_create(worker_, &how, &p.endpoint); status != UCS_OK) {
    p.endpoint = nullptr;
    return fail(ErrorCode::lost_rank, "no way between them over {} ({})", settings_.ways(),
                ucx_.ucs_status_string(status));
  }
  await_goodbye(p);
  return {};
}

void UcxEnd::await_goodbye(Peer& p) {
  ucp_request_param_t how{};
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.cb.recv = on_goodbye;
  how.user_data = &p;
  void* request =
      ucx_.ucp_tag_recv_nbx(worker_, nullptr, 0, tag_in(p, 0, kGoodbye), ~ucp_tag_t{0}, &how);
  if (!UCS_PTR_IS_PTR(request)) return;
  if (p.lost.empty()) {
    p.goodbye = request;
  } else {  // the peer has left already
    ucx_.ucp_request_free(request);
  }
}

}  // namespace hocket

#endif
