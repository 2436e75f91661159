#include "bench/all2all.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "base/machine.h"
#include "base/quantile.h"
#include "bench/all2all_mpi.h"
#include "bench/bench_error.h"
#include "bench/mesh.h"
#include "bench/processes.h"
#include "bench/socket_transport.h"
#include "compute/comm/all_to_all.h"
#include "compute/comm/loopback.h"
#include "compute/comm/ucx_transport.h"

namespace hocket {
namespace {

constexpr Duration kCompute = std::chrono::milliseconds(12);
constexpr const char* kMpirun =
    "mpirun --allow-run-as-root --oversubscribe --mca btl_tcp_if_include lo";
constexpr int kMpiRounds = 50;  // at most, since mpirun may run for 25 s
constexpr int kWarm = 2;        // rounds that are not counted

using Bytes = std::vector<std::byte>;

// One transport with its exchange, and the mean times of an exchange by length and round.
struct ComparedTransport {
  std::string name, about;
  std::string absent;  // the reason why it is not measured; empty: it is measured
  std::unique_ptr<Transport> transport;
  std::unique_ptr<AllToAll> exchange;
  uint64_t step = 0;
  std::vector<std::vector<double>> us;  // [length][round]
  // The part in which this rank used its core: to move bytes, and to look for them.
  std::vector<std::vector<double>> core_us;
};

double core_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Times dispatches and combines. Their messages hold no rows and are all of the same length.
class Exchanges {
 public:
  Exchanges(AllToAll& exchange, uint64_t& step, std::span<const std::byte> bytes)
      : exchange_(exchange), step_(step), part_{bytes} {
    parts_.assign(static_cast<size_t>(exchange.num_ranks()), AllToAll::Parts(part_));
  }
  Result<void> start(MessageKind kind) { return exchange_.start(0, kind, {.step = step_}, parts_); }
  Result<void> finish(MessageKind kind) {
    HOCKET_TRY_VOID(exchange_.wait(0, kind, {.step = step_}));
    exchange_.release(0, kind);
    if (kind != MessageKind::dispatch) ++step_;
    return {};
  }
  // Returns the mean time of an exchange over `num_pairs` dispatches and combines.
  Result<double> time_us(int num_pairs) {
    const TimePoint begin = RealClock().now();
    for (int i = 0; i < num_pairs; ++i) {
      for (const MessageKind kind : {MessageKind::dispatch, MessageKind::combine}) {
        HOCKET_TRY_VOID(start(kind));
        HOCKET_TRY_VOID(finish(kind));
      }
    }
    return to_us(RealClock().now() - begin) / (2.0 * num_pairs);
  }
  // Returns the mean wait after kCompute of computing, in which no call to the library is made.
  Result<double> exposed_us() {
    Duration waited{};
    for (const MessageKind kind : {MessageKind::dispatch, MessageKind::combine}) {
      HOCKET_TRY_VOID(start(kind));
      const TimePoint begin = RealClock().now();
      while (RealClock().now() - begin < kCompute) {
      }
      const TimePoint wait = RealClock().now();
      HOCKET_TRY_VOID(finish(kind));
      waited += RealClock().now() - wait;
    }
    return to_us(waited) / 2;
  }

 private:
  AllToAll& exchange_;
  uint64_t& step_;
  std::span<const std::byte> part_[1];
  std::vector<AllToAll::Parts> parts_;
};

// One rank of the bench. All ranks go through the same ways, lengths and rounds.
class BenchRank {
 public:
  BenchRank(const BenchAllToAllOptions& options, int rank, Mesh& mesh)
      : options_(options),
        rank_(rank),
        most_(static_cast<size_t>(*std::ranges::max_element(options.bytes))),
        bytes_(most_, std::byte{1}),
        mesh_(mesh) {}

