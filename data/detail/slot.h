#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include "data/dataset.h"
#include "tensor/pinned.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// The tensors of a batch in one piece of memory: labels, samples, pixels. One copy moves it, however many
/// rows it has.
struct SlotTensors {
  Tensor memory;                   // [slot_bytes] u8
  Tensor labels, samples, images;  // views of all rows

  static std::int64_t pixels_at(std::int64_t rows) { return rows * 16; }
  static std::int64_t bytes(std::int64_t rows, const ImageSpec& spec) {
    return (pixels_at(rows) + rows * spec.bytes() + 63) / 64 * 64;
  }

  SlotTensors(const Tensor& where, std::int64_t rows, const ImageSpec& spec) : memory(where) {
    const Shape column{rows}, pixels{rows, spec.height, spec.width, spec.channels};
    labels = Tensor::wrap(where.storage(), 0, column, contiguous_strides(column), DType::i64);
    samples = Tensor::wrap(where.storage(), rows, column, contiguous_strides(column), DType::i64);
    images = Tensor::wrap(where.storage(), pixels_at(rows), pixels, contiguous_strides(pixels), DType::u8);
  }
};

/// A sample that could not be read.
struct Problem {
  std::int64_t row = -1;     ///< of the batch; -1: there is none
  std::string line;          ///< what a person is told
  std::exception_ptr fatal;  ///< not the sample's fault: memory ran out, the device failed
};

/// A batch in the making. Rows are written by many threads, the rest of it under the lock of its owner.
struct Slot {
  Slot(const Tensor& memory, std::int64_t rows, const ImageSpec& spec) : tensors(memory, rows, spec) {}

  SlotTensors tensors;
  alignas(64) std::atomic<std::int64_t> left{0};  ///< rows that are to be written
  Problem failed, replaced;                       ///< of each kind, the one with the lowest row
  std::int64_t replacements = 0;
};

}  // namespace athanor::detail
