// error: use of deleted function
#include "autograd/grad_mode.h"

void f() {
  const athanor::NoGrad scope;
#ifdef ATHANOR_MUST_FAIL
  const athanor::NoGrad copy = scope;
#endif
}