  Result<void> run() {
    pin_thread(cpu_of(rank_));
    HOCKET_TRY_VOID(add_sockets("sockets", SendMethod::calls));
    HOCKET_TRY_VOID(add_sockets("sockets, zc", SendMethod::zero_copy));
    HOCKET_TRY_VOID(add_sockets("io_uring", SendMethod::ring));
    HOCKET_TRY_VOID(add_sockets("io_uring, zc", SendMethod::ring_zero_copy));
    UcxOptions tcp{.tls = "tcp", .devices = options_.devices};
    if (tcp.devices.empty()) tcp.devices = mesh_.device();
    HOCKET_TRY_VOID(add_ucx("ucx tcp", tcp));
    if (options_.rank < 0) {
      HOCKET_TRY_VOID(add_ucx("ucx shm", {.tls = ucx_tls_of_one_host()}));
      ways_.emplace_back().name = "loopback";
    }
    for (ComparedTransport& way : ways_) {
      way.us.resize(options_.bytes.size());
      way.core_us.resize(options_.bytes.size());
      if (way.absent.empty() && rank_ == 0 && !options_.json && !way.about.empty()) {
        fmt::print("{}: {}\n", way.name, way.about);
      }
    }
    for (size_t i = 0; i < options_.bytes.size(); ++i) {
      for (int round = -kWarm; round < options_.rounds; ++round) {
        for (ComparedTransport& way : ways_) HOCKET_TRY_VOID(measure(way, i, round));
      }
      HOCKET_TRY_VOID(meet());
      if (rank_ == 0) print_all(i);
      HOCKET_TRY_VOID(mesh_.gather({}));  // other ranks sleep here while MPI's use the cores
    }
    return {};
  }

 private:
  int cpu_of(int rank) const { return cpus_[static_cast<size_t>(rank) % cpus_.size()]; }

  AllToAll::Options exchange_options() const {
    return {.max_bytes = on_lanes(1, {most_, most_, 1})};
  }

  Result<void> add(ComparedTransport way) {
    if (way.absent.empty()) {
      HOCKET_TRY(way.exchange, AllToAll::create(*way.transport, exchange_options()));
    }
    ways_.push_back(std::move(way));
    return {};
  }

  Result<void> add_sockets(const char* name, SendMethod how) {
    return add_connected(name, SocketTransport::create(rank_, options_.num_ranks,
                                                       {.host = mesh_.host(), .way = how}));
  }

  Result<void> add_ucx(const char* name, const UcxOptions& options) {
    return add_connected(name, UcxTransport::create(rank_, options_.num_ranks, options));
  }

  // Adds a way that all ranks have, or says why it is absent.
  template <class End>
  Result<void> add_connected(const char* name, Result<std::unique_ptr<End>> end) {
    Bytes mine;
    if (end) {
      const auto address = (*end)->address();
      mine.assign(address.begin(), address.end());
    }
    HOCKET_TRY(const std::vector<Bytes> all, mesh_.gather(mine));
    ComparedTransport way{.name = name};
    for (size_t peer = 0; peer < all.size(); ++peer) {
      if (all[peer].empty()) way.absent = fmt::format("rank {} is without it", peer);
    }
    if (!end) way.absent = end.error().message;
    if (way.absent.empty()) {
      const std::vector<std::span<const std::byte>> addresses(all.begin(), all.end());
      HOCKET_TRY_VOID((*end)->connect(addresses));
      if constexpr (requires { (*end)->describe(); }) way.about = (*end)->describe();
      way.transport = std::move(*end);
    }
    return add(std::move(way));
  }

