// The settings of UCX, and whether the user or hocket decided them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/comm/ucx_transport.h"

namespace hocket {

// Settings that UCX 1.13 takes from environment variables only. ucx_library() sets those that the
// user has not set.
struct UcxVariable {
  enum class Where { everywhere, tcp, without_infiniband };
  const char* name;
  const char* value;
  Where where;  // it has an effect
};
inline constexpr UcxVariable kUcxVariables[] = {
    // hocket reports crashes itself, and standard output is not a log.
    {"UCX_HANDLE_ERRORS", "none", UcxVariable::Where::everywhere},
    {"UCX_LOG_FILE", "stderr", UcxVariable::Where::everywhere},
    // The TCP variables are unused without TCP.
    {"UCX_WARN_UNUSED_ENV_VARS", "n", UcxVariable::Where::everywhere},
    // UCX watches memory for its cache of registrations, which only InfiniBand needs, and for that
    // rewrites sbrk() and mmap() while other threads may be in them. That has ended processes at
    // their start, with "break adjusted to free malloc space".
    {"UCX_MEM_EVENTS", "n", UcxVariable::Where::without_infiniband},
    // Without it, a host that does not answer blocks connect() for minutes.
    {"UCX_TCP_CONN_NB", "y", UcxVariable::Where::tcp},
    // Messages leave and arrive in pieces of this size. With UCX's default of 64k, half a
    // megabyte takes 1.4 times as long where only the cores limit it; larger pieces gain nothing.
    {"UCX_TCP_RX_SEG_SIZE", "256k", UcxVariable::Where::tcp},
};

struct UcxSettings {
  struct Entry {
    std::string name, value;  // "TLS", "tcp"
    bool by_user = false;     // the user has set UCX_name, so nothing is changed
  };
  std::vector<Entry> entries;

  bool eager = false;         // messages are pushed without a rendezvous
  bool has_tcp = false;       // the list of ways contains TCP
  bool has_own_host = false;  // the list of ways contains shared memory
  std::string tls, devices;   // the values in effect
  // Returns all settings that differ from UCX's defaults, and whether the environment set them:
  // "tcp on eth0 | eager | TCP_CONN_NB=y | TCP_RX_SEG_SIZE=256k | UCX_TCP_SNDBUF=4m by the
  // environment".
  std::string describe() const;
  std::string ways() const;  // "tcp on eth0"
  // Returns "ucx tcp", "ucx posix" or, with both ways, "ucx".
  std::string name() const;
};

// Returns the settings for these options.   Thread: any, while no thread sets environment
// variables.
UcxSettings ucx_settings(const UcxOptions& options);
bool has_infiniband();  // whether this host has devices for it
// Returns the network devices of this host, as UCX_NET_DEVICES names them: "eth0, lo".
std::string ucx_devices_here();
// Returns the bytes that the kernel buffers for one connection while neither side looks.
int64_t kernel_buffer_bytes();

}  // namespace hocket
