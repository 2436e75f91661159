// A case of `hocket bench kernels`.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace hocket {

// The units whose rate is the limit of a call's operations.
enum class PeakUnit : uint8_t { bf16, int8, fma };

// The work of one call.
struct CallWork {
  double bytes = 0, operations = 0;  // bytes that memory must read or write; two a multiply-add
  PeakUnit unit = PeakUnit::bf16;
};

struct KernelSample {
  double seconds = 0;
  CallWork work;
};

struct KernelCase {
  std::string name;
  std::string twin;  // name of the same case in bf16; empty: there is none
  std::function<CallWork(int call)> run;
  // Compares a part of the result with ref's. Returns the seconds that ref takes for one operation,
  // or a negative number if bits differ.
  std::function<double()> check;
  int calls = 1;  // in each round
  std::vector<KernelSample> samples;
};

inline double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace hocket
