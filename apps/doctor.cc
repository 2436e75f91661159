// hocket doctor: what this machine offers and what to change, one line a fact.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/flags.h"
#include "base/machine.h"
#include "compute/comm/ucx_settings.h"

namespace hocket {
namespace {

struct Finding {
  std::string name, value;
  std::string remedy;  // empty: fine
};

std::string gb(int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

Finding isa_finding(const Machine& machine) {
  Finding finding{"instruction set", std::string(isa_name(machine.isa)), ""};
  if (machine.isa == Isa::avx2)
    finding.remedy = "prompts and batches run several times faster with AVX-512 or AMX";
  return finding;
}

Finding huge_page_finding(const Machine& machine) {
  Finding finding{"huge pages", machine.huge_pages, ""};
  if (machine.huge_pages == "never")
    finding.remedy =
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (reads about 6 % faster)";
  return finding;
}

Finding file_limit_finding() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  Finding finding{"open files", fmt::format("{}", limit.rlim_cur), ""};
  if (limit.rlim_cur < 4096) finding.remedy = "ulimit -n 65536, for thousands of clients at once";
  return finding;
}

// What ranks in processes of their own reach each other by.
Finding ucx_finding() {
  const auto end = UcxTransport::create(0, 1, {});
  if (!end) return {"UCX", end.error().message, end.error().fix};
  return {"UCX", fmt::format("{}; devices {}", (*end)->describe(), ucx_devices_here()), ""};
}

std::vector<Finding> examine(const Machine& machine) {
  std::vector<Finding> findings = {
      {"processor", machine.cpu_name, ""},
      isa_finding(machine),
      {"features", fmt::format("{}", fmt::join(machine.features, " ")), ""},
      {"cores", fmt::format("{}", machine.num_cores), ""},
      {"NUMA nodes", fmt::format("{}", machine.num_numa_nodes),
       machine.num_numa_nodes > 1
           ? "one rank a node keeps weights local: --cpu-bind with one node's processors"
           : ""},
      {"memory",
       fmt::format("{}, {} available", gb(machine.memory_bytes),
                   gb(machine.memory_available_bytes)),
       machine.memory_available_bytes < machine.memory_bytes / 4 ? "other programs hold most of it"
                                                                 : ""},
      huge_page_finding(machine),
      file_limit_finding(),
  };
  findings.push_back(ucx_finding());
  const Result<Isa> chosen = choose_isa();
  findings.push_back({"HOCKET_ISA",
                      chosen ? std::string(isa_name(*chosen)) : chosen.error().message,
                      chosen ? "" : chosen.error().fix});
  return findings;
}

Result<int> examine_machine(const Arguments& arguments) {
  bool json = false;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "doctor",
                          .about = "what this machine offers, and what to change",
                          .groups = {{"Output", {{"json", &json, "one object a line", ""}}}},
                          .takes_config = false},
                         arguments));
  if (!go) return 0;
  for (const Finding& finding : examine(inspect_machine())) {
    if (json) {
      fmt::print("{}\n",
                 nlohmann::json(
                     {{"name", finding.name}, {"value", finding.value}, {"remedy", finding.remedy}})
                     .dump());
      continue;
    }
    fmt::print("{:<16} {}\n", finding.name, finding.value);
    if (!finding.remedy.empty()) fmt::print("{:<16}   fix: {}\n", "", finding.remedy);
  }
  return 0;
}

}  // namespace

int doctor(const Arguments& arguments) {
  const Result<int> done = examine_machine(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
