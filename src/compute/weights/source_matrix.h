// Places of the rows of one stored matrix in a packed one.
#pragma once

#include <algorithm>
#include <string>

#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket {

// One stored matrix, and its place in a packed one.
struct SourceMatrix {
  std::string name;
  int n = 0;
  int row_begin = 0;  // first row in the packed matrix
  // Packed rows from one of its panels to the next: two panels if gate and up alternate.
  int rows_apart = kPanelN;

  // The rows form pieces, one per packed panel; the first piece is short if it begins inside a
  // panel.
  //   row_begin 20, n 40:   pieces of 12, 16 and 12 rows, in packed panels 1, 2 and 3
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
