#include "tensor/tensor.h"

#include <cmath>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tensor/stream.h"
#include "tests/support/cases.h"
#include "tests/support/errors.h"

namespace athanor::tensor_test {

using Values = std::vector<double>;

// Making ---------------------------------------------------------------------------------------------------

TEST(Tensor, FromHoldsWhatItWasGiven) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(x.dim(-1), 3);
  EXPECT_EQ(x.bytes(), 24u);
  EXPECT_EQ(x.strides(), (Strides{3, 1}));
  EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Tensor::from(std::vector<double>{7}, {}).item(), 7);
  EXPECT_EQ(Tensor::from(std::vector<float>{}, {0, 3}).numel(), 0);
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(Tensor::zeros({3}, {dtype, kCpu}).to_vector(), (Values{0, 0, 0}));
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_named("f8").has_value());
}

TEST(Tensor, ErrorsSayWhatWasWrong) {
  EXPECT_REFUSED(Tensor::from(std::vector<float>{1, 2, 3}, {2, 2}), "[2, 2]", "f32", "16", "12");
  EXPECT_REFUSED(Tensor::empty({2, -1}), "[2, -1]");
  EXPECT_THROW(Tensor::empty({INT64_MAX, 4}), ArgumentError);
  EXPECT_THROW(Tensor::empty({1, 1, 1, 1, 1, 1, 1, 1, 1}), ArgumentError);
  const Tensor x = Tensor::zeros({2, 2});
  EXPECT_ERROR(ArgumentError, x.data<double>(), "data", "f64", "f32");
  EXPECT_ERROR(ArgumentError, x.item(), "item", "[2, 2]");
  EXPECT_ERROR(ArgumentError, x.dim(2), "dim", "[-2, 2)", "2");
  EXPECT_THROW(x.copy_bytes_from(Tensor::zeros({4})), ArgumentError);
  EXPECT_THROW(Tensor::empty({1}, {DType::f32, {DeviceType::cuda, 63}}), BackendError);
  EXPECT_THROW(Tensor::empty({1}, {DType::f32, {DeviceType::cuda, -1}}), BackendError);
}

