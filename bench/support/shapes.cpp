#include "bench/support/shapes.h"

namespace athanor::bench {

std::vector<Shape> resnet18_shapes() {
  std::vector<Shape> shapes = {{64, 3, 3, 3}, {64}, {64}};
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 64, 128, 128, 256, 256, 512, 512}) {
    shapes.insert(shapes.end(), {{out, 3, 3, in}, {out}, {out}, {out, 3, 3, out}, {out}, {out}});
    if (in != out) shapes.insert(shapes.end(), {{out, 1, 1, in}, {out}, {out}});
    in = out;
  }
  shapes.insert(shapes.end(), {{10, 512}, {10}});
  return shapes;
}

std::vector<Shape> resnet50_shapes() {
  std::vector<Shape> shapes = {{64, 7, 7, 3}, {64}, {64}};
  const auto convolution = [&](std::int64_t out, std::int64_t side, std::int64_t in) {
    shapes.insert(shapes.end(), {{out, side, side, in}, {out}, {out}});
  };
  constexpr int kBlocks[] = {3, 4, 6, 3};
  std::int64_t in = 64, width = 64;
  for (const int blocks : kBlocks) {
    for (int block = 0; block < blocks; ++block, in = 4 * width) {
      convolution(width, 1, in);
      convolution(width, 3, width);
      convolution(4 * width, 1, width);
      if (block == 0) convolution(4 * width, 1, in);
    }
    width *= 2;
  }
  shapes.insert(shapes.end(), {{1000, 2048}, {1000}});
  return shapes;
}

std::vector<Shape> flat_shapes() {
  return {{total(resnet50_shapes())}};
}

std::int64_t total(const std::vector<Shape>& shapes) {
  std::int64_t n = 0;
  for (const Shape& shape : shapes) n += shape.numel();
  return n;
}

}  // namespace athanor::bench
