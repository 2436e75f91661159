#include "compute/comm/ucx_settings.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace hocket {

namespace {

// Returns true if a comma-separated list has the item: "posix" in "posix,cma,self".
bool has(std::string_view list, std::string_view item) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == item) return true;
    at = end + 1;
  }
  return false;
}

template <size_t N>
bool has_any(std::string_view list, const std::string_view (&items)[N]) {
  return std::ranges::any_of(items, [&](std::string_view item) { return has(list, item); });
}

// Returns true if a process may read the memory of other processes of the same user, which the
// copies of CMA need. If Yama is on, only a parent may, and a process that may trace any other one.
bool may_read_others() {
  int scope = 0;
  if (std::ifstream file("/proc/sys/kernel/yama/ptrace_scope"); !(file >> scope) || scope == 0) {
    return true;
  }
  constexpr uint64_t kSysPtrace = uint64_t{1} << 19;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "CapEff:") continue;
    uint64_t rights = 0;
    return status >> std::hex >> rights && (rights & kSysPtrace) != 0;
  }
  return false;
}

int64_t largest_of(const char* path) {
  std::ifstream file(path);
  int64_t least = 0, usual = 0, most = 0;
  return file >> least >> usual >> most ? most : 0;
}

}  // namespace

bool has_infiniband() {
  std::error_code none;
  return !std::filesystem::is_empty("/sys/class/infiniband", none) && !none;
}

std::string ucx_tls_of_one_host() {
  return may_read_others() ? "posix,cma,self" : "posix,self";
}

UcxSettings ucx_settings(const UcxOptions& options) {
  UcxSettings s;
  const auto decide = [&s](const char* name, std::string value) {
    const char* by_user = std::getenv(fmt::format("UCX_{}", name).c_str());
    s.entries.push_back(
        {name, by_user != nullptr ? by_user : std::move(value), by_user != nullptr});
    return s.entries.back().value;
  };
  const std::string own_host = ucx_tls_of_one_host();
  const std::string usual = fmt::format("{},{}", has_infiniband() ? "ib" : "tcp", own_host);
  s.tls = decide("TLS", options.tls.empty() ? usual : options.tls);
  s.devices = decide("NET_DEVICES", options.devices.empty() ? "all" : options.devices);
  s.has_tcp = has_any(s.tls, {"tcp", "all"});
  s.has_own_host = has_any(s.tls, {"posix", "sysv", "shm", "sm", "mm", "all"});
  // A rendezvous over TCP waits for the receiver, and halves the rate of a link used in both
  // directions.
  s.eager = decide("RNDV_THRESH", s.has_tcp ? "inf" : "auto") == "inf";
  return s;
}

std::string UcxSettings::ways() const {
  return devices == "all" ? tls : fmt::format("{} on {}", tls, devices);
}

std::string UcxSettings::describe() const {
  std::string text = ways();
  text += eager ? " | eager" : " | rendezvous for long messages";
  const auto is_by_user = [](const UcxVariable& ours) {
    const char* value = std::getenv(ours.name);
    return value != nullptr && std::string_view(value) != ours.value;
  };
  for (const UcxVariable& ours : kUcxVariables) {
    if (ours.where != UcxVariable::Where::tcp || !has_tcp || is_by_user(ours)) continue;
    text += fmt::format(" | {}={}", std::string_view(ours.name).substr(4), ours.value);
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view it = *variable;
    if (!it.starts_with("UCX_")) continue;
    const bool is_ours = std::ranges::any_of(kUcxVariables, [&](const UcxVariable& ours) {
      return it == fmt::format("{}={}", ours.name, ours.value);
    });
    if (!is_ours) text += fmt::format(" | {} by the environment", it);
  }
  return text;
}

std::string UcxSettings::name() const {
  if (has_tcp != has_own_host) return has_tcp ? "ucx tcp" : "ucx posix";
  return "ucx";
}

std::string ucx_devices_here() {
  std::set<std::string> names;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      const bool has_address = one->ifa_addr != nullptr && (one->ifa_addr->sa_family == AF_INET ||
                                                            one->ifa_addr->sa_family == AF_INET6);
      if (has_address && (one->ifa_flags & IFF_UP) != 0) names.insert(one->ifa_name);
    }
    freeifaddrs(all);
  }
  std::error_code none;
  const std::filesystem::path cards = "/sys/class/infiniband";
  for (const auto& card : std::filesystem::directory_iterator(cards, none)) {
    for (const auto& port : std::filesystem::directory_iterator(card.path() / "ports", none)) {
      names.insert(card.path().filename().string() + ":" + port.path().filename().string());
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

int64_t kernel_buffer_bytes() {
  return std::min(largest_of("/proc/sys/net/ipv4/tcp_wmem"),
                  largest_of("/proc/sys/net/ipv4/tcp_rmem"));
}

}  // namespace hocket
