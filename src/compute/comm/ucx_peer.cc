#ifdef HOCKET_HAS_UCX

#include "compute/comm/ucx_peer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
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

}  // namespace

UcxPeer::UcxPeer(UcxContext& context, int own_rank, int rank)
    : context_(context), own_rank_(own_rank), rank_(rank) {
  for (Flow& f : flows_) f.peer = this;
}

UcxPeer::Flow& UcxPeer::flow(const Channel& channel) {
  HOCKET_CHECK(channel.lane >= 0 && channel.lane < kMaxLanes);
  const int kind = static_cast<int>(channel.kind);
  HOCKET_CHECK(kind < kNumMessageKinds);
  return flows_[static_cast<size_t>(channel.lane) * kNumMessageKinds + static_cast<size_t>(kind)];
}

ucp_tag_t UcxPeer::tag_in(int lane, int kind) const {
  return tag_of(secret_.in, rank_, lane, kind);
}

ucp_tag_t UcxPeer::tag_out(int lane, int kind) const {
  return tag_of(secret_.out, own_rank_, lane, kind);
}

size_t UcxPeer::source_of(ucp_tag_t tag) {
  return tag >> (kLaneBits + kKindBits) & ((ucp_tag_t{1} << kRankBits) - 1);
}

bool UcxPeer::may_have_sent(ucp_tag_t tag) const {
  const ucp_tag_t lane = tag >> kKindBits & ((ucp_tag_t{1} << kLaneBits) - 1);
  const ucp_tag_t kind = tag & ((ucp_tag_t{1} << kKindBits) - 1);
  return tag == tag_in(static_cast<int>(lane), static_cast<int>(kind));
}

// Connecting.

void UcxPeer::set_secret(const Secret& secret) {
  HOCKET_CHECK(endpoint_ == nullptr);
  secret_ = secret;
}

Result<void> UcxPeer::connect(const RankAddress& own, std::span<const std::byte> address) {
  HOCKET_CHECK(endpoint_ == nullptr);
  const auto decoded = decode_address(address);
  if (!decoded)
    return fail(ErrorCode::bad_value, "the address that it sent {}", decoded.error().message);
  if (decoded->rank != rank_) {
    return fail(ErrorCode::bad_value, "its address is that of rank {}", decoded->rank);
  }
  if (decoded->epoch != own.epoch) {
    return fail(ErrorCode::bad_value, "it is in epoch {}, this rank in epoch {}", decoded->epoch,
                own.epoch);
  }
  const bool is_here = decoded->host == own.host;
  // Over shared memory UCX cannot report failures and refuses endpoints that ask for it. There the
  // system says when the process ends.
  tells_failures_ = !(is_here && context_.settings().has_own_host);
  if (is_here && decoded->pid != own.pid) {
    HOCKET_TRY(process_, watch_process(*decoded));
    if (process_ >= 0) context_.watch(process_, rank_);
  }
  // Copied, because received bytes may be unaligned.
  const std::vector<std::byte> worker(decoded->worker.begin(), decoded->worker.end());
  ucp_ep_params_t how{};
  how.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                   UCP_EP_PARAM_FIELD_ERR_HANDLER;
  how.address = reinterpret_cast<const ucp_address_t*>(worker.data());
  how.err_mode = tells_failures_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  how.err_handler = {.cb = on_failure, .arg = this};
  if (const auto status = ucx().ucp_ep_create(context_.handle(), &how, &endpoint_);
      status != UCS_OK) {
    endpoint_ = nullptr;
    return fail(ErrorCode::lost_rank, "UCX cannot connect the two ranks over {} ({})",
                context_.settings().ways(), ucx().ucs_status_string(status));
  }
  await_goodbye();
  return {};
}

void UcxPeer::await_goodbye() {
  ucp_request_param_t how{};
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.cb.recv = on_goodbye;
  how.user_data = this;
  void* request = ucx().ucp_tag_recv_nbx(context_.handle(), nullptr, 0, tag_in(0, kGoodbye),
                                         ~ucp_tag_t{0}, &how);
  if (!UCS_PTR_IS_PTR(request)) return;
  if (lost_.empty()) {
    goodbye_ = request;
  } else {  // the peer has left already
    ucx().ucp_request_free(request);
  }
}

void UcxPeer::on_goodbye(void* request, ucs_status_t status, const ucp_tag_recv_info_t*,
                         void* user) {
  UcxPeer& p = *static_cast<UcxPeer*>(user);
  if (status == UCS_OK) p.lose(fmt::format("it closed its connection to rank {}", p.own_rank_));
  if (std::exchange(p.goodbye_, nullptr) != nullptr) p.ucx().ucp_request_free(request);
}

// Losing.

void UcxPeer::lose(std::string why) {
  if (!lost_.empty()) return;
  lost_ = std::move(why);
  context_.note_event();
}

void UcxPeer::lose_connection(ucs_status_t status) {
  lose(fmt::format("its connection to rank {} broke ({})", own_rank_,
                   ucx().ucs_status_string(status)));
}

void UcxPeer::on_failure(void* user, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxPeer*>(user)->lose_connection(status);
}

void UcxPeer::note_end() {
  context_.unwatch(process_);
  has_ended_ = true;
  context_.note_event();
}

