// What UCX is told, and who decided it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/comm/ucx_transport.h"

namespace hocket {

struct UcxSettings {
  struct Entry {
    std::string name, value;  // "TLS", "tcp"
    bool by_user = false;     // the variable UCX_name is set: nothing is changed
  };
  std::vector<Entry> entries;

  bool eager = false;            // no rendezvous
  bool has_tcp = false;          // a list of ways that has TCP
  bool has_own_host = false;     // or shared memory
  std::string tls, devices;      // in effect
  std::string describe() const;  // "tcp on eth0 | eager | UCX_TLS by the environment"
  // "ucx tcp", "ucx posix", "ucx"
  std::string name() const;
};

// Thread: any, while nobody sets variables.
UcxSettings ucx_settings(const UcxOptions& options);
// Bytes that the kernel carries for one connection while neither side looks.
int64_t kernel_buffer_bytes();

}  // namespace hocket
