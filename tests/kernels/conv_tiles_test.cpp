// The inner loops of convolutions, for each instruction set of this CPU, against plain loops: the same bits.
#include "kernels/cpu/conv_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)

namespace athanor::cpu::conv_tiles::conv_tiles_test {

using Floats = std::vector<float>;

std::vector<const Code*> codes() {
  std::vector<const Code*> found;
  if (has_avx2()) found.push_back(&avx2::code());
  if (has_avx512()) found.push_back(&avx512::code());
  return found;
}

Floats noise(std::int64_t count, unsigned seed) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> numbers(-1, 1);
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = numbers(bits);
  return values;
}
Floats unwritten(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

/// Equal bits, and NaN where it was left.
void expect_same(const Floats& got, const Floats& want, const char* isa) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << isa << " [" << i << "]: " << got[i] << ", not " << want[i];
}

TEST(ConvTiles, Channels) {
  constexpr std::int64_t kRows = 3, kRuns = 2, kRun = 5, kRowStep = 200, kRunStep = 7, kStep = 4;
  for (const Code* const code : codes()) {
    for (const std::int64_t channels : {1, 16, 17, 64}) {
      for (std::int64_t row = 1; row <= 40; ++row) {
        const ChannelCode tile = code->channels(channels, row);
        const Floats x = noise(1000, 1), w = noise(kRows * kRuns * kRun * tile.block, 2);
        Floats got = unwritten(tile.pixels * tile.block), want = got;
        tile.sums({x.data(), w.data(), kStep, kRows, kRowStep, kRuns, kRunStep, kRun}, got.data());
        for (std::int64_t pixel = 0; pixel < tile.pixels; ++pixel) {
          for (std::int64_t k = 0; k < tile.block; ++k) {
            float sum = 0;
            for (std::int64_t tap = 0; tap < kRows * kRuns * kRun; ++tap) {
              const std::int64_t r = tap / (kRuns * kRun), s = tap / kRun % kRuns, c = tap % kRun;
              sum =
                  std::fma(x[pixel * kStep + r * kRowStep + s * kRunStep + c], w[tap * tile.block + k], sum);
            }
            want[pixel * tile.block + k] = sum;
          }
        }
        expect_same(got, want, code->isa);
      }
    }
  }
}

TEST(ConvTiles, Pixels) {
  constexpr std::int64_t kC = 2, kPlane = 400, kR = 3, kRowStep = 40, kS = 3, kStep = 2;
  constexpr std::int64_t kSpans[kMaxSpans] = {0, 16, 57};
  const Floats frame = noise(kC * kPlane, 1);
  for (const Code* const code : codes()) {
    for (std::int64_t channels = 1; channels <= kMaxPixelChannels; ++channels) {
      const Floats w = noise(kC * kR * kS * channels, 2);
      Floats got = unwritten(code->spans * channels * kLanes), want = got;
      code->pixel_sums[channels - 1]({frame.data(), kSpans, w.data(), kC, kPlane, kR, kRowStep, kS, kStep},
                                     got.data());
      for (std::int64_t span = 0; span < code->spans; ++span) {
        for (std::int64_t k = 0; k < channels; ++k) {
          for (std::int64_t pixel = 0; pixel < kLanes; ++pixel) {
            float sum = 0;
            for (std::int64_t tap = 0; tap < kC * kR * kS; ++tap) {
              const std::int64_t c = tap / (kR * kS), r = tap / kS % kR, s = tap % kS;
              sum = std::fma(frame[kSpans[span] + pixel + c * kPlane + r * kRowStep + s * kStep],
                             w[tap * channels + k], sum);
            }
            want[(span * channels + k) * kLanes + pixel] = sum;
          }
        }
      }
      expect_same(got, want, code->isa);
    }
  }
}

TEST(ConvTiles, InterleaveWritesNoMoreThanItIsAskedFor) {
  for (const Code* const code : codes()) {
    for (std::int64_t channels = 1; channels <= kMaxPixelChannels; ++channels) {
      const Floats from = noise(channels * kLanes, 1), bias = noise(channels * kLanes, 2);
      for (const float* const offsets : {static_cast<const float*>(nullptr), bias.data()}) {
        for (std::int64_t count = 0; count <= channels * kLanes; count += channels) {
          Floats got = unwritten(channels * kLanes + kLanes), want = got;
          code->interleave[channels - 1](from.data(), offsets, count, got.data());
          for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t at = i % channels * kLanes + i / channels;
            want[i] = offsets ? from[at] + offsets[at] : from[at];
          }
          expect_same(got, want, code->isa);
        }
      }
    }
  }
}