  int num_pairs(size_t i) const { return options_.bytes[i] < 100'000 ? 20 : 4; }

  // Waits until all ranks have arrived here, by an agreement over sockets. Meanwhile it calls
  // progress() of the other transports: messages may wait for that before they leave.
  Result<void> meet() {
    AllToAll& sockets = *ways_[0].exchange;
    const std::vector<AllToAll::Parts> nothing(static_cast<size_t>(options_.num_ranks));
    const Stamp stamp{.step = num_agreed_++};
    HOCKET_TRY_VOID(sockets.start(0, MessageKind::agree, stamp, nothing));
    while (!sockets.ready(0, MessageKind::agree)) {
      for (const ComparedTransport& way : ways_) {
        if (way.exchange != nullptr) way.exchange->progress();
      }
      ways_[0].transport->wait(std::chrono::microseconds(50));
    }
    HOCKET_TRY_VOID(sockets.wait(0, MessageKind::agree, stamp));
    sockets.release(0, MessageKind::agree);
    return {};
  }

  Result<void> measure(ComparedTransport& way, size_t i, int round) {
    if (!way.absent.empty()) return {};
    HOCKET_TRY_VOID(meet());
    Result<double> us = 0;
    if (way.exchange != nullptr) {
      const double before = core_seconds();
      us = one_round(*way.exchange, way.step, i);
      if (round >= 0 && !options_.probe)
        way.core_us[i].push_back(1e6 * (core_seconds() - before) / (2 * num_pairs(i)));
    } else if (rank_ == 0) {
      us = loopback_round(i);
    }
    if (!us) return std::unexpected(std::move(us).error());
    if (round >= 0) way.us[i].push_back(*us);
    return {};
  }

  Result<double> one_round(AllToAll& exchange, uint64_t& step, size_t i) const {
    const auto bytes = std::span(bytes_).first(static_cast<size_t>(options_.bytes[i]));
    Exchanges exchanges(exchange, step, bytes);
    return options_.probe ? exchanges.exposed_us() : exchanges.time_us(num_pairs(i));
  }

  // Returns the time of an exchange between threads of this process, without a modelled link.
  Result<double> loopback_round(size_t i) const {
    LoopbackHub hub(options_.num_ranks, {}, LoopbackHub::Time::real);
    std::vector<std::unique_ptr<Transport>> ends;
    for (int rank = 0; rank < options_.num_ranks; ++rank) ends.push_back(hub.join(rank));
    std::vector<Result<double>> us(ends.size(), 0.0);
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      threads.emplace_back([&, rank] {
        pin_thread(cpu_of(static_cast<int>(rank)));
        uint64_t step = 0;
        auto exchange = AllToAll::create(*ends[rank], exchange_options());
        us[rank] = exchange ? one_round(**exchange, step, i)  // the first one warms up
                            : std::unexpected(exchange.error());
        if (us[rank]) us[rank] = one_round(**exchange, step, i);
      });
    }
    threads.clear();
    for (auto& end : ends) end.reset();
    return us[0];
  }

  void print_all(size_t i) {
    std::vector<ComparedTransport> mpi(1);
    if (!options_.probe && (options_.rank < 0 || !options_.mpirun.empty())) {
      mpi[0].name = "mpi tcp";
      std::vector<int> cpus;
      for (int rank = 0; rank < options_.num_ranks; ++rank) cpus.push_back(cpu_of(rank));
      auto us = mpi_exchange_us({.mpirun = options_.rank < 0 ? kMpirun : options_.mpirun,
                                 .cpus = cpus,
                                 .num_bytes = options_.bytes[i],
                                 .num_exchanges = 2 * num_pairs(i),
                                 .rounds = std::min(options_.rounds, kMpiRounds)});
      mpi[0].us.resize(options_.bytes.size());
      if (us) {
        mpi[0].us[i] = std::move(*us);
      } else {
        mpi[0].absent = us.error().message;
      }
    }
    const double sockets_us = quantile(ways_[0].us[i], 0.5);
    for (const ComparedTransport& way : ways_) print(way, i, sockets_us);
    if (!mpi[0].name.empty()) print(mpi[0], i, sockets_us);
  }

