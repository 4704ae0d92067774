#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include "data/formats/hdf5.h"
#include "fuzz.h"

using namespace athanor;

// libhdf5 runs in a child, where it may do what it likes; what it does to the parent is a finding. The
// child's own end must not be recorded as one, nor a size it asks for: what libFuzzer writes down has a
// relative name, and cannot be written where the child is.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  return pthread_atfork(nullptr, nullptr, [] {
    __sanitizer_set_death_callback(nullptr);
    if (chdir("/proc") != 0) std::abort();
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::put("a.h5", fuzz::text_of(data, size));
  fuzz::read_all([&] { return open_hdf5(file, {.patience_s = 10}); });
  return 0;
}
