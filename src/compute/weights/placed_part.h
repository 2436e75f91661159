// Where the rows of one stored matrix lie in a packed one.
#pragma once

#include <algorithm>
#include <string>

#include "compute/kernels/packed_weight.h"

namespace hocket {

// One matrix on its way into a packed one.
struct PlacedPart {
  std::string name;
  int n = 0;
  int row_begin = 0;         // in the packed matrix
  int rows_apart = kPanelN;  // packed rows between its panels: 2 panels where gate and up alternate

  // Its rows lie in pieces, one a packed panel; the first is short where it begins inside a panel.
  int first_piece() const { return kPanelN - row_begin % kPanelN; }
  int pieces() const {
    return n <= first_piece()
               ? 1
               : 1 + static_cast<int>(round_up(n - first_piece(), kPanelN)) / kPanelN;
  }
  int piece_begin(int piece) const {
    return piece == 0 ? 0 : std::min(n, first_piece() + (piece - 1) * kPanelN);
  }
  int packed_row(int piece) const {
    return piece == 0 ? row_begin : row_begin / kPanelN * kPanelN + piece * rows_apart;
  }
};

}  // namespace hocket
