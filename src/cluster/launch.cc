#include "cluster/launch.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "cluster/member.h"

extern char** environ;

namespace hocket {
namespace {

// A number and the flag or variable that gave it.
struct Claim {
  int value = 0;
  std::string source;
};
using MaybeClaim = std::optional<Claim>;

Result<void> must_agree(std::string_view what, const Claim& a, const Claim& b) {
  if (a.value == b.value) return {};
  return fail(error(ErrorCode::bad_value, "the {} is {} by {} and {} by {}", what, a.value,
                    a.source, b.value, b.source)
                  .with_fix("give it once, or the same"));
}

Result<int> parse_number(std::string_view text, const std::string& name, int least) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < least)
    return fail(
        error(ErrorCode::bad_value, "{} is '{}', not a number from {} on", name, text, least)
            .with_param(name));
  return value;
}

// A launcher's claims: process `index` of `count`; on this host, `local_rank` of `local`.
struct Launcher {
  Claim index, count;
  MaybeClaim local, local_rank;
};

constexpr const char* kSpawned = "HOCKET_SPAWNED";

class LaunchReader {
 public:
  LaunchReader(const LaunchFlags& flags, const LaunchEnvironment& environment)
      : flags_(flags), environment_(environment) {}

  Result<Launch> read() {
    if (const std::string* text = find(kSpawned)) return spawned(*text);
    HOCKET_TRY_VOID(check_flags());
    HOCKET_TRY(auto launcher, read_launcher());
    Launch launch;
    if (launcher && !starts_nodes(*launcher)) {
      HOCKET_TRY(launch, by_rank(*launcher));
    } else {
      HOCKET_TRY(launch, by_node(launcher));
    }
    if (launch.num_ranks > kMaxRanks)
      return fail(ErrorCode::bad_value, "{} ranks are asked for by {}; at most {} are possible",
                  launch.num_ranks, launch.source, kMaxRanks);
    if (flags_.has_store && !flags_.dist_init_addr.empty())
      return fail(
          error(ErrorCode::usage,
                "--dist-init-addr {} is given with --cluster-store, where no rank is special",
                flags_.dist_init_addr)
              .with_fix("--cluster-listen HOST:PORT says where this rank listens while it "
                        "coordinates")
              .with_param("dist-init-addr"));
    if (flags_.has_store && launch.num_ranks == 1)
      return fail(error(ErrorCode::usage,
                        "--cluster-store is given, and nothing says that there is another rank")
                      .with_fix("--nnodes N --node-rank R on each of N hosts")
                      .with_param("cluster-store"));
    if (launch.num_ranks == 1 && !flags_.dist_init_addr.empty() && !flags_.nnodes)
      return fail(
          error(ErrorCode::usage,
                "--dist-init-addr is given, and nothing says that there is another rank")
              .with_fix("--nnodes N --node-rank R on each of N hosts, or --ranks-per-node P "
                        "for processes of this one"));
    if (launch.num_ranks == 1 || launch.in_process) return launch;
    HOCKET_TRY(launch.init_addr, address(launch));
    return launch;
  }

 private:
  const std::string* find(const std::string& name) const {
    const auto found = environment_.variables.find(name);
    return found == environment_.variables.end() || found->second.empty() ? nullptr
                                                                          : &found->second;
  }

  Result<MaybeClaim> number(const std::string& name, int least) const {
    const std::string* text = find(name);
    if (text == nullptr) return std::nullopt;
    HOCKET_TRY(const int value, parse_number(*text, name, least));
    return Claim{value, name};
  }

  Result<void> check_flags() const {
    const std::tuple<const char*, std::optional<int>, int> given[] = {
        {"--nnodes", flags_.nnodes, 1},
        {"--node-rank", flags_.node_rank, 0},
        {"--ep-size", flags_.ep_size, 1},
        {"--ranks-per-node", flags_.ranks_per_node, 1}};
    for (const auto& [name, value, least] : given)
      if (value && (*value < least || *value > kMaxRanks))
        return fail(error(ErrorCode::bad_value, "{} is {}; {} to {} are possible", name, *value,
                          least, kMaxRanks)
                        .with_param(name));
    if (flags_.node_rank && !flags_.nnodes)
      return fail(
          error(ErrorCode::usage, "--node-rank {} is given without --nnodes", *flags_.node_rank)
              .with_fix("--nnodes says how many hosts there are"));
    if (flags_.node_rank && *flags_.node_rank >= *flags_.nnodes)
      return fail(error(ErrorCode::bad_value, "--node-rank {} is none of --nnodes {}",
                        *flags_.node_rank, *flags_.nnodes)
                      .with_fix("node ranks count from 0")
                      .with_param("node-rank"));
    return {};
  }

