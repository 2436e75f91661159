// What this process may use of the machine: instruction sets, cores, memory, NUMA nodes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

// Levels in rising order; each includes what the lower ones need. `ref` is plain loops: the truth
// the others are tested against. `amx_emulated` runs the AMX kernels on a software tile unit (slow;
// any AVX-512 machine), so that they can be tested where the hardware lacks AMX; never chosen by
// itself.
enum class Isa : uint8_t { ref, avx2, avx512, amx, amx_emulated };

std::string_view isa_name(Isa isa);
// Errors: unknown_isa, with the names that exist.
Result<Isa> parse_isa(std::string_view name);
// The best level this processor (and its kernel: AMX needs permission) offers.
Isa detect_isa();
// Whether the processor has a feature that no level asks for: "avx512_vnni", "amx_int8", ... as in
// Machine::features. Only with a level that includes its registers may it be used.
bool has_feature(std::string_view name);
// HOCKET_ISA if set, else detect_isa(). Errors: unknown_isa for an unknown name, or a level that
// this processor lacks.
Result<Isa> choose_isa();

struct Machine {
  std::string cpu_name;
  Isa isa;                            // detect_isa()
  std::vector<std::string> features;  // "avx512f", "avx512_bf16", "amx_bf16", ... as cpuid says
  std::vector<int>
      cpus;  // logical processors this process may run on (affinity), one a physical core first
  int num_cores = 1;  // what it may use at once: min(affinity, cgroup quota rounded up)
  int num_numa_nodes = 1;
  int64_t memory_bytes = 0;            // installed, or the cgroup's limit where that is lower
  int64_t memory_available_bytes = 0;  // now; the cgroup's head-room counted
  std::string huge_pages;              // "always", "madvise" or "never"
};

Machine inspect_machine();

// "AMD EPYC | AVX512 | 2 cores | 23.4 GB, 22.0 GB free | 1 NUMA node"
std::string describe(const Machine& machine);

}  // namespace hocket
