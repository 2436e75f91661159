#include "base/host_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace hocket {
namespace {

// --max-connections and other files that a server opens.
constexpr int64_t kFilesWanted = 4352;
constexpr int64_t kMemoryNeeded = 512'000'000;  // the smallest model and its work buffers
constexpr int64_t kSharedWanted = 256'000'000;  // messages of ranks of one host

std::string gb(int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

Finding fine(std::string name, std::string value) {
  return {std::move(name), std::move(value), "", Severity::fine};
}

Finding isa(const Machine& machine) {
  Finding out = fine("instruction set", std::string(isa_name(machine.isa)));
  if (machine.isa == Isa::avx2 || machine.isa == Isa::ref) {
    out.severity = Severity::slow;
    out.remedy = "prompts and batches run several times faster with AVX-512 or AMX";
  }
  if (machine.isa == Isa::avx512 && std::ranges::count(machine.features, "avx512_bf16") > 0)
    out.value += "; avx512_bf16 is not used, as it multiplies no faster here";
  return out;
}

Finding cores(const Machine& machine, const HostFacts& facts) {
  Finding out = fine("cores", fmt::format("{}", machine.num_cores));
  if (!facts.cgroup.cpus) return out;
  const double quota = *facts.cgroup.cpus;
  out.value += fmt::format(", a quota of {:g}", quota);
  if (quota < static_cast<double>(machine.num_cores)) {
    out.severity = Severity::slow;
    out.remedy = "a quota that is no whole number stops all threads now and then: give whole cores";
  }
  return out;
}

Finding load(const Machine& machine, const HostFacts& facts) {
  Finding out = fine("load", fmt::format("{:.2f}", facts.load.value_or(0)));
  if (facts.load.value_or(0) > 0.5 * machine.num_cores) {
    out.severity = Severity::hint;
    out.remedy = "other programs compute here; a step waits for its slowest thread";
  }
  return out;
}

Finding governor(const HostFacts& facts) {
  Finding out = fine("governor", facts.governors.empty()
                                     ? "none (a virtual machine, or fixed)"
                                     : fmt::format("{}", fmt::join(facts.governors, ", ")));
  const bool saves = std::ranges::any_of(
      facts.governors, [](const std::string& name) { return name != "performance"; });
  if (saves) {
    out.severity = Severity::slow;
    out.remedy =
        "cpupower frequency-set -g performance (clocks rise late after each wait otherwise)";
  }
  return out;
}

Finding clock_source(const HostFacts& facts) {
  Finding out = fine("clock", facts.clock_source.empty() ? "unknown" : facts.clock_source);
  for (const char* slow : {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"}) {
    if (facts.clock_source != slow) continue;
    out.severity = Severity::slow;
    out.remedy =
        "each look at this clock enters the kernel: echo tsc > "
        "/sys/devices/system/clocksource/clocksource0/current_clocksource, if it is offered";
  }
  return out;
}

Finding huge_pages(const HostFacts& facts) {
  Finding out = fine("huge pages", facts.huge_pages.empty() ? "unknown" : facts.huge_pages);
  if (facts.huge_pages == "never") {
    out.severity = Severity::slow;
    out.remedy =
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (reads about 6 % faster)";
  }
  return out;
}

Finding memory(const Machine& machine, const HostFacts& facts) {
  Finding out = fine("memory", fmt::format("{}, {} available", gb(machine.memory_bytes),
                                           gb(machine.memory_available_bytes)));
  if (facts.cgroup.memory_bytes)
    out.value += fmt::format(", limited to {}", gb(*facts.cgroup.memory_bytes));
  if (machine.memory_available_bytes < kMemoryNeeded) {
    out.severity = Severity::bad;
    out.remedy = "even the bundled model needs 0.5 GB: end other programs, or raise the limit";
  } else if (machine.memory_available_bytes < machine.memory_bytes / 4) {
    out.severity = Severity::hint;
    out.remedy = "other programs hold most of it; `hocket plan` tells what a model needs";
  }
  return out;
}

Finding swap(const HostFacts& facts) {
  const int64_t total = facts.swap_bytes.value_or(0);
  const int64_t used = total - facts.swap_free_bytes.value_or(total);
  Finding out = fine("swap", total == 0 ? "none" : fmt::format("{}, {} used", gb(total), gb(used)));
  if (used > total / 10) {
    out.severity = Severity::slow;
    out.remedy = "weights that were swapped out come back page by page: free memory, swapoff -a";
  }
  return out;
}

Finding overcommit(const HostFacts& facts) {
  const int64_t mode = facts.overcommit_memory.value_or(0);
  Finding out = fine("overcommit", fmt::format("{}", mode));
  if (mode == 2) {
    out.severity = Severity::hint;
    out.remedy =
        "memory that is reserved and not yet used counts: sysctl vm.overcommit_memory=0, where a "
        "model that fits does not load";
  }
  return out;
}

void add_nodes(const HostFacts& facts, std::vector<Finding>& out) {
  out.push_back(fine("NUMA nodes", fmt::format("{}", std::max<size_t>(1, facts.nodes.size()))));
  if (facts.nodes.size() < 2) return;
  out.back().severity = Severity::hint;
  out.back().remedy =
      "one rank a node keeps its experts in its own memory: --ep-size with the "
      "number of nodes, as --cpu-bind auto places them";
  for (const NumaNode& node : facts.nodes)
    out.push_back(fine(fmt::format("node {}", node.id),
                       fmt::format("processors {}, {}, {} free", node.cpus, gb(node.memory_bytes),
                                   gb(node.free_bytes))));
  Finding balancing = fine("NUMA balancing", facts.numa_balancing.value_or(0) == 0 ? "off" : "on");
  if (facts.numa_balancing.value_or(0) != 0) {
    balancing.severity = Severity::slow;
    balancing.remedy = "sysctl kernel.numa_balancing=0 (it unmaps pages to see who reads them)";
  }
  out.push_back(std::move(balancing));
}

std::string count_of(std::optional<int64_t> limit) {
  return limit ? fmt::format("{}", *limit) : "unlimited";
}

Finding open_files(const HostFacts& facts) {
  Finding out = fine("open files", fmt::format("{}, at most {}", count_of(facts.open_files),
                                               count_of(facts.max_open_files)));
  if (facts.max_open_files && *facts.max_open_files < kFilesWanted) {
    out.severity = Severity::hint;
    out.remedy = "ulimit -Hn 65536, or LimitNOFILE=65536 in the unit: each client needs one";
  }
  return out;
}

Finding backlog(const HostFacts& facts) {
  Finding out =
      fine("listen backlog", facts.listen_backlog ? count_of(facts.listen_backlog) : "unknown");
  if (facts.listen_backlog.value_or(4096) < 1024) {
    out.severity = Severity::hint;
    out.remedy = "sysctl net.core.somaxconn=4096, for many clients that come at once";
  }
  return out;
}

Finding shared_memory(const HostFacts& facts) {
  Finding out =
      fine("/dev/shm", facts.shared_memory_bytes ? gb(*facts.shared_memory_bytes) : "not there");
  if (facts.shared_memory_bytes.value_or(0) < kSharedWanted) {
    out.severity = Severity::hint;
    out.remedy = "ranks in processes of one host meet there: --shm-size 1g for a container";
  }
  return out;
}

Finding locked_memory(const HostFacts& facts) {
  return fine("locked memory",
              facts.locked_memory_bytes ? gb(*facts.locked_memory_bytes) : "unlimited");
}

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::fine:
      return "fine";
    case Severity::hint:
      return "hint";
    case Severity::slow:
      return "slow";
    case Severity::bad:
      return "bad";
  }
  std::unreachable();
}

std::vector<Finding> judge(const Machine& machine, const HostFacts& facts) {
  std::vector<Finding> out = {
      fine("processor", machine.cpu_name),
      isa(machine),
      fine("features", fmt::format("{}", fmt::join(machine.features, " "))),
      cores(machine, facts),
      load(machine, facts),
      governor(facts),
      clock_source(facts),
  };
  add_nodes(facts, out);
  for (Finding& finding :
       std::vector{memory(machine, facts), huge_pages(facts), swap(facts), overcommit(facts),
                   shared_memory(facts), open_files(facts), locked_memory(facts), backlog(facts)})
    out.push_back(std::move(finding));
  return out;
}

Finding judge_level(Isa used, Isa detected) {
  Finding out = fine("HOCKET_ISA", std::string(isa_name(used)));
  if (used != detected) {
    out.severity = Severity::slow;
    out.value += fmt::format(" is used, not {}", isa_name(detected));
    out.remedy = fmt::format("unset HOCKET_ISA: {} is the fastest level here", isa_name(detected));
  }
  return out;
}

}  // namespace hocket
