// The places beside the pool from which pages are read, by name.   Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hocket {

enum class PageTier : uint8_t { file, redis, peer };
inline constexpr int kNumPageTiers = 3;

// The names in metrics, answers and logs.
inline constexpr std::array<std::string_view, kNumPageTiers> kPageTierNames = {"file", "redis",
                                                                               "peer"};

// A number for each tier.
template <class T>
using PerTier = std::array<T, kNumPageTiers>;

}  // namespace hocket
