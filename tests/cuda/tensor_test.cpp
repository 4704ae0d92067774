#include "tensor/tensor.h"

#include "tensor/base/error.h"
#include "tensor/io/safetensors.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::tensor_test {

using Values = std::vector<double>;
using DeviceTensor = test::DeviceTest;

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(values, shape, test::device());
}

TEST_F(DeviceTensor, HoldsWhatItWasGiven) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}, test::device());
  EXPECT_EQ(x.device(), test::device());
  EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Tensor::from(std::vector<double>{7}, {}, test::device()).item(), 7);
  for (const DType dtype : kDTypes)
    EXPECT_EQ(Tensor::zeros({3}, {dtype, test::device()}).to_vector(), (Values{0, 0, 0}));
  EXPECT_EQ(Tensor::zeros({2, 0}, {DType::f32, test::device()}).to_vector(), Values{});
}

TEST_F(DeviceTensor, EveryReadIsOneCountedWait) {
  const Tensor x = counting({1});
  const std::int64_t before = host_syncs();
  x.item();
  x.to_vector();
  x.str();
  EXPECT_EQ(host_syncs() - before, 3);
  const ForbidSync forbid;
  EXPECT_THROW(x.item(), Error);
  EXPECT_THROW(x.to_vector(), Error);
  EXPECT_THROW(x.str(), Error);
}

TEST_F(DeviceTensor, AViewIsReadWhereItLies) {
  const Tensor x = counting({4, 6});
  const CopyCounts before = copies();
  EXPECT_EQ(x.view_as_strided({2, 3}, {1, 6}, 7).to_vector(), (Values{7, 13, 19, 8, 14, 20}));
  EXPECT_EQ(copies().to_host_bytes - before.to_host_bytes, 14 * 4);  // from 7 to 20
  EXPECT_EQ(x.view_as_strided({3}, {-2}, 10).to_vector(), (Values{10, 8, 6}));
  EXPECT_EQ(x.view_as_strided({2, 2}, {0, 1}, 3).to_vector(), (Values{3, 4, 3, 4}));
  EXPECT_EQ(x.view_as_strided({}, {}, 23).item(), 23);
  EXPECT_EQ(x.view_as_strided({0, 2}, {1, 1}, 23).to_vector(), Values{});
}

TEST_F(DeviceTensor, MovesAreDense) {
  const Tensor x = counting({4, 6}).view_as_strided({6, 4}, {1, 6}, 0);
  const std::int64_t before = host_syncs();
  const Tensor host = x.to(kCpu);
  EXPECT_EQ(host_syncs() - before, 1);
  EXPECT_TRUE(host.is_contiguous());
  EXPECT_EQ(host.to_vector(), x.to_vector());
  const Tensor strided = host.view_as_strided({2, 6}, {1, 4}, 1), there = strided.to(test::device());
  EXPECT_TRUE(there.is_contiguous());
  EXPECT_EQ(there.to_vector(), strided.to_vector());
  EXPECT_TRUE(there.to(test::device()).same_as(there));
  EXPECT_THROW(there.copy_bytes_from(Tensor::zeros({6, 2})), ArgumentError);
}

TEST_F(DeviceTensor, PrintsItsValuesAndItsDevice) {
  const std::string name = cuda_is_emulated() ? "simt:0" : "cuda:0";
  EXPECT_EQ(test::device().str(), name);
  EXPECT_EQ(counting({2, 2}).str(), "[[0, 1],\n [2, 3]]\ntensor [2, 2] f32 " + name);
  EXPECT_EQ(counting({2, 2}).view_as_strided({2}, {2}, 1).str(), "[1, 3]  tensor [2] f32 " + name);
  EXPECT_EQ(counting({0}).str(), "[]  tensor [0] f32 " + name);
}

TEST_F(DeviceTensor, IsSavedFromWhereItLies) {
  const test::TempDir dir;
  StateDict entries;
  entries.set("dense", counting({2, 3}));
  entries.set("strided", counting({2, 3}).view_as_strided({3, 2}, {1, 3}, 0));
  safetensors::save(dir.path() / "x.safetensors", entries);
  const StateDict loaded = safetensors::load(dir.path() / "x.safetensors");
  EXPECT_EQ(loaded.tensor("dense").to_vector(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(loaded.tensor("strided").to_vector(), (Values{0, 3, 1, 4, 2, 5}));
}

TEST_F(DeviceTensor, MemoryIsCountedAndFreed) {
  Allocator& allocator = allocator_of(test::device());
  const std::int64_t before = allocator.stats().current;
  {
    const AllocTag tag("test.device");
    const Tensor x = Tensor::zeros({1000}, {DType::f32, test::device()}),
                 view = x.view_as_strided({10}, {1}, 0);
    EXPECT_GE(allocator.stats().by_tag.at("test.device"), 4000);
  }
  EXPECT_EQ(allocator.stats().current, before);
}

TEST_F(DeviceTensor, TooLargeIsAnErrorThatNamesTheDevice) {
  EXPECT_ERROR(OutOfMemoryError, Tensor::empty({std::int64_t{1} << 46}, {DType::f32, test::device()}),
               test::device().str());
}

}  // namespace athanor::tensor_test