/// relu(largest + bias) of four sums.
float pooled(const float (&sums)[4], float bias) {
  return std::max(*std::max_element(sums, sums + 4) + bias, 0.0f);
}

TEST(ConvTiles, PooledChannels) {
  constexpr std::int64_t kRow = 100, kStep = 3, kRows = 3, kRun = 6, kNext = 20;
  const Floats x = noise(1000, 1), w = noise(kRows * kRun * kLanes, 2), bias = noise(kLanes, 3);
  for (const Code* const code : codes()) {
    for (std::int64_t pairs = 1; pairs <= code->max_pooled; ++pairs) {
      for (std::int64_t channels = 1; channels <= kLanes; ++channels) {
        for (const float* const offsets : {static_cast<const float*>(nullptr), bias.data()}) {
          Floats got = unwritten(pairs * kNext), want = got;
          code->pooled_channels[pairs - 1](
              {x.data(), kRow, kStep, kRows, kRun, w.data(), offsets, channels, got.data(), kNext});
          for (std::int64_t pixel = 0; pixel < pairs; ++pixel) {
            for (std::int64_t k = 0; k < channels; ++k) {
              float sums[4] = {};
              for (int i = 0; i < 4; ++i)
                for (std::int64_t tap = 0; tap < kRows * kRun; ++tap)
                  sums[i] =
                      std::fma(x[(i / 2 + tap / kRun) * kRow + (2 * pixel + i % 2) * kStep + tap % kRun],
                               w[tap * kLanes + k], sums[i]);
              want[pixel * kNext + k] = pooled(sums, offsets ? offsets[k] : 0);
            }
          }
          expect_same(got, want, code->isa);
        }
      }
    }
  }
}

TEST(ConvTiles, PooledPixels) {
  constexpr std::int64_t kC = 2, kHalf = 20, kRows = 6, kPlane = kRows * 2 * kHalf, kR = 3, kS = 4;
  const Floats x = noise(kC * kPlane + 2 * kLanes, 1), bias = noise(kMaxPooledChannels, 3);
  for (const Code* const code : codes()) {
    for (std::int64_t channels = 1; channels <= kMaxPooledChannels; ++channels) {
      const Floats w = noise(kC * kR * kS * channels, 2);
      for (const std::int64_t pixels : {1, 7, 8, 9, 14, 16}) {
        Floats got = unwritten(channels * kLanes), want = got;
        code->pooled_pixels[channels - 1](
            {x.data(), kC, kPlane, kHalf, kR, kS, w.data(), bias.data(), pixels, got.data()});
        for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
          for (std::int64_t k = 0; k < channels; ++k) {
            float sums[4] = {};
            for (int i = 0; i < 4; ++i) {
              for (std::int64_t tap = 0; tap < kC * kR * kS; ++tap) {
                const std::int64_t c = tap / (kR * kS), row = tap / kS % kR + i / 2,
                                   column = tap % kS + i % 2;
                sums[i] = std::fma(x[c * kPlane + row * 2 * kHalf + column % 2 * kHalf + column / 2 + pixel],
                                   w[tap * channels + k], sums[i]);
              }
            }
            want[pixel * channels + k] = pooled(sums, bias[k]);
          }
        }
        expect_same(got, want, code->isa);
      }
    }
  }
}

