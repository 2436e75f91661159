#include "base/machine.h"

#include <cpuid.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include "base/cgroup.h"

namespace hocket {
namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// Returns all zeros if the processor does not know the leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

bool is_amd() {
  const Registers r = cpuid(0, 0);
  return r.b == signature_AMD_ebx && r.c == signature_AMD_ecx && r.d == signature_AMD_edx;
}

constexpr bool bit(uint32_t word, int n) {
  return (word >> n & 1) != 0;
}

// Returns the register states that the operating system saves (XCR0).
uint64_t saved_states() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;  // without OSXSAVE xgetbv would fault
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}
constexpr uint64_t kAvxState = 0x06, kAvx512State = 0xe6, kTileState = 0x60000;

constexpr bool saves(uint64_t states, uint64_t wanted) {
  return (states & wanted) == wanted;
}

std::vector<std::string> cpu_features() {
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  const std::pair<const char*, bool> known[] = {
      {"avx2", bit(seven.b, 5)},          {"fma", bit(one.c, 12)},
      {"f16c", bit(one.c, 29)},           {"bmi2", bit(seven.b, 8)},
      {"avx_vnni", bit(seven_one.a, 4)},  {"avx512f", bit(seven.b, 16)},
      {"avx512dq", bit(seven.b, 17)},     {"avx512bw", bit(seven.b, 30)},
      {"avx512vl", bit(seven.b, 31)},     {"avx512_vbmi", bit(seven.c, 1)},
      {"avx512_vnni", bit(seven.c, 11)},  {"avx512_bf16", bit(seven_one.a, 5)},
      {"avx512_fp16", bit(seven.d, 23)},  {"amx_tile", bit(seven.d, 24)},
      {"amx_bf16", bit(seven.d, 22)},     {"amx_int8", bit(seven.d, 25)},
      {"amx_fp16", bit(seven_one.a, 21)},
  };
  std::vector<std::string> names;
  for (const auto& [name, present] : known)
    if (present) names.emplace_back(name);
  return names;
}

// Linux gives tile data only to a process that asks for it (since 5.16); threads inherit the grant,
// which lasts.
bool tile_data_granted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::string brand() {
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "unknown processor";
  std::array<char, 49> text{};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002u + i, 0);
    std::memcpy(text.data() + 16 * i, &r, sizeof r);
  }
  std::istringstream words(text.data());
  std::string name, word;
  while (words >> word) name += (name.empty() ? "" : " ") + word;
  return name.empty() ? "unknown processor" : name;
}

int64_t meminfo_bytes(std::string_view key) {
  std::ifstream in("/proc/meminfo");
  std::string name, rest;
  for (int64_t kib = 0; in >> name >> kib && std::getline(in, rest);)
    if (name == key) return kib * 1024;
  return 0;
}

std::string transparent_huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; in >> word;)
    if (word.front() == '[') return word.substr(1, word.size() - 2);
  return "never";
}

std::vector<int> affinity() {
  // The fixed cpu_set_t is refused above 1,024 processors, so grow until the kernel accepts it.
  for (int count = 1024; count <= 1 << 20; count *= 2) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count),
                                                         [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < count; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    return cpus;
  }
  return {0};
}

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

Topology load_topology() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return {nullptr, hwloc_topology_destroy};
  Topology topology(made, hwloc_topology_destroy);
  // Only cores and memory nodes are asked for, since PCI and graphics would cost start-up time.
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(made) != 0) topology.reset();
  return topology;
}

// Returns `allowed` reordered: the first thread of every core, then the second of every core, etc.
std::vector<int> cores_first(hwloc_topology_t topology, const std::vector<int>& allowed) {
  // The pairs are (index of the thread in its core, cpu), in hwloc's order of cores.
  std::vector<std::pair<int, int>> ranked;
  std::vector<bool> open;
  for (int cpu : allowed) {
    if (static_cast<size_t>(cpu) >= open.size()) open.resize(cpu + 1);
    open[cpu] = true;
  }
  const int num_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  for (int i = 0; i < num_cores; ++i) {
    const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, i);
    int thread = 0;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (static_cast<size_t>(cpu) >= open.size() || !open[cpu]) continue;
      open[cpu] = false;
      ranked.emplace_back(thread++, cpu);
    }
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<int, int>::first);
  std::vector<int> order;
  order.reserve(allowed.size());
  for (const auto& [thread, cpu] : ranked) order.push_back(cpu);
  for (int cpu : allowed)
    if (open[cpu]) order.push_back(cpu);  // a processor that hwloc does not show
  return order;
}

int count_numa_nodes(hwloc_topology_t topology, const std::vector<int>& allowed) {
  int count = 0;
  const int num_nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < num_nodes; ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, i);
    count += std::ranges::any_of(
        allowed, [&](int cpu) { return hwloc_bitmap_isset(node->cpuset, cpu) != 0; });
  }
  return std::max(1, count);
}

constexpr std::pair<Isa, std::string_view> kIsaNames[] = {
    {Isa::ref, "ref"},       {Isa::avx2, "avx2"},
    {Isa::avx512, "avx512"}, {Isa::avx512_bf16, "avx512_bf16"},
    {Isa::amx, "amx"},       {Isa::amx_emulated, "amx_emulated"},
};

