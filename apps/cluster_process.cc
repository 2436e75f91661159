#include "apps/cluster_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/machine.h"
#include "cluster/token_proof.h"
#include "engine/rank_setup.h"

namespace hocket {
namespace {

// This variable gives the cluster token to the ranks that this process starts.
constexpr const char* kTokenVariable = "HOCKET_SPAWNED_TOKEN";
constexpr Duration kLogEvery = std::chrono::seconds(2);
constexpr Duration kRankEndMargin = std::chrono::seconds(5);
constexpr double kMaxRankWaitSeconds = 7 * 86400;

Error bad(const char* flag, std::string why) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag);
}

}  // namespace

Result<std::unique_ptr<ClusterProcess>> ClusterProcess::create(const Launch& launch,
                                                               ServerSettings& settings,
                                                               Arguments arguments) {
  std::unique_ptr<ClusterProcess> made(new ClusterProcess(launch, std::move(arguments)));
  if (launch.spawned()) log::set_origin(fmt::format("rank {}", launch.rank));
  HOCKET_TRY_VOID(made->read_options(settings));
  int& port = settings.http.port;
  if (port != 0) port += launch.local_rank;
  if (port > 65535)
    return fail(bad("port", fmt::format("rank {} of this host would listen at port {}; 65535 is "
                                        "the last",
                                        launch.local_rank, port)));
  HOCKET_TRY_VOID(made->take_cores(settings));
  // After its own drain a rank may wait as long again for ranks that still answer.
  made->patience_ = 2 * from_seconds(settings.http.shutdown_timeout_s) + kRankEndMargin;
  return made;
}

Result<void> ClusterProcess::read_options(const ServerSettings& settings) {
  const ParallelSettings& p = settings.parallel;
  if (p.ep_link_gbit != 0 || p.ep_link_latency_us != 0)
    return fail(bad("ep-link-gbit",
                    "--ep-link-* pretends a network between the ranks of one process; between "
                    "processes there is one")
                    .with_fix("--ep-size N alone"));
  if (!(p.rank_wait_s > 0 && p.rank_wait_s <= kMaxRankWaitSeconds))
    return fail(bad("rank-wait", fmt::format("--rank-wait is {:g} s; more than 0, and at most a "
                                             "week, are possible",
                                             p.rank_wait_s)));
  if (!(p.lost_rank_wait_s >= 0 && p.lost_rank_wait_s <= kMaxRankWaitSeconds))
    return fail(bad("lost-rank-wait", fmt::format("--lost-rank-wait is {:g} s; 0 to a week are "
                                                  "possible",
                                                  p.lost_rank_wait_s)));
  HOCKET_TRY_VOID(read_store(p));
  HOCKET_TRY_VOID(read_tolerance(p));
  control_.init_addr = launch_.init_addr;
  control_.insecure = p.insecure_cluster;
  control_.rank_wait = from_seconds(p.rank_wait_s);
  const char* inherited = std::getenv(kTokenVariable);
  if (!p.cluster_token_file.empty()) {
    HOCKET_TRY(control_.token, read_cluster_token(p.cluster_token_file));
  } else if (launch_.spawned() && inherited != nullptr) {
    control_.token = inherited;
  } else if (launch_.num_local == launch_.num_ranks) {
    control_.token = make_boot_id() + make_boot_id();
  } else if (p.insecure_cluster) {
    open_to_strangers_ = SlowPath{
        "--insecure-cluster",
        fmt::format("anyone who reaches {} may join this service, read its requests and "
                    "write its answers",
                    control_.store ? "the rank that coordinates" : to_text(launch_.init_addr)),
        "--cluster-token-file FILE on all ranks keeps strangers out"};
    // --strict refuses this before the port opens. Other slow paths are reported after loading.
    if (settings.strict)
      return fail(bad("insecure-cluster", fmt::format("--strict, and with --insecure-cluster {}",
                                                      open_to_strangers_->why))
                      .with_fix("--cluster-token-file FILE on all ranks, or leave out --strict"));
    log::warning("slow: {}: {}; {}", open_to_strangers_->what, open_to_strangers_->why,
                 open_to_strangers_->fix);
  }
  return read_tls(p);
}

