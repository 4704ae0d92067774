#include "nn/torch/detail/torch_tensors.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/torch/detail/pickle.h"
#include "nn/torch/detail/zip_directory.h"
#include "tensor/base/error.h"

namespace athanor::torch_file {
namespace {

using pickle::Kind;

// The first integers of the older format, as a pickle stores them: of 10 bytes, and of 2.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kProtocol = 1001;

/// Lightning's callback WeightAveraging saves the average as "state_dict", and the weights under this key.
constexpr std::string_view kWeightsBesideAverage = "current_model_state";

/// Keys of the weights in training checkpoints, the most likely first; running averages come last.
constexpr std::string_view kParts[] = {"state_dict",
                                       "model",
                                       "model_state_dict",
                                       "model_state",
                                       "weights",
                                       "module",
                                       "net",
                                       "net_state_dict",
                                       "network",
                                       "params",
                                       kWeightsBesideAverage,
                                       "ema",
                                       "ema_state_dict",
                                       "params_ema",
                                       "ema_model",
                                       "state_dict_ema",
                                       "model_ema",
                                       "ema_weights",
                                       "averaged_model"};

/// Finds the bytes of a storage.
using Find = std::function<StoredBytes(const pickle::Storage&)>;

/// Whether a dictionary maps a name to a tensor.
bool holds_tensors(const pickle::Reader& reader, const pickle::Value& dict) {
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Kind value = reader[dict.items[i + 1]].kind;
    if (reader[dict.items[i]].kind == Kind::text && (value == Kind::tensor || value == Kind::unreadable))
      return true;
  }
  return false;
}

/// The dictionary of tensors at a value or, as in {"model": {"state_dict": ...}}, below it; or null. Each
/// dictionary is searched once: a hostile file may name a large one again and again.
const pickle::Value* weights_at(const pickle::Reader& reader, const pickle::Value* value,
                                std::set<const pickle::Value*>& seen) {
  while (value && value->kind == Kind::dict && seen.insert(value).second) {
    if (holds_tensors(reader, *value)) return value;
    const pickle::Value* below = nullptr;
    for (const std::string_view part : kParts) {
      if (!below || below->kind != Kind::dict) below = reader.find(*value, part);
    }
    value = below;
  }
  return nullptr;
}

struct Part {
  std::string name;
  const pickle::Value* weights;
  bool averaged;
};

/// The entries of a saved dictionary that hold weights.
class Parts {
 public:
  explicit Parts(const pickle::Reader& reader) : reader_(reader) {}

  /// Those under known keys or, if there is none and the dictionary itself has no tensor, under any.
  std::vector<Part> of(const pickle::Value& root) {
    for (const std::string_view key : kParts) {
      const bool is_average = key == "state_dict" && reader_.find(root, kWeightsBesideAverage);
      add(std::string(key), reader_.find(root, key), is_average || names_average(key));
    }
    add_averages_of_callbacks(root);
    if (!parts_.empty() || holds_tensors(reader_, root)) return std::move(parts_);
    for (std::size_t i = 0; i + 1 < root.items.size(); i += 2) {
      const pickle::Value& key = reader_[root.items[i]];
      if (key.kind == Kind::text)
        add(std::string(key.text), &reader_[root.items[i + 1]], names_average(key.text));
    }
    return std::move(parts_);
  }

 private:
  void add(std::string name, const pickle::Value* value, bool averaged) {
    if (const pickle::Value* const weights = weights_at(reader_, value, seen_))
      parts_.push_back({std::move(name), weights, averaged});
  }

  /// Lightning keeps what a callback saves: {"callbacks": {"EMA": {"state_dict_ema": ...}}}.
  void add_averages_of_callbacks(const pickle::Value& root) {
    const pickle::Value* const callbacks = reader_.find(root, "callbacks");
    if (!callbacks || callbacks->kind != Kind::dict) return;
    std::set<const pickle::Value*> states;  // each once: a hostile file may name one again and again
    for (std::size_t i = 0; i + 1 < callbacks->items.size(); i += 2) {
      const pickle::Value &name = reader_[callbacks->items[i]], &state = reader_[callbacks->items[i + 1]];
      if (name.kind != Kind::text || state.kind != Kind::dict || !states.insert(&state).second) continue;
      for (const std::string_view key : kParts) {
        if (names_average(key))
          add(fmt::format("callbacks.{}.{}", name.text, key), reader_.find(state, key), true);
      }
    }
  }

