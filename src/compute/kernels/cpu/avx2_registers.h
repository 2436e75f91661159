// Sizes for the products on 256-bit registers.
#pragma once

namespace hocket::cpu {

inline constexpr int kLanes = 8;         // fp32 numbers in one register
inline constexpr int kRegisterRows = 4;  // rows of x whose sums stay in registers

}  // namespace hocket::cpu