// Decides whether ranks talk to each other over TLS. All ranks decide alike, because what it
// follows from is the same for all.
Result<void> ClusterProcess::read_tls(const ParallelSettings& parallel) {
  HOCKET_TRY(const TlsUse use, parse_tls_use(parallel.cluster_tls));
  const bool has_token = !control_.token.empty();
  if (use == TlsUse::on && !has_token)
    return fail(bad("cluster-tls",
                    "--cluster-tls on takes its key from the cluster token, and there is none")
                    .with_fix("--cluster-token-file FILE on all ranks"));
  const bool across_hosts = launch_.ranks_per_node < launch_.num_ranks;
  if (use == TlsUse::on || (use == TlsUse::automatic && across_hosts && has_token)) {
    HOCKET_TRY(control_.tls, TlsContext::create(control_.token));
  }
  return {};
}

// Reads where ranks find each other, and says at the start what is lost with rank 0.
Result<void> ClusterProcess::read_store(const ParallelSettings& parallel) {
  const CertificateFiles certificates{.ca = parallel.cluster_store_cacert,
                                      .certificate = parallel.cluster_store_cert,
                                      .key = parallel.cluster_store_key};
  if (!parallel.cluster_store.empty()) {
    HOCKET_TRY(control_.store, read_etcd_address(parallel.cluster_store));
    if (control_.store->has_tls) {
      HOCKET_TRY(control_.store_tls, TlsContext::for_servers(certificates, "cluster-store"));
    }
  }
  if (!certificates.empty() && control_.store_tls == nullptr)
    return fail(bad("cluster-store-cacert",
                    "certificates of --cluster-store change nothing if it is not inside TLS")
                    .with_fix("--cluster-store etcds://HOST:2379"));
  if (control_.store) {
    if (parallel.cluster_listen.empty()) return {};
    auto listen = parse_host_port(parallel.cluster_listen);
    if (!listen) return fail(std::move(listen).error().with_param("cluster-listen"));
    control_.listen = *std::move(listen);
    if (control_.listen.port > UINT16_MAX - launch_.local_rank)
      return fail(bad("cluster-listen",
                      fmt::format("rank {} of this host would listen at port {}; 65535 is the last",
                                  launch_.local_rank, control_.listen.port + launch_.local_rank))
                      .with_fix("a smaller port"));
    if (control_.listen.port != 0)
      control_.listen.port = static_cast<uint16_t>(control_.listen.port + launch_.local_rank);
    return {};
  }
  if (!parallel.cluster_listen.empty())
    return fail(bad("cluster-listen", "--cluster-listen is given without --cluster-store")
                    .with_fix("--dist-init-addr says where rank 0 listens"));
  if (launch_.num_local < launch_.num_ranks && !launch_.spawned())
    log::info(
        "cluster: rank 0 knows the members: if it is lost, the others pause until it is back, "
        "for --rank-wait {:g} s at most; --cluster-store etcd://HOST:2379 has no such rank",
        parallel.rank_wait_s);
  return {};
}

// Reads how many ranks may be missing, and says which losses still pause the service.
Result<void> ClusterProcess::read_tolerance(const ParallelSettings& parallel) {
  // With a store any rank may be missing, so two groups could serve beside each other if one of
  // them were not more than half of all.
  const int tolerate_ranks = parallel.tolerate_ranks;
  const int max_tolerated = control_.store ? (launch_.num_ranks - 1) / 2 : launch_.num_ranks - 1;
  if (tolerate_ranks < 0 || tolerate_ranks > max_tolerated)
    return fail(
        bad("tolerate-ranks",
            fmt::format("--tolerate-ranks {} is not in 0 to {}: of {} ranks {}", tolerate_ranks,
                        max_tolerated, launch_.num_ranks,
                        control_.store ? "more than half must be left, or two groups could serve"
                                       : "one must be left"))
            .with_fix(fmt::format("--tolerate-ranks {}", std::max(max_tolerated, 0))));
  control_.tolerate_ranks = tolerate_ranks;
  if (tolerate_ranks == 0 || launch_.spawned()) return {};
  if (!control_.store)
    log::info("cluster: --tolerate-ranks {} does not include rank 0, which knows the members",
              tolerate_ranks);
  if (tolerate_ranks < launch_.ranks_per_node)
    log::warning(
        "cluster: the {} ranks of a host end together, so with --tolerate-ranks {} the loss of a "
        "process pauses the others; {}",
        launch_.ranks_per_node, tolerate_ranks,
        launch_.ranks_per_node <= max_tolerated
            ? fmt::format("to serve on without a host: --tolerate-ranks {}", launch_.ranks_per_node)
            : "to serve on without a host there have to be more of them");
  return {};
}

