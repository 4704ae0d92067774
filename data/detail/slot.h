#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include "data/sample_row.h"
#include "tensor/pinned.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// The tensors of a batch in one piece of memory, as a RowLayout has it. One copy moves it, however many rows
/// it has.
struct SlotTensors {
  Tensor memory;                                    // [layout.bytes] u8
  Tensor labels, samples, images;                   // views of all rows
  std::array<Tensor, RowLayout::kMostFields> more;  // of the other fields, in their order

  SlotTensors(const Tensor& where, const RowLayout& layout) : memory(where) {
    const auto view = [&](std::int64_t at, const Shape& row, DType dtype) {
      Shape all{layout.rows};
      for (const std::int64_t side : row) all.push_back(side);
      return Tensor::wrap(where.storage(), at / static_cast<std::int64_t>(size_of(dtype)), all,
                          contiguous_strides(all), dtype);
    };
    samples = view(layout.rows * 8, {}, DType::i64);
    std::size_t next = 0;
    for (std::size_t i = 0; i < layout.fields.size(); ++i) {
      const FieldSpec& field = layout.fields[i];
      Tensor& to = i == layout.label ? labels : i == layout.image ? images : more[next++];
      to = view(layout.places[i].at, field.shape, field.dtype);
    }
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
  Slot(const Tensor& memory, const RowLayout& layout) : tensors(memory, layout) {}

  SlotTensors tensors;
  alignas(64) std::atomic<std::int64_t> left{0};  ///< rows that are to be written
  Problem failed, replaced;                       ///< of each kind, the one with the lowest row
  std::int64_t replacements = 0;
};

}  // namespace athanor::detail
