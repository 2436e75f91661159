// Row lengths and numbers for the row bodies: one list for tests, fuzzing and benches.
#pragma once

#include <cstring>
#include <limits>

#include "compute/kernels/backend.h"
#include "compute/kernels/cases/linear_cases.h"

namespace hocket::cases {

// Lengths below, at and above whole blocks of 16, and those of real models.
inline constexpr int kRowLengths[] = {1,  2,  7,  15,  16,  17,  31,  32,   33,
                                      63, 64, 80, 127, 128, 500, 512, 1031, 4096};

inline std::vector<float> random_row(int64_t n, float size, std::mt19937& random) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> row(n);
  for (float& x : row) x = normal(random);
  return row;
}

// Numbers with arithmetic of their own: zeros, numbers near the least normal one, the limits of
// exp, infinities.
inline constexpr float kSpecials[] = {0.0f,
                                      -0.0f,
                                      std::numeric_limits<float>::min(),
                                      -std::numeric_limits<float>::min(),
                                      1e-40f,
                                      -1e-40f,
                                      87.33654f,
                                      -87.33654f,
                                      -87.33655f,
                                      88.72283f,
                                      88.72284f,
                                      -88.72284f,
                                      0x1.fep127f,
                                      std::numeric_limits<float>::max(),
                                      std::numeric_limits<float>::lowest(),
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity()};

// Runs body(backend) on ref alone, then on every level with one and three workers.
template <class Body>
void on_every_backend(Body&& body) {
  const auto run = [&](Isa isa, int num_workers) {
    WorkerPool workers({.num_workers = num_workers});
    Backend backend = *Backend::create(isa, workers, 8192);
    body(backend);
  };
  run(Isa::ref, 1);
  for (Isa isa : vector_isas())
    for (int num_workers : {1, 3}) run(isa, num_workers);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Returns true if the result has the bits of the first one.
template <class T>
class SameBits {
 public:
  bool operator()(const std::vector<T>& got) {
    if (first_.empty()) first_ = got;
    return same_bits(got, first_);
  }

 private:
  std::vector<T> first_;
};

inline void insert_special_values(std::vector<float>& row, std::mt19937& random) {
  for (float& x : row)
    if (random() % 5 == 0) x = kSpecials[random() % std::size(kSpecials)];
}

}  // namespace hocket::cases
