#include "cluster/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <tuple>

#include "base/log.h"

extern char** environ;

namespace hocket {
namespace {

// All data that a child needs between fork and exec, where only system calls are allowed.
struct Prepared {
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> cpus{nullptr, [](cpu_set_t* s) { CPU_FREE(s); }};
  size_t cpus_bytes = 0;
  uint64_t nodes[16] = {};  // mask of NUMA nodes; empty if not bound
  bool binds = false;
};

Prepared prepare(const CoreSet& cores, int num_nodes) {
  Prepared p;
  if (cores.cpus.empty()) return p;
  const int count = std::max(1024, std::ranges::max(cores.cpus) + 1);
  p.cpus.reset(CPU_ALLOC(count));
  p.cpus_bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(p.cpus_bytes, p.cpus.get());
  for (const int cpu : cores.cpus) CPU_SET_S(static_cast<size_t>(cpu), p.cpus_bytes, p.cpus.get());
  const bool one_of_several = num_nodes > 1 && cores.nodes.size() == 1;
  if (one_of_several && cores.nodes[0] < static_cast<int>(std::size(p.nodes) * 64)) {
    p.nodes[cores.nodes[0] / 64] |= uint64_t{1} << (cores.nodes[0] % 64);
    p.binds = true;
  }
  return p;
}

// Returns 0 or an errno; makes system calls only. If the kernel cannot bind memory, it still
// allocates it near the cores.
int pin(const Prepared& p) {
  if (p.cpus_bytes > 0 && sched_setaffinity(0, p.cpus_bytes, p.cpus.get()) != 0) return errno;
  constexpr int kBind = 2;  // MPOL_BIND
  if (p.binds) syscall(SYS_set_mempolicy, kBind, p.nodes, sizeof p.nodes * 8);
  return 0;
}

int read_int(const std::string& path, int otherwise) {
  std::ifstream in(path);
  int value = 0;
  return in >> value ? value : otherwise;
}

int node_of(const std::string& folder) {
  for (int node = 0; node < 1024; ++node)
    if (access(fmt::format("{}/node{}", folder, node).c_str(), F_OK) == 0) return node;
  return 0;
}

using Core = std::vector<CpuLocation>;  // the logical processors of one core

CoreSet set_of(std::span<const Core> cores) {
  CoreSet set;
  std::set<int> nodes;
  for (size_t thread = 0, added = 1; added > 0; ++thread) {
    added = 0;
    for (const Core& core : cores) {
      if (thread >= core.size()) continue;
      set.cpus.push_back(core[thread].cpu);
      nodes.insert(core[thread].node);
      ++added;
    }
  }
  set.nodes.assign(nodes.begin(), nodes.end());
  return set;
}

// Returns part `index` of `count` equal parts.
template <class T>
std::span<const T> part(std::span<const T> all, size_t index, size_t count) {
  const size_t first = all.size() * index / count, last = all.size() * (index + 1) / count;
  return all.subspan(first, last - first);
}

// Runs in the child and never returns; writes errno to `report` if the program does not start.
[[noreturn]] void run_child(char* const* arguments, char* const* variables,
                            const Prepared& prepared, pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);
  // The parent may have died before prctl(): then no signal would ever end this child.
  int problem = getppid() == parent ? pin(prepared) : ESRCH;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A shell's background job ignores some signals; a rank that inherited that could not be ended.
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
  if (problem == 0) {
    execve(arguments[0], arguments, variables);
    problem = errno;
  }
  (void)!write(report, &problem, sizeof problem);
  _exit(127);
}

std::vector<std::string> with_ours(std::vector<std::string> variables) {
  const std::vector<std::string> given = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view ours = *entry;
    const std::string_view name = ours.substr(0, ours.find('=') + 1);
    const auto replaces = [&](const std::string& one) { return one.starts_with(name); };
    if (std::ranges::none_of(given, replaces)) variables.emplace_back(ours);
  }
  return variables;
}

// Returns the words as exec takes them, with a null at the end.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

Result<pid_t> start(const std::string& path, const RankProgram& program, int num_nodes) {
  std::vector<std::string> words{path}, environment = with_ours(program.variables);
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  const std::vector<char*> arguments = pointers(words), variables = pointers(environment);
  const Prepared prepared = prepare(program.cores, num_nodes);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail(ErrorCode::io, "cannot start rank {}: {}", program.rank, std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) run_child(arguments.data(), variables.data(), prepared, parent, ends[1]);
  int problem = pid < 0 ? errno : 0;
  close(ends[1]);
  // The pipe closes with exec; bytes before that are the errno of a failed start.
  if (pid > 0 && read(ends[0], &problem, sizeof problem) > 0) waitpid(pid, nullptr, 0);
  close(ends[0]);
  if (problem != 0)
    return fail(ErrorCode::io, "cannot start rank {} ({}): {}", program.rank, path,
                std::strerror(problem));
  return pid;
}

}  // namespace

std::vector<CpuLocation> read_cpu_locations(const Machine& machine) {
  std::vector<CpuLocation> locations;
  for (const int cpu : machine.cpus) {
    if (static_cast<int>(locations.size()) == machine.num_cores) break;
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
    locations.push_back({.cpu = cpu,
                         .node = node_of(folder),
                         .package = read_int(folder + "/topology/physical_package_id", 0),
                         .core = read_int(folder + "/topology/core_id", cpu)});
  }
  return locations;
}

