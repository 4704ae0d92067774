#include "data/image/resize.h"

#include <algorithm>
#include <cstring>

#include "data/image/detail/resize_rows.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using namespace resize_rows;
using kernels::first_tap;
using kernels::kManyTaps;
using kernels::taps_of;

/// f.operator()<taps>() for common numbers of taps, 0 for others.
template <class F> void with_taps(std::int64_t taps, const F& f) {
  switch (taps) {
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    case 4: return f.template operator()<4>();
    default: return f.template operator()<0>();
  }
}

}  // namespace

Reach reach(const Window& window, std::int64_t count) {
  const std::int64_t taps = taps_of(window);
  return {first_tap(window, taps, 0), first_tap(window, taps, count - 1) + taps};
}

bool Resizer::Axis::prepare(const Window& wanted, std::int64_t size) {
  if (window == wanted && count == size) return false;
  window = wanted;
  count = size;
  taps = taps_of(window);
  first.resize(static_cast<std::size_t>(count));
  weight.resize(static_cast<std::size_t>(count * taps));
  std::uint16_t* w = weight.data();
  for (std::int64_t i = 0; i < count; ++i, w += taps) {
    const std::int64_t start = first_tap(window, taps, i);
    first[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(start);
    kernels::weigh_taps(window, taps, i, start, [w](std::int64_t k, std::uint16_t value) { w[k] = value; });
  }
  return true;
}

/// Splits a row of the result into groups of up to eight values: as many as sixteen source bytes hold for
/// each tap.
void Resizer::prepare_groups(std::int64_t channels) {
  channels_ = channels;
  const std::int64_t values = columns_.count * channels, taps = columns_.taps;
  group_from_.clear();
  group_to_.clear();
  group_pick_.clear();
  const auto source = [&](std::int64_t value) {
    return columns_.first[static_cast<std::size_t>(value / channels)] * channels + value % channels;
  };
  for (std::int64_t value = 0; value < values;) {
    const std::int64_t from = columns_.first[static_cast<std::size_t>(value / channels)] * channels;
    std::int64_t n = 0;
    while (n < kLanes && value + n < values && source(value + n) - from < kBytes) ++n;
    group_from_.push_back(static_cast<std::int32_t>(from));
    group_to_.push_back(static_cast<std::int32_t>(value));
    for (std::int64_t i = 0; i < kLanes; ++i) {
      group_pick_.push_back(0x80);  // no byte: 0
      group_pick_.push_back(i < n ? static_cast<std::uint8_t>(source(value + i) - from) : 0x80);
    }
    value += n;
  }
  if (group_from_.size() % 2 == 1) {  // repeats the last one to make a pair
    group_from_.push_back(group_from_.back());
    group_to_.push_back(group_to_.back());
    for (int i = 0; i < kBytes; ++i) group_pick_.push_back(group_pick_[group_pick_.size() - kBytes]);
  }
  group_weight_.assign(group_from_.size() * static_cast<std::size_t>(taps) * kLanes, 0);
  for (std::size_t g = 0; g < group_from_.size(); ++g) {
    for (std::int64_t lane = 0; lane < kLanes && group_to_[g] + lane < values; ++lane) {
      const std::uint16_t* weight = columns_.weight.data() + (group_to_[g] + lane) / channels * taps;
      for (std::int64_t k = 0; k < taps; ++k) {
        const std::size_t pair = (g / 2 * static_cast<std::size_t>(taps) + static_cast<std::size_t>(k)) * 2;
        group_weight_[(pair + g % 2) * kLanes + static_cast<std::size_t>(lane)] = weight[k];
      }
    }
  }
}

/// Row y, or a padded copy if groups would read beyond the image's end.
const std::uint8_t* Resizer::readable(const ImageView& image, std::int64_t y) {
  const std::uint8_t *row = image.row(y), *end = image.row(image.height - 1) + image.width * image.channels;
  const std::int64_t bytes = image.width * image.channels;
  if (end - row >= bytes + kBytes) return row;
  padded_.resize(static_cast<std::size_t>(bytes + kBytes));
  std::memcpy(padded_.data(), row, static_cast<std::size_t>(bytes));
  return padded_.data();
}

void Resizer::operator()(const ImageView& image, const Window& rows, const Window& columns,
                         std::int64_t height, std::int64_t width, std::span<std::uint8_t> out) {
  const auto fits = [](const Window& window, std::int64_t side) {
    return window.low >= 0 && window.low < window.high && window.high <= side && window.scale > 0;
  };
  ATH_CHECK(
      fits(rows, image.height) && fits(columns, image.width) && image.channels >= 1 && image.channels <= 4,
      "resize: windows must lie in an image of 1 to 4 channels, but are [{}, {}) and [{}, {}) of {}x{}x{}",
      rows.low, rows.high, columns.low, columns.high, image.height, image.width, image.channels);
  const std::int64_t values = width * image.channels;
  ATH_CHECK(height > 0 && width > 0 && std::ssize(out) == height * values,
            "resize: result must have {} bytes, but got {}", height * values, out.size());
  if (rows.interpolation == Resampling::bicubic) return bicubic_(image, rows, columns, height, width, out);
  rows_.prepare(rows, height);
  if (columns_.prepare(columns, width) || channels_ != image.channels) prepare_groups(image.channels);
  // A ring buffer of resized rows, as many as one row of the result needs.
  const std::int64_t stride = values + kSlack, ring = rows_.taps;
  narrow_.resize(static_cast<std::size_t>(stride * ring));
  tap_rows_.resize(static_cast<std::size_t>(ring));
  const Groups groups{group_from_.data(), group_to_.data(), group_pick_.data(), group_weight_.data(),
                      group_from_.size(), columns_.taps,    image.channels};
  std::int64_t done = rows_.first.front();
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t first = rows_.first[static_cast<std::size_t>(y)];
    for (done = std::max(done, first); done < first + ring; ++done) {
      const std::uint8_t* row = readable(image, done);
      std::uint16_t* to = narrow_.data() + done % ring * stride;
      if (columns_.taps > kManyTaps) {
        narrow_row_exactly(row, columns_.first, columns_.taps, columns_.weight.data(), image.channels, to);
      } else {
        with_taps(columns_.taps, [&]<int Taps>() { in_use::narrow_row<Taps>(row, groups, to); });
      }
    }
    for (std::int64_t k = 0; k < ring; ++k) {
      tap_rows_[static_cast<std::size_t>(k)] = narrow_.data() + (first + k) % ring * stride;
    }
    const std::uint16_t* weight = rows_.weight.data() + y * ring;
    std::uint8_t* to = out.data() + y * values;
    if (ring > kManyTaps) {
      blend_rows_exactly(values, ring, weight, tap_rows_.data(), to);
    } else {
      with_taps(ring,
                [&]<int Taps>() { in_use::blend_rows<Taps>(values, ring, weight, tap_rows_.data(), to); });
    }
  }
}

}  // namespace athanor
