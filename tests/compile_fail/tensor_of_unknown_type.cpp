// error: DTypeOf
#include <vector>

#include "tensor/tensor.h"

athanor::Tensor f() {
#ifdef ATHANOR_MUST_FAIL
  return athanor::Tensor::from(std::vector<unsigned short>{1}, {1});
#else
  return athanor::Tensor::from(std::vector<float>{1}, {1});
#endif
}
