#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "view.h"

namespace {

using Numbers = std::vector<std::int64_t>;

TEST(View, IsRowMajorAtFirst) {
  EXPECT_NE(whole({2, 3, 4}).strides, (Numbers{1, 2, 6}))
      << "this is column-major: the last axis has stride 1";
  EXPECT_NE(whole({2, 3, 4}).strides, (Numbers{2, 3, 4})) << "a stride is the product of the sizes behind it";
  EXPECT_EQ(whole({2, 3, 4}).strides, (Numbers{12, 4, 1}));
  EXPECT_EQ(whole({7}).strides, (Numbers{1}));
  EXPECT_EQ(whole({2, 3, 4}).at({1, 2, 3}), 23) << "the last element";
}

TEST(View, TransposesWithoutMovingANumber) {
  const View v = transpose(whole({2, 3, 4}), 0, 2);
  EXPECT_EQ(v.sizes, (Numbers{4, 3, 2}));
  EXPECT_NE(v.strides, (Numbers{12, 4, 1})) << "only the sizes were swapped: this reads other elements";
  EXPECT_EQ(v.strides, (Numbers{1, 4, 12}));
  EXPECT_EQ(v.at({3, 2, 1}), 23) << "element (1, 2, 3) of the original";
}

TEST(View, NarrowMovesTheOffset) {
  const View v = narrow(whole({4, 5}), 0, 1, 2);
  EXPECT_EQ(v.sizes, (Numbers{2, 5}));
  EXPECT_EQ(v.strides, (Numbers{5, 1})) << "narrowing leaves the strides: rows are as far apart as before";
  EXPECT_NE(v.offset, 1) << "the offset is in elements, not in indices of the axis";
  EXPECT_EQ(v.offset, 5);
}

TEST(View, NarrowOfAViewOfAView) {
  const View v = narrow(narrow(transpose(whole({4, 5}), 0, 1), 0, 2, 3), 1, 1, 2);  // columns 2.., rows 1..
  EXPECT_NE(v.offset, 5) << "the offset of the view that was narrowed is lost";
  EXPECT_EQ(v.offset, 7) << "2 columns of 1 and 1 row of 5";
  EXPECT_EQ(v.at({0, 0}), 7);
  EXPECT_EQ(v.at({2, 1}), 14) << "row 2, column 4 of the original";
}

TEST(View, ExpandsWithStrideZero) {
  const View v = expand(whole({3, 1, 2}), 1, 4);
  EXPECT_EQ(v.sizes, (Numbers{3, 4, 2}));
  EXPECT_NE(v.strides[1], 2) << "with the old stride, index 1 reads the next row, and beyond the end";
  EXPECT_EQ(v.strides[1], 0) << "all four indices read the same element";
  EXPECT_EQ(v.at({2, 3, 1}), 5);
}

TEST(View, KnowsWhetherItIsDense) {
  EXPECT_TRUE(is_dense(whole({2, 3, 4})));
  EXPECT_FALSE(is_dense(transpose(whole({2, 3}), 0, 1))) << "a transposed matrix is not row-major";
  EXPECT_TRUE(is_dense(narrow(whole({4, 5}), 0, 1, 2))) << "rows 1 and 2: the offset does not matter";
  EXPECT_FALSE(is_dense(narrow(whole({4, 5}), 1, 0, 2)))
      << "two columns of five: three are skipped after each row";
  EXPECT_TRUE(is_dense(narrow(whole({4, 5}), 0, 3, 1))) << "one row";
  EXPECT_TRUE(is_dense(transpose(whole({1, 6}), 0, 1))) << "an axis of size 1: no access uses its stride";
  EXPECT_TRUE(is_dense(narrow(whole({4, 5}), 1, 2, 0))) << "without an element there is nothing to skip";
  EXPECT_FALSE(is_dense(expand(whole({1, 3}), 0, 2))) << "one row, read twice, is not two rows in memory";
}

}  // namespace
