#include "tensor/detail/fresh_memory.h"

// Linked into every test: memory is NaN until somebody writes to it.

namespace {

[[maybe_unused]] const bool filled = [] {
  athanor::detail::fill_fresh_memory = true;
  return true;
}();

}  // namespace