  const pickle::Reader& reader_;
  std::vector<Part> parts_;
  std::set<const pickle::Value*> seen_;
};

[[noreturn]] void refuse(const pickle::Reader& reader, const pickle::Value& root) {
  std::string found = "it has no tensor where weights are expected";
  if (root.kind == Kind::tensor || root.kind == Kind::list)
    found = root.kind == Kind::list ? "it is a list" : "it is a single tensor";
  if (root.kind == Kind::opaque) found = fmt::format("it is another object {}", root.text.substr(0, 80));
  for (const std::string_view key : kParts) {
    const pickle::Value* const part = root.kind == Kind::dict ? reader.find(root, key) : nullptr;
    if (part && part->kind == Kind::opaque)
      found = fmt::format("its '{}' is an object {}", key, part->text.substr(0, 80));
  }
  reader.fail(
      "expected a dictionary of names and tensors, as torch.save(model.state_dict(), path) writes, but {}",
      found);
}

Contents contents_of(const pickle::Reader& reader, pickle::Id root, bool averages, const Find& find) {
  if (reader[root].kind != Kind::dict) refuse(reader, reader[root]);
  std::vector<Part> parts = Parts(reader).of(reader[root]);
  std::stable_partition(parts.begin(), parts.end(),
                        [&](const Part& part) { return part.averaged == averages; });
  const pickle::Value& weights = parts.empty() ? reader[root] : *parts.front().weights;
  Contents contents;
  contents.parts.averaged = !parts.empty() && parts.front().averaged;
  for (Part& part : parts) contents.parts.names.push_back(std::move(part.name));
  std::map<std::string_view, std::size_t> names, storages;
  for (std::size_t i = 0; i + 1 < weights.items.size(); i += 2) {
    const pickle::Value &name = reader[weights.items[i]], &value = reader[weights.items[i + 1]];
    if (name.kind == Kind::text && value.kind == Kind::unreadable)
      reader.fail(
          "'{}' must be a dense tensor of f64, f32, f16, bf16, i64, i32, u8 or bool, but is made by {}",
          name.text.substr(0, 80), value.text.substr(0, 80));
    if (name.kind != Kind::text || value.kind != Kind::tensor) continue;  // an epoch number, for example
    const pickle::Tensor& tensor = reader.tensors()[static_cast<std::size_t>(value.number)];
    const pickle::Storage& storage = reader.storages()[tensor.storage];
    const auto [stored, is_new] = storages.emplace(storage.key, contents.storages.size());
    if (is_new) contents.storages.push_back(find(storage));
    const StoredBytes& bytes = contents.storages[stored->second];
    if (bytes.bytes / size_of(storage.dtype) < static_cast<std::uint64_t>(storage.numel))
      reader.fail("storage '{}' of '{}' must have {} elements of {}, but has {} bytes",
                  storage.key.substr(0, 80), name.text.substr(0, 80), storage.numel, storage.dtype,
                  bytes.bytes);
    TensorInfo info{std::string(name.text), storage.dtype, tensor.shape,
                    tensor.strides,         tensor.offset, stored->second};
    const auto [at, is_first] = names.emplace(name.text, contents.tensors.size());
    if (name.text.empty()) reader.fail("tensor names must not be empty");
    if (is_first) {
      contents.tensors.push_back(std::move(info));
    } else {
      contents.tensors[at->second] = std::move(info);  // as in Python, the last one counts
    }
  }
  if (contents.tensors.empty()) refuse(reader, reader[root]);
  return contents;
}

// PyTorch 1.6 and later: NAME/data.pkl and NAME/data/KEY in a zip file.
Contents read_zip(std::span<const std::byte> file, const std::string& path, bool averages) {
  const std::string who = "torch file: " + path;
  const auto members = zip::directory(file, who);
  constexpr std::string_view kPickle = "/data.pkl";
  std::string folder;
  for (const auto& [name, member] : members) {
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size())
      folder = name.substr(0, name.size() - kPickle.size() + 1);
  }
  const auto no_weights = [&](const char* what) {
    athanor::detail::fail<IoError>("{} {}; save its weights with torch.save(model.state_dict(), path)", who,
                                   what);
  };
  if (folder.empty()) no_weights("is a zip file, but not one that torch.save() writes");
  if (members.contains(folder + "constants.pkl")) no_weights("is a TorchScript program");
  if (const auto order = members.find(folder + "byteorder"); order != members.end()) {
    const auto bytes = zip::content(file, order->second, who);
    if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != "little")
      no_weights("was written on a big-endian machine");
  }
  const zip::Member& member = members.find(folder + "data.pkl")->second;
  (void)zip::content(file, member, who);
  pickle::Reader reader(file, path);
  const pickle::Id root = reader.read(member.begin, member.begin + member.bytes);
  return contents_of(reader, root, averages, [&](const pickle::Storage& storage) {
    const auto found = members.find(fmt::format("{}data/{}", folder, storage.key));
    if (found == members.end()) reader.fail("storage '{}' is missing", storage.key.substr(0, 80));
    (void)zip::content(file, found->second, who);
    return StoredBytes{found->second.begin, found->second.bytes};
  });
}