TEST(Tensor, DevicesHaveNames) {
  EXPECT_EQ(Device::parse("cpu"), kCpu);
  EXPECT_EQ(kCpu.str(), "cpu");
  const std::string own = cuda_is_emulated() ? "simt" : "cuda";  // what an emulated device is called
  EXPECT_EQ(Device::parse("cuda"), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(Device::parse("cuda:3").str(), own + ":3");
  EXPECT_EQ(Device::parse(own + ":12"), (Device{DeviceType::cuda, 12}));
  for (const char* bad :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1234", "cud", "cuda3", "cpu:0", "simt:x"})
    EXPECT_THROW(Device::parse(bad), ArgumentError) << bad;
  EXPECT_ERROR(ArgumentError, Device::parse("gpu"), "device", "cpu", own, own + ":N", "gpu");
  if (!cuda_is_emulated()) {
    EXPECT_THROW(Device::parse("simt:0"), ArgumentError);
  }
}

// Views and versions
// -----------------------------------------------------------------------------------------

TEST(Tensor, HandlesShareViewsSeeCopiesDoNot) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Tensor same = x, view = x.view_as_strided({2}, {2}, 1);
  EXPECT_TRUE(same.same_as(x));
  x.data<float>()[3] = 9;
  EXPECT_EQ(view.to_vector(), (Values{2, 9}));
  const Tensor copy = Tensor::empty({2, 2});
  copy.copy_bytes_from(x);
  x.data<float>()[3] = 0;
  EXPECT_EQ(copy.to_vector(), (Values{1, 2, 3, 9}));
  EXPECT_TRUE(x.to(kCpu).same_as(x));
}

TEST(Tensor, ContiguityIgnoresAxesOfSizeOne) {
  const Tensor x = Tensor::zeros({4, 6});
  EXPECT_TRUE(x.view_as_strided({1, 24}, {7, 1}, 0).is_contiguous());
  EXPECT_TRUE(x.view_as_strided({0, 5}, {9, 9}, 0).is_contiguous());
  EXPECT_FALSE(x.view_as_strided({6, 4}, {1, 6}, 0).is_contiguous());
  EXPECT_FALSE(x.view_as_strided({4, 3}, {6, 1}, 0).is_contiguous());
}

TEST(Tensor, VersionBelongsToTheLogicalTensor) {
  const Tensor x = Tensor::zeros({4});
  const Tensor view = x.view_as_strided({2}, {1}, 0), alias = x.detach();
  x.bump_version();
  EXPECT_EQ(view.version(), x.version());
  EXPECT_EQ(alias.version(), x.version());
  // Two parameters in one arena: the storage is shared, the versions are not.
  const Tensor slice = Tensor::wrap(x.storage(), 2, {2}, {1}, DType::f32);
  slice.bump_version();
  EXPECT_EQ(x.version(), 1u);
  EXPECT_EQ(slice.version(), 1u);
  slice.copy_bytes_from(Tensor::zeros({2}));
  EXPECT_EQ(slice.version(), 2u);
}

TEST(Tensor, ViewsStayInsideTheirStorage) {
  const Tensor x = Tensor::zeros({4});
  EXPECT_NO_THROW(x.view_as_strided({2, 2}, {2, 1}, 0));
  EXPECT_NO_THROW(x.view_as_strided({4}, {-1}, 3));
  EXPECT_NO_THROW(x.view_as_strided({0}, {1}, 4));
  EXPECT_THROW(x.view_as_strided({4}, {1}, 1), ArgumentError);
  EXPECT_THROW(x.view_as_strided({4}, {-1}, 2), ArgumentError);
  EXPECT_THROW(x.view_as_strided({2}, {1, 1}, 0), ArgumentError);
}

TEST(Tensor, RebindMovesEveryHandle) {
  const Tensor x = Tensor::zeros({2}), handle = x;
  const Tensor arena = Tensor::from(std::vector<float>{1, 2, 3, 4}, {4});
  x.rebind(arena.storage(), 2, DType::f32);
  EXPECT_EQ(handle.to_vector(), (Values{3, 4}));
  EXPECT_EQ(handle.version(), 1u);
}

TEST(Tensor, WrapKeepsTheOwnerAlive) {
  struct Owner final : RefCounted {
    explicit Owner(bool& flag) : alive(flag) { alive = true; }
    ~Owner() override { alive = false; }
    bool& alive;
  };
  bool alive = false;
  alignas(64) float memory[2] = {5, 6};
  Tensor x =
      Tensor::wrap(make_ref<Storage>(memory, sizeof memory, make_ref<Owner>(alive)), 0, {2}, {1}, DType::f32);
  EXPECT_EQ(x.to_vector(), (Values{5, 6}));
  EXPECT_TRUE(alive);
  x = Tensor();
  EXPECT_FALSE(alive);
}

// Waits
// --------------------------------------------------------------------------------------------------------

TEST(HostSync, EveryReadIsCounted) {
  const Tensor x = Tensor::zeros({1});
  const std::int64_t before = host_syncs();
  x.item();
  x.to_vector();
  x.str();
  EXPECT_EQ(host_syncs() - before, 3);
  {
    const AllowSync owned;
    x.item();
  }
  EXPECT_EQ(host_syncs() - before, 3);
}

TEST(HostSync, ForbiddenNamesOpAndCallSite) {
  const Tensor x = Tensor::zeros({1});
  const ForbidSync outer;
  { const ForbidSync inner; }
  const int line = __LINE__ + 1;
  EXPECT_ERROR(Error, x.item(), "item", fmt::format("tensor_test.cpp:{}", line));
  std::thread([&] { EXPECT_NO_THROW(x.item()); }).join();  // this thread's step, not another's
  const AllowSync owned;
  EXPECT_NO_THROW(x.item());
}

// Printing
// -------------------------------------------------------------------------------------------------------

std::string print(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Print, ColumnsLineUp) {
  EXPECT_EQ(print(Tensor()), "tensor(undefined)");
  EXPECT_EQ(print(Tensor::from(std::vector<float>{3.5}, {})), "3.5000  tensor [] f32 cpu");
  EXPECT_EQ(print(Tensor::from(std::vector<float>{1, -10, 100, 0}, {2, 2})),
            "[[  1, -10],\n"
            " [100,   0]]\n"
            "tensor [2, 2] f32 cpu");
  EXPECT_EQ(print(Tensor::from(std::vector<double>{0.5, NAN, -INFINITY, -12.25}, {2, 1, 2})),
            "[[[  0.5000,      nan]],\n\n"
            " [[    -inf, -12.2500]]]\n"
            "tensor [2, 1, 2] f64 cpu");
  EXPECT_EQ(print(Tensor::from(std::vector<float>{1e-7f, 1}, {2})),
            "[1.0000e-07, 1.0000e+00]  tensor [2] f32 cpu");
  EXPECT_EQ(print(Tensor::zeros({2}, {DType::boolean, kCpu})), "[false, false]  tensor [2] bool cpu");
  EXPECT_EQ(print(Tensor::from(std::vector<std::int64_t>{INT64_MAX, 1}, {2})),
            "[9223372036854775807,                   1]  tensor [2] i64 cpu");
  EXPECT_EQ(print(Tensor::zeros({2, 0})), "[]  tensor [2, 0] f32 cpu");
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(print(x.view_as_strided({2, 2}, {1, 2}, 0)), "[[1, 3],\n [2, 4]]\ntensor [2, 2] f32 cpu");
}

TEST(Print, CutsLongAndWrapsWideTensors) {
  std::vector<std::int32_t> values(1200);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  EXPECT_EQ(print(Tensor::from(values, {1200})),
            "[   0,    1,    2, ..., 1197, 1198, 1199]  tensor [1200] i32 cpu");
  EXPECT_EQ(print(Tensor::from(values, {300, 4})),
            "[[   0,    1,    2,    3],\n [   4,    5,    6,    7],\n [   8,    9,   10,   11],\n ...,\n"
            " [1188, 1189, 1190, 1191],\n [1192, 1193, 1194, 1195],\n [1196, 1197, 1198, 1199]]\n"
            "tensor [300, 4] i32 cpu");
  values.resize(40);
  std::istringstream lines(print(Tensor::from(values, {40})));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 130u) << line;
}

// Shapes
// -----------------------------------------------------------------------------------------------------------

TEST(Shape, BroadcastsByNumpysRule) {
  EXPECT_EQ(broadcast_shapes({5, 1, 3}, {4, 1}, "t"), (Shape{5, 4, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2}, "t"), Shape{2});
  EXPECT_EQ(broadcast_shapes({0}, {1}, "t"), Shape{0});
  EXPECT_ERROR(ArgumentError, broadcast_shapes({2, 3}, {4}, "add"), "add", "[2, 3]", "[4]");
  EXPECT_TRUE(broadcasts_to({1, 3}, {2, 3}));
  EXPECT_FALSE(broadcasts_to({2, 3}, {3}));
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Strides{3, 3, 1}));
}

}  // namespace athanor::tensor_test
