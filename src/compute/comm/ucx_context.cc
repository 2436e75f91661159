#ifdef HOCKET_HAS_UCX

#include "compute/comm/ucx_context.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hocket {

namespace {

constexpr int kWorkerId = -1, kWakeId = -2;

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

}  // namespace

UcxContext::~UcxContext() {
  close();
  if (context_ != nullptr) ucx_.ucp_cleanup(context_);
  for (const int fd : {epoll_fd_, wake_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

std::unexpected<Error> UcxContext::refused(ucs_status_t status) const {
  return fail(
      error(ErrorCode::bad_value, "UCX cannot start over {}: {}; network devices here: {}",
            settings_.ways(), ucx_.ucs_status_string(status), ucx_devices_here())
          .with_fix("name one of these devices, and of the ways tcp, ib, posix, self those that "
                    "ucx_info -d (of ucx-utils) lists"));
}

Result<void> UcxContext::open(int num_ranks) {
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
  what.estimated_num_eps = static_cast<size_t>(num_ranks);
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
  if (!watch(wake_fd_, kWakeId) || !watch(worker_fd_, kWorkerId)) {
    return fail(ErrorCode::io, "no descriptors for UCX: {}", std::strerror(errno));
  }
  return {};
}

Result<std::vector<std::byte>> UcxContext::address() const {
  ucp_address_t* worker = nullptr;
  size_t num_bytes = 0;
  if (const auto status = ucx_.ucp_worker_get_address(worker_, &worker, &num_bytes);
      status != UCS_OK) {
    return refused(status);
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(worker);
  std::vector<std::byte> address(bytes, bytes + num_bytes);
  ucx_.ucp_worker_release_address(worker_, worker);
  return address;
}

void UcxContext::close() {
  if (worker_ == nullptr) return;
  unwatch(worker_fd_);
  ucx_.ucp_worker_destroy(std::exchange(worker_, nullptr));
}

bool UcxContext::watch(int fd, int id) {
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(id)}};
  return fd >= 0 && epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void UcxContext::unwatch(int fd) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

UcxContext::Readable UcxContext::sleep(Duration max_wait) {
  Readable readable;
  const auto whole = std::chrono::floor<std::chrono::seconds>(max_wait);
  const timespec remaining{.tv_sec = whole.count(), .tv_nsec = (max_wait - whole).count()};
  pollfd any{.fd = epoll_fd_, .events = POLLIN, .revents = 0};
  if (ppoll(&any, 1, &remaining, nullptr) <= 0) return readable;
  epoll_event events[kMaxReadable];
  const int num = epoll_wait(epoll_fd_, events, kMaxReadable, 0);
  for (int i = 0; i < num; ++i) {
    const auto id = static_cast<int>(events[i].data.u32);
    if (id == kWakeId) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
    } else if (id >= 0) {
      readable.ids[static_cast<size_t>(readable.num++)] = id;
    }
  }
  return readable;
}

void UcxContext::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_fd_, &one, sizeof(one));
}

}  // namespace hocket

#endif