/// After the pickles: each storage's number of elements, then its bytes, in the order of `keys`.
std::map<std::string_view, StoredBytes> find_storages(std::span<const std::byte> file,
                                                      const pickle::Reader& reader,
                                                      const pickle::Value& keys) {
  std::map<std::string_view, std::uint64_t> sizes;  // of an element
  for (const pickle::Storage& storage : reader.storages()) {
    if (!sizes.emplace(storage.key, size_of(storage.dtype)).second &&
        sizes[storage.key] != size_of(storage.dtype))
      reader.fail("storage '{}' must have one dtype", storage.key.substr(0, 80));
  }
  std::map<std::string_view, StoredBytes> found;
  std::uint64_t at = reader.position();
  for (const pickle::Id id : keys.items) {
    const pickle::Value& key = reader[id];
    const auto size = key.kind == Kind::text ? sizes.find(key.text) : sizes.end();
    if (key.kind != Kind::text) reader.fail("expected the names of storages");
    if (size == sizes.end())
      reader.fail("storage '{}' must be of a tensor of f64, f32, f16, bf16, i64, i32, u8 or bool, but is not",
                  key.text.substr(0, 80));
    if (at > file.size() || file.size() - at < 8) reader.fail("expected a storage, but the file is cut off");
    std::uint64_t elements = 0;
    for (unsigned i = 0; i < 8; ++i) elements |= std::to_integer<std::uint64_t>(file[at + i]) << 8 * i;
    at += 8;
    if (elements > (file.size() - at) / size->second)
      reader.fail("storage '{}' must have {} elements, but {} bytes are left: the file is cut off",
                  key.text.substr(0, 80), elements, file.size() - at);
    if (!found.emplace(key.text, StoredBytes{at, elements * size->second}).second)
      reader.fail("storage '{}' must appear once", key.text.substr(0, 80));
    at += elements * size->second;
  }
  return found;
}

// Before 1.6: pickles of a magic number, the protocol, the machine, the saved object, and the storages' keys.
Contents read_old(std::span<const std::byte> file, const std::string& path, bool averages) {
  pickle::Reader reader(file, path);
  const auto next = [&] { return reader.read(reader.position(), file.size()); };
  if (const pickle::Value& magic = reader[next()]; magic.kind != Kind::other || magic.text != kMagic)
    reader.fail("expected a file written by torch.save(), but it is another pickle");
  if (const pickle::Value& protocol = reader[next()]; protocol.number != kProtocol)
    reader.fail("expected PyTorch's protocol {}, but got {}", kProtocol, protocol.number);
  const pickle::Value* little = reader.find(reader[next()], "little_endian");
  if (little && little->number == 0) reader.fail("was written on a big-endian machine");
  const pickle::Id root = next(), keys = next();
  const auto storages = find_storages(file, reader, reader[keys]);
  return contents_of(reader, root, averages, [&](const pickle::Storage& storage) {
    const auto found = storages.find(storage.key);
    if (found == storages.end()) reader.fail("storage '{}' is missing", storage.key.substr(0, 80));
    return found->second;
  });
}

}  // namespace

Contents read_contents(std::span<const std::byte> file, const std::string& path, bool averages) {
  if (zip::is_zip(file)) return read_zip(file, path, averages);
  if (!file.empty() && file[0] == std::byte{0x80}) return read_old(file, path, averages);
  athanor::detail::fail<IoError>(
      "torch file: {}: at byte 0: expected a file written by torch.save(), but it is not one; save the "
      "weights with torch.save(model.state_dict(), path)",
      path);
}

}  // namespace athanor::torch_file