  // Reads RANK/RANKS/RANKS_PER_NODE/HOST:PORT.
  Result<Launch> spawned(std::string_view text) const {
    int numbers[3] = {};
    for (int& number : numbers) {
      const size_t slash = text.find('/');
      if (slash == std::string_view::npos)
        return fail(ErrorCode::bad_value, "{} is not RANK/RANKS/RANKS_PER_NODE/HOST:PORT",
                    kSpawned);
      HOCKET_TRY(number, parse_number(text.substr(0, slash), kSpawned, 0));
      text.remove_prefix(slash + 1);
    }
    const auto [rank, num_ranks, per_node] = numbers;
    if (per_node < 1 || rank >= num_ranks || num_ranks > kMaxRanks)
      return fail(ErrorCode::bad_value, "{} names rank {} of {}, {} a node", kSpawned, rank,
                  num_ranks, per_node);
    HOCKET_TRY(HostPort address, parse_host_port(text));
    return Launch{.num_ranks = num_ranks,
                  .rank = rank,
                  .ranks_per_node = per_node,
                  .local_rank = rank % per_node,
                  .init_addr = std::move(address),
                  .source = kSpawned};
  }

  // Reads the variables of one launcher; nullopt if they are not set or it started one process
  // only.
  Result<std::optional<Launcher>> variables(const char* index, const char* count, const char* local,
                                            const char* local_rank) const {
    HOCKET_TRY(const MaybeClaim i, number(index, 0));
    HOCKET_TRY(const MaybeClaim n, number(count, 1));
    HOCKET_TRY(const MaybeClaim l, number(local, 1));
    HOCKET_TRY(const MaybeClaim r, number(local_rank, 0));
    if (!i || !n) return std::nullopt;
    if (i->value >= n->value)
      return fail(ErrorCode::bad_value, "{} is {}, and {} is {}", index, i->value, count, n->value);
    if (n->value == 1) return std::nullopt;
    return Launcher{*i, *n, l, r};
  }

