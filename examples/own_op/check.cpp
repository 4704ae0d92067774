// check: compares the op with hand-computed values, and its gradient with finite differences.
#include <cmath>
#include <cstdio>
#include <vector>

#include "soft_shrink.h"

using namespace athanor;

namespace {

Tensor some(DType dtype) {
  return cast(Tensor::from(std::vector<double>{-3, -1, -0.5, 0, 0.25, 1.5, 2, 7}, {2, 4}), dtype);
}

void check(const char* what, bool holds) {
  if (!holds) throw Error(std::string("check: ") + what);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, [](int, char**) {
    const std::vector<double> shrunk{-2, 0, 0, 0, 0, 0.5, 1, 6};
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      check("the forward pass must give what the formula says",
            soft_shrink(some(dtype), 1).to_vector() == shrunk);
    check("a tensor with strides must give the same",
          transpose(soft_shrink(transpose(some(DType::f32), 0, 1), 1), 0, 1).to_vector() == shrunk);
    check("NaN must stay NaN", std::isnan(soft_shrink(full({}, NAN), 1).item()));
    check("no elements must give none", soft_shrink(Tensor::zeros({0, 3}), 1).numel() == 0);

    const Tensor x = some(DType::f64);
    require_grad(x);
    gradcheck([](std::span<const Tensor> in) { return soft_shrink(in[0], 0.75); }, std::array{x});
    std::printf("soft_shrink: right\n");
    return 0;
  });
}