// Returns the highest level whose registers and instructions are there, but never avx512_bf16.
Isa highest_level() {
  static const Isa best = [] {
    const std::vector<std::string> features = cpu_features();
    const auto has = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::all_of(names, [&](std::string_view name) {
        return std::ranges::find(features, name) != features.end();
      });
    };
    const uint64_t states = saved_states();
    if (!has({"avx2", "fma", "f16c", "bmi2"}) || !saves(states, kAvxState)) return Isa::ref;
    if (!has({"avx512f", "avx512bw", "avx512dq", "avx512vl"}) || !saves(states, kAvx512State))
      return Isa::avx2;
    if (!has({"amx_tile", "amx_bf16"}) || !saves(states, kTileState) || !tile_data_granted())
      return Isa::avx512;
    return Isa::amx;
  }();
  return best;
}

IsaFacts facts_here() {
  return {highest_level(), has_feature("avx512_bf16"), is_bf16_faster_than_fma()};
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return kIsaNames[static_cast<size_t>(isa)].second;
}

Result<Isa> parse_isa(std::string_view name) {
  for (const auto& [isa, known] : kIsaNames)
    if (name == known) return isa;
  return fail(error(ErrorCode::unknown_isa, "there is no instruction set named '{}'", name)
                  .with_fix("HOCKET_ISA=ref, avx2, avx512, avx512_bf16, amx or amx_emulated; "
                            "unset chooses the fastest")
                  .with_param("HOCKET_ISA"));
}

Isa detect_isa(const IsaFacts& facts) {
  const bool pairs = facts.highest == Isa::avx512 && facts.has_bf16 && facts.is_bf16_faster;
  return pairs ? Isa::avx512_bf16 : facts.highest;
}

bool runs_with(const IsaFacts& facts, Isa isa) {
  if (isa == Isa::avx512_bf16) return facts.highest >= Isa::avx512 && facts.has_bf16;
  return isa == Isa::amx_emulated ? facts.highest >= Isa::avx512 : isa <= facts.highest;
}

Isa detect_isa() {
  return detect_isa(facts_here());
}

bool runs_here(Isa isa) {
  return runs_with({.highest = highest_level(), .has_bf16 = has_feature("avx512_bf16")}, isa);
}

bool reads_one_stream_unaided() {
  static const bool known = [] {
    const uint32_t id = cpuid(1, 0).a;
    const uint32_t family = (id >> 8 & 0xf) + (id >> 20 & 0xff), model = id >> 12 & 0xf0;
    const bool is_zen4 = family == 0x19 && (model == 0x10 || model >= 0x60);
    return is_amd() && is_zen4;
  }();
  return known;
}

bool has_feature(std::string_view name) {
  static const std::vector<std::string> features = cpu_features();
  return std::ranges::find(features, name) != features.end();
}

Result<Isa> choose_isa(const IsaFacts& facts, std::string_view wanted) {
  const Isa best = detect_isa(facts);
  if (wanted.empty()) return best;
  HOCKET_TRY(const Isa isa, parse_isa(wanted));
  if (runs_with(facts, isa)) return isa;
  const Isa needed = isa == Isa::amx_emulated ? Isa::avx512 : isa;
  return fail(error(ErrorCode::unknown_isa,
                    "HOCKET_ISA={}: this processor or its kernel lacks {}; the fastest level here "
                    "is {}",
                    wanted, isa_name(needed), isa_name(best))
                  .with_fix(fmt::format("HOCKET_ISA={}", isa_name(best)))
                  .with_param("HOCKET_ISA"));
}

Result<Isa> choose_isa() {
  const char* wanted = std::getenv("HOCKET_ISA");
  return choose_isa(facts_here(), wanted == nullptr ? "" : wanted);
}

Machine inspect_machine() {
  Machine machine;
  machine.cpu_name = brand();
  machine.isa = detect_isa();
  if (const Result<Isa> used = choose_isa(); used && *used != machine.isa)
    machine.forced_isa = *used;
  machine.features = cpu_features();
  machine.cpus = affinity();
  if (const Topology topology = load_topology()) {
    machine.num_numa_nodes = count_numa_nodes(topology.get(), machine.cpus);
    machine.cpus = cores_first(topology.get(), machine.cpus);
  }
  const CgroupLimits limits = read_cgroup_limits("/proc/self/cgroup", "/sys/fs/cgroup");
  machine.num_cores = static_cast<int>(machine.cpus.size());
  if (limits.cpus)
    machine.num_cores = std::clamp(static_cast<int>(std::ceil(*limits.cpus)), 1, machine.num_cores);
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  machine.memory_bytes =
      std::min(meminfo_bytes("MemTotal:"), limits.memory_bytes.value_or(kNoLimit));
  machine.memory_available_bytes =
      std::min(meminfo_bytes("MemAvailable:"), limits.memory_headroom_bytes.value_or(kNoLimit));
  machine.huge_pages = transparent_huge_pages();
  return machine;
}

std::string describe(const Machine& machine) {
  const auto upper = [](Isa level) {
    std::string name(isa_name(level));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return name;
  };
  std::string isa = upper(machine.isa);
  if (machine.forced_isa)
    isa = fmt::format("{} by HOCKET_ISA, else {}", upper(*machine.forced_isa), isa);
  const auto plural = [](int n, std::string_view word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  return fmt::format("{} | {} | {} | {:.1f} GB, {:.1f} GB free | {}", machine.cpu_name, isa,
                     plural(machine.num_cores, "core"), double(machine.memory_bytes) / 1e9,
                     double(machine.memory_available_bytes) / 1e9,
                     plural(machine.num_numa_nodes, "NUMA node"));
}

}  // namespace hocket