  void print(const ComparedTransport& way, size_t i, double sockets_us) const {
    const double us = quantile(way.us[i], 0.5);
    const double out = static_cast<double>(options_.bytes[i]) * (options_.num_ranks - 1);
    const double gb_per_s = us > 0 ? out / us / 1e3 : 0;
    const double share = options_.link_gbit > 0 ? gb_per_s * 8 / options_.link_gbit : 0;
    const double ratio = us > 0 ? sockets_us / us : 0;
    const bool has_core = i < way.core_us.size() && !way.core_us[i].empty();
    const double core_s_per_gb = has_core ? 1e3 * quantile(way.core_us[i], 0.5) / out : 0;
    if (options_.json) {
      nlohmann::ordered_json line = {{"transport", way.name}, {"bytes", options_.bytes[i]}};
      line["ranks"] = options_.num_ranks;
      if (!way.absent.empty()) {
        line["absent"] = way.absent;
      } else if (options_.probe) {
        line["exposed_us_p50"] = us;
        line["exposed_us_p90"] = quantile(way.us[i], 0.9);
      } else {
        line["us_p50"] = us;
        line["us_p10"] = quantile(way.us[i], 0.1);
        line["us_p90"] = quantile(way.us[i], 0.9);
        line["gb_per_s"] = gb_per_s;
        line["ratio_to_sockets"] = ratio;
        if (share > 0) line["link_share"] = share;
        if (has_core) line["core_s_per_gb"] = core_s_per_gb;
      }
      fmt::print("{}\n", line.dump());
    } else {
      std::string text = fmt::format("all2all {:>7} B {:<12}", options_.bytes[i], way.name);
      if (!way.absent.empty()) {
        text += fmt::format(" | {}", way.absent);
      } else if (options_.probe) {
        text +=
            fmt::format(" | waits {:>8.1f} us after {:.0f} ms of computing", us, to_ms(kCompute));
      } else {
        text +=
            fmt::format(" | {:>9.1f} us ({:.1f} to {:.1f}) | {:>6.3f} GB/s | {:>5.2f}x sockets", us,
                        quantile(way.us[i], 0.1), quantile(way.us[i], 0.9), gb_per_s, ratio);
        if (share > 0) text += fmt::format(" | {:.2f} of the link", share);
        if (has_core) text += fmt::format(" | {:.2f} core-s/GB", core_s_per_gb);
      }
      fmt::print("{}\n", text);
    }
    std::fflush(stdout);
  }

  const BenchAllToAllOptions& options_;
  const int rank_;
  const size_t most_;
  const Bytes bytes_;
  const std::vector<int> cpus_ = inspect_machine().cpus;  // before this thread is pinned
  Mesh& mesh_;
  std::vector<ComparedTransport> ways_;  // sockets first
  uint64_t num_agreed_ = 0;
};

Result<void> be_rank(const BenchAllToAllOptions& options, int rank, const std::string& addr) {
  HOCKET_TRY(Mesh mesh, Mesh::join(addr, rank, options.num_ranks));
  return BenchRank(options, rank, mesh).run();
}

Result<void> check(const BenchAllToAllOptions& o) {
  constexpr int kMaxBytes = 256 << 20;
  HOCKET_TRY_VOID(check_number("ranks", o.num_ranks, {2, 64}));
  HOCKET_TRY_VOID(check_number("rank", o.rank, {-1.0, o.num_ranks - 1.0}));
  if (o.rank >= 0 && o.addr.empty())
    return bad_flag("rank", "is given without --addr", "--addr HOST:PORT, where rank 0 listens");
  if (o.rank < 0 && !o.addr.empty())
    return bad_flag("addr", "is given without --rank", "--rank N, this process's rank");
  if (o.rank < 0 && !o.mpirun.empty())
    return bad_flag("mpirun", "is for ranks that are started by hand",
                    "--rank and --addr, or leave out --mpirun");
  HOCKET_TRY_VOID(check_number("rounds", o.rounds, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("link-gbit", o.link_gbit, {0, 1e6}));
  if (o.bytes.empty()) return bad_flag("bytes", "is empty", "--bytes 4000,500000");
  HOCKET_TRY_VOID(check_each("bytes", o.bytes, {1, kMaxBytes}));
  return {};
}

}  // namespace

Result<int> bench_all2all(const BenchAllToAllOptions& options) {
  HOCKET_TRY_VOID(check(options));
  log::set_level(log::Level::error);
  if (options.rank > 0) {
    HOCKET_TRY_VOID(be_rank(options, options.rank, options.addr));
    return 0;
  }
  const bool alone = options.rank < 0;
  HOCKET_TRY(Mesh mesh, Mesh::listen(alone ? "127.0.0.1:0" : options.addr, options.num_ranks));
  Children children;
  const std::string addr = fmt::format("127.0.0.1:{}", mesh.port());
  for (int rank = 1; alone && rank < options.num_ranks; ++rank) {
    HOCKET_TRY_VOID(children.start([&] {
      const auto done = be_rank(options, rank, addr);
      if (!done) fmt::print(stderr, "rank {}: {}\n", rank, done.error().message);
      return done ? 0 : 1;
    }));
  }
  HOCKET_TRY_VOID(BenchRank(options, 0, mesh).run());
  HOCKET_TRY_VOID(children.wait());
  return 0;
}

}  // namespace hocket
