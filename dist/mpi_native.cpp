// MPI's own collectives: MPI_Iallreduce and its relatives, pushed by MPI_Test.

#include "dist/detail/mpi_native.h"

#include <cstring>
#include <limits>

#include "dist/slice.h"
#include "kernels/accumulate.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

void check(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  detail::fail<BackendError>("{}: MPI must succeed, but says: {}", what, text);
}

// MPI 3 has no half types: to it they are words of 16 bits.
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
  }
  return MPI_BYTE;
}

template <class T, kernels::Combine kHow> void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  using A = kernels::CombineType<T>;
  const kernels::CombineOp<kHow> op;
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) to[i] = T(op(A(from[i]), A(to[i])));
}

// MPI's sums where they are ours; sums of halves and maxima (of which MPI does not say what NaN does) are the
// functions above. Made once per process.
MPI_Op op_of(DType dtype, kernels::Combine how) {
  if (how == kernels::Combine::sum && (dtype == DType::f64 || dtype == DType::f32 || !is_floating(dtype)))
    return MPI_SUM;
  MPI_Op op = MPI_OP_NULL;
  const auto make = [](MPI_User_function* f) {
    MPI_Op made = MPI_OP_NULL;
    check(MPI_Op_create(f, 1, &made), "native");
    return made;
  };
  kernels::dispatch_combined(dtype, "native", [&]<class T>() {
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
  MpiNative(MPI_Comm comm, Native what, const Tensor& buffer, kernels::Combine how,
            const std::vector<Range>& pieces, bool threads, bool* abandoned)
      : comm_(comm),
        threads_(threads),
        what_(what),
        buffer_(buffer),
        abandoned_(abandoned),
        type_(type_of(buffer.dtype())) {
    ATH_CHECK(buffer.numel() <= std::numeric_limits<int>::max(),
              "native: MPI counts in int: there must be at most {} elements, but got {}",
              std::numeric_limits<int>::max(), buffer.numel());
    const auto turn = mpi_turn(threads);
    if (what != Native::all_gather) op_ = op_of(buffer.dtype(), how);
    int rank = 0;
    check(MPI_Comm_rank(comm, &rank), "native");
    for (const Range& piece : pieces) {
      counts_.push_back(static_cast<int>(piece.count()));
      begins_.push_back(static_cast<int>(piece.begin));
    }
    mine_ = pieces[static_cast<std::size_t>(rank)];
  }
  ~MpiNative() override {
    if (request_ != MPI_REQUEST_NULL) *abandoned_ = true;
  }

  void start(Tag) override {
    done_ = false;
    void* data = buffer_.raw_data();
    const int count = static_cast<int>(buffer_.numel());
    const auto turn = mpi_turn(threads_);
    switch (what_) {
      case Native::all_reduce:
        return check(MPI_Iallreduce(MPI_IN_PLACE, data, count, type_, op_, comm_, &request_), name());
      case Native::reduce_scatter:
        return check(MPI_Ireduce_scatter(MPI_IN_PLACE, data, counts_.data(), type_, op_, comm_, &request_),
                     name());
      case Native::all_gather:
        return check(MPI_Iallgatherv(MPI_IN_PLACE, 0, type_, data, counts_.data(), begins_.data(), type_,
                                     comm_, &request_),
                     name());
    }
  }
  bool advance() override {
    if (done_) return true;
    int done = 0;
    const auto turn = mpi_turn(threads_);
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), name());
    if (!done) return false;
    // In place, MPI leaves a rank's piece at the beginning.
    if (what_ == Native::reduce_scatter) {
      const std::span<std::byte> piece = bytes_of(buffer_, mine_);
      std::memmove(piece.data(), buffer_.raw_data(), piece.size());
    }
    done_ = true;
    return true;
  }
  std::int64_t progress() const override { return done_; }
  int waits_for() const override { return -1; }  // MPI does not say
  const char* name() const override {
    switch (what_) {
      case Native::all_reduce: return "native all_reduce";
      case Native::reduce_scatter: return "native reduce_scatter";
      case Native::all_gather: return "native all_gather";
    }
    return "native";
  }

 private:
  MPI_Comm comm_;
  bool threads_;
  Native what_;
  Tensor buffer_;
  bool* abandoned_;
  MPI_Datatype type_;
  MPI_Op op_ = MPI_OP_NULL;
  std::vector<int> counts_, begins_;
  Range mine_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool done_ = true;
};

}  // namespace

std::unique_ptr<Collective> make_mpi_native(MPI_Comm comm, Native what, const Tensor& buffer,
                                            kernels::Combine how, std::vector<Range> pieces, bool threads,
                                            bool* abandoned) {
  return std::make_unique<MpiNative>(comm, what, buffer, how, pieces, threads, abandoned);
}

}  // namespace athanor::dist
