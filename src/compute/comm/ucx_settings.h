// What UCX is told, and who decided it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/comm/ucx_transport.h"

namespace hocket {

// What UCX 1.13 takes from variables only. ucx_library() sets those that the user has not.
struct UcxVariable {
  const char* name;
  const char* value;
  bool is_of_tcp;
};
inline constexpr UcxVariable kUcxVariables[] = {
    // Crashes are ours to report, and standard output is not a log.
    {"UCX_HANDLE_ERRORS", "none", false},
    {"UCX_LOG_FILE", "stderr", false},
    {"UCX_WARN_UNUSED_ENV_VARS", "n", false},  // of the next ones, where TCP is not used
    // Else a host that does not answer holds connect() for minutes.
    {"UCX_TCP_CONN_NB", "y", true},
    // Messages leave and come in pieces of this. In UCX's own of 64k, half a megabyte takes 1.4
    // times
    // as long where nothing but the cores limits it; larger ones bring no more.
    {"UCX_TCP_RX_SEG_SIZE", "256k", true},
};

struct UcxSettings {
  struct Entry {
    std::string name, value;  // "TLS", "tcp"
    bool by_user = false;     // the variable UCX_name is set: nothing is changed
  };
  std::vector<Entry> entries;

  bool eager = false;         // no rendezvous
  bool has_tcp = false;       // a list of ways that has TCP
  bool has_own_host = false;  // or shared memory
  std::string tls, devices;   // in effect
  // All that is not as UCX comes, and who wanted it: "tcp on eth0 | eager | TCP_CONN_NB=y |
  // TCP_RX_SEG_SIZE=256k | UCX_TCP_SNDBUF=4m by the environment".
  std::string describe() const;
  std::string ways() const;  // "tcp on eth0"
  // "ucx tcp", "ucx posix", "ucx"
  std::string name() const;
};

// Thread: any, while nobody sets variables.
UcxSettings ucx_settings(const UcxOptions& options);
// "eth0, lo": the network devices that this host has, as UCX_NET_DEVICES names them.
std::string ucx_devices_here();
// Bytes that the kernel carries for one connection while neither side looks.
int64_t kernel_buffer_bytes();

}  // namespace hocket
