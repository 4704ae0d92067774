#pragma once

#include <algorithm>
#include <cstdint>

#include "data/sample_row.h"
#include "kernels/augment.h"

namespace athanor::test {

inline constexpr std::int64_t kHeight = 6, kWidth = 9;
inline constexpr Augment kMoves{.pad = 2, .flip = true};

/// Pictures in which every pixel says where it is, in all fields alike: its place is a class of the mask and
/// a byte of the target; two points and two boxes lie on them.
struct Places : FieldDataset {
  explicit Places(std::int64_t count = 40, std::int64_t classes = 0)
      : FieldDataset({kHeight, kWidth, 3, classes},
                     {{"id", DType::i64, {2}},
                      {"clean", DType::u8, {kHeight, kWidth, 1}, FieldKind::target},
                      {"mask", DType::u8, {kHeight, kWidth}, FieldKind::mask},
                      {"noisy", DType::u8, {kHeight, kWidth, 3}, FieldKind::picture},
                      {"box", DType::f32, {2, 4}, FieldKind::boxes},
                      {"point", DType::f32, {2, 2}, FieldKind::points},
                      {"weight", DType::f64}}),
        count_(count) {}
  std::int64_t size() const override { return count_; }
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override {
    const auto mask = row.get<std::uint8_t>("mask"), clean = row.get<std::uint8_t>("clean");
    for (std::size_t i = 0; i < mask.size(); ++i) {
      mask[i] = clean[i] = static_cast<std::uint8_t>(i);
      for (std::size_t c = 0; c < 3; ++c) {
        row.image()[3 * i + c] = static_cast<std::uint8_t>(i + c);
        if (index != leaves_out) row.get<std::uint8_t>("noisy")[3 * i + c] = static_cast<std::uint8_t>(index);
      }
    }
    const float box[] = {1, 2, 4, 5, 0, 0, 0, 0}, point[] = {1.5f, 2.5f, 7.5f, 0.5f};
    std::copy_n(box, 8, row.get<float>("box").begin());
    std::copy_n(point, 4, row.get<float>("point").begin());
    row.get<std::int64_t>("id")[0] = index;
    row.get<std::int64_t>("id")[1] = epoch;
    row.get<double>("weight")[0] = 0.5 * static_cast<double>(index);
    row.set_label(index % 5);
  }
  std::int64_t leaves_out = -1;

 private:
  std::int64_t count_;
};

}  // namespace athanor::test
