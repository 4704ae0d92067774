#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "data/pixel_stage.h"
#include "data/sample_row.h"
#include "tensor/pinned.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// The tensors of a batch in one block of memory, laid out by a RowLayout, so that a single copy moves it.
struct SlotTensors {
  Tensor memory;                                   // [layout.bytes] u8
  Tensor labels, samples, images;                  // views of all rows
  std::array<Tensor, RowLayout::kMaxFields> more;  // the other fields, in order

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
  std::int64_t row = -1;       ///< row in the batch; -1: none
  std::string line;            ///< message for the user
  std::exception_ptr fatal{};  ///< an error of another cause: memory ran out, the device failed
};

/// A batch being filled. Threads write rows concurrently; the owner's lock guards the rest.
struct Slot {
  Slot(const Tensor& memory, const RowLayout& layout) : tensors(memory, layout) {}

  SlotTensors tensors;
  std::optional<PixelStage> stage;                ///< if a GPU scales images
  alignas(64) std::atomic<std::int64_t> left{0};  ///< rows still to be written
  Problem failed, replaced, harmless;             ///< of each kind, the one with the lowest row
  std::int64_t replacements = 0, harmless_ones = 0;
};

}  // namespace athanor::detail
