// A product that a model asks for, as the loader packs it: its parts, and its possible errors.
// Private to the room.   Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/weights/fingerprint.h"
#include "compute/weights/loader.h"
#include "compute/weights/matrix_reader.h"
#include "compute/weights/source_matrix.h"

namespace hocket {

struct ProductSpec {
  std::span<const SourceMatrix> parts;
  int n = 0, k = 0;
  enum class Quantized : uint8_t {
    never,
    to_int8,
    allowed,
    by_gguf,   // an embedding that is also the head
    looked_up  // an embedding of which rows are read, no products
  } quantized = Quantized::allowed;
  Bias bias = Bias::none;
};

// A tensor that is read as fp32 numbers.
struct Floats {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;  // in which the files may hold it
  int n = 0;
};

// Matrices of the same k, one below the other.
struct Stack {
  std::vector<SourceMatrix> parts;
  int n = 0;
};
Stack stack_of(std::span<const WeightLoader::Part> parts);

// Changes [channels][taps] to [taps][channels].
void transpose_taps(std::span<float> numbers, size_t num_taps);

// Returns the bias of the outputs of a part.
Floats bias_of(const SourceMatrix& part);

// Returns how the embedding of a model may be kept.
ProductSpec::Quantized embedding_kept(const ModelConfig& config);

// Returns the number of tasks between two releases of source pages.
int tasks_at_once(int64_t task_bytes, int tasks, size_t num_workers);

// Returns the format that a product of k columns gets in memory, which the files hold in `held`
// (loader.h gives the rule).
MatrixFormat format_in_memory(const WeightLoader::Options& options, MatrixFormat held, int k,
                              ProductSpec::Quantized quantized);

// Returns that of matrices with k columns that the files hold in `held`.
MatrixFormat format_asked(MatrixFormat held, WeightFormat asked, int k);
// Returns true for q8_0 and formats with block scales, which only GGUF files have.
bool is_of_gguf(MatrixFormat format);
// Returns false for neighbours of a product that are not one matrix in memory, since GGUF files
// hold them in two formats.
bool are_joined(MatrixFormat a, MatrixFormat b);
// Returns the format of matrices of which the files hold some in `a` and some in `b`: q8_0 if
// they differ and both may be blocks of GGUF, else bf16 if they differ.
MatrixFormat common_format(MatrixFormat a, MatrixFormat b);

// Adds everything that decides how the product is packed in `format`.
void describe_to(Fingerprint& out, const ProductSpec& product, MatrixFormat format);
// Adds the options that decide how the numbers of the files are converted.
void describe_to(Fingerprint& out, const WeightLoader::Options& options);

// Adds matrices that became a product of `bytes` in `kept`, if the files hold some of them in
// another format under scales.
void note_change(std::span<const MatrixReader> parts, int64_t bytes, MatrixFormat kept,
                 FormatChanges& all);

Error too_deep(const ProductSpec& product);
Error not_finite(const MatrixReader& reader);

}  // namespace hocket
