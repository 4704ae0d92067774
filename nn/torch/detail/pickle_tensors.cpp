// The names a pickle of weights may contain, and their replacements: the only part of
// nn/torch/detail/pickle.h specific to PyTorch.

#include <algorithm>
#include <limits>

#include "nn/torch/detail/pickle.h"
#include "tensor/error.h"

namespace athanor::pickle {
namespace {

enum class Global : std::uint8_t {
  ordered_dict,
  size,
  tensor,     // storage, offset, sizes, strides, and unused arguments
  parameter,  // a tensor, and unused arguments
  storage,    // this and the following: of kDTypes[global - storage]
};

struct Name {
  std::string_view module, name;
  Global global;
};
constexpr Name kNames[] = {{"collections", "OrderedDict", Global::ordered_dict},
                           {"torch", "Size", Global::size},
                           {"torch._utils", "_rebuild_tensor", Global::tensor},
                           {"torch._utils", "_rebuild_tensor_v2", Global::tensor},
                           {"torch._utils", "_rebuild_parameter", Global::parameter},
                           {"torch._utils", "_rebuild_parameter_with_state", Global::parameter}};

struct StorageName {
  std::string_view name;
  DType dtype;
};
constexpr StorageName kStorages[] = {{"DoubleStorage", DType::f64}, {"FloatStorage", DType::f32},
                                     {"HalfStorage", DType::f16},   {"BFloat16Storage", DType::bf16},
                                     {"LongStorage", DType::i64},   {"IntStorage", DType::i32},
                                     {"ByteStorage", DType::u8},    {"BoolStorage", DType::u8}};

/// Names are untrusted: truncates them.
std::string shown(std::string_view module, std::string_view name) {
  constexpr std::size_t kMax = 60;
  return fmt::format("{}.{}", module.substr(0, kMax), name.substr(0, kMax));
}

}  // namespace

void Reader::push_global(std::string_view module, std::string_view name) {
  for (const Name& known : kNames) {
    if (known.module == module && known.name == name)
      return push({.kind = Kind::global, .number = static_cast<std::int64_t>(known.global)});
  }
  const bool in_torch = module == "torch" || module == "torch.cuda" || module == "torch.storage";
  for (const StorageName& known : kStorages) {
    if (in_torch && known.name == name)
      return push({.kind = Kind::global,
                   .number = static_cast<std::int64_t>(Global::storage) + static_cast<int>(known.dtype)});
  }
  if (in_torch && name.ends_with("Storage"))
    fail("contains {}; only tensors of f64, f32, f16, bf16, i64, i32, u8 and bool can be read",
         shown(module, name));
  fail(
      "contains {}, which is not a tensor; only weight files can be read, such as "
      "torch.save(model.state_dict(), path) writes",
      shown(module, name));
}

const Value& Reader::argument(const std::vector<Id>& arguments, std::size_t i, Kind kind) const {
  if (i >= arguments.size() || values_[arguments[i]].kind != kind)
    fail("expected another kind of argument {} in the call", i);
  return values_[arguments[i]];
}

// REDUCE: replaces a function and its arguments by the function's result.
void Reader::call() {
  const Id with = pop(), called = pop();
  if (values_[called].kind != Kind::global || values_[with].kind != Kind::tuple)
    fail("expected a function and its arguments");
  const std::vector<Id>& arguments = values_[with].items;  // not copied, as thousands of calls may share it
  switch (static_cast<Global>(values_[called].number)) {
    case Global::ordered_dict: return push(ordered_dict(arguments));
    case Global::size: return push_first(arguments, Kind::tuple);
    case Global::tensor: return push_tensor(arguments);
    case Global::parameter: return push_first(arguments, Kind::tensor);
    case Global::storage: break;
  }
  fail("expected a function, but got a storage type");
}

void Reader::push_first(const std::vector<Id>& arguments, Kind kind) {
  (void)argument(arguments, 0, kind);
  stack_.push_back(arguments[0]);
}

// BUILD: a dict's attributes, such as a state_dict's versions, which are ignored.
void Reader::build() {
  (void)pop();
  if (values_[top()].kind != Kind::dict) fail("expected a dict before its attributes");
}

/// Empty, or from a list of pairs as in Python 2.
Value Reader::ordered_dict(const std::vector<Id>& arguments) {
  Value dict{.kind = Kind::dict};
  if (arguments.empty()) return dict;
  for (const Id id : argument(arguments, 0, Kind::list).items) {
    const Value& pair = values_[id];
    if ((pair.kind != Kind::list && pair.kind != Kind::tuple) || pair.items.size() != 2)
      fail("expected pairs of a key and a value");
    dict.items.insert(dict.items.end(), pair.items.begin(), pair.items.end());
    count(1);
  }
  return dict;
}

// BINPERSID: ("storage", type, key, device, elements); old files add None or a view: (key, offset, elements).
void Reader::push_storage() {
  const std::vector<Id>& parts = values_[pop()].items;
  if (const Value& kind = argument(parts, 0, Kind::text); kind.text != "storage")
    fail("contains a {}, which is not a tensor; only weight files can be read",
         kind.text == "module" ? "module" : "reference");
  const std::int64_t type =
      argument(parts, 1, Kind::global).number - static_cast<std::int64_t>(Global::storage);
  if (type < 0) fail("expected a storage type");
  Storage storage{.key = argument(parts, 2, Kind::text).text, .dtype = static_cast<DType>(type)};
  storage.numel = storage.count = argument(parts, 4, Kind::integer).number;
  if (storage.numel < 0) fail("a storage must have at least 0 elements, but has {}", storage.numel);
  if (parts.size() > 5 && values_[parts[5]].kind == Kind::tuple) {
    const std::vector<Id>& view = values_[parts[5]].items;
    storage.first = argument(view, 1, Kind::integer).number;
    storage.count = argument(view, 2, Kind::integer).number;
    if (storage.first < 0 || storage.count < 0 || storage.first > storage.numel ||
        storage.count > storage.numel - storage.first)
      fail("a view of a storage must lie in its {} elements, but has {} from element {}", storage.numel,
           storage.count, storage.first);
  }
  storages_.push_back(storage);
  push({.kind = Kind::storage, .number = std::ssize(storages_) - 1});
}

Dims Reader::dims(const Value& tuple) const {
  if (tuple.items.size() > kMaxRank)
    fail("a tensor's rank must be at most {}, but is {}", kMaxRank, tuple.items.size());
  Dims dims;
  for (std::size_t i = 0; i < tuple.items.size(); ++i) {
    const std::int64_t size = argument(tuple.items, i, Kind::integer).number;
    if (size < 0) fail("a tensor's sizes and strides must be 0 or more, but one is {}", size);
    dims.push_back(size);
  }
  return dims;
}

// Its last element must be in the storage, and its size at most that of the file: with strides of 0 a tensor
// could have any size.
void Reader::push_tensor(const std::vector<Id>& arguments) {
  const std::int64_t at = argument(arguments, 0, Kind::storage).number;
  const Storage& storage = storages_[static_cast<std::size_t>(at)];
  Tensor tensor;
  tensor.storage = static_cast<std::size_t>(at);
  tensor.offset = argument(arguments, 1, Kind::integer).number;
  const Dims sizes = dims(argument(arguments, 2, Kind::tuple));
  tensor.strides = dims(argument(arguments, 3, Kind::tuple));
  tensor.shape = Shape(std::span(sizes.begin(), sizes.end()));
  if (sizes.rank() != tensor.strides.rank())
    fail("a tensor of rank {} must have as many strides, but has {}", sizes.rank(), tensor.strides.rank());
  constexpr __int128 kFar = std::numeric_limits<std::int64_t>::max() / 2;  // beyond any storage
  __int128 elements = 1, last = tensor.offset;
  for (int i = 0; i < sizes.rank(); ++i) {
    elements = std::min(elements * std::max<std::int64_t>(sizes[i], 1), kFar);
    last += std::min(static_cast<__int128>(sizes[i] - 1) * tensor.strides[i], kFar);
  }
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  const bool fits = tensor.offset >= 0 && (empty ? tensor.offset <= storage.count : last < storage.count);
  if (!fits)
    fail("a tensor of shape {} from element {} on must lie in its storage of {}", sizes.str(), tensor.offset,
         storage.count);
  if (elements > static_cast<__int128>(empty ? 1 << 30 : file_.size() / size_of(storage.dtype)))
    fail("a tensor must have no more bytes than the file's {}, but has shape {}", file_.size(), sizes.str());
  if (empty) tensor.strides = contiguous_strides(tensor.shape);
  tensor.offset += storage.first;
  tensors_.push_back(tensor);
  push({.kind = Kind::tensor, .number = std::ssize(tensors_) - 1});
}

}  // namespace athanor::pickle
