// The part of the machine that this process may use: instruction sets, cores, memory, NUMA nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

// Levels in rising order. Each needs all that the lower ones need, except that `amx` does not need
// avx512_bf16 and `amx_emulated` needs no more than avx512. `ref` is plain loops, the reference for
// testing the others. `amx_emulated` runs the AMX kernels on a software tile unit (slow), so that
// they can be tested without AMX hardware; it is never chosen by default.
enum class Isa : uint8_t { ref, avx2, avx512, avx512_bf16, amx, amx_emulated };
inline constexpr Isa kAllIsas[] = {Isa::ref,         Isa::avx2, Isa::avx512,
                                   Isa::avx512_bf16, Isa::amx,  Isa::amx_emulated};

std::string_view isa_name(Isa isa);
// Errors: unknown_isa; its fix lists the names.
Result<Isa> parse_isa(std::string_view name);
// Returns the fastest level that this processor and its kernel offer (AMX needs the kernel's
// permission; avx512_bf16 must be faster than avx512).
Isa detect_isa();
// Returns true if this processor and its kernel offer the level.
bool runs_here(Isa isa);
// Returns true if the bf16 instruction of AVX-512 multiplies faster than FMA; false where it is
// missing. Processors differ: on some both have one rate. Measured once, in less than a
// millisecond.
bool is_bf16_faster_than_fma();
// Returns true if the processor has a feature, named as in Machine::features: "avx512_vnni", ...
// It may be used only with a level that includes its registers.
bool has_feature(std::string_view name);
// Returns true on processors (AMD's Zen 4) that read one stream of memory faster if no instruction
// fetches its lines ahead: docs/results.md, "One row on Zen 4", has the figures.
bool reads_one_stream_unaided();
// Returns HOCKET_ISA if set, else detect_isa(). Errors: unknown_isa for an unknown name, or a level
// that this processor lacks.
Result<Isa> choose_isa();

// The facts of a processor and its kernel that decide which levels run, and the pure functions of
// them that the functions above call. `wanted` is the value of HOCKET_ISA.
struct IsaFacts {
  Isa highest = Isa::ref;  // ref, avx2, avx512 or amx
  bool has_bf16 = false;   // avx512_bf16
  bool is_bf16_faster = false;
};
Isa detect_isa(const IsaFacts& facts);
bool runs_with(const IsaFacts& facts, Isa isa);
Result<Isa> choose_isa(const IsaFacts& facts, std::string_view wanted);
// Returns true if bf16 by its instruction is faster, given the times that equally many FMAs and
// bf16 instructions took. A time of FMA that is not positive, as a coarse clock may show it,
// decides for FMA.
bool is_bf16_faster_than_fma(int64_t fma_ns, int64_t bf16_ns);

struct Machine {
  std::string cpu_name;
  Isa isa;                            // detect_isa()
  std::optional<Isa> forced_isa;      // HOCKET_ISA, where it chooses another level
  std::vector<std::string> features;  // "avx512f", "avx512_bf16", "amx_bf16", ... as cpuid says
  // Logical processors on which this process may run (affinity); one of each physical core comes
  // first.
  std::vector<int> cpus;
  int num_cores = 1;  // cores to use at once: min(affinity, cgroup quota rounded up)
  int num_numa_nodes = 1;
  int64_t memory_bytes = 0;            // installed, or the cgroup's limit if that is lower
  int64_t memory_available_bytes = 0;  // at present; limited by the cgroup's headroom
  std::string huge_pages;              // "always", "madvise" or "never"
};

Machine inspect_machine();

// Returns a line such as "AMD EPYC | AVX512_BF16 | 2 cores | 23.4 GB, 22.0 GB free | 1 NUMA node".
// A forced level is kept beside the one that detect_isa() returns.
std::string describe(const Machine& machine);

}  // namespace hocket