  Result<std::optional<Launcher>> read_launcher() const {
    HOCKET_TRY(auto torch, variables("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"));
    HOCKET_TRY(auto mpi, variables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"));
    HOCKET_TRY(auto slurm,
               variables("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"));
    HOCKET_TRY(const MaybeClaim pmix, number("PMIX_RANK", 0));
    std::optional<Launcher> found;
    for (const auto& one : {torch, mpi, mpi ? std::nullopt : slurm}) {
      if (!one) continue;
      if (!found) {
        found = one;
        continue;
      }
      HOCKET_TRY_VOID(must_agree("rank", found->index, one->index));
      HOCKET_TRY_VOID(must_agree("number of ranks", found->count, one->count));
      if (!found->local) found->local = one->local;
      if (!found->local_rank) found->local_rank = one->local_rank;
    }
    if (!pmix) return found;
    if (found) {
      HOCKET_TRY_VOID(must_agree("rank", found->index, *pmix));
    } else if (flags_.ep_size && *flags_.ep_size > 1 && !flags_.nnodes) {
      // PMIx gives the index of this process, but not the number of processes.
      if (pmix->value >= *flags_.ep_size)
        return fail(ErrorCode::bad_value, "PMIX_RANK is {}, and --ep-size {}", pmix->value,
                    *flags_.ep_size);
      found = Launcher{*pmix, {*flags_.ep_size, "--ep-size"}, std::nullopt, std::nullopt};
    }
    return found;
  }

  // True if each of the launcher's processes starts several ranks of its host.
  bool starts_nodes(const Launcher& launcher) const {
    const int per_node = flags_.ranks_per_node.value_or(1);
    const int count = launcher.count.value;
    if (per_node == 1) return false;
    if (flags_.ep_size) return *flags_.ep_size == count * per_node;
    if (flags_.nnodes) return *flags_.nnodes == count;
    return launcher.local && launcher.local->value == 1;
  }

  Result<Launch> by_rank(const Launcher& launcher) const {
    const int count = launcher.count.value;
    if (flags_.ep_size)
      HOCKET_TRY_VOID(
          must_agree("number of ranks", {*flags_.ep_size, "--ep-size"}, launcher.count));
    Claim per_node{1, "default"};
    if (flags_.nnodes) per_node = {count / *flags_.nnodes, "--nnodes and " + launcher.count.source};
    if (launcher.local) per_node = *launcher.local;
    if (flags_.ranks_per_node) {
      const Claim flag{*flags_.ranks_per_node, "--ranks-per-node"};
      if (per_node.source != "default")
        HOCKET_TRY_VOID(must_agree("number of ranks a node", flag, per_node));
      per_node = flag;
    }
    if (flags_.nnodes)
      HOCKET_TRY_VOID(must_agree(
          "number of ranks", {*flags_.nnodes * per_node.value, "--nnodes times " + per_node.source},
          launcher.count));
    if (flags_.node_rank)
      HOCKET_TRY_VOID(must_agree("node's rank", {*flags_.node_rank, "--node-rank"},
                                 {launcher.index.value / per_node.value, launcher.index.source}));
    const int per_host = std::min(per_node.value, count);
    return Launch{.num_ranks = count,
                  .rank = launcher.index.value,
                  .ranks_per_node = per_host,
                  .local_rank = launcher.local_rank ? launcher.local_rank->value
                                                    : launcher.index.value % per_host,
                  .init_addr = {},
                  .source = launcher.index.source};
  }

  Result<Launch> by_node(const std::optional<Launcher>& launcher) const {
    Claim nodes{flags_.nnodes.value_or(1), "--nnodes"};
    if (launcher) {
      if (flags_.nnodes) HOCKET_TRY_VOID(must_agree("number of nodes", nodes, launcher->count));
      nodes = launcher->count;
    }
    HOCKET_TRY(const Claim node, node_rank(nodes.value, launcher));
    int per_node = flags_.ranks_per_node.value_or(1);
    if (flags_.ep_size && !flags_.ranks_per_node) {
      per_node = *flags_.ep_size / nodes.value;
      if (per_node * nodes.value != *flags_.ep_size)
        return fail(error(ErrorCode::bad_value, "--ep-size {} does not divide among {} hosts by {}",
                          *flags_.ep_size, nodes.value, nodes.source)
                        .with_param("ep-size"));
    } else if (flags_.ep_size) {
      HOCKET_TRY_VOID(
          must_agree("number of ranks", {*flags_.ep_size, "--ep-size"},
                     {nodes.value * per_node, "--ranks-per-node times " + nodes.source}));
    }
    Launch launch{.num_ranks = nodes.value * per_node,
                  .rank = node.value * per_node,
                  .num_local = per_node,
                  .in_process = nodes.value == 1 && per_node > 1 && !flags_.ranks_per_node &&
                                flags_.dist_init_addr.empty() && !flags_.has_store,
                  .ranks_per_node = per_node,
                  .init_addr = {},
                  .source = node.source};
    if (nodes.value == 1 && per_node > 1)
      launch.source = flags_.ep_size ? "--ep-size" : "--ranks-per-node";
    return launch;
  }

  Result<Claim> node_rank(int num_nodes, const std::optional<Launcher>& launcher) const {
    const MaybeClaim pod = ordinal();
    if (num_nodes == 1) return Claim{0, "one process"};
    if (flags_.node_rank) {
      Claim flag{*flags_.node_rank, "--node-rank"};
      if (launcher) HOCKET_TRY_VOID(must_agree("node's rank", flag, launcher->index));
      return flag;
    }
    if (launcher) return launcher->index;
    if (!pod)
      return fail(error(ErrorCode::usage,
                        "--nnodes {} is given, and nothing says which node this is", num_nodes)
                      .with_fix("--node-rank 0 on the first host, 1 on the next")
                      .with_param("node-rank"));
    if (pod->value >= num_nodes)
      return fail(ErrorCode::bad_value, "the pod {} is none of --nnodes {}", environment_.host_name,
                  num_nodes);
    return *pod;
  }

  // Returns the index of this pod in its StatefulSet.
  MaybeClaim ordinal() const {
    const std::string& name = environment_.host_name;
    const size_t dash = name.rfind('-');
    if (find("KUBERNETES_SERVICE_HOST") == nullptr || dash == std::string::npos || dash == 0)
      return std::nullopt;
    const auto value = parse_number(std::string_view(name).substr(dash + 1), "ordinal", 0);
    if (!value) return std::nullopt;
    return Claim{*value, "the pod's name " + name};
  }

  Result<HostPort> address(const Launch& launch) const {
    if (flags_.has_store) return HostPort{"127.0.0.1", 0};
    std::optional<HostPort> flag;
    if (!flags_.dist_init_addr.empty()) {
      auto read = parse_host_port(flags_.dist_init_addr);
      if (!read) return fail(std::move(read).error().with_param("dist-init-addr"));
      flag = *std::move(read);
    }
    const bool all_here = launch.num_local == launch.num_ranks;
    if (const std::string* host = find("MASTER_ADDR"); host != nullptr && !all_here) {
      HOCKET_TRY(const MaybeClaim port, number("MASTER_PORT", 1));
      if (port && port->value > 65535)
        return fail(ErrorCode::bad_value, "MASTER_PORT is {}; 65535 is the last", port->value);
      const bool same = !flag || (flag->host == *host && (!port || port->value == flag->port));
      if (!same)
        return fail(error(ErrorCode::bad_value,
                          "rank 0 is at {} by --dist-init-addr and at {}{} by MASTER_ADDR",
                          flags_.dist_init_addr, *host, port ? fmt::format(":{}", port->value) : "")
                        .with_fix("give it once, or the same"));
      if (!flag)
        return HostPort{*host, port ? static_cast<uint16_t>(port->value) : kDefaultClusterPort};
    }
    if (flag) return *flag;
    if (all_here) return HostPort{"127.0.0.1", 0};
    if (launch.ranks_per_node == launch.num_ranks)
      return HostPort{"127.0.0.1", kDefaultClusterPort};
    return address_by_launcher(launch);
  }

  Result<HostPort> address_by_launcher(const Launch& launch) const {
    const std::string* nodes = find("SLURM_STEP_NODELIST");
    if (nodes == nullptr) nodes = find("SLURM_NODELIST");
    if (nodes == nullptr) nodes = find("SLURM_JOB_NODELIST");
    if (launch.source == "SLURM_PROCID" && nodes != nullptr && !first_host(*nodes).empty())
      return HostPort{first_host(*nodes), kDefaultClusterPort};
    const std::string* service = find("HOCKET_SERVICE");
    if (ordinal() && service != nullptr) {
      const std::string& name = environment_.host_name;
      return HostPort{name.substr(0, name.rfind('-')) + "-0." + *service, kDefaultClusterPort};
    }
    return fail(error(ErrorCode::usage,
                      "{} ranks are started by {}, and nothing says where rank 0 is",
                      launch.num_ranks, launch.source)
                    .with_fix("--dist-init-addr HOST:PORT, the same on all ranks")
                    .with_param("dist-init-addr"));
  }

  const LaunchFlags& flags_;
  const LaunchEnvironment& environment_;
};

}  // namespace

LaunchEnvironment this_environment() {
  LaunchEnvironment here;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      here.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0) here.host_name = name;
  return here;
}

Result<Launch> read_launch(const LaunchFlags& flags, const LaunchEnvironment& environment) {
  return LaunchReader(flags, environment).read();
}

bool Launch::spawned() const {
  return source == kSpawned;
}

std::string spawned_variable(const Launch& parent, int rank) {
  return fmt::format("{}={}/{}/{}/{}", kSpawned, rank, parent.num_ranks, parent.ranks_per_node,
                     to_text(parent.init_addr));
}

std::string first_host(std::string_view node_list) {
  std::string host;
  bool inside = false, copying = true;
  for (const char c : node_list) {
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = false;
      copying = true;
    } else if (inside && (c == '-' || c == ',')) {
      copying = false;  // the first host of the range is enough
    } else if (c == ',') {
      break;
    } else if (copying) {
      host += c;
    }
  }
  return host;
}

}  // namespace hocket
