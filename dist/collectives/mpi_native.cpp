// MPI's own collectives, MPI_Iallreduce and its relatives, advanced by MPI_Test.

#include "dist/collectives/detail/mpi_native.h"

#include <cstring>
#include <limits>

#include "dist/collectives/slice.h"
#include "kernels/accumulate.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

using What = NativeCall::What;

// MPI 3 has no half types: they are sent as 16-bit words.
MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return MPI_DOUBLE;
    case DType::f32: return MPI_FLOAT;
    case DType::f16:
    case DType::bf16: return MPI_UINT16_T;
    case DType::i64: return MPI_INT64_T;
    case DType::i32: return MPI_INT32_T;
    case DType::u8:
    case DType::boolean: return MPI_UINT8_T;
    case DType::i8: return MPI_INT8_T;
  }
  return MPI_BYTE;
}

template <class T, kernels::Combine kHow> void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  using A = kernels::ComputeType<T>;
  const kernels::CombineOp<kHow> op;
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) to[i] = T(op(A(from[i]), A(to[i])));
}

// MPI's own sums where they match ours. Sums of halves, and maxima (MPI does not specify NaN), use the
// functions above. Created once per process.
MPI_Op op_of(DType dtype, kernels::Combine how) {
  if (how == kernels::Combine::sum && (dtype == DType::f64 || dtype == DType::f32 || !is_floating(dtype)))
    return MPI_SUM;
  MPI_Op op = MPI_OP_NULL;
  const auto make = [](MPI_User_function* f) {
    MPI_Op made = MPI_OP_NULL;
    check_mpi(MPI_Op_create(f, 1, &made), "native");
    return made;
  };
  kernels::dispatch_number(dtype, "native", [&]<class T>() {
    if (how == kernels::Combine::sum) {
      static const MPI_Op sum = make(combine<T, kernels::Combine::sum>);
      op = sum;
    } else {
      static const MPI_Op max = make(combine<T, kernels::Combine::max>);
      op = max;
    }
  });
  return op;
}

class MpiNative final : public Collective {
 public:
  MpiNative(Transport& transport, MPI_Comm comm, const NativeCall& call, bool threads, bool* abandoned)
      : transport_(transport),
        comm_(comm),
        threads_(threads),
        call_(call),
        abandoned_(abandoned),
        type_(type_of(call.buffer.dtype())) {
    ATH_CHECK(call.buffer.numel() <= std::numeric_limits<int>::max(),
              "native: MPI counts with int, so there must be at most {} elements, but got {}",
              std::numeric_limits<int>::max(), call.buffer.numel());
    const auto turn = mpi_turn(threads);
    if (call.what == What::all_reduce || call.what == What::reduce_scatter)
      op_ = op_of(call.buffer.dtype(), call.how);
    for (const Range& piece : call.pieces) {
      counts_.push_back(static_cast<int>(piece.count()));
      begins_.push_back(static_cast<int>(piece.begin));
    }
  }
  ~MpiNative() override {
    if (request_ != MPI_REQUEST_NULL) *abandoned_ = true;
  }

  void start(Tag) override {
    done_ = false;
    void* data = call_.buffer.raw_data();
    const int count = static_cast<int>(call_.buffer.numel());
    const auto turn = mpi_turn(threads_);
    switch (call_.what) {
      case What::all_reduce:
        return check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, count, type_, op_, comm_, &request_), name());
      case What::reduce_scatter:
        return check_mpi(
            MPI_Ireduce_scatter(MPI_IN_PLACE, data, counts_.data(), type_, op_, comm_, &request_), name());
      case What::broadcast:
        return check_mpi(MPI_Ibcast(data, count, type_, call_.root, comm_, &request_), name());
      case What::all_gather:
        return check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, type_, data, counts_.data(), begins_.data(), type_,
                                         comm_, &request_),
                         name());
    }
  }
  bool advance() override {
    if (done_) return true;
    int done = 0;
    const auto turn = mpi_turn(threads_);
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), name());
    if (!done) return false;
    // In-place MPI leaves a rank's piece at the beginning of the buffer.
    if (call_.what == What::reduce_scatter) {
      const Range& mine = call_.pieces[static_cast<std::size_t>(transport_.rank())];
      const std::span<std::byte> piece = bytes_of(call_.buffer, mine);
      std::memmove(piece.data(), call_.buffer.raw_data(), piece.size());
    }
    transport_.session().flight().moved(static_cast<std::int64_t>(call_.buffer.bytes()));
    done_ = true;
    return true;
  }
  std::int64_t progress() const override { return done_; }
  int waits_for() const override { return -1; }  // MPI does not say
  Call call() const override { return {call_.name(), call_.buffer.dtype(), call_.buffer.numel()}; }

 private:
  Transport& transport_;
  MPI_Comm comm_;
  bool threads_;
  NativeCall call_;
  bool* abandoned_;
  MPI_Datatype type_;
  MPI_Op op_ = MPI_OP_NULL;
  std::vector<int> counts_, begins_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool done_ = true;
};

}  // namespace

std::unique_ptr<Collective> make_mpi_native(Transport& transport, MPI_Comm comm, const NativeCall& call,
                                            bool threads, bool* abandoned) {
  return std::make_unique<MpiNative>(transport, comm, call, threads, abandoned);
}

}  // namespace athanor::dist
