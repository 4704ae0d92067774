#pragma once

#include "tensor/detail/device_memory.h"
#include "tensor/pinned.h"
#include "tests/cuda/device.h"

namespace athanor::test {

/// A stream with so much to do that it is still at it when the test looks: milliseconds of a GPU; and of the
/// emulator, which does one thing whenever it is asked whether all is done, more things than the test asks.
/// Waits for the stream at the end of its scope.
class Busy {
 public:
  explicit Busy(const Stream& stream)
      : stream_(stream),
        memory_(Tensor::empty({cuda_is_emulated() ? 1024 : 64 << 20}, {DType::u8, stream.device()})) {
    record_stream(memory_, stream_);
    const StreamGuard guard(stream_);
    for (int i = 0; i < 200; ++i)
      athanor::detail::set_device_bytes(memory_.raw_data(), memory_.device(), i, memory_.bytes());
  }
  ~Busy() {
    const AllowSync own;
    stream_.synchronize();
  }

 private:
  Stream stream_;
  Tensor memory_;
};

}  // namespace athanor::test