// Divides the cores in one of three ways; with fewer cores than ranks, ranks share cores in turn.
//
//   2 nodes, 4 ranks   | 0 : 1 | 2 : 3 |           each node is divided among its ranks
//   4 nodes, 2 ranks   | 0 | 0 | 1 | 1 |           each rank gets whole nodes
//   2 nodes, 3 ranks   | 0 :  1 | 1  : 2 |         all cores are divided, across nodes
std::vector<CoreSet> share_cores(std::vector<CpuLocation> locations, int num_ranks) {
  std::ranges::sort(locations, {}, [](const CpuLocation& p) {
    return std::tuple(p.node, p.package, p.core, p.cpu);
  });
  std::vector<Core> cores;
  std::vector<size_t> first_of_node;  // index of each node's first core
  const CpuLocation* last = nullptr;
  for (const CpuLocation& location : locations) {
    const bool same_node = last != nullptr && last->node == location.node;
    const bool same_core =
        same_node && last->package == location.package && last->core == location.core;
    if (!same_node) first_of_node.push_back(cores.size());
    if (!same_core) cores.emplace_back();
    cores.back().push_back(location);
    last = &location;
  }
  const std::span<const Core> all = cores;
  const auto ranks = static_cast<size_t>(num_ranks);
  const size_t nodes = first_of_node.size();
  first_of_node.push_back(cores.size());
  const auto node = [&](size_t i) {
    return all.subspan(first_of_node[i], first_of_node[i + 1] - first_of_node[i]);
  };
  bool within_nodes = nodes > 0 && ranks % nodes == 0;
  for (size_t i = 0; i < nodes; ++i) within_nodes &= node(i).size() >= ranks / nodes;

  std::vector<CoreSet> sets;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (cores.size() < ranks) {
      sets.push_back(cores.empty() ? CoreSet{} : set_of(all.subspan(rank % cores.size(), 1)));
    } else if (within_nodes) {
      const size_t per_node = ranks / nodes;
      sets.push_back(set_of(part(node(rank / per_node), rank % per_node, per_node)));
    } else if (nodes % ranks == 0) {
      const size_t per_rank = nodes / ranks, first = first_of_node[rank * per_rank];
      sets.push_back(set_of(all.subspan(first, first_of_node[(rank + 1) * per_rank] - first)));
    } else {
      sets.push_back(set_of(part(all, rank, ranks)));
    }
  }
  return sets;
}

Result<void> pin_self(const CoreSet& cores, int num_nodes) {
  if (const int problem = pin(prepare(cores, num_nodes)); problem != 0)
    return fail(ErrorCode::io, "cannot keep this process to its {} cores: {}", cores.cpus.size(),
                std::strerror(problem));
  return {};
}

Result<LocalRanks> LocalRanks::spawn(const std::string& path,
                                     const std::vector<RankProgram>& programs, int num_nodes) {
  LocalRanks ranks;
  for (const RankProgram& program : programs) {
    HOCKET_TRY(const pid_t pid, start(path, program, num_nodes));
    ranks.children_.push_back({program.rank, pid});
    log::info("cluster: started rank {} as process {} on {} cores", program.rank, pid,
              program.cores.cpus.size());
  }
  return ranks;
}

std::optional<LocalRanks::End> LocalRanks::poll() {
  for (Child& child : children_) {
    int status = 0;
    if (child.pid < 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.pid = -1;
    if (WIFSIGNALED(status)) {
      const int number = WTERMSIG(status);
      return End{child.rank, 128 + number,
                 fmt::format("rank {} was ended by signal {} ({})", child.rank, number,
                             strsignal(number))};
    }
    return End{child.rank, WEXITSTATUS(status),
               fmt::format("rank {} ended with status {}", child.rank, WEXITSTATUS(status))};
  }
  return std::nullopt;
}

void LocalRanks::signal(int number) {
  was_signaled_ |= number == SIGTERM || number == SIGINT;
  for (const Child& child : children_)
    if (child.pid > 0) kill(child.pid, number);
}

pid_t LocalRanks::pid(int rank) const {
  const auto found = std::ranges::find(children_, rank, &Child::rank);
  return found == children_.end() ? -1 : found->pid;
}

LocalRanks::~LocalRanks() {
  if (!was_signaled_) signal(SIGTERM);  // a second SIGTERM would end them at once
  const auto alive = [&] {
    return std::ranges::any_of(children_, [](const Child& child) { return child.pid > 0; });
  };
  const TimePoint until = RealClock().now() + patience;
  while (alive() && RealClock().now() < until) {
    while (poll()) {
    }
    if (alive()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (Child& child : children_) {
    if (child.pid <= 0) continue;
    log::warning("cluster: rank {} did not end within {:g} s and is killed", child.rank,
                 to_seconds(patience));
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
  }
}

Result<std::string> own_program() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0)
    return fail(ErrorCode::io, "cannot find this program's own file: {}", std::strerror(errno));
  path.resize(static_cast<size_t>(length));
  return path;
}

}  // namespace hocket