Result<void> UcxPeer::reachable() const {
  if (lost_.empty()) return {};
  return fail(ErrorCode::lost_rank, "rank {} is lost: {}", rank_, lost_);
}

// Receiving.

void UcxPeer::expect(const Channel& from, std::span<std::byte> slot) {
  Flow& f = flow(from);
  HOCKET_CHECK(!f.expected);
  HOCKET_CHECK(!f.landed);
  f.slot = slot;
  f.expected = true;
  if (!context_.is_open()) return;  // closed: arrived() reports it
  ucp_request_param_t how{};
  // Asks for the callback in any case, because UCX 1.13 reports the length only there.
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.cb.recv = on_received;
  how.user_data = &f;
  void* request =
      ucx().ucp_tag_recv_nbx(context_.handle(), slot.data(), slot.size(),
                             tag_in(from.lane, static_cast<int>(from.kind)), ~ucp_tag_t{0}, &how);
  if (!UCS_PTR_IS_PTR(request)) {
    f.land(UCS_PTR_STATUS(request), 0);
  } else if (f.landed) {
    ucx().ucp_request_free(request);
  } else {
    f.receiving = request;
  }
}

// UCX also calls it from within expect(), which then frees the request.
void UcxPeer::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* user) {
  Flow& f = *static_cast<Flow*>(user);
  if (status != UCS_ERR_CANCELED) f.land(status, info->length);
  if (std::exchange(f.receiving, nullptr) != nullptr) f.peer->ucx().ucp_request_free(request);
}

void UcxPeer::Flow::land(ucs_status_t status, size_t num_bytes) {
  expected = false;
  landed = true;
  in_status = status;
  arrival = {.num_bytes = num_bytes, .when = std::chrono::steady_clock::now()};
  peer->context_.note_event();
}

Result<std::optional<Transport::Arrival>> UcxPeer::arrived(const Channel& from) {
  Flow& f = flow(from);
  if (!f.landed) {
    HOCKET_CHECK(f.expected);
    HOCKET_TRY_VOID(reachable());
    return std::nullopt;
  }
  if (f.in_status == UCS_ERR_MESSAGE_TRUNCATED || f.arrival.num_bytes > f.slot.size()) {
    return fail(ErrorCode::lost_rank, "rank {} sent rank {} {} bytes where {} have room", rank_,
                own_rank_, f.arrival.num_bytes, f.slot.size());
  }
  if (f.in_status != UCS_OK) {
    return fail(ErrorCode::lost_rank, "rank {} is lost: a message of it broke off ({})", rank_,
                ucx().ucs_status_string(f.in_status));
  }
  f.landed = false;
  return f.arrival;
}

// Sending.

Result<void> UcxPeer::send(const Channel& to, std::span<const std::span<const std::byte>> parts) {
  Flow& f = flow(to);
  HOCKET_CHECK(parts.size() <= static_cast<size_t>(kMaxPieces));
  HOCKET_TRY_VOID(reachable());
  HOCKET_CHECK(endpoint_ != nullptr);
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
  const ucp_tag_t mine = tag_out(to.lane, static_cast<int>(to.kind));
  void* request = ucx().ucp_tag_send_nbx(endpoint_, what, count, mine, &how);
  if (UCS_PTR_IS_ERR(request)) {
    lose_connection(UCS_PTR_STATUS(request));
    return reachable();
  }
  f.is_sending = request != nullptr;
  return {};
}

void UcxPeer::on_sent(void* request, ucs_status_t status, void* user) {
  Flow& f = *static_cast<Flow*>(user);
  UcxPeer& p = *f.peer;
  f.is_sending = false;
  p.context_.note_event();
  if (status != UCS_OK) p.lose_connection(status);
  p.ucx().ucp_request_free(request);
}

Result<bool> UcxPeer::sent(const Channel& to) {
  if (!flow(to).is_sending) return true;
  HOCKET_TRY_VOID(reachable());
  return false;
}

// Closing.

bool UcxPeer::is_busy() const {
  return std::ranges::any_of(flows_,
                             [](const Flow& f) { return f.receiving != nullptr || f.is_sending; });
}

void UcxPeer::expect_no_more() {
  for (Flow& f : flows_) {
    if (f.receiving != nullptr) ucx().ucp_request_cancel(context_.handle(), f.receiving);
  }
}

void UcxPeer::forget_messages() {
  for (Flow& f : flows_) f.expected = f.landed = f.is_sending = false, f.slot = {};
}

void UcxPeer::say_goodbye(std::vector<void*>& requests) {
  if (endpoint_ == nullptr || !lost_.empty()) return;
  const auto keep = [&](void* request) {
    if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
  };
  ucp_request_param_t how{};
  keep(ucx().ucp_tag_send_nbx(endpoint_, nullptr, 0, tag_out(0, kGoodbye), &how));
  keep(ucx().ucp_ep_flush_nbx(endpoint_, &how));
}

void UcxPeer::begin_close(std::vector<void*>& requests) {
  if (goodbye_ != nullptr) ucx().ucp_request_cancel(context_.handle(), goodbye_);
  if (process_ >= 0) ::close(process_);
  process_ = -1;
  if (endpoint_ == nullptr || !tells_failures_) return;  // these end when the context is closed
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucx().ucp_ep_close_nbx(endpoint_, &how);
  if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
}

}  // namespace hocket

#endif
