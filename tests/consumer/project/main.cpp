// A project outside the tree: the umbrella header, one forward and one backward pass.
#include <cstdio>
#include <vector>

#include "athanor.h"

int main() {
  using namespace athanor;
  const Tensor x = Tensor::from(std::vector<float>{-1, 2, 3}, {3});
  require_grad(x);
  backward(relu(x) * x, Tensor::from(std::vector<float>{1, 1, 1}, {3}));
  const std::vector<double> expected = {0, 4, 6};
  if (grad_of(x).to_vector() != expected) {
    std::printf("d/dx relu(x) x must be 0 4 6, but is %s\n", grad_of(x).str().c_str());
    return 1;
  }
  std::printf("athanor works from an installed package\n");
}
