#include "compute/comm/ucx_address.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/mix.h"

namespace hocket {

namespace {

struct Head {
  static constexpr uint32_t kMagic = 0x41584348;  // "HCXA"
  uint32_t magic = kMagic;
  uint16_t version = 1;
  uint16_t rank = 0;
  uint32_t epoch = 0;
  int32_t pid = 0;
  uint64_t host = 0;
  uint64_t started = 0;
};
static_assert(sizeof(Head) == 32);

void mix_in(uint64_t& sum, std::string_view bytes) {
  for (const char byte : bytes) sum = mix64(sum + kMixStep + static_cast<unsigned char>(byte));
}

// Returns a hash of the boot and of the name spaces: each container of a machine is a host of its
// own.
uint64_t host_here() {
  uint64_t sum = 0;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  mix_in(sum, std::string(std::istreambuf_iterator<char>(boot), {}));
  for (const char* space : {"/proc/self/ns/ipc", "/proc/self/ns/pid", "/proc/self/ns/net"}) {
    struct stat found{};
    if (stat(space, &found) == 0) sum = mix64(sum + kMixStep + found.st_ino);
  }
  utsname names{};
  if (uname(&names) == 0) mix_in(sum, names.nodename);
  return sum;
}

// Returns the start time of a process, the 22nd field of its stat line; 0 if the process is gone.
uint64_t start_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  size_t at = name_end + 1;  // before the third field
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(line.c_str() + at, nullptr, 10);
}

}  // namespace

RankAddress address_here() {
  return {.host = host_here(), .pid = getpid(), .started = start_of(getpid())};
}

std::vector<std::byte> encode(const RankAddress& address) {
  const Head head{.rank = static_cast<uint16_t>(address.rank),
                  .epoch = address.epoch,
                  .pid = address.pid,
                  .host = address.host,
                  .started = address.started};
  std::vector<std::byte> all(sizeof(head) + address.worker.size());
  std::memcpy(all.data(), &head, sizeof(head));
  std::ranges::copy(address.worker, all.data() + sizeof(head));
  return all;
}

Result<RankAddress> decode_address(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() <= sizeof(head)) return fail(ErrorCode::bad_value, "cannot be read");
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != Head::kMagic) return fail(ErrorCode::bad_value, "cannot be read");
  if (head.version != Head{}.version) {
    return fail(ErrorCode::bad_value, "is of version {}, this rank's is {}", head.version,
                Head{}.version);
  }
  return RankAddress{.rank = head.rank,
                     .epoch = head.epoch,
                     .host = head.host,
                     .pid = head.pid,
                     .started = head.started,
                     .worker = bytes.subspan(sizeof(head))};
}

Result<int> watch_process(const RankAddress& address) {
  if (address.pid <= 0) return -1;
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, address.pid, 0U));
  if (fd < 0 && errno != ESRCH) return -1;
  if (fd >= 0 && start_of(address.pid) == address.started) return fd;
  if (fd >= 0) close(fd);
  return fail(ErrorCode::lost_rank, "its process {} has ended", address.pid);
}

}  // namespace hocket
