// NCCL's own collectives, ncclAllReduce and its relatives, each a group on the transport's stream.

#include <algorithm>
#include <vector>

#include "dist/collectives/detail/nccl_call.h"
#include "dist/collectives/slice.h"
#include "dist/transports/detail/nccl_api.h"

namespace athanor::dist {
namespace {

using Kind = NcclCall::Kind;
using What = NativeCall::What;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8:
    case DType::boolean: return ncclUint8;
    case DType::i8: return ncclInt8;
  }
  return ncclUint8;
}

// All calls are in place: a rank's input and result are at their positions in the buffer.
std::vector<NcclCall> calls_of(const NativeCall& call, int rank) {
  const auto size = static_cast<std::int64_t>(size_of(call.buffer.dtype()));
  const ncclDataType_t type = type_of(call.buffer.dtype());
  const ncclRedOp_t op = call.how == kernels::Combine::max ? ncclMax : ncclSum;
  const auto at = [&](std::int64_t element) { return call.buffer.raw_data() + element * size; };
  const auto of = [&](Kind kind, std::int64_t from, std::int64_t to, std::int64_t count, int root = -1) {
    return NcclCall{kind, at(from), at(to), static_cast<std::size_t>(count), type, root, op};
  };
  const std::int64_t all = call.buffer.numel();
  if (all == 0) return {};
  if (call.what == What::all_reduce) return {of(Kind::all_reduce, 0, 0, all)};
  if (call.what == What::broadcast) return {of(Kind::broadcast, 0, 0, all, call.root)};

  const bool reduces = call.what == What::reduce_scatter;
  const Range& mine = call.pieces[static_cast<std::size_t>(rank)];
  const bool equal = std::all_of(call.pieces.begin(), call.pieces.end(),
                                 [&](const Range& piece) { return piece.count() == mine.count(); });
  if (equal && reduces) return {of(Kind::reduce_scatter, 0, mine.begin, mine.count())};
  if (equal) return {of(Kind::all_gather, mine.begin, 0, mine.count())};
  std::vector<NcclCall> calls;
  for (std::size_t root = 0; root < call.pieces.size(); ++root) {
    const Range& piece = call.pieces[root];
    if (piece.count() == 0) continue;
    calls.push_back(of(reduces ? Kind::reduce : Kind::broadcast, piece.begin, piece.begin, piece.count(),
                       static_cast<int>(root)));
  }
  return calls;
}

class NcclNative final : public Collective {
 public:
  NcclNative(Transport& transport, const NativeCall& call, NcclPost post)
      : transport_(transport),
        call_(call),
        post_(std::move(post)),
        calls_(calls_of(call, transport.rank())),
        requests_(calls_.size()) {}
  ~NcclNative() override {
    for (Request& request : requests_) transport_.cancel(request);
  }

  void start(Tag) override {
    queued_ = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) requests_[i] = post_(calls_[i]);
  }
  bool advance() override {
    transport_.flush();
    for (; queued_ < requests_.size(); ++queued_) {
      if (!transport_.test(requests_[queued_])) return false;
    }
    transport_.session().flight().moved(static_cast<std::int64_t>(call_.buffer.bytes()));
    return true;
  }
  std::int64_t progress() const override { return static_cast<std::int64_t>(queued_); }
  int waits_for() const override { return -1; }  // NCCL does not say
  Call call() const override { return {call_.name(), call_.buffer.dtype(), call_.buffer.numel()}; }

 private:
  Transport& transport_;
  NativeCall call_;
  NcclPost post_;
  std::vector<NcclCall> calls_;
  std::vector<Request> requests_;
  std::size_t queued_ = 0;  // calls already in the stream
};

}  // namespace

ncclResult_t NcclCall::make(ncclComm_t comm, cudaStream_t stream) const {
  const NcclApi& nccl = nccl_api();
  switch (kind) {
    case Kind::send: return nccl.send(from, count, type, peer, comm, stream);
    case Kind::receive: return nccl.receive(to, count, type, peer, comm, stream);
    case Kind::all_reduce: return nccl.all_reduce(from, to, count, type, op, comm, stream);
    case Kind::reduce_scatter: return nccl.reduce_scatter(from, to, count, type, op, comm, stream);
    case Kind::all_gather: return nccl.all_gather(from, to, count, type, comm, stream);
    case Kind::reduce: return nccl.reduce(from, to, count, type, op, peer, comm, stream);
    case Kind::broadcast: return nccl.broadcast(from, to, count, type, peer, comm, stream);
  }
  return ncclInternalError;
}

std::unique_ptr<Collective> make_nccl_native(Transport& transport, const NativeCall& call, NcclPost post) {
  const bool reduces = call.what == What::all_reduce || call.what == What::reduce_scatter;
  if (reduces && call.how == kernels::Combine::max && is_floating(call.buffer.dtype())) return nullptr;
  return std::make_unique<NcclNative>(transport, call, std::move(post));
}

}  // namespace athanor::dist
