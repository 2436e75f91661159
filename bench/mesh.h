// How the ranks of a bench find each other: all connect to rank 0, which hands on what each says.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

class Mesh {
 public:
  // Rank 0: a listener on host:port; port 0 takes any.   Errors: io.
  static Result<Mesh> listen(const std::string& addr, int num_ranks);
  // The others: waits up to 30 s for rank 0.   Errors: io.
  static Result<Mesh> join(const std::string& addr, int rank, int num_ranks);
  Mesh(Mesh&& other) noexcept;
  Mesh& operator=(Mesh&&) = delete;
  ~Mesh();

  int port() const { return port_; }
  // This process's address towards rank 0, "10.0.0.2"; of rank 0 the one it listens on.
  const std::string& host() const { return host_; }
  // Its interface, "eth0"; empty: none is known.
  std::string device() const;

  // What all say, by rank; all call it. At most 30 s.   Errors: lost_rank.
  using Bytes = std::vector<std::byte>;
  Result<std::vector<Bytes>> gather(std::span<const std::byte> mine);

 private:
  Mesh(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}
  Result<void> accept_all();

  int rank_, num_ranks_, port_ = 0;
  std::string host_;
  int listener_ = -1;
  std::vector<int> peers_;  // rank 0: by rank; others: rank 0 alone
};

}  // namespace hocket