TEST(ConvTiles, PatchesAddWhatIsUnderTheFilterAlone) {
  constexpr std::int64_t kK = 5, kRowStep = 200, kStep = 6;
  for (const Code* const code : codes()) {
    for (std::int64_t vectors = 1; vectors <= code->max_patch; ++vectors) {
      const std::int64_t rows = code->max_patch / vectors, width = rows * vectors * kLanes;
      for (const std::int64_t last : {1, 7, 8, 9, 16}) {
        for (const std::int64_t pixels : {1, 2, 5}) {
          const std::int64_t run = (vectors - 1) * kLanes + last;
          Floats dy = noise(pixels * kK, 1), w = noise(kK * width, 2);
          for (std::int64_t i = 0; i < kK * width; ++i)
            if (i % (vectors * kLanes) >= run) w[i] = 0;
          dy[0] = std::numeric_limits<float>::infinity();  // times the zeros it is NaN: not to be added
          Floats got = noise(rows * kRowStep + 2 * kLanes, 3), want = got;
          code->add_patches[rows * vectors - 1](
              {dy.data(), got.data(), pixels, kStep, w.data(), kK, kRowStep, vectors, last});
          const std::int64_t half = (pixels + 1) / 2;
          for (std::int64_t i = 0; i < 2 * half; ++i) {  // the order of overlapping patches
            const std::int64_t pixel = i / 2 + i % 2 * half;
            if (pixel >= pixels) continue;
            for (std::int64_t r = 0; r < rows; ++r) {
              for (std::int64_t at = 0; at < run; ++at) {
                float sum = 0;
                for (std::int64_t k = 0; k < kK; ++k)
                  sum = std::fma(dy[pixel * kK + k], w[k * width + r * vectors * kLanes + at], sum);
                want[pixel * kStep + r * kRowStep + at] += sum;
              }
            }
          }
          expect_same(got, want, code->isa);
        }
      }
    }
  }
}

TEST(ConvTiles, GradientsOfWeights) {
  constexpr std::int64_t kFilterRow = 90, kRows = 3, kRow = 180, kColumns = 4, kColumn = 5;
  const Floats x = noise(1000, 1);
  for (const Code* const code : codes()) {
    for (const std::int64_t channels : {1, 6, 8, 9, 16, 20}) {
      for (const std::int64_t run : {1, 3, 5, 6, 7, 9, 16, 30}) {
        const WeightCode tiles = code->weights(run, channels);
        const Floats dy = noise(kRows * kColumns * channels + tiles.block, 2);
        for (std::int64_t rows = 1; rows <= tiles.rows; ++rows) {
          for (std::int64_t taps = 1; taps <= std::min(tiles.taps, run); ++taps) {
            const std::int64_t sums_row = run * tiles.block;
            Floats got = noise(2 * sums_row, 3), want = got;
            tiles.sums[rows - 1][taps - 1]({x.data(), kFilterRow, kRows, kRow, kColumns, kColumn, dy.data(),
                                            channels, got.data(), sums_row});
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t tap = 0; tap < taps; ++tap)
                for (std::int64_t k = 0; k < tiles.block; ++k)
                  for (std::int64_t pixel = 0; pixel < kRows * kColumns; ++pixel) {
                    float& sum = want[r * sums_row + tap * tiles.block + k];
                    sum = std::fma(
                        x[r * kFilterRow + pixel / kColumns * kRow + pixel % kColumns * kColumn + tap],
                        dy[pixel * channels + k], sum);
                  }
            expect_same(got, want, code->isa);
          }
        }
      }
    }
  }
}

TEST(ConvTiles, DepthwiseGradientsAddToTheirSums) {
  constexpr std::int64_t kRows = 3, kColumns = 7, kColumn = 2 * kLanes, kFilterRow = 25 * kLanes,
                         kRow = 30 * kLanes;
  const Floats x = noise(3 * kFilterRow + kRows * kRow + 20 * kLanes, 1),
               dy = noise(kRows * kColumns * kLanes, 2);
  for (const Code* code : codes()) {
    for (const std::int64_t filter : {1, 2, 3, 5, 7, 8, 9, 17}) {
      const DepthwiseCode tiles = code->depthwise(filter);
      EXPECT_GE(tiles.taps * ((filter + tiles.taps - 1) / tiles.taps), filter);
      for (std::int64_t rows = 1; rows <= tiles.rows; ++rows) {
        for (std::int64_t taps = 1; taps <= tiles.taps; ++taps) {
          const std::int64_t sums_row = filter * kLanes;
          Floats got = noise(3 * sums_row, 3), want = got;
          tiles.sums[rows - 1][taps - 1](
              {x.data(), kFilterRow, kRows, kRow, kColumns, kColumn, dy.data(), got.data(), sums_row});
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < taps * kLanes; ++i)
              for (std::int64_t pixel = 0; pixel < kRows * kColumns; ++pixel) {
                float& sum = want[r * sums_row + i];
                const float in = x[r * kFilterRow + pixel / kColumns * kRow + pixel % kColumns * kColumn + i];
                sum = std::fma(in, dy[pixel * kLanes + i % kLanes], sum);
              }
          expect_same(got, want, code->isa);
        }
      }
    }
  }
}

}  // namespace athanor::cpu::conv_tiles::conv_tiles_test

#endif