// Pins this rank to its part of the host's cores. Parts are disjoint if there are enough cores, and
// the cores of a part are near to each other (share_cores()).
Result<void> ClusterProcess::take_cores(ServerSettings& settings) {
  std::string& bind = settings.compute.cpu_bind;
  if (launch_.ranks_per_node == 1 || bind == "none") return {};
  if (launch_.spawned()) {  // the process that started it has pinned it
    bind = "auto";
    return {};
  }
  HOCKET_TRY(const Machine machine, machine_for(settings.compute));
  // A launcher that starts every rank may have pinned each of them.
  const bool bound = std::ssize(machine.cpus) < sysconf(_SC_NPROCESSORS_ONLN);
  if (launch_.num_local == 1 && bind == "auto" && bound) return {};
  num_numa_nodes_ = machine.num_numa_nodes;
  cores_ = share_cores(read_cpu_locations(machine), launch_.ranks_per_node);
  const CoreSet& own = cores_[static_cast<size_t>(launch_.local_rank)];
  if (own.cpus.empty()) return {};
  bind = "auto";
  return pin_self(own, num_numa_nodes_);
}

ClusterLaunch ClusterProcess::launch() {
  return {.launch = launch_, .control = control_, .joined = [this](const ControlPlane& plane) {
            plane_ = &plane;
            return start_others(plane);
          }};
}

Result<void> ClusterProcess::start_others(const ControlPlane& plane) {
  if (launch_.num_local == 1) return {};
  Launch here = launch_;
  if (here.rank == 0 && !control_.store) here.init_addr.port = plane.port();
  std::vector<RankProgram> programs;
  for (int i = 1; i < launch_.num_local; ++i) {
    RankProgram& one = programs.emplace_back();
    one.rank = launch_.rank + i;
    one.arguments = {"serve"};
    one.arguments.insert(one.arguments.end(), arguments_.begin(), arguments_.end());
    one.variables = {spawned_variable(here, one.rank),
                     fmt::format("{}={}", kTokenVariable, control_.token)};
    if (!cores_.empty()) one.cores = cores_[static_cast<size_t>(i)];
  }
  HOCKET_TRY(const std::string program, own_program());
  HOCKET_TRY(LocalRanks started, LocalRanks::spawn(program, programs, num_numa_nodes_));
  others_.emplace(std::move(started));
  others_->patience = patience_;
  return {};
}

void ClusterProcess::log_loading() {
  if (plane_ == nullptr) return;
  const TimePoint now = RealClock().now();
  if (now - logged_at_ < kLogEvery) return;
  logged_at_ = now;
  const std::vector<RankStatus> status = plane_->status();
  if (status.empty()) return;  // another rank coordinates
  std::string line = loading_line(status);
  if (line == last_line_) return;
  last_line_ = std::move(line);
  log::info("loading: {}", last_line_);
}

Result<void> ClusterProcess::watch() {
  log_loading();
  if (!others_) return {};
  const std::optional<LocalRanks::End> end = others_->poll();
  if (!end) return {};
  return fail(error(ErrorCode::lost_rank,
                    "{}; the process that started it ends with the other ranks of this host",
                    end->text)
                  .with_fix("its last lines say why; start this host's ranks again, and they "
                            "rejoin the others"));
}

void ClusterProcess::forward_signal(int number) {
  if (others_) others_->signal(number);
}

}  // namespace hocket
