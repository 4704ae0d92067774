// The names a pickle of weights may contain, and their replacements: the only part of
// nn/torch/detail/pickle.h specific to PyTorch.

#include <algorithm>
#include <limits>

#include "nn/torch/detail/pickle.h"
#include "tensor/base/error.h"

namespace athanor::pickle {
namespace {

enum class Global : std::uint8_t {
  dict,  // empty, or of a list of pairs
  size,
  tensor,     // storage, offset, sizes, strides, and unused arguments
  parameter,  // a tensor, and unused arguments
  typed,      // a function, a class, the function's arguments, attributes
  storage,    // this and the following: of kDTypes[global - storage]
};

struct Name {
  std::string_view module, name;
  Global global;
};
constexpr Name kNames[] = {{"collections", "OrderedDict", Global::dict},
                           {"collections", "defaultdict", Global::dict},
                           {"torch", "Size", Global::size},
                           {"torch._utils", "_rebuild_tensor", Global::tensor},
                           {"torch._utils", "_rebuild_tensor_v2", Global::tensor},
                           {"torch._utils", "_rebuild_parameter", Global::parameter},
                           {"torch._utils", "_rebuild_parameter_with_state", Global::parameter},
                           {"torch._tensor", "_rebuild_from_type_v2", Global::typed}};

struct StorageName {
  std::string_view name;
  DType dtype;
};
constexpr StorageName kStorages[] = {
    {"DoubleStorage", DType::f64},    {"FloatStorage", DType::f32}, {"HalfStorage", DType::f16},
    {"BFloat16Storage", DType::bf16}, {"LongStorage", DType::i64},  {"IntStorage", DType::i32},
    {"ByteStorage", DType::u8},       {"BoolStorage", DType::u8},   {"CharStorage", DType::i8}};

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
  const bool makes_tensors = module == "torch._utils" && name.starts_with("_rebuild_");
  const bool unreadable = makes_tensors || (in_torch && name.ends_with("Storage"));
  push({.kind = unreadable ? Kind::unreadable : Kind::opaque, .text = name});
}

const Value& Reader::argument(const std::vector<Id>& arguments, std::size_t i, Kind kind) const {
  if (i >= arguments.size() || values_[arguments[i]].kind != kind)
    fail("expected another kind of argument {} in the call", i);
  return values_[arguments[i]];
}

// REDUCE, NEWOBJ: replaces a function and its arguments by the function's result.
void Reader::call() {
  const Id with = pop(), called = pop();
  if (values_[with].kind != Kind::tuple) fail("expected a function and its arguments");
  call(called, values_[with].items);  // not copied, as thousands of calls may share it
}

// OBJ: a class and its arguments.
void Reader::call_from_mark() {
  std::vector<Id> arguments = pop_to_mark();
  if (arguments.empty()) fail("expected a class and its arguments");
  const Id called = arguments.front();
  arguments.erase(arguments.begin());
  call(called, arguments);
}

void Reader::call(Id called, const std::vector<Id>& arguments) {
  const Value& function = values_[called];
  if (function.kind == Kind::opaque || function.kind == Kind::unreadable)
    return push({.kind = function.kind, .text = function.text});
  if (function.kind != Kind::global) fail("expected a function and its arguments");
  switch (static_cast<Global>(function.number)) {
    case Global::dict: return push(dict_of(arguments));
    case Global::size: return push_first(arguments, Kind::tuple);
    case Global::tensor: return push_tensor(arguments);
    case Global::parameter: return push_first(arguments, Kind::tensor);
    case Global::typed: return push_typed(arguments);
    case Global::storage: break;
  }
  fail("expected a function, but got a storage type");
}

void Reader::push_first(const std::vector<Id>& arguments, Kind kind) {
  if (!is_unreadable(arguments)) (void)argument(arguments, 0, kind);
  stack_.push_back(arguments[0]);
}

// A tensor with attributes, or of a class of its own, which is read as the plain tensor it extends.
void Reader::push_typed(const std::vector<Id>& arguments) {
  const std::vector<Id>& inner = argument(arguments, 2, Kind::tuple).items;
  const Value& function = values_[arguments[0]];
  if (function.kind == Kind::global && static_cast<Global>(function.number) == Global::typed)
    fail("expected a function that makes a tensor");
  call(arguments[0], inner);
}

/// Whether the first argument is a storage or tensor that cannot be read: then neither can the result.
bool Reader::is_unreadable(const std::vector<Id>& arguments) const {
  return !arguments.empty() && values_[arguments[0]].kind == Kind::unreadable;
}

/// Empty (a defaultdict's argument makes values), or from a list of pairs as in Python 2.
Value Reader::dict_of(const std::vector<Id>& arguments) {
  Value dict{.kind = Kind::dict};
  if (arguments.empty() || values_[arguments[0]].kind != Kind::list) return dict;
  for (const Id id : values_[arguments[0]].items) {
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
  if (argument(parts, 0, Kind::text).text != "storage")  // "module": a class with its source text
    return push({.kind = Kind::opaque, .text = parts.size() > 1 ? values_[parts[1]].text : ""});
  if (parts.size() > 1 && values_[parts[1]].kind == Kind::unreadable)
    return push({.kind = Kind::unreadable, .text = values_[parts[1]].text});
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
  if (is_unreadable(arguments)) return stack_.push_back(arguments[0]);
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
