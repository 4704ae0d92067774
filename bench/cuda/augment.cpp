#include "kernels/augment.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {
namespace {

struct Images {
  const char* op;
  Shape shape;
  Augment augment;
};
const Images kImages[] = {
    {"augment_crop_flip", {16, 32, 32, 3}, {.pad = 4, .padding = Padding::reflect, .flip = true}},
    {"augment_flip", {1, 224, 224, 3}, {.flip = true}},
    {"augment_colour", {1, 224, 224, 3}, {.flip = true, .colour = {0.4f, 0.4f, 0.4f, 0.1f}}},
    {"normalise", {1, 224, 224, 3}, {}},
};

void add_images(const Images& images, DType dtype) {
  const Shape& shape = images.shape;
  add({.op = images.op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = bytes_of(shape, DType::u8) + bytes_of(shape, dtype)},
       .prepare =
           [=] {
             const Tensor samples = Tensor::empty({shape[0]}, {DType::i64, kCpu});
             for (std::int64_t i = 0; i < shape[0]; ++i) samples.data<std::int64_t>()[i] = 3 * i + 1;
             return call({{pattern(shape, DType::u8, 0, 256)},
                          {samples},
                          {filled({shape[3], 256}, dtype, -2, 2), Role::whole},
                          result(Role::row_result, shape, dtype)},
                         0, [augment = images.augment](auto& context, std::span<const Tensor> t) {
                           kernels::augment(context, augment, {7, 3}, t[0], {}, t[1], t[2], t[3]);
                         });
           },
       .tiles = tiles_for(shape, dtype)});
}

}  // namespace

void add_augment() {
  for (const DType dtype : bench_dtypes()) {
    for (const Images& images : kImages) add_images(images, dtype);
  }
}

}  // namespace athanor::bench
