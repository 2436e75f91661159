// Connects the ranks of a bench: all connect to rank 0, which passes each rank's message to all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

class Mesh {
 public:
  // For rank 0: listens on host:port; port 0 takes any.   Errors: bad_value (addr), io.
  static Result<Mesh> listen(const std::string& addr, int num_ranks);
  // For the other ranks: waits up to 30 s for rank 0.   Errors: bad_value (addr), io.
  static Result<Mesh> join(const std::string& addr, int rank, int num_ranks);
  Mesh(Mesh&& other) noexcept;
  Mesh& operator=(Mesh&&) = delete;
  ~Mesh();

  int port() const { return port_; }
  // Returns this process's address towards rank 0, as "10.0.0.2"; on rank 0, the one it listens on.
  const std::string& host() const { return host_; }
  // Returns the interface of host(), as "eth0"; empty: none is known.
  std::string device() const;

  // All ranks call it. Returns the messages of all, by rank. Waits at most 30 s for each.
  // Errors: lost_rank; io (not all ranks have joined).
  using Bytes = std::vector<std::byte>;
  Result<std::vector<Bytes>> gather(std::span<const std::byte> mine);

 private:
  Mesh(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}
  Result<void> accept_all();

  int rank_, num_ranks_, port_ = 0;
  std::string host_;
  int listener_ = -1;
  std::vector<int> peers_;  // sockets: on rank 0 one a rank, on others that to rank 0
};

}  // namespace hocket
