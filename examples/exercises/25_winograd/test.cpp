#include <string>

#include <gtest/gtest.h>

#include "image.h"
#include "winograd.h"

namespace {

Image image(int height, int width) {
  Image x(height, width);
  for (int i = 0; i < height * width; ++i) x.values[static_cast<std::size_t>(i)] = (i * 7 % 11) - 5;
  return x;
}
const Tile<3> kFilter{{{1, -2, 3}, {0, 4, -1}, {2, 5, -3}}};

double direct(const Image& x, int i, int j) {
  double sum = 0;
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s)
      sum += x.at(i + r, j + s) * kFilter[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)];
  return sum;
}

TEST(Winograd, TransformsAFilter) {
  const Tile<4> points = filter_at_points({{{1, 0, 0}, {0, 0, 0}, {0, 0, 0}}});
  EXPECT_EQ(points[0][0], 1);
  EXPECT_EQ(points[1][2], 0.25) << "G has 1/2 in its middle rows, for both axes";
  EXPECT_EQ(filter_at_points({{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}})[1][1], 2.25)
      << "at the point (1, 1): a quarter of the sum";
  EXPECT_EQ(filter_at_points({{{0, 0, 0}, {0, 0, 0}, {0, 0, 1}}})[3][3], 1) << "at infinity: the last tap";
}

TEST(Winograd, TransformsAnInput) {
  const double expected[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
  for (std::size_t j = 0; j < 4; ++j) {
    Tile<4> d{};
    d[0][j] = 1;  // in the first row, where the other axis' value at 0 is 1
    const Tile<4> points = input_at_points(d);
    for (std::size_t p = 0; p < 4; ++p)
      EXPECT_EQ(points[0][p], expected[p][j]) << "row " << p << " of B^T, column " << j;
  }
}

TEST(Winograd, GivesOneTile) {
  const Image x = image(4, 4), y = convolve(x, kFilter);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      EXPECT_NEAR(y.at(i, j), direct(x, i, j), 1e-9) << "output " << i << ", " << j << " of a single tile";
}

std::string first_wrong(int height, int width) {
  const Image x = image(height, width);
  const Image y = convolve(x, kFilter);
  for (int i = 0; i < height - 2; ++i)
    for (int j = 0; j < width - 2; ++j)
      if (std::abs(y.at(i, j) - direct(x, i, j)) > 1e-9)
        return "output (" + std::to_string(i) + ", " + std::to_string(j) + ") of " +
               std::to_string(height - 2) + " x " + std::to_string(width - 2);
  return "";
}

TEST(Winograd, OverlapsItsTiles) {
  EXPECT_EQ(first_wrong(8, 8), "")
      << "a tile gives two outputs along each axis, from four inputs: the next begins two further, "
         "and shares two with it";
  EXPECT_EQ(first_wrong(4, 12), "") << "the same along one axis";
}

TEST(Winograd, FinishesOddSizes) {
  for (const auto& [height, width] : {std::pair{5, 5}, {5, 6}, {6, 5}, {3, 3}, {7, 4}, {3, 9}})
    EXPECT_EQ(first_wrong(height, width), "")
        << "the last row or column was not computed, or its tile was thrown away: read zeros outside";
}

TEST(Winograd, MultipliesSixteenTimesATile) {
  products = 0;
  convolve(image(10, 6), kFilter);
  EXPECT_EQ(products, 4 * 2 * 16)
      << "8 x 4 outputs are 8 tiles, of 16 multiplications each; directly it would be 288";
}

}  // namespace
